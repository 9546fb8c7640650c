// The contract of server/membership/membership.h, on the service in this process and on ZooKeeper (a real one); and what stands
// on it: counters, regions, elections.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "server/membership/counters.h"
#include "server/membership/election.h"
#include "server/membership/region_store.h"
#include "test/support/membership_under_test.h"

namespace farleaf::server::membership {
namespace {

using Kind = MembershipUnderTest::Kind;
constexpr uint64_t kLongNs = 120 * kNsPerSecond;
constexpr CreateOptions kEphemeral{.lifetime = Lifetime::kEphemeral};

struct MembershipContract : ::testing::TestWithParam<Kind> {
  std::unique_ptr<MembershipUnderTest> service;

  void SetUp() override {
    if (!MembershipUnderTest::IsInstalled(GetParam())) GTEST_SKIP() << "no package zookeeper here";
    service = MembershipUnderTest::New(GetParam());
  }
  dsm::Worker& worker() { return service->worker(); }
  template <typename T>
  T Run(dsm::Task<T> task) {
    return service->Run(std::move(task));
  }

  std::string Create(Membership& session, const std::string& path, const std::string& bytes = "",
                     CreateOptions options = {}) {
    auto created = Run(session.Create(worker(), path, bytes, options));
    return created.ok() ? *created : created.status().ToString();
  }
  StatusCode CreateCode(Membership& session, const std::string& path) {
    return Run(session.Create(worker(), path, "", {})).status().code();
  }
  Result<Entry> Get(Membership& session, const std::string& path) {
    return Run(session.Get(worker(), path, Watch::kNothing));
  }
  std::string Read(Membership& session, const std::string& path) {
    auto entry = Get(session, path);
    return entry.ok() ? entry->bytes + " " + std::to_string(entry->version)
                      : std::string(StatusCodeName(entry.status().code()));
  }
  StatusCode Set(Membership& session, const std::string& path, const std::string& bytes,
                 std::optional<Version> version) {
    return Run(session.Set(worker(), path, bytes, version)).status().code();
  }
  std::vector<std::string> Children(Membership& session, const std::string& path) {
    auto names = Run(session.Children(worker(), path, Watch::kNothing));
    EXPECT_TRUE(names.ok()) << names.status();
    return names.ok() ? *names : std::vector<std::string>();
  }
  StatusCode Commit(Membership& session, std::vector<Change> changes) {
    return Run(session.Commit(worker(), std::move(changes))).code();
  }
  void AwaitState(Membership& session, SessionState state) {
    service->Until([&] { return session.state() == state; });
  }
};

TEST_P(MembershipContract, EntriesAreCreatedReadSetAndRemoved) {
  Membership& session = service->Open();
  EXPECT_EQ(Children(session, "/"), std::vector<std::string>());
  EXPECT_EQ(Create(session, "/a", "one"), "/a");
  EXPECT_EQ(CreateCode(session, "/a"), StatusCode::kAlreadyExists);
  EXPECT_EQ(CreateCode(session, "/b/c"), StatusCode::kNotFound);
  EXPECT_EQ(Create(session, "/a/b", std::string("\0\n\xff", 3)), "/a/b");
  EXPECT_EQ(Read(session, "/a/b"), std::string("\0\n\xff 0", 5));
  EXPECT_EQ(Read(session, "/a"), "one 0");
  EXPECT_EQ(Set(session, "/a", "two", 0), StatusCode::kOk);
  EXPECT_EQ(Set(session, "/a", "three", 0), StatusCode::kVersionMismatch);
  EXPECT_EQ(Set(session, "/a", "three", std::nullopt), StatusCode::kOk);
  EXPECT_EQ(Read(session, "/a"), "three 2");
  EXPECT_EQ(Set(session, "/c", "", std::nullopt), StatusCode::kNotFound);
  EXPECT_EQ(Children(session, "/"), std::vector<std::string>{"a"});
  EXPECT_EQ(Run(session.Remove(worker(), "/a", std::nullopt)).code(),
            StatusCode::kInvalidArgument);  // it has a child
  EXPECT_EQ(Run(session.Remove(worker(), "/a/b", 1)).code(), StatusCode::kVersionMismatch);
  EXPECT_EQ(Run(session.Remove(worker(), "/a/b", 0)).code(), StatusCode::kOk);
  EXPECT_EQ(Run(session.Remove(worker(), "/a", std::nullopt)).code(), StatusCode::kOk);
  EXPECT_EQ(Run(session.Remove(worker(), "/a", std::nullopt)).code(), StatusCode::kNotFound);
  EXPECT_EQ(Run(session.Children(worker(), "/a", Watch::kChanges)).status().code(),
            StatusCode::kNotFound);
  for (const char* path : {"", "a", "/a/", "//a", "/.", "/a/../b", "/a b", "/a\n"}) {
    EXPECT_EQ(Get(session, path).status().code(), StatusCode::kInvalidArgument) << path;
  }
  EXPECT_EQ(Create(session, "/e", "", kEphemeral), "/e");
  EXPECT_EQ(CreateCode(session, "/e/child"), StatusCode::kInvalidArgument);
  const std::string much(kEntryBytesMax, 'x');
  EXPECT_EQ(Create(session, "/much", much), "/much");
  EXPECT_EQ(Get(session, "/much")->bytes, much);
  EXPECT_EQ(Set(session, "/much", much + "x", 0), StatusCode::kInvalidArgument);
}

TEST_P(MembershipContract, SequentialNamesGrow) {
  Membership& session = service->Open();
  Create(session, "/s");
  std::string last;
  for (int i = 0; i < 12; ++i) {
    const std::string path =
        Create(session, "/s/n-", "", {Lifetime::kPersistent, Naming::kSequential});
    EXPECT_GT(path, last);
    ASSERT_EQ(path.size(), 15u) << path;
    last = path;
    if (i % 3 != 0) continue;
    EXPECT_TRUE(Run(session.Remove(worker(), path, 0)).ok());
  }
  EXPECT_EQ(Children(session, "/s").size(), 8u);
}

TEST_P(MembershipContract, ACommitIsMadeAsAWholeOrNotAtAll) {
  Membership& session = service->Open();
  Create(session, "/a", "0");
  using K = Change::Kind;
  EXPECT_EQ(Commit(session, {{K::kSet, "/a", "1", 0}, {K::kCreate, "/b", "1", {}}}),
            StatusCode::kOk);
  EXPECT_EQ(Commit(session, {{K::kSet, "/a", "2", 1}, {K::kCreate, "/b", "2", {}}}),
            StatusCode::kAlreadyExists);
  EXPECT_EQ(Commit(session, {{K::kRemove, "/b", "", {}}, {K::kSet, "/a", "2", 0}}),
            StatusCode::kVersionMismatch);
  EXPECT_EQ(Commit(session, {{K::kRemove, "/c", "", {}}, {K::kSet, "/a", "2", 0}}),
            StatusCode::kNotFound);
  EXPECT_EQ(Read(session, "/a") + ", " + Read(session, "/b"), "1 1, 1 0");
  EXPECT_EQ(Commit(session, {{K::kRemove, "/b", "", 0}, {K::kSet, "/a", "2", 1}}), StatusCode::kOk);
  EXPECT_EQ(Read(session, "/a") + ", " + Read(session, "/b"), "2 2, not found");
  EXPECT_EQ(Commit(session, {}), StatusCode::kInvalidArgument);
}

dsm::Task<void> CountUp(dsm::Worker& worker, Membership& session, int times,
                        std::multiset<uint64_t>* numbers) {
  uint64_t last = 0;
  for (int i = 0; i < times; ++i) {
    auto number = co_await NextNumber(worker, session, "/counter");
    FARLEAF_CHECK(number.ok() && *number > last, number.status(), last);
    last = *number;
    numbers->insert(last);
  }
}

TEST_P(MembershipContract, OfCompareAndSetsThatRaceOneWins) {
  constexpr int kSessions = 4, kTimes = 10;
  std::multiset<uint64_t> numbers;
  for (int i = 0; i < kSessions; ++i) {
    worker().Spawn(CountUp(worker(), service->Open(), kTimes, &numbers));
  }
  service->Until([&] { return numbers.size() == kSessions * kTimes; });
  uint64_t wanted = 0;
  for (const uint64_t number : numbers) EXPECT_EQ(number, ++wanted);
}

TEST_P(MembershipContract, IncarnationsGrow) {
  Membership& session = service->Open();
  for (uint64_t wanted = 1; wanted <= 3; ++wanted) {
    auto identity = Run(NextIncarnation(worker(), session, 9));
    ASSERT_TRUE(identity.ok()) << identity.status();
    EXPECT_EQ(*identity, (dsm::MemberIdentity{9, wanted}));
  }
  EXPECT_EQ(Run(NextIncarnation(worker(), session, 10))->incarnation, 1u);
  EXPECT_EQ(Set(session, "/incarnations/9", "3x", std::nullopt), StatusCode::kOk);
  EXPECT_EQ(Run(NextIncarnation(worker(), session, 9)).status().code(), StatusCode::kCorruption);
}

dsm::Task<Status> AwaitGone(dsm::Worker& worker, Membership& session, std::string path) {
  while (true) {
    const uint64_t seen = session.ChangeCount(path);
    auto entry = co_await session.Get(worker, path, Watch::kChanges);
    if (entry.status().code() == StatusCode::kNotFound) co_return Status::Ok();
    if (!entry.ok()) co_return entry.status();
    const bool changed = co_await session.AwaitChange(worker, path, seen, kLongNs);
    if (!changed) co_return Status::DeadlineExceeded(path);
  }
}

TEST_P(MembershipContract, AnEphemeralEntryEndsWithTheClosedSession) {
  Membership& session = service->Open();
  Membership& other = service->Open();
  Create(session, "/e", "", kEphemeral);
  EXPECT_EQ(Read(other, "/e"), " 0");
  EXPECT_TRUE(Run(session.Close(worker())).ok());
  EXPECT_EQ(session.lease_until_ns(), 0u);
  EXPECT_EQ(Get(session, "/e").status().code(), StatusCode::kFenced);
  EXPECT_EQ(Run(AwaitGone(worker(), other, "/e")).ToString(), "ok");
}

TEST_P(MembershipContract, AnEphemeralEntryEndsWithTheExpiredSessionForEver) {
  Membership& session = service->Open();
  Membership& other = service->Open();
  Create(session, "/e", "", kEphemeral);
  Create(session, "/p");
  service->Until([&] { return session.lease_until_ns() > service->clock().NowNs(); });
  service->Part(session);
  EXPECT_EQ(Run(AwaitGone(worker(), other, "/e")).ToString(), "ok");
  EXPECT_LE(session.lease_until_ns(), service->clock().NowNs());
  AwaitState(session, SessionState::kAway);
  EXPECT_EQ(Set(session, "/p", "late", std::nullopt), StatusCode::kUnavailable);
  service->Heal(session);
  AwaitState(session, SessionState::kExpired);
  EXPECT_EQ(Set(session, "/p", "late", std::nullopt), StatusCode::kFenced);
  EXPECT_EQ(Create(session, "/e", "", kEphemeral).substr(0, 6), "fenced");
  EXPECT_TRUE(Run(session.AwaitChange(worker(), "/p", session.ChangeCount("/p"), kLongNs)));
  EXPECT_EQ(session.lease_until_ns(), 0u);
  EXPECT_EQ(Read(other, "/p"), " 0");
}

/// Sets /n to 1, 2, ... and creates and removes entries below it meanwhile.
dsm::Task<void> MakeChanges(dsm::Worker& worker, Membership& session, int count, int* ended) {
  for (int i = 1; i <= count; ++i) {
    auto set = co_await session.Set(worker, "/n", std::to_string(i), std::nullopt);
    FARLEAF_CHECK(set.ok(), set.status());
    if (i % 2 == 1) {
      auto created = co_await session.Create(worker, "/n/" + std::to_string(i), "", {});
      FARLEAF_CHECK(created.ok(), created.status());
    }
    co_await worker.Sleep(worker.random().Below(5 * kNsPerMs));
  }
  ++*ended;
}

enum class Looks : uint8_t { kAtBytes, kAtChildren, kForTheLast };

/// Returns when all changes of MakeChanges were seen.
dsm::Task<void> SeeChanges(dsm::Worker& worker, Membership& session, Looks looks, int count,
                           int* ended) {
  const std::string last = std::to_string(count);
  const std::string path = looks == Looks::kForTheLast ? "/n/" + last : "/n";
  while (true) {
    const uint64_t seen = session.ChangeCount(path);
    if (looks == Looks::kAtChildren) {
      auto names = co_await session.Children(worker, path, Watch::kChanges);
      FARLEAF_CHECK(names.ok(), names.status());
      if (names->size() == static_cast<size_t>(count + 1) / 2) break;
    } else {
      auto entry = co_await session.Get(worker, path, Watch::kChanges);
      FARLEAF_CHECK(entry.ok() || looks == Looks::kForTheLast, entry.status());
      if (entry.ok() && (entry->bytes == last || looks == Looks::kForTheLast)) break;
    }
    const bool changed = co_await session.AwaitChange(worker, path, seen, kLongNs);
    FARLEAF_CHECK(changed, "a change was missed");
  }
  ++*ended;
}

TEST_P(MembershipContract, NoChangeIsMissed) {
  constexpr int kChanges = 41;
  Membership& writer = service->Open();
  Create(writer, "/n");
  int ended = 0, started = 0;
  for (const Looks looks : {Looks::kAtBytes, Looks::kAtChildren, Looks::kForTheLast}) {
    for (int i = 0; i < 2; ++i, ++started) {
      worker().Spawn(SeeChanges(worker(), service->Open(), looks, kChanges, &ended));
    }
  }
  worker().Spawn(MakeChanges(worker(), writer, kChanges, &ended));
  service->Until([&] { return ended == started + 1; });
}

TEST_P(MembershipContract, AWaitEndsAtItsTimeout) {
  Membership& session = service->Open();
  Create(session, "/quiet");
  bool changed = true;
  for (int attempt = 0; changed && attempt < 20; ++attempt) {  // counts may move without a change
    changed =
        Run(session.AwaitChange(worker(), "/quiet", session.ChangeCount("/quiet"), 20 * kNsPerMs));
  }
  EXPECT_FALSE(changed);
}

TEST_P(MembershipContract, ASessionSurvivesARestartOfTheService) {
  Membership& session = service->Open();
  Membership& other = service->Open();
  Create(session, "/e", "mine", kEphemeral);
  const uint64_t seen = other.ChangeCount("/e");
  EXPECT_TRUE(Run(other.Get(worker(), "/e", Watch::kChanges)).ok());
  service->GoAway();
  AwaitState(session, SessionState::kAway);
  EXPECT_EQ(Get(session, "/e").status().code(), StatusCode::kUnavailable);
  service->ComeBack();
  AwaitState(session, SessionState::kConnected);
  AwaitState(other, SessionState::kConnected);
  EXPECT_EQ(Read(session, "/e"), "mine 0");
  service->Until([&] { return session.lease_until_ns() > service->clock().NowNs(); });
  EXPECT_TRUE(Run(other.AwaitChange(worker(), "/e", seen, kLongNs)));
  EXPECT_EQ(Set(session, "/e", "still mine", 0), StatusCode::kOk);
}

TEST_P(MembershipContract, OfSeveralCandidatesOneIsMasterUntilItIsLost) {
  Membership* sessions[] = {&service->Open(), &service->Open(), &service->Open()};
  std::vector<std::unique_ptr<Election>> candidates;
  for (int i = 0; i < 3; ++i) {
    candidates.push_back(std::make_unique<Election>(sessions[i], &service->clock(), "/x/master",
                                                    "node " + std::to_string(i)));
  }
  EXPECT_EQ(*Run(candidates[2]->Master(worker())), std::nullopt);
  ASSERT_TRUE(Run(candidates[0]->BecomeMaster(worker(), kLongNs)).ok());
  service->Until([&] { return candidates[0]->IsMaster(); });
  EXPECT_EQ(Run(candidates[1]->BecomeMaster(worker(), kNsPerMs)).code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Run(candidates[2]->BecomeMaster(worker(), kNsPerMs)).code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(candidates[1]->IsMaster());
  EXPECT_EQ(Run(candidates[2]->Master(worker()))->value_or(""), "node 0");
  EXPECT_EQ(Run(candidates[0]->AwaitLoss(worker(), kNsPerMs)).code(),
            StatusCode::kDeadlineExceeded);

  service->Part(*sessions[0]);
  ASSERT_TRUE(Run(candidates[1]->BecomeMaster(worker(), kLongNs)).ok());
  EXPECT_FALSE(candidates[0]->IsMaster());  // though it cannot have heard of it
  service->Until([&] { return candidates[1]->IsMaster(); });
  service->Heal(*sessions[0]);
  EXPECT_EQ(Run(candidates[0]->AwaitLoss(worker(), kLongNs)).code(), StatusCode::kFenced);
  EXPECT_EQ(Run(candidates[0]->BecomeMaster(worker(), kLongNs)).code(), StatusCode::kFenced);

  ASSERT_TRUE(Run(candidates[1]->Resign(worker())).ok());
  EXPECT_FALSE(candidates[1]->IsMaster());
  ASSERT_TRUE(Run(candidates[2]->BecomeMaster(worker(), kLongNs)).ok());
  EXPECT_EQ(Run(candidates[1]->Master(worker()))->value_or(""), "node 2");
}

RegionEntry NewRegion(uint32_t id, std::string start, std::string end) {
  RegionEntry region;
  region.id = RegionId{id};
  region.primary = 1;
  region.in_sync = {1, 2};
  region.start = std::move(start);
  region.end = std::move(end);
  return region;
}

TEST_P(MembershipContract, RegionsAreFoundedSplitAndChanged) {
  Membership& session = service->Open();
  RegionStore store(&session), other(&service->Open());
  ASSERT_TRUE(Run(store.Prepare(worker())).ok());
  ASSERT_TRUE(Run(store.Prepare(worker())).ok());
  EXPECT_EQ(Run(store.Read(worker())).status().code(), StatusCode::kNotFound);
  const auto low = static_cast<uint32_t>(*Run(store.NextRegion(worker())));
  const auto high = static_cast<uint32_t>(*Run(store.NextRegion(worker())));
  const std::vector<RegionEntry> gap = {NewRegion(low, "", "m"), NewRegion(high, "n", "")};
  EXPECT_EQ(Run(store.Found(worker(), gap, {})).status().code(), StatusCode::kInvalidArgument);
  const std::vector<RegionEntry> first = {NewRegion(high, "m", ""), NewRegion(low, "", "m")};
  const std::vector<Change> absent = {{Change::Kind::kRemove, "/absent", "", std::nullopt}};
  EXPECT_EQ(Run(store.Found(worker(), first, absent)).status().code(), StatusCode::kNotFound);
  auto map = Run(store.Found(worker(), first, {}));
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(Run(other.Found(worker(), first, {})).status().code(), StatusCode::kAlreadyExists);
  auto all = Run(other.All(worker(), Watch::kNothing));
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[0].region, map->Find("a"));
  EXPECT_EQ((*all)[1].region, map->Find("m"));

  const RegionId id = map->Find("q").id;
  auto seen = Run(store.Get(worker(), id, Watch::kNothing));
  ASSERT_TRUE(seen.ok()) << seen.status();
  const RegionId right = *Run(store.NextRegion(worker()));
  auto halves = Run(store.Split(worker(), *seen, "t", right));
  ASSERT_TRUE(halves.ok()) << halves.status();
  RegionEntry changed = halves->first.region;
  EXPECT_EQ(Run(other.ChangeView(worker(), *seen, changed)).status().code(),
            StatusCode::kInvalidArgument);  // its keys are those before the split
  changed = seen->region;
  changed.filling = {3};
  EXPECT_EQ(Run(other.ChangeView(worker(), *seen, changed)).status().code(),
            StatusCode::kVersionMismatch);
  EXPECT_EQ(Run(other.Split(worker(), *seen, "u", RegionId{99})).status().code(),
            StatusCode::kVersionMismatch);
  for (const char* key : {"m", "t", "a"}) {
    EXPECT_EQ(Run(store.Split(worker(), halves->first, key, RegionId{99})).status().code(),
              StatusCode::kInvalidArgument);
  }
  changed = halves->first.region;
  changed.in_sync = {2};
  EXPECT_EQ(Run(store.ChangeView(worker(), halves->first, changed)).status().code(),
            StatusCode::kInvalidArgument);  // its primary is not in sync
  changed.primary = 2;
  changed.filling = {1, 3};
  auto next = Run(store.ChangeView(worker(), halves->first, changed));
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->region.moves, 3u);  // founded, cut, given to another primary

