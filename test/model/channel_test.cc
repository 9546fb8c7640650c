// A replication channel between threads, on every fabric that replication may run on and on those of one process; and in the simulation,
// with primaries that crash or are parted, backups that stand still, and successors.
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "dsm/base/log.h"
#include "dsm/null_transport.h"
#include "dsm/sim/sim_world.h"
#include "test/model/channel_run.h"
#include "test/support/fabric_under_test.h"
#include "test/support/test_scale.h"

namespace farleaf::server::replication {
namespace {

using dsm::FabricKind;
using dsm::SimWorld;
using dsm::Task;
using dsm::Worker;

constexpr uint64_t kArea = 2 << 20;

// ---- Between threads

/// A backup's thread.
class BackupThread {
 public:
  BackupThread(ChannelServer* server, ChannelExecutions* executions, const Clock* clock)
      : thread_([=] {
          dsm::EpochDomain epochs;
          Worker worker({std::make_unique<dsm::NullTransport>(), &epochs, clock});
          worker.Run(server->Serve(worker, executions->handler()));
        }),
        server_(server) {}
  ~BackupThread() {
    server_->Stop();
    thread_.join();
  }

 private:
  std::thread thread_;
  ChannelServer* server_;
};

class ChannelContract : public ::testing::TestWithParam<FabricKind> {
 protected:
  dsm::FabricUnderTest cluster{GetParam(), {.servers = 1}};
  dsm::EpochDomain epochs;
  std::unique_ptr<dsm::Transport> transport = std::move(*cluster.fabric().OpenTransport());
  Worker worker{{std::move(transport), &epochs, &cluster.clock()}};
  dsm::FabricCounts counts;

