// The simulated fabric itself: a seed repeats a run exactly, and what the transport contract leaves open
// does happen. That it keeps what the contract promises is tested with the other fabrics
// (test/contract/transport_contract_test.cc).
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dsm/sim/sim_world.h"
#include "dsm/worker.h"

namespace farleaf::dsm {
namespace {

constexpr uint64_t kA = 256 << 10, kB = kA + 4096;
constexpr size_t kWords = 32;

/// One process with one worker that the world runs.
struct Process {
  explicit Process(SimWorld* w, MemberIdentity self = {}) : world(w), fabric(w->NewFabric()) {
    if (self.id != 0) FARLEAF_CHECK(fabric->Identify(self).ok(), self.id);
    auto transport = fabric->OpenTransport();
    FARLEAF_CHECK(transport.ok(), transport.status());
    worker.emplace(Worker::Deps{std::move(*transport), &epochs, &w->clock(), 1});
    world->AddThread(fabric->process(), &*worker);
  }
  ~Process() { world->RemoveThread(&*worker); }
  uint32_t number() const { return fabric->process(); }

  SimWorld* world;
  EpochDomain epochs;
  std::unique_ptr<SimFabric> fabric;
  std::optional<Worker> worker;
};

Task<void> WriteRounds(Worker* worker, uint64_t rounds, uint64_t first) {
  FabricCounts counts;
  for (uint64_t round = 0; round < rounds; ++round) {
    std::vector<uint64_t> words(kWords, first + round);
    Batch batch(0);
    batch.Write(kA, std::as_bytes(std::span(words)));
    Status status = co_await worker->RoundTrip(batch, counts);
    FARLEAF_CHECK(status.ok(), status);
  }
}

/// How the words of a READ differed from each other.
struct Seen {
  uint64_t reads = 0;
  uint64_t torn = 0;             ///< READs with words of two WRITEs
  uint64_t torn_in_a_line = 0;   ///< in one cache line
  uint64_t lines_backwards = 0;  ///< an earlier line newer than a later one
  uint64_t lines_forwards = 0;
};

Task<void> ReadRounds(Worker* worker, uint64_t rounds, Seen* seen) {
  FabricCounts counts;
  for (uint64_t round = 0; round < rounds; ++round) {
    std::vector<uint64_t> words(kWords);
    Batch batch(0);
    batch.Read(kA, std::as_writable_bytes(std::span(words)));
    Status status = co_await worker->RoundTrip(batch, counts);
    FARLEAF_CHECK(status.ok(), status);
    ++seen->reads;
    seen->torn += words.front() != words.back();
    bool mixed = false;
    for (size_t i = 1; i < 8; ++i) mixed |= words[i] != words[0];
    seen->torn_in_a_line += mixed;
    seen->lines_backwards += words.front() > words.back();
    seen->lines_forwards += words.front() < words.back();
  }
}

struct Run {
  uint64_t hash;
  Seen seen;
};

Run RunSeed(uint64_t seed) {
  SimWorld world({.seed = seed, .servers = 1, .region_bytes = 1 << 20});
  Seen seen;
  {
    Process writer(&world), reader(&world);
    writer.worker->Spawn(WriteRounds(&*writer.worker, 50, 1));
    writer.worker->Spawn(WriteRounds(&*writer.worker, 50, 1'000));
    for (int i = 0; i < 3; ++i) reader.worker->Spawn(ReadRounds(&*reader.worker, 50, &seen));
    EXPECT_EQ(world.RunWhileBusy(), SimWorld::RunEnd::kIdle);
  }
  return {world.trace().hash(), seen};
}

TEST(SimFabricTest, ASeedRepeatsARunExactlyAndAnotherIsAnother) {
  std::set<uint64_t> hashes;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const uint64_t hash = RunSeed(seed).hash;
    EXPECT_EQ(RunSeed(seed).hash, hash) << "seed " << seed;
    hashes.insert(hash);
  }
  EXPECT_EQ(hashes.size(), 20u);
}

TEST(SimFabricTest, ReadsAreTornInAnyOrderAndWritesLandInWords) {
  Seen all;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Seen seen = RunSeed(seed).seen;
    all.reads += seen.reads;
    all.torn += seen.torn;
    all.torn_in_a_line += seen.torn_in_a_line;
    all.lines_backwards += seen.lines_backwards;
    all.lines_forwards += seen.lines_forwards;
  }
  EXPECT_GT(all.torn, 20u);
  EXPECT_LT(all.torn, all.reads);
  EXPECT_GT(all.torn_in_a_line, 5u);
  EXPECT_GT(all.lines_backwards, 5u);
  EXPECT_GT(all.lines_forwards, 5u);
}

struct Pair {
  VerbKind first, second;
};

/// Whether `second` took effect before `first` in some of many seeds: both on word kA of one server,
/// posted at once in two batches of one transport.
uint64_t TimesOvertaken(Pair pair) {
  uint64_t overtaken = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SimWorld world({.seed = seed, .servers = 1, .region_bytes = 1 << 20});
    Process process(&world);
    std::array<uint64_t, 2> words{1, 1};
    const auto task = [](Worker* worker, Pair kinds,
                         std::array<uint64_t, 2>* result) -> Task<void> {
      FabricCounts counts;
      std::vector<Batch> batches;
      for (const VerbKind kind : {kinds.first, kinds.second}) {
        uint64_t* word = &(*result)[batches.size()];
        Batch& batch = batches.emplace_back(ServerId{0});
        if (kind == VerbKind::kRead) batch.ReadWord(kA, word);
        if (kind == VerbKind::kWrite) batch.WriteWord(kA, word);
        if (kind == VerbKind::kFetchAdd) batch.FetchAdd(kA, 1, word);
      }
      Status status = co_await worker->RoundTrip(std::span(batches), counts);
      FARLEAF_CHECK(status.ok(), status);
    };
    process.worker->Spawn(task(&*process.worker, pair, &words));
    EXPECT_EQ(world.RunWhileBusy(), SimWorld::RunEnd::kIdle);
    uint64_t after;
    std::memcpy(&after, world.region_bytes(0).data() + kA, 8);
    if (pair.first == VerbKind::kRead) overtaken += words[0] == 1;
    if (pair.first == VerbKind::kWrite && pair.second != VerbKind::kRead) overtaken += after != 2;
    if (pair.first == VerbKind::kWrite && pair.second == VerbKind::kRead)
      overtaken += words[1] == 0;
    if (pair.first == VerbKind::kFetchAdd && pair.second == VerbKind::kRead) {
      overtaken += words[1] == 0;
    }
    if (pair.first == VerbKind::kFetchAdd && pair.second == VerbKind::kFetchAdd) {
      overtaken += words[0] == 1;
    }
    if (pair.first == VerbKind::kFetchAdd && pair.second == VerbKind::kWrite) {
      overtaken += after == 2;
    }
  }
  return overtaken;
}

// Rule 2, by cases.
TEST(SimFabricTest, ExactlyThePairsThatNothingOrdersOvertakeEachOther) {
  constexpr VerbKind kRead = VerbKind::kRead, kWrite = VerbKind::kWrite,
                     kAtomic = VerbKind::kFetchAdd;
  EXPECT_EQ(TimesOvertaken({kWrite, kRead}), 0u);
  EXPECT_EQ(TimesOvertaken({kWrite, kAtomic}), 0u);
  EXPECT_EQ(TimesOvertaken({kAtomic, kRead}), 0u);
  EXPECT_GT(TimesOvertaken({kRead, kWrite}), 20u);
  EXPECT_GT(TimesOvertaken({kRead, kAtomic}), 20u);
  EXPECT_GT(TimesOvertaken({kAtomic, kWrite}), 20u);
  EXPECT_GT(TimesOvertaken({kAtomic, kAtomic}), 20u);
}

// ---- Connections that break

Task<void> WriteOnce(Worker* worker, const std::vector<uint64_t>* words, Status* status,
                     uint64_t wait_ns = 0) {
  FabricCounts counts;
  if (wait_ns > 0) co_await worker->Sleep(wait_ns);
  Batch batch(0);
  batch.Write(kA, std::as_bytes(std::span(*words)));
  batch.WriteWord(kB, words->data());
  *status = co_await worker->RoundTrip(batch, counts);
}

struct Landed {
  uint64_t words = 0;
  bool flag = false;
};
Landed WhatLanded(SimWorld& world) {
  std::array<uint64_t, kWords> words;
  std::memcpy(words.data(), world.region_bytes(0).data() + kA, sizeof words);
  Landed landed;
  for (const uint64_t word : words) landed.words += word == 7;
  std::memcpy(words.data(), world.region_bytes(0).data() + kB, 8);
  landed.flag = words[0] == 7;
  return landed;
}

TEST(SimFabricTest, ABrokenConnectionLeavesAPrefixAndIsReportedWhenNothingLandsAnyMore) {
  uint64_t nothing = 0, part = 0, all = 0, flagged = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SimWorld world({.seed = seed, .servers = 1, .region_bytes = 1 << 20});
    Process process(&world);
    const std::vector<uint64_t> words(kWords, 7);
    Status status;
    process.worker->Spawn(WriteOnce(&*process.worker, &words, &status));
    world.At(world.now_ns() + world.random().Below(3'000),
             [&] { world.DropConnections(process.number(), 0); });
    ASSERT_EQ(world.RunWhileBusy(), SimWorld::RunEnd::kIdle);
    if (status.ok()) continue;
    ASSERT_EQ(status.code(), StatusCode::kUnavailable) << status;
    const Landed landed = WhatLanded(world);
    ASSERT_TRUE(!landed.flag || landed.words == kWords) << "seed " << seed;
    nothing += landed.words == 0;
    part += landed.words > 0 && landed.words < kWords;
    all += landed.words == kWords && !landed.flag;
    flagged += landed.flag;
    // Later nothing of it lands, and the new connection works.
    std::memset(world.region_bytes(0).data() + kA, 0, kWords * 8);
    Status again;
    const std::vector<uint64_t> others(kWords, 8);
    process.worker->Spawn(WriteOnce(&*process.worker, &others, &again));
    ASSERT_EQ(world.RunWhileBusy(), SimWorld::RunEnd::kIdle);
    EXPECT_TRUE(again.ok()) << again;
    EXPECT_EQ(WhatLanded(world).words, 0u) << "seed " << seed;
  }
  EXPECT_GT(nothing, 3u);
  EXPECT_GT(part, 3u);
  EXPECT_GT(all, 0u);
  EXPECT_GT(flagged, 3u);
}

TEST(SimFabricTest, BehindAPartitionTheOutcomeIsUnknownAndMayComeLater) {
  uint64_t landed_later = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SimWorld world({.seed = seed, .servers = 1, .region_bytes = 1 << 20});
    Process process(&world);
    const std::vector<uint64_t> words(kWords, 7);
    Status status;
    world.Partition(process.number(), 0);
    process.worker->Spawn(WriteOnce(&*process.worker, &words, &status));
    ASSERT_EQ(world.RunWhileBusy(), SimWorld::RunEnd::kIdle);
    EXPECT_EQ(status.code(), StatusCode::kUnknown) << status;
    EXPECT_EQ(WhatLanded(world).words, 0u);
    world.Heal(process.number(), 0);
    landed_later += WhatLanded(world).words > 0;
    Status again;
    const std::vector<uint64_t> others(kWords, 8);
    process.worker->Spawn(WriteOnce(&*process.worker, &others, &again, 2 * kNsPerSecond));
    ASSERT_EQ(world.RunWhileBusy(), SimWorld::RunEnd::kIdle);
    EXPECT_TRUE(again.ok()) << again;
  }
  EXPECT_GT(landed_later, 3u);
  EXPECT_LT(landed_later, 40u);
}

