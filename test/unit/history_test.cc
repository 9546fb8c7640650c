// The checkers of histories are right about histories whose verdict is known.
#include <gtest/gtest.h>

#include <algorithm>

#include "dsm/base/random.h"
#include "test/support/linearizability.h"

namespace farleaf::test {
namespace {

/// Builds a history operation by operation: `At(invoked, returned)` then what it did.
class Written {
 public:
  Written& At(uint64_t invoked, uint64_t returned) {
    invoked_ = invoked, returned_ = returned;
    return *this;
  }
  Written& Get(std::optional<std::string> found) {
    Operation& op = Add(OpKind::kGet, "");
    op.value = std::move(found);
    return *this;
  }
  Written& Insert(std::string value, bool existed) {
    return Write(OpKind::kInsert, value, existed);
  }
  Written& Put(std::string value, bool existed) { return Write(OpKind::kPut, value, existed); }
  Written& Set(std::string value) { return Write(OpKind::kSet, value, false); }
  Written& Update(std::string value, bool existed) {
    return Write(OpKind::kUpdate, value, existed);
  }
  Written& Delete(bool existed) { return Write(OpKind::kDelete, "", existed); }
  Written& DeleteIf(std::string expected, bool existed, bool deleted) {
    Write(OpKind::kDeleteIf, std::move(expected), existed);
    history.operations.back().deleted = deleted;
    return *this;
  }
  Written& Modify(std::optional<std::string> from, std::optional<std::string> to) {
    Operation& op = Add(OpKind::kModify, "");
    op.value = std::move(from);
    op.argument_after = std::move(to);
    return *this;
  }
  /// The outcome of the last operation is unknown.
  Written& Unknown() {
    history.operations.back().outcome = Outcome::kUnknown;
    history.operations.back().returned = Operation::kNever;
    return *this;
  }
  Written& Failed() {
    history.operations.back().outcome = Outcome::kFailed;
    return *this;
  }
  Written& Initially(std::string value) {
    history.initial[key_] = std::move(value);
    return *this;
  }
  Written& Key(std::string key) {
    key_ = std::move(key);
    return *this;
  }
  Written& Scan(std::vector<index::KeyValue> rows, uint64_t limit = UINT64_MAX,
                index::ScanDirection direction = index::ScanDirection::kForward) {
    history.scans.push_back({"b", "y", limit, direction, std::move(rows), invoked_, returned_});
    return *this;
  }
  bool Linearizable() const { return CheckLinearizable(history).ok; }
  std::string Why() const { return CheckLinearizable(history).why; }
  std::string ScanProblem() const { return CheckScans(history).why; }

  History history;

