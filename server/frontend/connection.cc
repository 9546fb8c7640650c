#include "server/frontend/connection.h"

#include <algorithm>
#include <cstring>

#include "dsm/base/check.h"

namespace farleaf::server {

std::span<std::byte> Connection::InputSpace() {
  const auto rest = unparsed();
  const size_t wanted = std::max(rest.size() + kSpaceBytesMin, BytesWanted());
  if (block_ && begin_ == end_ && block_->use_count() == 1) begin_ = end_ = 0;
  if (!block_ || block_->bytes().size() - begin_ < wanted) {
    const bool reusable = block_ && block_->use_count() == 1 && block_->bytes().size() >= wanted;
    InputBlockRef next =
        reusable ? block_ : InputBlockRef(new InputBlock(std::max(kBlockBytes, wanted)));
    if (!rest.empty()) std::memmove(next->bytes().data(), rest.data(), rest.size());
    block_ = std::move(next);
    end_ = rest.size();
    begin_ = 0;
  }
  return block_->bytes().subspan(end_);
}

void Connection::InputArrived(size_t count) {
  FARLEAF_CHECK(block_ && end_ + count <= block_->bytes().size(), end_, count);
  end_ += count;
  Continue();
}

void Connection::Continue() {
  // A request that is answered at once does not parse on from within its own parsing.
  if (parsing_) return;
  parsing_ = true;
  if (!output_full()) OutputHasRoom();
  while (failure_.ok() && !paused()) {
    if (!TakeInput()) break;
  }
  if (peer_ended_) RefuseIfTruncated();
  parsing_ = false;
  if (block_ && begin_ == end_ && block_->bytes().size() > kKeptBytesMax) {
    block_.reset();
    begin_ = end_ = 0;
  }
}

void Connection::ServerStops() {
  Continue();
  if (has_ring()) TakeRing();
  InputEnded();
}

void Connection::PeerEnded() {
  InputEnded();
  peer_ended_ = true;
  Continue();
}

void Connection::RefuseIfTruncated() {
  if (!failure_.ok() || paused() || in_flight() > 0 || !InRequest()) return;
  truncated_ = true;
  const Status why = Status::Corruption("the stream ended in the middle of a request");
  TellTruncated(why);
  Refuse(why);
}

void Connection::OutputSent(size_t count) {
  out_sent_ += count;
  FARLEAF_CHECK(out_sent_ <= out_.size(), out_sent_, out_.size());
  if (out_sent_ < out_.size()) return;
  out_.clear();
  out_sent_ = 0;
  if (out_.capacity() > kKeptBytesMax) Free(&out_);
}

void Connection::GiveBackRoom() {
  if (in_flight() > 0 || !unparsed().empty() || !output().empty()) return;
  block_.reset();
  begin_ = end_ = 0;
  Free(&out_);
  out_sent_ = 0;
}

void Connection::Abandon() {
  abandoned_ = true;
  out_.clear();
  out_sent_ = 0;
  OutputHasRoom();
}

}  // namespace farleaf::server