TEST(SimFabricTest, AStalledServerTakesUpLaterWhatCameInOrder) {
  SimWorld world({.servers = 1, .region_bytes = 1 << 20});
  Process process(&world);
  const std::vector<uint64_t> words(kWords, 7);
  Status status;
  world.StallServer(0);
  process.worker->Spawn(WriteOnce(&*process.worker, &words, &status));
  EXPECT_EQ(world.RunWhileBusy(world.now_ns() + kNsPerSecond), SimWorld::RunEnd::kDeadline);
  EXPECT_EQ(WhatLanded(world).words, 0u);
  world.ResumeServer(0);
  EXPECT_EQ(world.RunWhileBusy(), SimWorld::RunEnd::kIdle);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(WhatLanded(world).flag);
}

TEST(SimFabricTest, ARestartedServerIsNotTakenForTheOldOne) {
  SimWorld world({.servers = 1, .region_bytes = 1 << 20});
  Process process(&world);
  const std::vector<uint64_t> words(kWords, 7);
  Status status;
  world.CrashServer(0);
  process.worker->Spawn(WriteOnce(&*process.worker, &words, &status));
  EXPECT_EQ(world.RunWhileBusy(), SimWorld::RunEnd::kIdle);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  world.RestartServer(0);
  for (int attempt = 0; attempt < 3; ++attempt) {
    process.worker->Spawn(WriteOnce(&*process.worker, &words, &status));
    EXPECT_EQ(world.RunWhileBusy(world.now_ns() + kNsPerSecond), SimWorld::RunEnd::kIdle);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_TRUE(status.message().starts_with("memory server 0")) << status;
  }
  EXPECT_EQ(WhatLanded(world).words, 0u);
}

