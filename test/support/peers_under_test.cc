#include "test/support/peers_under_test.h"

#include <gtest/gtest.h>

#include <atomic>
#include <utility>

#include "dsm/tcp/tcp_fabric.h"
#include "test/support/free_address.h"
#include "test/support/locking_fabric.h"
#include "test/support/verbs_under_test.h"

namespace farleaf::dsm {

namespace {
constexpr uint64_t kPeerBytes = uint64_t{4} << 20;
constexpr const char* kPeerCluster = "peers";
/// Of those whom a machine that stands still for seconds must not fail.
constexpr TcpLinkOptions kPatient{.recovery = {.connect_timeout_ms = 60'000},
                                  .stall_timeout_ms = 60'000};

std::unique_ptr<Fabric> TcpFabricWithoutServers(const std::string& cluster,
                                                const TcpLinkOptions& options, const Clock* clock) {
  auto fabric = TcpFabric::Connect({}, cluster, options, clock);
  FARLEAF_CHECK(fabric.ok(), fabric.status());
  return std::move(*fabric);
}
}  // namespace

std::unique_ptr<Fabric> FabricWithoutServers(FabricKind kind, const std::string& cluster,
                                             const Clock* clock) {
  if (kind == FabricKind::kVerbs) {
    auto fabric = VerbsFabric::Connect({}, cluster, VerbsPool::Patient(), clock);
    FARLEAF_CHECK(fabric.ok(), fabric.status());
    return std::move(*fabric);
  }
  FARLEAF_CHECK(kind == FabricKind::kTcp, FabricKindName(kind));
  return TcpFabricWithoutServers(cluster, kPatient, clock);
}

std::variant<TcpAgent::Options, VerbsAgent::Options> AgentOptions(FabricKind kind,
                                                                  const std::string& listen) {
  if (kind == FabricKind::kVerbs)
    return VerbsAgent::Options{.listen = listen, .advertise = "", .device = {}};
  return TcpAgent::Options{.listen = listen};
}

PeersUnderTest::PeersUnderTest(FabricKind kind, uint64_t seed, const Clock* fabric_clock)
    : kind_(kind), memories_(kNodes), addresses_(kNodes, ListenHost() + ":0") {
  if (kind == FabricKind::kTcp) {
    // Kept also while nobody lives there.
    for (std::string& address : addresses_) address = FreeAddress(ListenHost());
  }
  if (kind == FabricKind::kSim) {
    world_ = std::make_unique<SimWorld>(SimWorld::Options{
        .seed = seed, .cluster = kPeerCluster, .servers = kNodes, .region_bytes = kPeerBytes});
    for (uint32_t node = 0; node < kNodes; ++node) world_->CrashServer(static_cast<ServerId>(node));
    fabric_ = std::make_unique<LockingFabric>(world_->NewFabric(), &world_mutex_);
    return;
  }
  // Whoever has a clock of his own lets the usual timeouts pass.
  fabric_ = fabric_clock != nullptr && kind == FabricKind::kTcp
                ? TcpFabricWithoutServers(kPeerCluster, {}, fabric_clock)
                : FabricWithoutServers(kind, kPeerCluster, fabric_clock ? fabric_clock : &clock_);
  FARLEAF_CHECK(fabric_->Identify({1, 1}).ok());  // strangers are not let in
}

ServerEndpoint PeersUnderTest::Begin(uint32_t node) {
  if (world_) {
    std::lock_guard lock(world_mutex_);
    world_->RestartServer(static_cast<ServerId>(node));
    return world_->EndpointOf(static_cast<ServerId>(node));
  }
  FARLEAF_CHECK(memories_[node] == nullptr, node);
  RegisteredMemory::Options options;
  options.cluster = kPeerCluster;
  options.server = next_id_++;
  options.bytes = kPeerBytes;
  options.hugepages = Hugepages::kNever;
  options.agent = AgentOptions(kind_, addresses_[node]);
  auto memory = RegisteredMemory::Open(options, &clock_);
  FARLEAF_CHECK(memory.ok(), memory.status());
  memories_[node] = std::move(*memory);
  const ServerEndpoint endpoint = memories_[node]->endpoint();
  addresses_[node] = AddressOf(endpoint);
  return endpoint;
}

ServerId PeersUnderTest::BeginAndAdd(uint32_t node) {
  const ServerEndpoint endpoint = Begin(node);
  Status status = fabric_->Add(endpoint);
  EXPECT_TRUE(status.ok()) << status;
  return endpoint.server;
}

void PeersUnderTest::End(uint32_t node) {
  if (!world_) {
    memories_[node].reset();
    return;
  }
  std::lock_guard lock(world_mutex_);
  world_->CrashServer(static_cast<ServerId>(node));
}

uint64_t PeersUnderTest::WordOf(uint32_t node, uint64_t offset) {
  std::lock_guard lock(world_mutex_);
  std::byte* const word = world_ ? world_->region_bytes(static_cast<ServerId>(node)).data() + offset
                                 : memories_[node]->Bytes({offset, 8}).data();
  return std::atomic_ref(*reinterpret_cast<uint64_t*>(word)).load(std::memory_order_acquire);
}

void PeersUnderTest::LetLand(uint64_t ns) {
  if (!world_) return;
  bool over = false;
  world_->At(world_->now_ns() + ns, [&over] { over = true; });
  auto transport = fabric_->OpenTransport();
  FARLEAF_CHECK(transport.ok(), transport.status());
  while (!over) (*transport)->Wait(-1, ns);
}

}  // namespace farleaf::dsm
