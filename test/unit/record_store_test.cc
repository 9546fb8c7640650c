#include "server/records/record_store.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/worker.h"
#include "server/records/string_rules.h"
#include "test/support/map_index.h"
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

  /// The first one twice: somebody else has changed its key meanwhile.
  index::Task<size_t> ModifyTogether(index::OpContext&, std::span<const std::string_view> keys,
                                     index::CurrentValue, index::KeyChanges& changes) override {
    std::string replacement;
    (void)changes.Decide(0, std::nullopt, &replacement);
    for (size_t i = 0; i < keys.size(); ++i) (void)changes.Decide(i, std::nullopt, &replacement);
    for (size_t i = 0; i < keys.size(); ++i) {
      changes.Done(i, index::ModifyResult{.existed = false, .action = index::ModifyAction::kWrite});
    }
    co_return keys.size();
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

struct RecordStoreTest : ::testing::Test {
  RecordStoreTest() { wall.AdvanceNs(kNsPerSecond); }

  MonotonicClock clock;
  MapTreeHost host{&clock};
  const std::unique_ptr<dsm::Worker> worker = std::move(*host.OpenWorker());
  dsm::FabricCounts counts;
  ManualClock wall;
  DeletedInBetween deleted_in_between;
  std::string room;
  Sets sets{&room};
};

// Whoever has read the first and compares must not find the second to be it: a clock's nanosecond is shorter than a
// change, but all of a batch are given the time at which it began.
TEST_F(RecordStoreTest, NoTwoChangesOfABatchHaveTheSameCasThoughTheKeyIsDeletedInBetween) {
  dsm::OpContext op{*worker, counts};
  const server::RecordStore store(&deleted_in_between, &wall);
  const std::array<std::string_view, 3> keys{"k", "k", "k"};
  ASSERT_EQ(store.UpdateAtOnce(op, keys, sets), keys.size());
  ASSERT_EQ(sets.cas.size(), keys.size());
  EXPECT_GE(sets.cas[0], kNsPerSecond);
  EXPECT_LT(sets.cas[0], sets.cas[1]);
  EXPECT_LT(sets.cas[1], sets.cas[2]);
}

TEST_F(RecordStoreTest, NoTwoChangesThatAreMadeTogetherHaveTheSameCasThoughOneIsDecidedAnew) {
  dsm::OpContext op{*worker, counts};
  const server::RecordStore store(&deleted_in_between, &wall);
  const std::array<std::string_view, 4> keys = {"k", "k", "k", "k"};
  ASSERT_EQ(worker->Run(store.UpdateTogether(op, keys, sets)), keys.size());
  ASSERT_EQ(sets.cas.size(), keys.size());
  for (size_t i = 1; i < keys.size(); ++i) EXPECT_GT(sets.cas[i], sets.cas[i - 1]) << i;
}

/// Whoever reads what has expired knows the answer, and does not wait where writes have to.
TEST_F(RecordStoreTest, ReadersDoNotWaitLongForTheDeletionOfWhatHasExpired) {
  MapIndex index;
  const server::RecordStore store(&index, &wall);
  const std::vector<std::string_view> keys = {"a", "b", "c"};
  for (const std::string_view key : keys) {
    dsm::OpContext op{*worker, counts};
    server::StoreRule rule;
    rule.data = "value";
    rule.expiry_ms = store.NowMs() + 1;
    ASSERT_TRUE(worker->Run(store.Update(op, key, rule)).ok());
  }
  wall.AdvanceNs(kNsPerSecond);
  // What has the reader's deadline ends at once; all else waits until its own.
  const uint64_t deadline_ns = clock.NowNs() + 600 * kNsPerSecond;
  uint64_t waited = 0;
  index.set_before([&](index::OpContext& op) -> index::Task<Status> {
    if (op.deadline_ns == deadline_ns) co_return Status::Ok();
    ++waited;
    while (!op.expired()) co_await op.worker.Sleep(kNsPerMs);
    co_return Status::DeadlineExceeded("writes wait");
  });
  std::vector<std::optional<std::string>> values;
  std::vector<std::optional<server::Record>> records;
  dsm::OpContext op{*worker, counts, deadline_ns};
  const Status got = worker->Run(store.MultiGet(op, keys, &values, &records));
  ASSERT_TRUE(got.ok()) << got;
  for (const auto& record : records) EXPECT_FALSE(record.has_value());
  EXPECT_EQ(waited, 1u) << "one for all of them";
  EXPECT_FALSE(op.expired());
  index.set_before(nullptr);
}

}  // namespace
}  // namespace farleaf::test
