#include "server/records/record_store.h"

#include <gtest/gtest.h>

#include <array>

#include "dsm/base/clock.h"
#include "dsm/worker.h"
#include "server/records/string_rules.h"
#include "test/support/map_tree_host.h"

namespace farleaf::test {
namespace {

/// Changes one key at once, and loses it in between: another server deletes it.
class DeletedInBetween final : public index::RangeIndex {
 public:
  size_t ModifyAtOnce(index::OpContext&, std::span<const std::string_view> keys,
                      index::CurrentValue, index::KeyChanges& changes) override {
    for (size_t i = 0; i < keys.size(); ++i) {
      std::string replacement;
      const index::ModifyAction action = changes.Decide(i, std::nullopt, &replacement);
      changes.Done(i, index::ModifyResult{.existed = false, .action = action});
    }
    return keys.size();
  }

  index::Task<Result<bool>> Get(index::OpContext&, std::string_view, std::string*) override {
    co_return Refused();
  }
  index::Task<Status> MultiGet(index::OpContext&, std::span<const std::string_view>,
                               std::vector<std::optional<std::string>>*) override {
    co_return Refused();
  }
  index::Task<Result<index::ModifyResult>> Modify(index::OpContext&, std::string_view,
                                                  const index::ModifyFunction&,
                                                  index::CurrentValue) override {
    co_return Refused();
  }
  index::Task<Status> Scan(index::OpContext&, index::ScanRange,
                           std::vector<index::KeyValue>*) override {
    co_return Refused();
  }
  index::Task<Status> Upkeep(index::OpContext&) override { co_return Status::Ok(); }

 private:
  static Status Refused() { return Status::Unimplemented("changes at once are all there is here"); }
};

class Sets final : public server::RecordChanges {
 public:
  explicit Sets(std::string* room) : RecordChanges(room) { rule_.data = "value"; }
  server::RecordRule& RuleOf(size_t) override { return rule_; }
  void Done(size_t, const Result<server::RecordUpdate>& update) override {
    cas.push_back(update->cas);
  }

  std::vector<uint64_t> cas;

 private:
  server::StoreRule rule_;
};

// Whoever has read the first and compares must not find the second to be it: a clock's nanosecond is shorter than a
// change, but all of a batch are given the time at which it began.
TEST(RecordStoreTest, NoTwoChangesOfABatchHaveTheSameCasThoughTheKeyIsDeletedInBetween) {
  MonotonicClock clock;
  MapTreeHost host{&clock};
  const std::unique_ptr<dsm::Worker> worker = std::move(*host.OpenWorker());
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker, counts};
  ManualClock wall;
  wall.AdvanceNs(kNsPerSecond);
  DeletedInBetween index;
  const server::RecordStore store(&index, &wall);
  std::string room;
  Sets sets(&room);
  const std::array<std::string_view, 3> keys{"k", "k", "k"};
  ASSERT_EQ(store.UpdateAtOnce(op, keys, sets), keys.size());
  ASSERT_EQ(sets.cas.size(), keys.size());
  EXPECT_GE(sets.cas[0], kNsPerSecond);
  EXPECT_LT(sets.cas[0], sets.cas[1]);
  EXPECT_LT(sets.cas[1], sets.cas[2]);
}

}  // namespace
}  // namespace farleaf::test