 private:
  Operation& Add(OpKind kind, std::string argument) {
    Operation op;
    op.kind = kind;
    op.key = key_;
    op.argument = std::move(argument);
    op.invoked = invoked_;
    op.returned = returned_;
    history.operations.push_back(std::move(op));
    return history.operations.back();
  }
  Written& Write(OpKind kind, std::string argument, bool existed) {
    Add(kind, std::move(argument)).existed = existed;
    return *this;
  }
  std::string key_ = "k";
  uint64_t invoked_ = 0, returned_ = 0;
};

TEST(LinearizabilityTest, EmptyAndSequentialHistoriesAreFine) {
  EXPECT_TRUE(Written().Linearizable());
  EXPECT_TRUE(Written()
                  .At(1, 2)
                  .Get(std::nullopt)
                  .At(3, 4)
                  .Insert("a", false)
                  .At(5, 6)
                  .Insert("b", true)
                  .At(7, 8)
                  .Get("a")
                  .At(9, 10)
                  .Put("c", true)
                  .At(11, 12)
                  .Update("d", true)
                  .At(13, 14)
                  .DeleteIf("c", true, false)
                  .At(15, 16)
                  .DeleteIf("d", true, true)
                  .At(17, 18)
                  .Delete(false)
                  .At(19, 20)
                  .Modify(std::nullopt, "e")
                  .At(21, 22)
                  .Modify("e", std::nullopt)
                  .At(23, 24)
                  .Update("f", false)
                  .Linearizable());
}

TEST(LinearizabilityTest, StaleReadIsFound) {
  EXPECT_FALSE(
      Written().At(1, 2).Put("a", false).At(3, 4).Put("b", true).At(5, 6).Get("a").Linearizable());
}

TEST(LinearizabilityTest, OverlappingReadMaySeeEither) {
  EXPECT_TRUE(
      Written().At(1, 2).Put("a", false).At(3, 6).Put("b", true).At(4, 5).Get("a").Linearizable());
  EXPECT_TRUE(
      Written().At(1, 2).Put("a", false).At(3, 6).Put("b", true).At(4, 5).Get("b").Linearizable());
}

TEST(LinearizabilityTest, ReadsThatGoBackAreFound) {
  EXPECT_FALSE(Written()
                   .At(1, 2)
                   .Put("a", false)
                   .At(3, 10)
                   .Put("b", true)
                   .At(4, 5)
                   .Get("b")
                   .At(6, 7)
                   .Get("a")
                   .Linearizable());
}

TEST(LinearizabilityTest, FalseMissIsFound) {
  EXPECT_FALSE(Written().At(1, 2).Insert("a", false).At(3, 4).Get(std::nullopt).Linearizable());
  EXPECT_FALSE(Written().Initially("a").At(3, 4).Get(std::nullopt).Linearizable());
  EXPECT_TRUE(Written().At(1, 4).Insert("a", false).At(2, 3).Get(std::nullopt).Linearizable());
}

TEST(LinearizabilityTest, ValueNobodyWroteIsFound) {
  EXPECT_FALSE(Written().At(1, 4).Insert("a", false).At(2, 3).Get("x").Linearizable());
}

TEST(LinearizabilityTest, InsertThatSucceedsTwiceIsFound) {
  EXPECT_FALSE(Written().At(1, 4).Insert("a", false).At(2, 3).Insert("b", false).Linearizable());
  EXPECT_TRUE(Written()
                  .At(1, 9)
                  .Insert("a", false)
                  .At(2, 8)
                  .Insert("b", false)
                  .At(3, 7)
                  .Delete(true)
                  .Linearizable());
}

TEST(LinearizabilityTest, LostUpdateIsFound) {
  EXPECT_FALSE(Written()
                   .Initially("0")
                   .At(1, 4)
                   .Modify("0", "01")
                   .At(2, 3)
                   .Modify("0", "02")
                   .Linearizable());
  EXPECT_TRUE(Written()
                  .Initially("0")
                  .At(1, 4)
                  .Modify("0", "01")
                  .At(2, 3)
                  .Modify("01", "012")
                  .At(5, 6)
                  .Get("012")
                  .Linearizable());
  EXPECT_FALSE(Written().Initially("0").At(1, 2).Put("1", true).At(3, 4).Get("0").Linearizable());
}

TEST(LinearizabilityTest, DeleteThatDidNotDeleteIsFound) {
  EXPECT_FALSE(Written().Initially("a").At(1, 2).Delete(true).At(3, 4).Get("a").Linearizable());
  EXPECT_FALSE(Written().Initially("a").At(1, 4).Delete(true).At(2, 3).Delete(true).Linearizable());
  EXPECT_FALSE(Written().Initially("a").At(1, 2).DeleteIf("b", true, true).Linearizable());
}

TEST(LinearizabilityTest, RepeatedValueMayBeWrittenTwice) {
  // The second put of "a" must come after the put of "b", though it would fit before.
  EXPECT_TRUE(Written()
                  .At(1, 2)
                  .Put("a", false)
                  .At(3, 10)
                  .Put("a", true)
                  .At(4, 5)
                  .Put("b", true)
                  .At(11, 12)
                  .Get("a")
                  .Linearizable());
}

TEST(LinearizabilityTest, UnknownMayHappenLateOrNever) {
  const auto base = [] { return Written().Initially("a").At(1, 2).Put("b", false).Unknown(); };
  EXPECT_TRUE(base().At(3, 4).Get("a").Linearizable());
  EXPECT_TRUE(base().At(3, 4).Get("b").Linearizable());
  EXPECT_TRUE(base().At(3, 4).Get("a").At(5, 6).Get("b").Linearizable());
  EXPECT_FALSE(base().At(3, 4).Get("b").At(5, 6).Get("a").Linearizable());
  EXPECT_TRUE(Written()
                  .Initially("a")
                  .At(1, 2)
                  .Delete(false)
                  .Unknown()
                  .At(3, 4)
                  .Get(std::nullopt)
                  .Linearizable());
  EXPECT_FALSE(Written().At(5, 6).Put("b", false).Unknown().At(3, 4).Get("b").Linearizable());
}

TEST(LinearizabilityTest, FailedDidNotHappen) {
  EXPECT_FALSE(Written().At(1, 2).Put("b", false).Failed().At(3, 4).Get("b").Linearizable());
  EXPECT_TRUE(
      Written().At(1, 2).Put("b", false).Failed().At(3, 4).Get(std::nullopt).Linearizable());
}

TEST(LinearizabilityTest, ASetTakesEffectWhateverWasThere) {
  for (bool there : {false, true}) {
    Written history;
    if (there) history.Initially("a");
    history.At(1, 2).Set("b");
    EXPECT_TRUE(Written(history).At(3, 4).Get("b").Linearizable());
    EXPECT_FALSE(Written(history).At(3, 4).Get(std::nullopt).Linearizable());
    EXPECT_FALSE(Written(history).At(3, 4).Get("a").Linearizable());
  }
}

TEST(LinearizabilityTest, KeysAreIndependentAndTheBadOneIsNamed) {
  Written history;
  history.Key("good").At(1, 2).Put("a", false);
  history.Key("bad").At(3, 4).Get("a");
  EXPECT_NE(history.Why().find("key \"bad\""), std::string::npos) << history.Why();
}

TEST(LinearizabilityTest, OfThoseThatDoTheSameTheFirstToReturnIsTriedFirst) {
  // Hundreds at a time, few of them different: decided within few states all the same.
  const auto many = [](int each) {
    Written history;
    for (int i = 0; i < each; ++i) {
      history.At(1, 1000 - i).Put(std::to_string(i), true);
      history.At(2 + i, 1000).Delete(true);
      history.At(3, 1000).Put(std::to_string(1000 + i), false);
    }
    return history;
  };
  const auto check = [](Written& history) {
    return CheckLinearizable(history.history, {.visited_max = 5000});
  };
  Written balanced = many(100);
  balanced.At(1001, 1002).Get(std::nullopt);
  EXPECT_TRUE(check(balanced).ok) << check(balanced).why;
  Written wrong = many(12);
  wrong.At(1001, 1002).Get("11");  // something else is there at the end, or nothing
  wrong.At(1003, 1004).Get(std::nullopt);
  EXPECT_NE(check(wrong).why.find("not linearizable"), std::string::npos) << check(wrong).why;
}

TEST(LinearizabilityTest, BoundedSearchSaysThatItGaveUp) {
  Written history;
  history.Initially("first");
  for (int i = 0; i < 24; ++i) {  // each is seen, so that no two of them do the same
    history.At(1, 100).Put(std::to_string(i), true);
    history.At(1, 100).Get(std::to_string(i));
  }
  history.At(101, 102).Get("nobody's");
  const Verdict verdict = CheckLinearizable(history.history, {.visited_max = 1000});
  EXPECT_FALSE(verdict.ok);
  EXPECT_NE(verdict.why.find("undecided"), std::string::npos);
}

/// A register that linearizes each operation at a random moment between its invocation and return.
/// `values`: how many different ones are written; with few of them histories are harder to tell
/// apart.
History Generate(Random* random, int clients, int operations, uint64_t values,
                 uint64_t unknown_one_in) {
  struct Pending {
    Operation op;
    uint64_t takes_effect;
    std::string after;
  };
  std::vector<Pending> all;
  for (int client = 0; client < clients; ++client) {
    uint64_t now = 1 + random->Below(8);
    for (int i = 0; i < operations; ++i) {
      Pending pending;
      pending.op.key = "k";
      pending.op.kind = static_cast<OpKind>(random->Below(8));
      pending.op.argument = std::to_string(random->Below(values));
      pending.op.invoked = now;
      pending.takes_effect = now + 1 + random->Below(20);
      pending.op.returned = pending.takes_effect + 1 + random->Below(20);
      now = pending.op.returned + 1 + random->Below(5);
      all.push_back(std::move(pending));
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Pending& a, const Pending& b) {
    return a.takes_effect < b.takes_effect;
  });
  std::optional<std::string> state;
  History history;
  for (Pending& pending : all) {
    Operation& op = pending.op;
    op.existed = state.has_value();
    op.value = state;
    switch (op.kind) {
      case OpKind::kGet:
        break;
      case OpKind::kInsert:
        if (!state) state = op.argument;
        break;
      case OpKind::kPut:
        state = op.argument;
        break;
      case OpKind::kSet:
        op.existed = !op.existed;  // nobody has told it
        state = op.argument;
        break;
      case OpKind::kUpdate:
        if (state) state = op.argument;
        break;
      case OpKind::kDelete:
        state.reset();
        break;
      case OpKind::kDeleteIf:
        op.deleted = state == op.argument;
        if (op.deleted) state.reset();
        break;
      case OpKind::kModify:
        state = op.argument;
        op.argument_after = state;
        break;
    }
    if (random->OneIn(unknown_one_in)) {
      op.outcome = Outcome::kUnknown;
      op.returned = Operation::kNever;
    }
    history.operations.push_back(std::move(op));
  }
  return history;
}

TEST(LinearizabilityTest, GeneratedHistoriesAreAccepted) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const History history = Generate(&random, 1 + static_cast<int>(random.Below(8)), 60, 6, 40);
    const Verdict verdict = CheckLinearizable(history);
    ASSERT_TRUE(verdict.ok) << "seed " << seed << "\n" << verdict.why;
  }
}