TEST(SimFabricTest, WhoIsCutOffLandsNothingAnyMore) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SimWorld world({.seed = seed, .servers = 1, .region_bytes = 1 << 20});
    Process healthy(&world);
    Process zombie(&world);
    ASSERT_TRUE(zombie.fabric->Identify({5, 1}).ok());
    auto transport = zombie.fabric->OpenTransport();
    ASSERT_TRUE(transport.ok());
    Worker named({std::move(*transport), &zombie.epochs, &world.clock(), 1});
    world.AddThread(zombie.number(), &named);
    const std::vector<uint64_t> words(kWords, 7);
    Status status;
    named.Spawn(WriteOnce(&named, &words, &status));
    Status cut = healthy.fabric->CutOff(0, {5, 1});
    ASSERT_TRUE(cut.ok()) << cut;
    std::memset(world.region_bytes(0).data() + kA, 0, kWords * 8);
    ASSERT_EQ(world.RunWhileBusy(), SimWorld::RunEnd::kIdle);
    EXPECT_EQ(WhatLanded(world).words, 0u) << "seed " << seed;
    named.Spawn(WriteOnce(&named, &words, &status));
    ASSERT_EQ(world.RunWhileBusy(), SimWorld::RunEnd::kIdle);
    EXPECT_EQ(status.code(), StatusCode::kFenced) << status;
    world.RemoveThread(&named);
  }
}

