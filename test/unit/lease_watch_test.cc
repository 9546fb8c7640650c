// Whom a memory server cuts off for not renewing its lease, and when.
#include "dsm/lease_watch.h"

#include <gtest/gtest.h>

#include <string>

#include "dsm/base/clock.h"
#include "dsm/lease_enforcer.h"

namespace farleaf::dsm {
namespace {

constexpr uint64_t kLeaseMs = 800;

struct LeaseWatchTest : ::testing::Test {
  LeaseWatch watch{kLeaseMs * kNsPerMs};
  std::vector<uint64_t> words = std::vector<uint64_t>(kMembersMax);
  uint64_t now_ns = 12'345 * kNsPerMs;

  void Write(MemberId id, uint64_t incarnation, uint16_t count) {
    words[id] = LeaseWord{incarnation, count}.Encode();
  }
  /// Who is to be cut off after looks, every 100 ms, for `ms`: "5/3 6/1".
  std::string Watch(uint64_t ms) {
    std::string last;
    for (uint64_t passed = 0; passed < ms; passed += 100) {
      now_ns += watch.look_interval_ns();
      last = Look();
    }
    return last;
  }
  std::string Look() {
    std::string named;
    for (const MemberIdentity& member : watch.Look(words, now_ns)) {
      named += (named.empty() ? "" : " ") + std::to_string(member.id) + "/" +
               std::to_string(member.incarnation);
    }
    return named;
  }
};

TEST_F(LeaseWatchTest, WhoeverStopsRenewingIsNamedAfterTheLease) {
  EXPECT_EQ(Watch(1'000), "");
  Write(5, 3, 1);
  EXPECT_EQ(Watch(800), "") << "it was first seen 700 ms ago";
  EXPECT_EQ(Watch(100), "5/3");
  EXPECT_EQ(Watch(100), "5/3") << "until it is confirmed";
  watch.Confirmed({5, 3});
  EXPECT_EQ(Watch(5'000), "");
}

TEST_F(LeaseWatchTest, WhoeverRenewsIsNeverNamed) {
  Write(5, 3, 1);
  Write(4095, 1, UINT16_MAX);
  for (uint16_t count = 0; count < 1'000; ++count) {
    Write(4095, 1, count);
    EXPECT_EQ(Watch(200), count < 4 ? "" : "5/3");
  }
}

TEST_F(LeaseWatchTest, WhoeverLeavesIsNotNamed) {
  Write(5, 3, 1);
  EXPECT_EQ(Watch(800), "");
  words[5] = 0;
  EXPECT_EQ(Watch(10'000), "");
}

TEST_F(LeaseWatchTest, ASuccessorIsWatchedForItself) {
  Write(5, 3, 1);
  EXPECT_EQ(Watch(900), "5/3");
  watch.Confirmed({5, 3});
  Write(5, 4, 1);
  EXPECT_EQ(Watch(800), "");
  EXPECT_EQ(Watch(100), "5/4");
}

TEST_F(LeaseWatchTest, AfterAPauseOfTheLooksEveryCountBeginsAnew) {
  Write(5, 3, 1);
  Write(6, 1, 1);
  EXPECT_EQ(Watch(700), "");
  now_ns += 10'000 * kNsPerMs;  // the memory server stood still
  EXPECT_EQ(Look(), "");
  Write(6, 1, 2);  // whoever lives renews now
  EXPECT_EQ(Watch(700), "");
  EXPECT_EQ(Watch(100), "5/3");
}

TEST_F(LeaseWatchTest, AShortPauseOfTheLooksNamesNobodyWhoRenews) {
  for (uint16_t count = 1; count < 100; ++count) {
    Write(5, 3, count);
    EXPECT_EQ(Watch(200), "");
    now_ns += kLeaseMs * kNsPerMs / 2;
    EXPECT_EQ(Look(), "");
  }
}

TEST_F(LeaseWatchTest, WordsThatNoMemberWritesAreIgnored) {
  words[0] = 77;                                 // nobody's id
  words[9] = LeaseWord{0, UINT16_MAX}.Encode();  // no incarnation
  EXPECT_EQ(Watch(10'000), "");
}

TEST(LeaseWordTest, ItCarriesIncarnationAndCount) {
  const uint64_t word = LeaseWord{LeaseWord::kIncarnationMax, 65'535}.Encode();
  EXPECT_EQ(word, UINT64_MAX);
  const LeaseWord decoded = LeaseWord::Decode(LeaseWord{7, 9}.Encode());
  EXPECT_EQ(decoded.incarnation, 7u);
  EXPECT_EQ(decoded.count, 9u);
}

TEST(LeaseEnforcerTest, ACutThatFailsIsAskedForAgain) {
  std::vector<uint64_t> region(kFreeListsOffset / 8);
  ManualClock clock;
  Status outcome = Status::DeadlineExceeded("its process has not ended");
  int asked = 0;
  LeaseEnforcer enforcer({.server = 3,
                          .region = std::as_bytes(std::span(region)),
                          .lease_ms = kLeaseMs,
                          .clock = &clock,
                          .cut_off = [&](const MemberIdentity& member) {
                            EXPECT_EQ(member, (MemberIdentity{5, 3}));
                            ++asked;
                            return outcome;
                          }});
  region[LeaseWordOffset(5) / 8] = LeaseWord{3, 1}.Encode();
  const auto look = [&](int times) {
    for (int i = 0; i < times; ++i) {
      clock.AdvanceNs(100 * kNsPerMs);
      enforcer.Look();
    }
  };
  look(9);
  EXPECT_EQ(asked, 1);
  look(1);
  EXPECT_EQ(asked, 2);
  outcome = Status::Ok();
  look(1);
  EXPECT_EQ(asked, 3);
  look(100);
  EXPECT_EQ(asked, 3);
}

TEST(LeaseEnforcerTest, AProcessThatEndedIsCutOffAtOnceUnlessItHadLeft) {
  std::vector<uint64_t> region(kFreeListsOffset / 8);
  ManualClock clock;
  std::vector<MemberIdentity> ended, cut;
  LeaseEnforcer enforcer({.server = 3,
                          .region = std::as_bytes(std::span(region)),
                          .lease_ms = kLeaseMs,
                          .clock = &clock,
                          .cut_off =
                              [&](const MemberIdentity& member) {
                                cut.push_back(member);
                                return Status::Ok();
                              },
                          .take_ended = [&] { return std::exchange(ended, {}); }});
  region[LeaseWordOffset(5) / 8] = LeaseWord{3, 1}.Encode();
  region[LeaseWordOffset(7) / 8] = LeaseWord{2, 1}.Encode();  // who came after 7/1
  enforcer.Look();
  ended = {{5, 3}, {6, 1}, {7, 1}};
  enforcer.Look();
  EXPECT_EQ(cut, (std::vector<MemberIdentity>{{5, 3}}));
}

}  // namespace
}  // namespace farleaf::dsm
