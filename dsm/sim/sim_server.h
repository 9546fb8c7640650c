// SimServer: one memory server of a simulated world: its memory, whom it has cut off, whether it runs.
//
// Which connections are open is kept by each SimLink (open_generation): the memory server's side of it.
//
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "dsm/fenced_members.h"
#include "dsm/handshake.h"
#include "dsm/lease_enforcer.h"
#include "dsm/sim/event_queue.h"

namespace farleaf::dsm {

class SimServer {
 public:
  struct Options {
    std::string cluster;
    ServerId server = 0;
    uint64_t region_bytes = 0;
    uint64_t chunk_bytes = 0;
    uint32_t lease_ms = 0;
    const Clock* clock = nullptr;  ///< for leases
    std::function<Status(const MemberIdentity&)> cut_off;
  };
  /// With an empty pool region of `incarnation`, running.
  SimServer(Options options, uint64_t incarnation);
  SimServer(const SimServer&) = delete;

  bool running() const { return running_; }
  const ServerIdentity& identity() const { return identity_; }
  /// Aligned to a page, as a real one.
  std::span<std::byte> region() { return {region_, running_ ? options_.region_bytes : 0}; }
  /// REQUIRES: running.
  FencedMembers& fenced() { return *fenced_; }

  /// REQUIRES: running, with leases.
  LeaseEnforcer& leases() { return *leases_; }

  /// Its memory is lost.
  void Crash();
  /// With an empty region of another incarnation; whom it had cut off it does not know any more.
  void Start(uint64_t incarnation);

  // A server that stalls takes up what arrives later, in order.
  bool stalled() const { return stalled_; }
  void Stall() { stalled_ = true; }
  void TakeUpLater(const SimEvent& event) { later_.push_back(event); }
  std::deque<SimEvent> Resume() {
    stalled_ = false;
    return std::exchange(later_, {});
  }

 private:
  const Options options_;
  ServerIdentity identity_;
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> memory_;  ///< from calloc: what is not touched costs nothing
  std::byte* region_ = nullptr;              ///< in it
  std::unique_ptr<FencedMembers> fenced_;    ///< while it runs
  std::unique_ptr<LeaseEnforcer> leases_;    ///< while it runs, with leases
  bool running_ = false;
  bool stalled_ = false;
  std::deque<SimEvent> later_;
};

}  // namespace farleaf::dsm
