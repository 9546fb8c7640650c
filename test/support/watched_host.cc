#include "test/support/watched_host.h"

namespace farleaf::test {

using index::OpContext;
using index::Task;

void ThreadsByName::Note(std::string_view key) {
  const size_t at = key.find('@');
  if (at == std::string_view::npos || at < 2) return;
  std::lock_guard lock(mutex_);
  seen_[std::string(key.substr(at - 2, 2))].insert(std::this_thread::get_id());
}

std::map<std::string, std::set<std::thread::id>> ThreadsByName::Seen() const {
  std::lock_guard lock(mutex_);
  return seen_;
}

Task<void> WatchedIndex::Begin(OpContext& op, std::string_view key) {
  threads_.Note(key);
  co_await op.worker.Sleep(0);
  threads_.Note(key);
}

Task<Result<bool>> WatchedIndex::Get(OpContext& op, std::string_view key, std::string* value) {
  co_await Begin(op, key);
  auto found = co_await index_.Get(op, key, value);
  threads_.Note(key);
  co_return found;
}

Task<Status> WatchedIndex::MultiGet(OpContext& op, std::span<const std::string_view> keys,
                                    std::vector<std::optional<std::string>>* values) {
  for (const std::string_view key : keys) threads_.Note(key);
  co_await op.worker.Sleep(0);
  Status got = co_await index_.MultiGet(op, keys, values);
  for (const std::string_view key : keys) threads_.Note(key);
  co_return got;
}

Task<Result<index::ModifyResult>> WatchedIndex::Modify(OpContext& op, std::string_view key,
                                                       const index::ModifyFunction& modify,
                                                       index::CurrentValue current) {
  co_await Begin(op, key);
  auto modified = co_await index_.Modify(op, key, modify, current);
  threads_.Note(key);
  co_return modified;
}

Task<Status> WatchedIndex::Scan(OpContext& op, index::ScanRange range,
                                std::vector<index::KeyValue>* rows) {
  co_await Begin(op, range.start);
  Status scanned = co_await index_.Scan(op, range, rows);
  threads_.Note(range.start);
  co_return scanned;
}

size_t WatchedIndex::VisitAtOnce(OpContext& op, std::span<const std::string_view> keys,
                                 index::ValueVisitor& visitor) {
  const size_t visited = index_.VisitAtOnce(op, keys, visitor);
  for (const std::string_view key : keys.first(visited)) threads_.Note(key);
  return visited;
}

size_t WatchedIndex::ModifyAtOnce(OpContext& op, std::span<const std::string_view> keys,
                                  index::CurrentValue use, index::KeyChanges& changes) {
  const size_t done = index_.ModifyAtOnce(op, keys, use, changes);
  for (const std::string_view key : keys.first(done)) threads_.Note(key);
  return done;
}

}  // namespace farleaf::test
