#include "test/support/ruled_host.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace farleaf::test {

using index::OpContext;
using index::Task;

namespace {

/// Where nothing is to be awaited, what the index does at once stays so.
class RuledIndex final : public index::RangeIndex {
 public:
  /// Both outlive it.
  RuledIndex(index::RangeIndex* index, const RuledHost::Before* before)
      : index_(*index), before_(*before) {}

  Task<Result<bool>> Get(OpContext& op, std::string_view key, std::string* value) override {
    Status begun = co_await Begin(op);
    if (!begun.ok()) co_return begun;
    auto found = co_await index_.Get(op, key, value);
    co_return found;
  }
  Task<Status> MultiGet(OpContext& op, std::span<const std::string_view> keys,
                        std::vector<std::optional<std::string>>* values) override {
    Status begun = co_await Begin(op);
    if (!begun.ok()) co_return begun;
    Status got = co_await index_.MultiGet(op, keys, values);
    co_return got;
  }
  Task<Result<index::ModifyResult>> Modify(OpContext& op, std::string_view key,
                                           const index::ModifyFunction& modify,
                                           index::CurrentValue current) override {
    Status begun = co_await Begin(op);
    if (!begun.ok()) co_return begun;
    auto modified = co_await index_.Modify(op, key, modify, current);
    co_return modified;
  }
  Task<Status> Scan(OpContext& op, index::ScanRange range,
                    std::vector<index::KeyValue>* rows) override {
    Status begun = co_await Begin(op);
    if (!begun.ok()) co_return begun;
    Status scanned = co_await index_.Scan(op, range, rows);
    co_return scanned;
  }
  Task<Status> Upkeep(OpContext& op) override { return index_.Upkeep(op); }
  size_t VisitAtOnce(OpContext& op, std::span<const std::string_view> keys,
                     index::ValueVisitor& visitor) override {
    return before_ ? 0 : index_.VisitAtOnce(op, keys, visitor);
  }
  size_t ModifyAtOnce(OpContext& op, std::span<const std::string_view> keys,
                      index::CurrentValue use, index::KeyChanges& changes) override {
    return before_ ? 0 : index_.ModifyAtOnce(op, keys, use, changes);
  }
  void Expect(OpContext& op, std::string_view key) override { index_.Expect(op, key); }

 private:
  Task<Status> Begin(OpContext& op) {
    if (!before_) co_return Status::Ok();
    Status status = co_await before_(op);
    co_return status;
  }

  index::RangeIndex& index_;
  const RuledHost::Before& before_;
};

}  // namespace

std::unique_ptr<index::RangeIndex> RuledHost::Decorate(index::RangeIndex* index) {
  return std::make_unique<RuledIndex>(index, &before_);
}

server::HostedTree RuledHost::Decorated(server::HostedTree tree) {
  tree.info.id += id_shift_;
  return HostDecorator::Decorated(std::move(tree));
}

Task<Result<std::vector<server::protocol::TreeInfo>>> RuledHost::List(OpContext& op) {
  auto all = co_await HostDecorator::List(op);
  if (!all.ok()) co_return all.status();
  for (server::protocol::TreeInfo& info : *all) info.id += id_shift_;
  co_return all;
}

Task<Status> RuledHost::Upkeep(OpContext& op) {
  Status kept = co_await HostDecorator::Upkeep(op);
  uint64_t left = upkeeps_left_;
  while (left > 0 && !upkeeps_left_.compare_exchange_weak(left, left - 1)) {
  }
  ++upkeeps_;  // behind what it takes
  if (left > 0 && kept.ok()) kept = Status::Unavailable("the test leaves something to be done");
  co_return kept;
}

}  // namespace farleaf::test
