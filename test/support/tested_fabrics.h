// Which fabrics this machine's tests run on, and where their memory servers listen.
//
// A test that runs on a fabric has the fabric's name in its own: --gtest_filter='*tcp*' selects what
// runs on tcp, whichever program of the tests it is given to.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace farleaf::dsm {

enum class FabricKind : uint8_t { kLocal, kShm, kTcp, kTcpTwoAgents, kLocalDelayed, kVerbs, kSim };

inline std::string FabricKindName(FabricKind kind) {
  constexpr const char* kNames[] = {"local",         "shm",   "tcp", "tcp_two_agents",
                                    "local_delayed", "verbs", "sim"};
  return kNames[static_cast<size_t>(kind)];
}

/// Whether this machine has an RDMA device for the tests: scripts/rdma_vm.sh makes one, and tells its
/// address.
inline bool HasRdma() { return std::getenv("FARLEAF_RDMA_ADDRESS") != nullptr; }

/// Those between processes: what a pool's memory servers may be told as --fabric.
inline std::vector<FabricKind> ProcessFabrics() {
  std::vector<FabricKind> kinds{FabricKind::kShm, FabricKind::kTcp};
  if (HasRdma()) kinds.push_back(FabricKind::kVerbs);
  return kinds;
}

/// Those with connections.
inline std::vector<FabricKind> NetworkFabrics() {
  std::vector<FabricKind> kinds{FabricKind::kTcp};
  if (HasRdma()) kinds.push_back(FabricKind::kVerbs);
  return kinds;
}

inline std::vector<FabricKind> AllFabrics() {
  std::vector<FabricKind> kinds = ProcessFabrics();
  kinds.insert(kinds.end(), {FabricKind::kLocal, FabricKind::kTcpTwoAgents,
                             FabricKind::kLocalDelayed, FabricKind::kSim});
  return kinds;
}

inline std::vector<std::string> ProcessFabricNames() {
  std::vector<std::string> names;
  for (const FabricKind kind : ProcessFabrics()) names.push_back(FabricKindName(kind));
  return names;
}

inline constexpr const char* kLoopback = "127.0.0.1";

/// The host at which memory servers listen: FARLEAF_RDMA_ADDRESS, the address of this machine's RDMA
/// device, or the loopback where there is none.
inline std::string ListenHost() {
  const char* address = std::getenv("FARLEAF_RDMA_ADDRESS");
  return address ? address : kLoopback;
}

}  // namespace farleaf::dsm
