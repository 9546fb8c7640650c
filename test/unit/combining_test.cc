// What changes of one leaf share of locks and round trips: in one compute server, where they are combined or the lock is handed
// over, and for how long it may stay there; among compute servers that all want it. In virtual time (test/support/rack.h).
#include <gtest/gtest.h>

#include <cstdio>

#include "test/support/rack.h"

namespace farleaf::index {
namespace {

using dsm::FabricCounts;
using dsm::Worker;
using Kind = Rack::Kind;

TEST(CombiningTest, UpdatesOfOneLeafNeedATenthOfARoundTripEach) {
  Rack rack;
  rack.Load(20);  // all in one leaf
  rack.Run({.kind = Kind::kUpdate, .clients = 64, .operations = 100, .keys = 20});
  std::printf("64 in flight on one leaf: %.4f round trips an update\n",
              rack.RoundTripsPerOperation());
  EXPECT_LE(rack.RoundTripsPerOperation(), 0.1);
}

TEST(CombiningTest, UpdatesThatWaitTogetherAreDoneTogether) {
  Rack rack;
  rack.Load(20);
  // The first one's, then all of the others': lock and READ, write-back and unlock.
  const uint64_t took_ns = rack.Run({.kind = Kind::kUpdate, .clients = 64});
  EXPECT_EQ(rack.member().counts.round_trips, 2u);
  EXPECT_EQ(rack.stats().combined, 63u);
  EXPECT_EQ(took_ns, 2 * kRoundTripNs);
}

/// 64 updates at a time of one leaf, 100 each, and what of it is shared.
TEST(CombiningTest, EachOptionSavesItsShare) {
  struct Case {
    const char* name;
    TreeOptions options;
    double least, most;  ///< round trips an update
  };
  const auto on = WriteCombining::kOn, off = WriteCombining::kOff;
  for (const Case& one :
       {Case{"both", {.write_combining = on, .hand_over = HandOver::kOn}, 0.02, 0.1},
        Case{"combining alone", {.write_combining = on, .hand_over = HandOver::kOff}, 0.02, 0.1},
        // The parts are read, and written back.
        Case{"hand-over alone", {.write_combining = off, .hand_over = HandOver::kOn}, 1.9, 2.0},
        Case{"neither", {.write_combining = off, .hand_over = HandOver::kOff}, 1.9, 2.1}}) {
    SCOPED_TRACE(one.name);
    Rack rack(1, one.options);
    rack.Load(20);  // all in one leaf
    const uint64_t took_ns =
        rack.Run({.kind = Kind::kUpdate, .clients = 64, .operations = 100, .keys = 20});
    const FabricCounts& counts = rack.member().counts;
    std::printf("%s: %.4f round trips, %.4f atomics an update; %.0f us in all\n", one.name,
                rack.RoundTripsPerOperation(),
                static_cast<double>(counts.atomics) / static_cast<double>(rack.member().done),
                static_cast<double>(took_ns) / 1e3);
    EXPECT_GE(rack.RoundTripsPerOperation(), one.least);
    EXPECT_LE(rack.RoundTripsPerOperation(), one.most);
    EXPECT_EQ(rack.stats().combined > 0, one.options.write_combining == on);
    EXPECT_TRUE(rack.stats().handovers == 0 || one.options.hand_over == HandOver::kOn);
  }
}

/// Leaves that are not parted: of byte strings, with values in the leaf, and of fixed8.
class WholeLeafCombiningTest : public testing::TestWithParam<Layout> {
 protected:
  Rack MakeRack(TreeOptions options = {}) const {
    return Rack(1, options, bytes() ? Geometry::Bytes() : Geometry::Fixed8(), bytes() ? 100 : 8);
  }
  bool bytes() const { return GetParam() == Layout::kBytes; }
};
INSTANTIATE_TEST_SUITE_P(Layouts, WholeLeafCombiningTest,
                         testing::Values(Layout::kBytes, Layout::kFixed8), [](const auto& test) {
                           return test.param == Layout::kBytes ? "ByteStrings" : "Sorted";
                         });

TEST_P(WholeLeafCombiningTest, UpdatesThatWaitTogetherAreDoneTogether) {
  Rack rack = MakeRack();
  rack.Load(10);
  const uint64_t took_ns = rack.Run({.kind = Kind::kUpdate, .clients = 64, .keys = 10});
  EXPECT_EQ(rack.member().counts.round_trips, 2u);
  EXPECT_EQ(rack.stats().combined, 63u);
  EXPECT_EQ(took_ns, 2 * kRoundTripNs);
}

TEST_P(WholeLeafCombiningTest, EachOptionSavesItsShare) {
  const auto on = WriteCombining::kOn, off = WriteCombining::kOff;
  struct Case {
    TreeOptions options;
    double least, most;  ///< round trips an update
    double atomics_most;
  };
  for (
      const Case& one :
      {Case{{.write_combining = on, .hand_over = HandOver::kOn}, 0.01, 0.1, 0.03},
       Case{{.write_combining = on, .hand_over = HandOver::kOff}, 0.01, 0.1, 0.03},
       // The image comes along, so that the lock and its READ are a round trip of one in seventeen.
       Case{{.write_combining = off, .hand_over = HandOver::kOn}, 1.05, 1.07, 0.06},
       Case{{.write_combining = off, .hand_over = HandOver::kOff}, 1.99, 2.01, 1}}) {
    Rack rack = MakeRack(one.options);
    rack.Load(10);  // all in one leaf
    rack.Run({.kind = Kind::kUpdate, .clients = 64, .operations = 100, .keys = 10});
    const double atomics =
        static_cast<double>(rack.member().counts.atomics) / static_cast<double>(rack.member().done);
    const bool combines = one.options.write_combining == on,
               hands_over = one.options.hand_over == HandOver::kOn;
    std::printf("combining %s, hand-over %s: %.4f round trips, %.4f atomics an update\n",
                combines ? "on" : "off", hands_over ? "on" : "off", rack.RoundTripsPerOperation(),
                atomics);
    EXPECT_GE(rack.RoundTripsPerOperation(), one.least);
    EXPECT_LE(rack.RoundTripsPerOperation(), one.most);
    EXPECT_LE(atomics, one.atomics_most);
    EXPECT_LE(rack.ReadsPerOperation(), one.atomics_most);
    EXPECT_EQ(rack.stats().combined > 0, combines);
  }
}

/// What one write-back carries may be anything that is done in the leaf alone; what is not is done behind it.
TEST_P(WholeLeafCombiningTest, EachChangeHasItsOwnAnswer) {
  Rack rack = MakeRack();
  rack.Load(8);
  const std::string large(1'000, 'L'), wrong(9, 'w');
  std::vector<std::string> ends(10);
  const auto client = [&](Rack::Member& member, uint64_t number) -> dsm::Task<void> {
    OpContext op{*member.worker, member.counts};
    const std::string value = rack.Value(100 + number);
    std::string key;
    const auto tell = [&ends, number](const Result<bool>& answer) {
      ends[number] = answer.ok() ? *answer ? "yes" : "no" : answer.status().ToString();
    };
    if (number == 0 || number == 1) {
      key = rack.Key(0);
      auto updated = co_await member.tree->Update(op, key, value);
      tell(updated);
    } else if (number == 2 || number == 3) {
      key = rack.Key(number == 2 ? 1 : 50);
      auto deleted = co_await member.tree->Delete(op, key);
      tell(deleted);
    } else if (number == 4 || number == 5) {
      key = rack.Key(number == 4 ? 8 : 2);
      auto inserted = co_await member.tree->Insert(op, key, value);
      tell(inserted);
    } else if (number == 6) {
      key = rack.Key(3);
      auto updated = co_await member.tree->Update(op, key, bytes() ? large : wrong);
      tell(updated);
    } else if (number == 9) {
      key = rack.Key(60);
      const std::string stored = bytes() ? large : value;
      auto fresh = co_await member.tree->Put(op, key, stored);
      tell(fresh);
    } else if (number == 7) {
      key = rack.Key(51);
      auto updated = co_await member.tree->Update(op, key, value);
      tell(updated);
    } else {
      key = rack.Key(8);  // that the fifth inserts
      const std::string_view expected = value;
      const ModifyFunction seen = [expected](std::optional<std::string_view> current,
                                             std::string* replacement) {
        *replacement = expected;
        return current ? ModifyAction::kWrite : ModifyAction::kKeep;
      };
      auto modified = co_await member.tree->Modify(op, key, seen, CurrentValue::kRead);
      tell(modified.ok() ? Result<bool>(modified->existed) : Result<bool>(modified.status()));
    }
  };
  rack.RunClients(10, client);
  EXPECT_EQ(rack.stats().combined, bytes() ? 7u : 9u);
  const std::vector<std::string> expected = {"yes", "yes",   "yes", "no",  "yes",
                                             "no",  ends[6], "no",  "yes", "yes"};
  EXPECT_EQ(ends, expected);
  EXPECT_EQ(ends[6] == "yes", bytes()) << ends[6];
  const auto get = [&](uint64_t number) {
    OpContext op{*rack.member().worker, rack.member().counts};
    std::string value;
    auto found = rack.member().worker->Run(rack.member().tree->Get(op, rack.Key(number), &value));
    return found.ok() && *found ? value : "none";
  };
  EXPECT_EQ(get(0), rack.Value(101));
  EXPECT_EQ(get(1), "none");
  EXPECT_EQ(get(2), rack.Value(2));
  EXPECT_EQ(get(3), bytes() ? large : rack.Value(3));
  EXPECT_EQ(get(8), rack.Value(108));
  EXPECT_EQ(get(60), bytes() ? large : rack.Value(109));
  EXPECT_EQ(get(50), "none");
  EXPECT_EQ(get(51), "none");
}

TEST_P(WholeLeafCombiningTest, DeletesThatWereDoneTogetherLeaveNoLeafTooEmpty) {
  Rack rack = MakeRack();
  constexpr uint64_t kKeys = 400;
  rack.Load(kKeys);
  rack.RunClients(kKeys - 4, [&](Rack::Member& member, uint64_t number) -> dsm::Task<void> {
    OpContext op{*member.worker, member.counts};
    const std::string key = rack.Key(number);
    auto deleted = co_await member.tree->Delete(op, key);
    EXPECT_TRUE(deleted.ok() && *deleted) << deleted.status();
  });
  EXPECT_GT(rack.stats().combined, kKeys / 2);
  EXPECT_GT(rack.stats().merges, 2u);
}

/// Out of line each value has a block of its own, so that nothing is combined; the leaf comes along with the lock.
TEST(CombiningTest, UpdatesOfValuesOutOfLineAreWrittenBackOneByOne) {
  Rack rack(1, {}, Geometry::Bytes(), 1'000);
  rack.Load(10);
  rack.Run({.kind = Kind::kUpdate, .clients = 64, .operations = 100, .keys = 10});
  std::printf("values out of line, 64 in flight on one leaf: %.4f round trips an update\n",
              rack.RoundTripsPerOperation());
  EXPECT_EQ(rack.stats().combined, 0u);
  EXPECT_GT(rack.stats().handovers, 0u);
  EXPECT_LE(rack.RoundTripsPerOperation(), 1.1);
}

/// Compute servers whose updates want one leaf: how often those that find it locked ask in vain.
TEST(BackOffTest, AsksLessOftenInVain) {
  for (const uint64_t servers : {8, 32}) {
    double round_trips[2];
    for (const BackOff back_off : {BackOff::kOff, BackOff::kOn}) {
      TreeOptions options;
      options.back_off = back_off;
      Rack rack(servers, options);
      rack.Load(20);  // all in one leaf
      const uint64_t took_ns =
          rack.Run({.kind = Kind::kUpdate, .clients = 1, .operations = 200, .keys = 20});
      uint64_t found_locked = 0, trips = 0, done = 0;
      for (size_t i = 0; i < servers; ++i) {
        found_locked += rack.stats(i).lock_conflicts;
        trips += rack.member(i).counts.round_trips;
        done += rack.member(i).done;
      }
      const auto mean = [done](uint64_t sum) {
        return static_cast<double>(sum) / static_cast<double>(done);
      };
      round_trips[static_cast<size_t>(back_off)] = mean(trips);
      std::printf(
          "%lu compute servers, back-off %s: found locked %.2f times, %.2f round trips, "
          "%.2f us an update\n",
          static_cast<unsigned long>(servers), back_off == BackOff::kOn ? "on" : "off",
          mean(found_locked), mean(trips), mean(took_ns) / 1e3);
    }
    EXPECT_LT(round_trips[1], 0.8 * round_trips[0]);
  }
}

TEST(HandOverTest, ALockIsHandedOnInOneComputeServerSixteenTimesAtMost) {
  Rack rack;
  using Turn = dsm::LocalLockTable::Turn;
  constexpr uint32_t kMost = dsm::LocalLockTable::kHandoversMax;
  static_assert(kMost == 16);
  const dsm::GlobalAddress page(0, 4096);
  struct Waiter {
    static dsm::Task<void> Wait(Worker& worker, dsm::LocalLockTable& locks, dsm::GlobalAddress page,
                                Turn* turn) {
      auto got = co_await locks.Acquire(worker, page, 0, {}, nullptr);
      *turn = got;
    }
  };
  dsm::LocalLockTable locks;
  Worker& worker = *rack.member().worker;
  ASSERT_TRUE(locks.TryAcquire(page, 0));
  Turn turn{.lock_word = 7};
  for (uint32_t handed = 0; handed < kMost; ++handed) {
    Turn next;
    worker.Spawn(Waiter::Wait(worker, locks, page, &next));
    ASSERT_TRUE(locks.ShouldHandOver(page, turn)) << handed;
    locks.HandOver(page, turn, {});
    worker.RunUntilIdle();
    EXPECT_EQ(next.lock_word, 7u);
    turn = next;
  }
  Turn last;
  worker.Spawn(Waiter::Wait(worker, locks, page, &last));
  EXPECT_FALSE(locks.ShouldHandOver(page, turn));
  locks.Release(page);
  worker.RunUntilIdle();
  EXPECT_EQ(last.lock_word, 0u);  // only the turn: the remote lock is to be taken anew
  locks.Release(page);
}

class FairnessTest : public testing::TestWithParam<size_t> {};

TEST_P(FairnessTest, ComputeServersThatWantOneLeafAllTheTimeShareIt) {
  const size_t members = GetParam();
  Rack rack(members);
  rack.Load(40);  // one leaf
  rack.Run({.kind = Kind::kUpdate, .clients = 64, .operations = 200, .keys = 40});
  size_t first = 0;
  for (size_t i = 0; i < members; ++i) {
    const Rack::Member& member = rack.member(i);
    const double mean_us =
        static_cast<double>(member.latency_ns_sum) / static_cast<double>(member.done) / 1e3;
    const double longest_us = static_cast<double>(member.latency_ns_max) / 1e3;
    std::printf(
        "compute server %zu: %.4f round trips an update, %.0f us on average, longest %.0f us, "
        "ended "
        "at %.0f us\n",
        i, rack.RoundTripsPerOperation(i), mean_us, longest_us,
        static_cast<double>(member.ended_ns) / 1e3);
    if (member.ended_ns < rack.member(first).ended_ns) first = i;
  }
  // A compute server keeps the lock for so many rounds of two round trips at most. Who waits asks every few microseconds, so that
  // whether it comes next is chance, and that it comes too late six times in a row is not to be seen in some hundred turns.
  constexpr uint64_t kTurnNs = (1 + dsm::LocalLockTable::kHandoversMax) * 2 * kRoundTripNs;
  for (size_t i = 0; i < members; ++i) {
    EXPECT_LE(rack.member(i).latency_ns_max, 6 * kTurnNs) << i;
    EXPECT_LE(rack.member(i).latency_ns_sum / rack.member(i).done, kTurnNs) << i;
  }
  const Rack::Member& best = rack.member(first);
  std::printf("when the first had done its %lu, each of the others had done %lu or more\n",
              best.done, best.least_done);
  EXPECT_GE(best.least_done, best.done / (members == 2 ? 2 : 3));
}

INSTANTIATE_TEST_SUITE_P(ComputeServers, FairnessTest, testing::Values(2, 4, 8));

// One operation at a time each, so that nothing is combined or handed over: all go for the remote lock.
TEST(BackOffTest, UpdatesOfOneLeafAreNoFewerTheMoreComputeServersWantIt) {
  constexpr uint64_t kUpdates = 1'500;  // of each
  double of_two = 0;
  for (const uint64_t members : {2, 4, 8, 16, 32}) {
    Rack rack(members);
    rack.Load(40);  // one leaf
    const uint64_t took_ns = rack.Run({.kind = Kind::kUpdate, .operations = kUpdates, .keys = 40});
    const double a_second =
        static_cast<double>(members * kUpdates) * 1e9 / static_cast<double>(took_ns);
    uint64_t atomics = 0, longest_ns = 0;
    for (size_t i = 0; i < members; ++i) {
      atomics += rack.member(i).counts.atomics;
      longest_ns = std::max(longest_ns, rack.member(i).latency_ns_max);
    }
    const double atomics_each =
        static_cast<double>(atomics) / static_cast<double>(members * kUpdates);
    std::printf("%lu compute servers: %.0f updates a second, %.2f atomics each, longest %.0f us\n",
                members, a_second, atomics_each, static_cast<double>(longest_ns) / 1e3);
    if (members == 2) of_two = a_second;
    EXPECT_GE(a_second, 0.95 * of_two) << members;
    EXPECT_LE(atomics_each, 1 + static_cast<double>(members) / 2) << members;
  }
}

}  // namespace
}  // namespace farleaf::index