TEST(LinearizabilityTest, LongHistoryOfAHotKeyIsChecked) {
  Random random(1);
  const Verdict verdict = CheckLinearizable(Generate(&random, 16, 500, UINT64_MAX, 500));
  EXPECT_TRUE(verdict.ok) << verdict.why;
}

TEST(LinearizabilityTest, GeneratedHistoriesWithALieAreRefused) {
  int refused = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    History history = Generate(&random, 4, 40, 6, 40);
    // A get at the end that finds what no operation ever wrote; one in between may find anything.
    Operation lie;
    lie.key = "k";
    lie.value = "lie";
    lie.invoked = 1 + random.Below(500);
    lie.returned = lie.invoked + 1;
    history.operations.push_back(lie);
    refused += !CheckLinearizable(history).ok;
  }
  EXPECT_EQ(refused, 200);
}

TEST(ScanCheckTest, RowsOutOfOrderBoundsOrLimitAreFound) {
  const auto with = [](std::vector<index::KeyValue> rows, uint64_t limit,
                       index::ScanDirection direction) {
    return Written()
        .Key("c")
        .Initially("1")
        .Key("d")
        .Initially("2")
        .Key("z")
        .Initially("3")
        .At(1, 2)
        .Scan(std::move(rows), limit, direction)
        .ScanProblem();
  };
  const auto forward = index::ScanDirection::kForward, reverse = index::ScanDirection::kReverse;
  EXPECT_EQ(with({{"c", "1"}, {"d", "2"}}, 9, forward), "");
  EXPECT_EQ(with({{"d", "2"}, {"c", "1"}}, 9, reverse), "");
  EXPECT_NE(with({{"d", "2"}, {"c", "1"}}, 9, forward), "");
  EXPECT_NE(with({{"c", "1"}, {"d", "2"}}, 9, reverse), "");
  EXPECT_NE(with({{"c", "1"}, {"c", "1"}, {"d", "2"}}, 9, forward), "");
  EXPECT_NE(with({{"c", "1"}, {"d", "2"}, {"z", "3"}}, 9, forward), "");
  EXPECT_NE(with({{"c", "1"}, {"d", "2"}}, 1, forward), "");
}

