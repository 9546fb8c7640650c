#include "test/support/fabric_under_test.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "dsm/bootstrap/open_fabric.h"
#include "dsm/delay/delay_fabric.h"
#include "dsm/shm/local_fabric.h"
#include "dsm/shm/shm_agent.h"
#include "dsm/sim/sim_world.h"
#include "dsm/tcp/tcp_agent.h"
#include "dsm/verbs/verbs_agent.h"
#include "test/support/locking_fabric.h"

namespace farleaf::dsm {

TempFolder::TempFolder() {
  char path[] = "/tmp/farleaf-test-XXXXXX";
  FARLEAF_CHECK(::mkdtemp(path) != nullptr, errno);
  path_ = path;
}

TempFolder::~TempFolder() { std::filesystem::remove_all(path_); }

FabricUnderTest::FabricUnderTest(FabricKind kind, Options options)
    : kind_(kind), options_(options) {
  if (kind == FabricKind::kLocal || kind == FabricKind::kLocalDelayed) {
    auto local = LocalFabric::Create({.servers = options.servers,
                                      .region_bytes = options.region_bytes,
                                      .chunk_bytes = options.chunk_bytes,
                                      .hugepages = Hugepages::kNever,
                                      .lease_ms = options.lease_ms});
    FARLEAF_CHECK(local.ok(), local.status());
    local_ = std::move(*local);
  } else if (kind == FabricKind::kSim) {
    world_ = std::make_unique<SimWorld>(SimWorld::Options{.servers = options.servers,
                                                          .region_bytes = options.region_bytes,
                                                          .chunk_bytes = options.chunk_bytes,
                                                          .lease_ms = options.lease_ms});
  } else {
    for (uint32_t i = 0; i < options.servers; ++i) {
      servers_.push_back(StartServer(static_cast<ServerId>(i), 100 + i));
      Status status = directory_.Publish(servers_.back().endpoint());
      FARLEAF_CHECK(status.ok(), status);
    }
  }
  fabric_ = Connect();
}

FabricUnderTest::~FabricUnderTest() = default;

const Clock& FabricUnderTest::clock() const { return world_ ? world_->clock() : clock_; }

std::unique_ptr<Fabric> FabricUnderTest::Connect(SharedFabric::Options local) {
  if (kind_ == FabricKind::kLocal) return std::make_unique<SharedFabric>(local_.get(), local);
  if (kind_ == FabricKind::kSim) {
    std::lock_guard lock(world_mutex_);
    return std::make_unique<LockingFabric>(world_->NewFabric(), &world_mutex_);
  }
  if (kind_ == FabricKind::kLocalDelayed) {
    const DelayOptions delay{.delay_ns = 20'000, .jitter_ns_max = 50'000, .seed = 7};
    return std::make_unique<DelayFabric>(std::make_unique<SharedFabric>(local_.get()), delay,
                                         &clock_);
  }
  const OpenFabricOptions patient{
      .servers_min = options_.servers,
      .tcp = {.recovery = {.connect_timeout_ms = 60'000}, .stall_timeout_ms = 60'000},
      .shm = {.connect_timeout_ms = 60'000},
      .verbs = {.recovery = {.connect_timeout_ms = 20'000}, .ack_timeout_ms = 500}};
  auto fabric = OpenFabric(directory_, patient, &clock_);
  FARLEAF_CHECK(fabric.ok(), fabric.status());
  return std::move(*fabric);
}

void FabricUnderTest::KillServer(ServerId server) {
  if (local_) {
    local_->KillServer(server);
  } else if (world_) {
    std::lock_guard lock(world_mutex_);
    world_->CrashServer(server);
  } else {
    servers_[server].agent.reset();
  }
}

std::span<std::byte> FabricUnderTest::region_bytes(ServerId id) {
  if (world_) return world_->region_bytes(id);
  return local_ ? local_->region_bytes(id) : servers_[id].region->bytes();
}

LeaseEnforcer::Deps FabricUnderTest::LeasesOf(ServerId id, const Clock* server_clock) {
  return {.server = id,
          .region = region_bytes(id),
          .lease_ms = options_.lease_ms,
          .clock = server_clock,
          .cut_off = [this, id](const MemberIdentity& member) { return CutOff(id, member); },
          .take_ended =
              [this, id] {
                return servers_.empty() ? std::vector<MemberIdentity>()
                                        : servers_[id].agent->TakeEnded();
              }};
}

RegionServer FabricUnderTest::StartServer(ServerId id, uint64_t incarnation,
                                          const std::string& listen) {
  RegionServer server;
  auto layout = RegionLayout::For(id, options_.region_bytes, options_.chunk_bytes);
  FARLEAF_CHECK(layout.ok(), layout.status());
  layout->incarnation = incarnation;
  layout->lease_ms = options_.lease_ms;
  auto region = MemoryRegion::Create({options_.region_bytes, Hugepages::kNever, ""});
  FARLEAF_CHECK(region.ok(), region.status());
  FormatRegion(*layout, region->bytes());
  server.region = std::make_unique<MemoryRegion>(std::move(*region));
  server.identity = {"tested", {id, options_.region_bytes, incarnation}};
  if (kind_ == FabricKind::kShm) {
    auto agent = ShmAgent::Start({folder_.File(std::to_string(id) + ".sock")}, server.identity,
                                 *server.region, &clock_);
    FARLEAF_CHECK(agent.ok(), agent.status());
    server.agent = std::move(*agent);
  } else if (kind_ == FabricKind::kVerbs) {
    auto agent = VerbsAgent::Start({.listen = listen}, server.identity, server.region->bytes());
    FARLEAF_CHECK(agent.ok(), agent.status());
    server.agent = std::move(*agent);
  } else {
    TcpAgent::Options options;
    options.listen = listen;
    options.threads = kind_ == FabricKind::kTcpTwoAgents ? 2 : 1;
    auto agent = TcpAgent::Start(options, server.identity, server.region->bytes(), &clock_);
    FARLEAF_CHECK(agent.ok(), agent.status());
    server.agent = std::move(*agent);
  }
  return server;
}

Status FabricUnderTest::CutOff(ServerId id, const MemberIdentity& member) {
  if (local_) return local_->CutOffBy({}, id, member);
  if (!world_) return servers_[id].agent->CutOff(member);
  std::lock_guard lock(world_mutex_);
  world_->CutOffAt(id, member);
  return Status::Ok();
}

TestClient::TestClient(Fabric& fabric, const Clock& clock)
    : clock_(clock), wake_fd_(::eventfd(0, EFD_NONBLOCK)) {
  auto transport = fabric.OpenTransport();
  FARLEAF_CHECK(transport.ok(), transport.status());
  transport_ = std::move(*transport);
}

void TestClient::Post(Batch& batch, RoundTripState& state) {
  state.AddBatch();
  batch.set_round_trip(&state);
  transport_->Post(batch);
}

void TestClient::Await(const RoundTripState& state) {
  const uint64_t deadline_ns = clock_.NowNs() + kDeadlineNs;
  while (!state.done()) {
    if (transport_->Poll() == 0 && !state.done()) transport_->Wait(wake_fd_.get(), 100 * kNsPerMs);
    FARLEAF_CHECK(clock_.NowNs() < deadline_ns, "a batch did not complete");
  }
}

Status TestClient::Run(Batch& batch) {
  RoundTripState state;
  Post(batch, state);
  Await(state);
  return batch.status();
}

uint64_t TestClient::ReadWord(ServerId server, uint64_t offset) {
  uint64_t word = 0;
  Batch batch(server);
  batch.ReadWord(offset, &word);
  Status status = Run(batch);
  EXPECT_TRUE(status.ok()) << status;
  return word;
}

void TestClient::WriteWord(ServerId server, uint64_t offset, uint64_t word) {
  Batch batch(server);
  batch.WriteWord(offset, &word);
  Status status = Run(batch);
  EXPECT_TRUE(status.ok()) << status;
}

uint64_t TestClient::FetchAdd(ServerId server, uint64_t offset, uint64_t add) {
  uint64_t old = 0;
  Batch batch(server);
  batch.FetchAdd(offset, add, &old);
  Status status = Run(batch);
  EXPECT_TRUE(status.ok()) << status;
  return old;
}

uint64_t TestClient::CompareAndSwap(ServerId server, uint64_t offset, uint64_t expected,
                                    uint64_t desired) {
  uint64_t old = 0;
  Batch batch(server);
  batch.CompareAndSwap(offset, expected, desired, &old);
  Status status = Run(batch);
  EXPECT_TRUE(status.ok()) << status;
  return old;
}

}  // namespace farleaf::dsm
