// The performance model's queues: each bound is reached and not passed, an idle fabric takes the sum of
// its parts, and runs repeat.
#include "dsm/sim/model_world.h"

#include <gtest/gtest.h>

#include <functional>

namespace farleaf::dsm {
namespace {

/// Nothing takes time and nothing is a bound.
CostModel Boundless() {
  CostModel model;
  model.memory_servers = model.compute_servers = 1;
  model.cores = 1'000;
  model.request_rate_mps = model.read_rate_mps = model.write_rate_mps = model.atomic_rate_mps = 1e6;
  model.bandwidth_gbps = 1e6;
  return model;
}

/// Compute servers' threads that each do one thing over and over.
class Machines {
 public:
  using Fill = std::function<void(uint32_t thread, Batch& batch, std::span<std::byte> buffer)>;

  explicit Machines(const CostModel& model, uint64_t seed = 1) {
    auto world = ModelWorld::Create({.model = model, .seed = seed, .region_bytes = 4 << 20});
    FARLEAF_CHECK(world.ok(), world.status());
    world_ = std::move(*world);
    for (uint64_t i = 0; i < model.compute_servers; ++i) fabrics_.push_back(world_->NewFabric());
  }
  ~Machines() { world_->RemoveThreads(); }

  ModelWorld& world() { return *world_; }

  void AddThreads(uint32_t count, uint32_t compute_server = 0) {
    for (uint32_t i = 0; i < count; ++i) {
      auto transport = fabrics_[compute_server]->OpenTransport();
      FARLEAF_CHECK(transport.ok(), transport.status());
      workers_.push_back(std::make_unique<Worker>(Worker::Deps{
          .transport = std::move(*transport), .epochs = &epochs_, .clock = &world_->clock()}));
      world_->AddThread(workers_.back().get());
    }
  }
  /// Every thread posts `rounds` batches for `server`, each when the one before is complete. Returns
  /// the ns that all took together.
  uint64_t Run(uint32_t rounds, const Fill& fill, ServerId server = 0) {
    world_->StartTiming();
    const uint64_t begin_ns = world_->clock().NowNs();
    for (uint32_t i = 0; i < workers_.size(); ++i) {
      world_->StartThread(i, 0,
                          [=, this, &fill] { workers_[i]->Spawn(Loop(i, rounds, &fill, server)); });
    }
    EXPECT_EQ(world_->Run(UINT64_MAX), ModelWorld::RunEnd::kIdle);
    const uint64_t took_ns = world_->clock().NowNs() - begin_ns;
    world_->StopTiming();
    return took_ns;
  }
  /// Batches a second, in millions.
  double Rate(uint32_t rounds, const Fill& fill) {
    const auto batches = static_cast<double>(rounds * workers_.size());
    return batches * 1e3 / static_cast<double>(Run(rounds, fill));
  }

 private:
  Task<void> Loop(uint32_t thread, uint32_t rounds, const Fill* fill, ServerId server) {
    std::vector<std::byte> buffer(64 << 10);
    FabricCounts counts;
    for (uint32_t i = 0; i < rounds; ++i) {
      Batch batch(server);
      (*fill)(thread, batch, buffer);
      Status status = co_await workers_[thread]->RoundTrip(batch, counts);
      EXPECT_TRUE(status.ok()) << status;
    }
  }