// ---- Processes that crash

constexpr MemberIdentity kVictim{5, 1};

/// Crashes a process that has WriteOnce in flight, at a random moment.
struct Crashed {
  explicit Crashed(uint64_t seed) : world({.seed = seed, .servers = 1, .region_bytes = 1 << 20}) {
    victim.emplace(&world, kVictim);
    healthy.emplace(&world);
    victim->worker->Spawn(WriteOnce(&*victim->worker, &words, &status));
    world.At(world.now_ns() + world.random().Below(9'000),
             [this] { world.CrashProcess(victim->number()); });
  }
  ~Crashed() {
    if (world.has_crashed(victim->number())) victim->worker->Abandon();
  }
  /// Lets everything happen that will.
  void Wait(uint64_t ns) {
    const auto sleep = [](Worker* worker, uint64_t wait_ns) -> Task<void> {
      co_await worker->Sleep(wait_ns);
    };
    healthy->worker->Spawn(sleep(&*healthy->worker, ns));
    EXPECT_EQ(world.RunWhileBusy(), SimWorld::RunEnd::kIdle);
  }

  SimWorld world;
  const std::vector<uint64_t> words = std::vector<uint64_t>(kWords, 7);
  Status status = Status::InvalidArgument("not answered");
  std::optional<Process> victim, healthy;
};

TEST(SimFabricTest, WhatACrashedProcessHadInFlightLandsInPartAndItNeverRunsAgain) {
  uint64_t nothing = 0, part = 0, all = 0, flagged = 0, answered = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Crashed run(seed);
    run.Wait(kNsPerSecond);
    const Landed landed = WhatLanded(run.world);
    ASSERT_TRUE(!landed.flag || landed.words == kWords) << "seed " << seed;
    if (run.status.ok()) {
      ASSERT_TRUE(landed.flag) << "seed " << seed;
      ++answered;
      continue;
    }
    ASSERT_EQ(run.status.code(), StatusCode::kInvalidArgument) << run.status;
    nothing += landed.words == 0;
    part += landed.words > 0 && landed.words < kWords;
    all += landed.words == kWords && !landed.flag;
    flagged += landed.flag;
  }
  EXPECT_GT(nothing, 10u);
  EXPECT_GT(part, 10u);
  EXPECT_GT(all, 3u);
  EXPECT_GT(flagged, 10u);
  EXPECT_GT(answered, 10u);
}

