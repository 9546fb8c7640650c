#include "server/records/piece_scan.h"

namespace farleaf::server {

namespace {
std::string Successor(std::string key) {
  while (key.back() == '\xff') key.pop_back();
  key.back() = static_cast<char>(key.back() + 1);
  return key;
}
}  // namespace

std::string KeyBehind(const std::string& key) {
  return key.size() < kTreeKeyBytesMax ? key + '\0' : Successor(key);
}

std::string EndOfPrefix(std::string_view prefix) { return Successor(std::string(prefix)); }

dsm::Task<Status> PieceScan::Next(dsm::OpContext& op) {
  index::ScanRange piece;
  piece.start = range_.start;
  piece.end = range_.end;
  piece.limit = range_.rows_of_piece;
  piece.bytes_max = range_.bytes_of_piece;
  piece.direction = range_.direction;
  piece.content = range_.content;
  piece.damage = range_.damage;
  if (range_.start >= range_.end) {
    rows_.clear();
    done_ = true;
    co_return Status::Ok();
  }
  const Status scanned = co_await tree_->Scan(op, piece, &rows_);
  if (!scanned.ok()) co_return scanned;
  uint64_t bytes = 0;
  for (const index::KeyValue& row : rows_) bytes += row.key.size() + row.value.size();
  done_ = rows_.size() < range_.rows_of_piece && bytes < range_.bytes_of_piece;
  if (done_) co_return Status::Ok();
  if (range_.direction == index::ScanDirection::kForward) {
    range_.start = KeyBehind(rows_.back().key);
  } else {
    range_.end = rows_.back().key;
  }
  co_return Status::Ok();
}

}  // namespace farleaf::server