TEST(ScanCheckTest, MissedKeyIsFoundUnlessBehindTheLimit) {
  const auto base = [] {
    return Written().Key("c").Initially("1").Key("d").Initially("2").At(1, 2);
  };
  EXPECT_NE(base().Scan({{"c", "1"}}).ScanProblem(), "");
  EXPECT_NE(base().Scan({{"d", "2"}}, 1).ScanProblem(), "");
  EXPECT_EQ(base().Scan({{"c", "1"}}, 1).ScanProblem(), "");
  EXPECT_EQ(base().Scan({{"d", "2"}}, 1, index::ScanDirection::kReverse).ScanProblem(), "");
  EXPECT_NE(base().Scan({{"c", "1"}}, 1, index::ScanDirection::kReverse).ScanProblem(), "");
  EXPECT_EQ(base().Scan({}, 0).ScanProblem(), "");
}

TEST(ScanCheckTest, KeyThatComesOrGoesMeanwhileMayBeThereOrNot) {
  for (bool there : {false, true}) {
    std::vector<index::KeyValue> rows;
    if (there) rows.push_back({"c", "1"});
    EXPECT_EQ(Written().Key("c").At(5, 15).Insert("1", false).At(10, 20).Scan(rows).ScanProblem(),
              "");
    EXPECT_EQ(Written()
                  .Key("c")
                  .Initially("1")
                  .At(12, 14)
                  .Delete(true)
                  .At(10, 20)
                  .Scan(rows)
                  .ScanProblem(),
              "");
    const std::string inserted_before =
        Written().Key("c").At(5, 6).Insert("1", false).At(10, 20).Scan(rows).ScanProblem();
    EXPECT_EQ(inserted_before.empty(), there) << inserted_before;
    const std::string deleted_before =
        Written().Key("c").Initially("1").At(5, 6).Delete(true).At(10, 20).Scan(rows).ScanProblem();
    EXPECT_EQ(deleted_before.empty(), !there) << deleted_before;
    // An insert of unknown outcome may come at any time, a delete of unknown outcome too.
    EXPECT_EQ(Written()
                  .Key("c")
                  .At(1, 2)
                  .Insert("1", false)
                  .Unknown()
                  .At(10, 20)
                  .Scan(rows)
                  .ScanProblem(),
              "");
    EXPECT_EQ(Written()
                  .Key("c")
                  .Initially("1")
                  .At(1, 2)
                  .Delete(false)
                  .Unknown()
                  .At(10, 20)
                  .Scan(rows)
                  .ScanProblem(),
              "");
  }
}

TEST(ScanCheckTest, OverwrittenOrForeignValueIsFound) {
  const auto base = [] {
    return Written().Key("c").Initially("1").At(5, 6).Put("2", true).At(10, 20);
  };
  EXPECT_EQ(base().Scan({{"c", "2"}}).ScanProblem(), "");
  EXPECT_NE(base().Scan({{"c", "1"}}).ScanProblem(), "");
  EXPECT_NE(base().Scan({{"c", "3"}}).ScanProblem(), "");
  EXPECT_NE(base().Scan({{"c", "2"}, {"d", "4"}}).ScanProblem(), "");
}

}  // namespace
}  // namespace farleaf::test