  auto read = Run(other.Read(worker()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->version(), 3u);  // founded, split, changed
  ASSERT_EQ(read->regions().size(), 3u);
  EXPECT_EQ(read->Find("q"), next->region);
  EXPECT_EQ(read->Find("q").view, 3u);
  EXPECT_EQ(read->Find("t"), halves->second.region);
  EXPECT_EQ(Run(store.Get(worker(), id, Watch::kNothing))->version, next->version);
}

TEST_P(MembershipContract, NodesAreThereWhileTheirSessionsAre) {
  Membership& session = service->Open();
  Membership& second = service->Open();
  RegionStore store(&session), other(&second);
  ASSERT_TRUE(Run(store.Prepare(worker())).ok());
  const NodeEntry nine{9, 4, {"127.0.0.1:7400", "unix:/run/f.sock"}, "tcp:127.0.0.1:7100"};
  const NodeEntry ten{10, 1, {}, ""};
  ASSERT_TRUE(Run(store.Announce(worker(), nine)).ok());
  ASSERT_TRUE(Run(other.Announce(worker(), ten)).ok());
  EXPECT_EQ(Run(other.Announce(worker(), nine)).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(*Run(other.Nodes(worker(), Watch::kNothing)), (std::vector<NodeEntry>{nine, ten}));
  const uint64_t seen = session.ChangeCount(RegionStore::kNodesPath);
  EXPECT_EQ(Run(store.Nodes(worker(), Watch::kChanges))->size(), 2u);
  ASSERT_TRUE(Run(second.Close(worker())).ok());
  EXPECT_TRUE(Run(session.AwaitChange(worker(), RegionStore::kNodesPath, seen, kLongNs)));
  ASSERT_TRUE(Run(AwaitGone(worker(), session, NodePath(10))).ok());
  EXPECT_EQ(*Run(store.Nodes(worker(), Watch::kNothing)), (std::vector<NodeEntry>{nine}));
}

INSTANTIATE_TEST_SUITE_P(Services, MembershipContract,
                         ::testing::Values(Kind::kInProcess, Kind::kZookeeper),
                         [](const auto& kind) {
                           return kind.param == Kind::kInProcess ? "in_process" : "zookeeper";
                         });

}  // namespace
}  // namespace farleaf::server::membership