  EpochDomain epochs_;
  std::unique_ptr<ModelWorld> world_;
  std::vector<std::unique_ptr<ModelFabric>> fabrics_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

void Read(Batch& batch, std::span<std::byte> buffer, size_t bytes) {
  batch.Read(1 << 20, buffer.first(bytes));
}
void Cas(Batch& batch, std::span<std::byte> buffer, uint64_t offset) {
  batch.CompareAndSwap(offset, 0, 0, reinterpret_cast<uint64_t*>(buffer.data()));
}

CostModel WithParts() {
  CostModel model = Boundless();
  model.request_ns = 211;
  model.wire_ns = 101;
  model.read_ns = 503;
  model.write_ns = 307;
  model.atomic_ns = 401;
  model.reply_ns = 223;
  model.request_rate_mps = 1000. / 13;
  model.read_rate_mps = 1000. / 17;
  model.write_rate_mps = 1000. / 11;
  model.atomic_rate_mps = 1000. / 19;
  model.bandwidth_gbps = 8;  // a byte takes a ns
  model.header_bytes = 30;
  model.post_ns = 151;
  model.verb_ns = 23;
  model.complete_ns = 97;
  model.read_byte_ns = 0.5;
  model.write_byte_ns = 0.25;
  return model;
}

TEST(ModelWorldTest, IdleReadTakesTheSumOfItsParts) {
  Machines machines(WithParts());
  machines.AddThreads(1);
  const uint64_t took_ns =
      machines.Run(1, [](uint32_t, Batch& batch, auto buffer) { Read(batch, buffer, 1024); });
  const uint64_t post = 151 + 23, request = 211 + 13 + 30, serve = 17 + 503,
                 reply = 30 + 1024 + 223, complete = 97 + 512;
  EXPECT_EQ(took_ns, post + request + 101 + serve + reply + 101);
  // The clock stands at the last event; the thread is busy with the completion from there on.
  EXPECT_EQ(machines.world().cpu_ps(), (post + complete) * 1'000);
}

TEST(ModelWorldTest, IdleLockAndReadTakesTheSumOfItsParts) {
  Machines machines(WithParts());
  machines.AddThreads(1);
  const uint64_t took_ns = machines.Run(1, [](uint32_t, Batch& batch, auto buffer) {
    Cas(batch, buffer, 1 << 20);
    batch.Read(1 << 20, buffer.subspan(64, 512));
  });
  const uint64_t post = 151 + 2 * 23 + 2, request = 211 + 2 * 13 + 8 + 2 * 30,
                 serve = 19 + 17 + 401 + 503, reply = 2 * 30 + 512 + 8 + 223;
  EXPECT_EQ(took_ns, post + request + 101 + serve + reply + 101);
}

TEST(ModelWorldTest, IdleWriteBackTakesTheSumOfItsParts) {
  Machines machines(WithParts());
  machines.AddThreads(1);
  const uint64_t took_ns = machines.Run(1, [](uint32_t, Batch& batch, auto buffer) {
    batch.Write(1 << 20, buffer.first(400));
    batch.Write((1 << 20) + 400, buffer.first(8));
  });
  const uint64_t post = 151 + 2 * 23 + 102, request = 211 + 2 * 13 + 408 + 2 * 30,
                 serve = 2 * 11 + 307, reply = 30 + 223;
  EXPECT_EQ(took_ns, post + request + 101 + serve + reply + 101);
}

TEST(ModelWorldTest, ProcessesOfOneHostHaveNoWireBetweenThem) {
  CostModel model = WithParts();
  model.shared_hosts = 1;
  Machines machines(model);
  machines.AddThreads(1);
  const uint64_t took_ns =
      machines.Run(1, [](uint32_t, Batch& batch, auto buffer) { Read(batch, buffer, 1024); });
  EXPECT_EQ(took_ns, 151u + 23 + 211 + 13 + 17 + 503 + 223);
}

TEST(ModelWorldTest, NicServesEachKindOfVerbAtItsRate) {
  CostModel model = Boundless();
  model.wire_ns = 1'000;
  model.read_rate_mps = 20;
  model.write_rate_mps = 30;
  model.atomic_rate_mps = 10;
  Machines machines(model);
  machines.AddThreads(200);
  EXPECT_NEAR(machines.Rate(500, [](auto, Batch& batch, auto buffer) { Read(batch, buffer, 8); }),
              20, 0.5);
  EXPECT_NEAR(machines.Rate(500, [](auto, Batch& batch,
                                    auto buffer) { batch.Write(1 << 20, buffer.first(8)); }),
              30, 0.6);
  EXPECT_NEAR(machines.Rate(500, [](uint32_t thread, Batch& batch,
                                    auto buffer) { Cas(batch, buffer, (1 << 20) + thread * 8); }),
              10, 0.25);
}

TEST(ModelWorldTest, NicRequestsAtItsRate) {
  CostModel model = Boundless();
  model.compute_servers = 2;
  model.wire_ns = 1'000;
  model.request_rate_mps = 5;
  Machines machines(model);
  machines.AddThreads(50, 0);
  machines.AddThreads(50, 1);
  EXPECT_NEAR(machines.Rate(500, [](auto, Batch& batch, auto buffer) { Read(batch, buffer, 8); }),
              10, 0.25);
}

TEST(ModelWorldTest, AtomicsOnOneAddressAreSerialised) {
  CostModel model = Boundless();
  model.wire_ns = 1'000;
  model.atomic_ns = 400;
  model.device_atomic_ns = 10;
  model.device_memory_bytes = 4096;
  Machines machines(model);
  machines.AddThreads(100);
  const uint64_t device = (4 << 20) - 4096;
  EXPECT_NEAR(
      machines.Rate(200, [](auto, Batch& batch, auto buffer) { Cas(batch, buffer, 1 << 20); }), 2.5,
      0.05);
  EXPECT_NEAR(
      machines.Rate(2'000, [=](auto, Batch& batch, auto buffer) { Cas(batch, buffer, device); }),
      50, 1);  // 100 threads at 2.01 us; the word could do 100
  EXPECT_GT(machines.Rate(200, [](uint32_t thread, Batch& batch,
                                  auto buffer) { Cas(batch, buffer, (1 << 20) + thread * 8); }),
            40);
}

TEST(ModelWorldTest, AtomicsOfOneSlotAreSerialised) {
  CostModel model = Boundless();
  model.atomic_ns = 400;
  model.atomic_slot_bits = 12;
  Machines machines(model);
  machines.AddThreads(100);
  const auto rate = [&](uint64_t distance) {
    return machines.Rate(200, [=](uint32_t thread, Batch& batch, auto buffer) {
      Cas(batch, buffer, (1 << 20) + thread * distance);
    });
  };
  EXPECT_NEAR(rate(4'096), 2.5, 0.05);  // one slot for all
  EXPECT_NEAR(rate(1'024), 10, 0.2);    // four
  EXPECT_NEAR(rate(8), 250, 5);         // one for each
}

TEST(ModelWorldTest, LinksCarryTheirBandwidthInEachDirection) {
  CostModel model = Boundless();
  model.wire_ns = 500;
  model.bandwidth_gbps = 100;
  Machines machines(model);
  machines.AddThreads(60);
  const double bytes = 4096, both_ways = 12.5e9 / bytes * 1e-6;
  const auto read = [](Batch& batch, auto buffer) { batch.Read(1 << 20, buffer.first(4096)); };
  const auto write = [](Batch& batch, auto buffer) { batch.Write(1 << 20, buffer.first(4096)); };
  EXPECT_NEAR(machines.Rate(500, [&](auto, Batch& batch, auto buffer) { read(batch, buffer); }),
              both_ways, 0.02 * both_ways);
  EXPECT_NEAR(machines.Rate(500, [&](auto, Batch& batch, auto buffer) { write(batch, buffer); }),
              both_ways, 0.02 * both_ways);
  // Half of the threads read and half write: neither direction waits for the other.
  EXPECT_NEAR(machines.Rate(500,
                            [&](uint32_t thread, Batch& batch, auto buffer) {
                              thread % 2 ? read(batch, buffer) : write(batch, buffer);
                            }),
              2 * both_ways, 0.05 * 2 * both_ways);
}

TEST(ModelWorldTest, ThreadsOfOneCoreShareIt) {
  CostModel model = Boundless();
  model.post_ns = 600;
  model.complete_ns = 400;
  model.cores = 2;
  Machines machines(model);
  machines.AddThreads(10);
  EXPECT_NEAR(machines.Rate(500, [](auto, Batch& batch, auto buffer) { Read(batch, buffer, 8); }),
              2, 0.02);
}

TEST(ModelWorldTest, RunsRepeatAndSeedsDiffer) {
  CostModel model = WithParts();
  model.jitter_ns_max = 50;
  const auto hash = [&](uint64_t seed) {
    Machines machines(model, seed);
    machines.AddThreads(20);
    machines.Run(50, [](auto, Batch& batch, auto buffer) { Read(batch, buffer, 64); });
    return machines.world().trace_hash();
  };
  EXPECT_EQ(hash(1), hash(1));
  EXPECT_NE(hash(1), hash(2));
}

struct FreeModeTest : ::testing::Test {
  std::unique_ptr<ModelWorld> world = std::move(*ModelWorld::Create({.model = WithParts()}));
  std::unique_ptr<ModelFabric> fabric = world->NewFabric();
  std::unique_ptr<Transport> transport = std::move(*fabric->OpenTransport());

  Status Post(ServerId server, uint64_t offset) {
    Batch batch(server);
    RoundTripState state;
    state.AddBatch();
    batch.set_round_trip(&state);
    std::vector<std::byte> buffer(64);
    batch.Read(offset, buffer);
    transport->Post(batch);
    EXPECT_TRUE(state.done());
    return batch.status();
  }
};

TEST_F(FreeModeTest, TakesNoTime) {
  const uint64_t before_ns = world->clock().NowNs();
  EXPECT_TRUE(Post(0, 1 << 20).ok());
  EXPECT_EQ(world->clock().NowNs(), before_ns);
  EXPECT_EQ(world->events(), 0u);
}

TEST_F(FreeModeTest, VerbsOutsideOfTheRegionsAreRefused) {
  EXPECT_EQ(Post(0, uint64_t{1} << 40).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Post(7, 1 << 20).code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace farleaf::dsm