  std::span<std::byte> area(const AreaLayout& layout) {
    return cluster.region_bytes(0).subspan(kArea, layout.bytes());
  }
};

TEST_P(ChannelContract, EveryCallIsExecutedOnceInOrderAndAnswered) {
  const AreaLayout layout = *AreaLayout::For({4, 1 << 20, 2});
  ChannelExecutions executions(1, 0);
  executions.set_primary(1);
  ChannelServer server(area(layout), layout, {});
  worker.Run(server.Reset(0x5eed));
  ChannelCalls calls(1, 2);
  constexpr uint64_t kCallers = 8;
  const uint64_t per_caller = test::Amount{3, 12, 100};
  {
    BackupThread backup(&server, &executions, &cluster.clock());
    // No test may depend on how fast the machine is.
    auto channel =
        worker.Run(Channel::Open(worker, {0, kArea, 0x5eed}, {.call_timeout_ms = 300'000}, counts));
    ASSERT_TRUE(channel.ok()) << channel.status();
    for (uint64_t i = 0; i < kCallers; ++i) {
      worker.Spawn(calls.CallMany(worker, **channel, per_caller));
    }
    worker.RunUntilIdle();
    EXPECT_TRUE((*channel)->failure().ok()) << (*channel)->failure();
  }
  EXPECT_EQ(calls.answered(), kCallers * per_caller);
  EXPECT_EQ(executions.of(1).size(), kCallers * per_caller);
  calls.CheckAgainst(executions.of(1));
  EXPECT_EQ(server.statistics().messages, kCallers * per_caller);
  EXPECT_EQ(server.statistics().refused, 0u);
}

TEST_P(ChannelContract, AMemoryServerThatIsGoneEndsEveryCall) {
  const AreaLayout layout = *AreaLayout::For({2, 4'096, 0});
  ChannelServer server(area(layout), layout, {});  // which does not serve
  worker.Run(server.Reset(0x5eed));
  auto channel =
      worker.Run(Channel::Open(worker, {0, kArea, 0x5eed}, {.call_timeout_ms = 300'000}, counts));
  ASSERT_TRUE(channel.ok()) << channel.status();
  ChannelCalls calls(1, 2);
  for (uint64_t i = 0; i < 5; ++i) worker.Spawn(calls.CallMany(worker, **channel, 3));
  cluster.KillServer(0);
  worker.RunUntilIdle();
  EXPECT_EQ(calls.failed(), 5u);
  EXPECT_EQ(calls.answered(), 0u);
}

std::vector<FabricKind> ChannelFabrics() {
  std::vector<FabricKind> kinds{FabricKind::kTcp, FabricKind::kTcpTwoAgents, FabricKind::kLocal,
                                FabricKind::kLocalDelayed};
  if (dsm::HasRdma()) kinds.push_back(FabricKind::kVerbs);
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(Fabrics, ChannelContract, ::testing::ValuesIn(ChannelFabrics()),
                         [](const auto& instance) { return FabricKindName(instance.param); });

// ---- In the simulation

/// A process of the world with one thread.
struct Process {
  Process(SimWorld* w, dsm::MemberIdentity identity, SimWorld::ThreadRole role)
      : world(w), self(identity), fabric(w->NewFabric()) {
    FARLEAF_CHECK(fabric->Identify(self).ok(), self.id);
    auto transport = fabric->OpenTransport();
    FARLEAF_CHECK(transport.ok(), transport.status());
    worker.emplace(Worker::Deps{std::move(*transport), &epochs, &w->clock(), self.id});
    world->AddThread(fabric->process(), &*worker, role);
  }
  ~Process() {
    if (!world->has_crashed(number())) world->CrashProcess(number());
    worker->Abandon();
  }
  uint32_t number() const { return fabric->process(); }

  SimWorld* world;
  dsm::MemberIdentity self;
  dsm::EpochDomain epochs;
  std::unique_ptr<dsm::SimFabric> fabric;
  std::optional<Worker> worker;
};

/// One region's backup, and its primaries one after another.
class ChannelRun {
 public:
  explicit ChannelRun(uint64_t seed)
      : random_(seed * 7'919),
        world_({.seed = seed, .servers = 1, .region_bytes = 8 << 20}),
        layout_(*AreaLayout::For({static_cast<uint32_t>(1 + random_.Below(4)), 12'288, 0})),
        server_(world_.region_bytes(0).subspan(kArea, layout_.bytes()), layout_, {}),
        executions_(seed, random_.OneIn(2) ? 0 : 2 * kNsPerMs),
        backup_(&world_, {9, 1}, SimWorld::ThreadRole::kBackground) {
    // Whatever an earlier use of the memory has left there.
    std::span<std::byte> memory = world_.region_bytes(0).subspan(kArea, layout_.bytes());
    for (std::byte& byte : memory) byte = static_cast<std::byte>(random_.Next());
    backup_.worker->Spawn(server_.Serve(*backup_.worker, executions_.handler()));
  }

  enum class Fault : uint8_t {
    kNone,
    kCrash,
    kDrop,
    kPartition,
    kPartitionForever,
    kStallBackup,
    kStallPrimary,
    kStallServer
  };
  static constexpr uint64_t kFaults = 8;

  /// A primary's life: it is told a new token, calls, and meets a fault; it is cut off at its end.
  void RunPrimary(uint64_t primary, Fault fault) {
    const uint64_t token = random_.Next();
    executions_.set_primary(primary);
    world_.At(world_.now_ns(), [&] { backup_.worker->Spawn(server_.Reset(token)); });
    Process process(&world_, {static_cast<dsm::MemberId>(primary + 1), 1},
                    SimWorld::ThreadRole::kWorks);
    ChannelCalls calls(primary, random_.Next());
    std::unique_ptr<Channel> channel;
    Meet(fault, process.number());
    process.worker->Spawn(Live(*process.worker, {0, kArea, token}, &calls, &channel));
    const auto end = world_.RunWhileBusy(world_.now_ns() + 100 * kNsPerSecond);
    FARLEAF_CHECK(end == SimWorld::RunEnd::kIdle, "a call hangs", static_cast<int>(end));
    if (fault == Fault::kNone || fault == Fault::kStallBackup || fault == Fault::kStallPrimary ||
        fault == Fault::kStallServer) {
      FARLEAF_CHECK(calls.answered() == kCallers * kCalls, calls.answered(),
                    static_cast<int>(fault));
    }
    FARLEAF_CHECK(server_.statistics().refused == 0, server_.statistics().refused);
    cut_short += calls.failed() > 0 || world_.has_crashed(process.number());
    answered += calls.answered();
    if (fault_ends_ns_ > world_.now_ns()) Pass(fault_ends_ns_ - world_.now_ns());
    // What it left lands until it is cut off, and is executed until then.
    Pass(random_.Below(3 * kNsPerMs));
    world_.Heal(process.number(), 0);
    world_.CutOffAt(0, process.self);
    if (random_.OneIn(2)) Pass(random_.Below(3 * kNsPerMs));
    AwaitReset();
    calls.CheckAgainst(executions_.of(primary));
    unanswered += executions_.of(primary).size() - calls.answered();
  }

  uint64_t answered = 0;
  uint64_t cut_short = 0;   ///< primaries whose calls did not all end well
  uint64_t unanswered = 0;  ///< messages that were executed, and their calls do not know

 private:
  static constexpr uint64_t kCallers = 6, kCalls = 6;

  Task<void> Live(Worker& worker, ChannelAddress address, ChannelCalls* calls,
                  std::unique_ptr<Channel>* channel) {
    dsm::FabricCounts counts;
    co_await worker.Sleep(5 * kNsPerMs);  // until the backup has told its token
    const ChannelOptions options{.call_timeout_ms = 8'000};
    auto opened = co_await Channel::Open(worker, address, options, counts);
    if (!opened.ok()) co_return;
    *channel = std::move(*opened);
    for (uint64_t i = 0; i < kCallers; ++i) {
      worker.Spawn(calls->CallMany(worker, **channel, kCalls));
    }
  }

  void Meet(Fault fault, uint32_t process) {
    const uint64_t at_ns = world_.now_ns() + 5 * kNsPerMs + random_.Below(4 * kNsPerMs);
    const uint64_t long_ns = random_.Below(2 * kNsPerSecond);
    switch (fault) {
      case Fault::kNone:
        return;
      case Fault::kCrash:
        return world_.At(at_ns, [=, this] { world_.CrashProcess(process); });
      case Fault::kDrop:
        return world_.At(at_ns, [=, this] { world_.DropConnections(process, 0); });
      case Fault::kPartition:
        world_.At(at_ns + long_ns * 5, [=, this] { world_.Heal(process, 0); });
        [[fallthrough]];
      case Fault::kPartitionForever:
        return world_.At(at_ns, [=, this] { world_.Partition(process, 0); });
      case Fault::kStallBackup:
        return world_.At(
            at_ns, [=, this] { world_.StallProcess(backup_.number(), world_.now_ns() + long_ns); });
      case Fault::kStallPrimary:
        return world_.At(at_ns,
                         [=, this] { world_.StallProcess(process, world_.now_ns() + long_ns); });
      case Fault::kStallServer:
        world_.At(at_ns, [=, this] { world_.StallServer(0); });
        // Less than it takes to give up connecting.
        fault_ends_ns_ = at_ns + long_ns / 4;
        return world_.At(fault_ends_ns_, [=, this] { world_.ResumeServer(0); });
    }
  }
  static Task<void> Sleep(Worker& worker, uint64_t ns) { co_await worker.Sleep(ns); }
  void Pass(uint64_t ns) {
    Process timer(&world_, {8, ++timers_}, SimWorld::ThreadRole::kWorks);
    timer.worker->Spawn(Sleep(*timer.worker, ns));
    FARLEAF_CHECK(world_.RunWhileBusy(world_.now_ns() + 10 * kNsPerSecond) ==
                  SimWorld::RunEnd::kIdle);
  }
  /// The handler that ran, if one did, has ended: nothing of the last primary is executed any more.
  void AwaitReset() {
    bool reset = false;
    const auto wait = [](ChannelServer* server, uint64_t token, bool* done) -> Task<void> {
      co_await server->Reset(token);
      *done = true;
    };
    backup_.worker->Spawn(wait(&server_, random_.Next(), &reset));
    while (!reset) Pass(kNsPerMs);
  }

  Random random_;
  SimWorld world_;
  const AreaLayout layout_;
  ChannelServer server_;
  ChannelExecutions executions_;
  Process backup_;
  uint64_t timers_ = 0;
  uint64_t fault_ends_ns_ = 0;
};

class ChannelSimulation : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { spdlog::set_level(spdlog::level::err); }  // or a line a cut
  static void TearDownTestSuite() { spdlog::set_level(spdlog::level::info); }
};

TEST_F(ChannelSimulation, WhateverHappensToPrimariesEachMessageIsExecutedOnceAtMostAndInOrder) {
  const uint64_t seeds = test::Amount{20, 200, 5'000};
  uint64_t answered = 0, cut_short = 0, unanswered = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ChannelRun run(seed);
    const auto fault = [&](uint64_t nth) {
      return static_cast<ChannelRun::Fault>(Mix64(seed * 4 + nth) % ChannelRun::kFaults);
    };
    run.RunPrimary(0, fault(0));
    run.RunPrimary(1, ChannelRun::Fault::kCrash);
    run.RunPrimary(2, fault(2));
    run.RunPrimary(3, ChannelRun::Fault::kNone);
    answered += run.answered;
    cut_short += run.cut_short;
    unanswered += run.unanswered;
  }
  // The faults were met while something was going on.
  EXPECT_GT(cut_short, seeds);
  EXPECT_GT(answered, seeds * 36);
  EXPECT_GT(unanswered, seeds / 2);
}

}  // namespace
}  // namespace farleaf::server::replication