TEST(SimFabricTest, OfACrashedProcessNothingLandsBehindTheCut) {
  uint64_t landed_late = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Crashed run(seed);
    // What it has sent waits in the network or in front of the server.
    run.world.Partition(run.victim->number(), 0);
    run.Wait(kNsPerSecond);
    ASSERT_EQ(WhatLanded(run.world).words, 0u);
    const bool cut = seed % 2 == 0;
    if (cut) {
      Status confirmed = run.healthy->fabric->CutOff(0, kVictim);
      ASSERT_TRUE(confirmed.ok()) << confirmed;
    }
    run.world.Heal(run.victim->number(), 0);
    run.Wait(kNsPerSecond);
    const bool landed = WhatLanded(run.world).words > 0;
    ASSERT_FALSE(cut && landed) << "seed " << seed;
    landed_late += landed;
  }
  EXPECT_GT(landed_late, 5u);
}

TEST(SimFabricTest, AProcessThatCrashesInACallThatBlocksDoesNothingAnyMore) {
  SimWorld world({.servers = 1, .region_bytes = 1 << 20});
  Process victim(&world, kVictim), other(&world, {6, 1});
  Status cut;
  const std::vector<uint64_t> words(kWords, 7);
  const auto task = [](Process* self, Status* asked, const std::vector<uint64_t>* w) -> Task<void> {
    *asked = self->fabric->CutOff(0, {6, 1});
    Status status;
    co_await WriteOnce(&*self->worker, w, &status);
    FARLEAF_CHECK(false, "it goes on");
  };
  world.Partition(victim.number(), 0);
  const auto sleep = [](Worker* worker) -> Task<void> { co_await worker->Sleep(kNsPerSecond); };
  other.worker->Spawn(sleep(&*other.worker));
  world.At(world.now_ns() + kNsPerMs, [&] { world.CrashProcess(victim.number()); });
  victim.worker->Spawn(task(&victim, &cut, &words));
  ASSERT_EQ(world.RunWhileBusy(), SimWorld::RunEnd::kIdle);
  EXPECT_FALSE(cut.ok());
  EXPECT_FALSE(victim.fabric->OpenTransport().ok());
  world.Heal(victim.number(), 0);
  EXPECT_EQ(WhatLanded(world).words, 0u);
  victim.worker->Abandon();
}

}  // namespace
}  // namespace farleaf::dsm
