#include "test/support/ranged_host.h"

#include <span>
#include <utility>

#include "dsm/base/random.h"

namespace farleaf::test {

using index::OpContext;
using index::Task;

namespace {

class RangedIndex final : public index::RangeIndex {
 public:
  /// Both outlive it.
  RangedIndex(index::RangeIndex* index, RangedHost* host) : index_(*index), host_(*host) {}

  Task<Result<bool>> Get(OpContext& op, std::string_view key, std::string* value) override {
    co_await NoteKey(op, key);
    auto found = co_await index_.Get(op, key, value);
    co_return found;
  }
  Task<Status> MultiGet(OpContext& op, std::span<const std::string_view> keys,
                        std::vector<std::optional<std::string>>* values) override {
    for (const std::string_view key : keys) (void)host_.Note(key, std::string(key) + '\0');
    Status got = co_await index_.MultiGet(op, keys, values);
    co_return got;
  }
  Task<Result<index::ModifyResult>> Modify(OpContext& op, std::string_view key,
                                           const index::ModifyFunction& modify,
                                           index::CurrentValue current) override {
    co_await NoteKey(op, key);
    auto modified = co_await index_.Modify(op, key, modify, current);
    co_return modified;
  }
  Task<Status> Scan(OpContext& op, index::ScanRange range,
                    std::vector<index::KeyValue>* rows) override {
    (void)host_.Note(range.start, range.end);
    Status scanned = co_await index_.Scan(op, range, rows);
    co_return scanned;
  }
  Task<Status> Upkeep(OpContext& op) override { return index_.Upkeep(op); }

 private:
  Task<void> NoteKey(OpContext& op, std::string_view key) {
    const std::string behind = std::string(key) + '\0';
    const uint64_t wait_ns = host_.Note(key, behind);
    if (wait_ns > 0) co_await op.worker.Sleep(wait_ns);
  }

  index::RangeIndex& index_;
  RangedHost& host_;
};

}  // namespace

void RangedHost::SetMap(const std::string& url, uint32_t view, Ranges ranges) {
  std::lock_guard lock(mutex_);
  url_ = url;
  before_ = std::exchange(ranges_, std::move(ranges));
  view_ = view;
}

void RangedHost::GetRangeMap(uint32_t* view, Ranges* ranges) const {
  std::lock_guard lock(mutex_);
  *view = view_;
  *ranges = ranges_;
}

uint64_t RangedHost::Note(std::string_view start, std::optional<std::string_view> end) {
  const uint64_t drawn = Mix64(operations_++);
  std::lock_guard lock(mutex_);
  if (!IsOwn(ranges_, start, end) && !IsOwn(before_, start, end)) ++misrouted_;
  return hold_some_up_ && drawn % 8 == 0 ? drawn / 8 % kNsPerMs : 0;
}

bool RangedHost::IsOwn(const Ranges& ranges, std::string_view start,
                       std::optional<std::string_view> end) const {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const bool below = end && *end <= ranges[i].start;
    const bool above = i + 1 < ranges.size() && ranges[i + 1].start <= start;
    if (!below && !above && !ranges[i].url.empty() && ranges[i].url != url_) return false;
  }
  return true;
}

std::unique_ptr<index::RangeIndex> RangedHost::Decorate(index::RangeIndex* index) {
  return std::make_unique<RangedIndex>(index, this);
}

}  // namespace farleaf::test
