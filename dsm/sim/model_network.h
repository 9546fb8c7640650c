// ModelNetwork: NICs and links as queues with deterministic service times (cost_model.h), first come,
// first served. It moves no bytes: it says when a batch that is somewhere at some time is where next.
//
//   compute server                     memory server
//   post ─ request_ns ─► Depart ─ wire ─► Arrive ─► effect of WRITEs and atomics ─ read_ns ─► READs
//   poll ◄─ reply_ns ─── Land  ◄─ wire ───────────────────────────────────────────────────── Reply
//
// A NIC has four queues: the verbs it requests, the verbs it serves, the bytes out, the bytes in; and
// a queue for each slot of atomics. A link carries bytes cut-through: the receiver's side takes no
// time beyond the sender's unless others use it. Between processes of one host there is neither wire nor link.
//
// Invariant: each function is called in order of `now_ps` (the world's events see to that), so that
// "first come" is what it says. Times are in picoseconds: a NIC's share of a message is a few ns.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "dsm/base/random.h"
#include "dsm/sim/cost_model.h"

namespace farleaf::dsm {

inline constexpr double kPsPerNs = 1e3;
inline uint64_t PsOfNs(double ns) { return static_cast<uint64_t>(ns * kPsPerNs + 0.5); }

class ModelNetwork {
 public:
  ModelNetwork(const CostModel& model, uint64_t seed);

  /// Between one compute and one memory server.
  struct Way {
    uint32_t from, to;  ///< NICs
    bool loopback() const { return from == to; }
  };
  Way WayOf(uint32_t compute_server, uint32_t memory_server) const;

  /// The compute server's NIC has the batch: when its last byte is at the memory server's.
  uint64_t Depart(Way way, const BatchLoad& load, uint64_t now_ps);
  /// At the memory server: when the WRITEs and atomics have taken effect (READs do read_ns later).
  uint64_t Arrive(Way way, const BatchLoad& load, uint64_t now_ps);
  /// All has taken effect: when the reply's last byte is at the compute server's NIC.
  uint64_t Reply(Way way, const BatchLoad& load, uint64_t now_ps);
  /// At the compute server's NIC: when the completion can be polled.
  uint64_t Land(Way way, const BatchLoad& load, uint64_t now_ps);

  uint64_t request_ps() const { return request_ps_; }
  uint64_t read_ps() const { return read_ps_; }

  /// How long the queues of a NIC have been busy in all.
  struct Busy {
    uint64_t requests_ps = 0, serving_ps = 0, out_ps = 0, in_ps = 0;
  };
  size_t nics() const { return nics_.size(); }
  const Busy& busy(size_t nic) const { return nics_[nic].busy; }

 private:
  struct Nic {
    uint64_t requests_free_ps = 0, serving_free_ps = 0, out_free_ps = 0, in_free_ps = 0;
    std::unordered_map<uint64_t, uint64_t> slots_free_ps;  // never iterated
    Busy busy;
  };
  uint64_t Transfer(uint64_t bytes, uint64_t messages) const;
  uint64_t Wire();
  static uint64_t Serve(uint64_t& free_ps, uint64_t& busy_ps, uint64_t now_ps, uint64_t service_ps);
  static uint64_t Receive(Nic& nic, uint64_t now_ps, uint64_t service_ps);
  uint64_t TransferBack(const BatchLoad& load) const;

  const CostModel model_;
  Random random_;
  const uint64_t request_ps_, wire_ps_, read_ps_, write_ps_, atomic_ps_, device_atomic_ps_,
      reply_ps_, jitter_ps_;
  const double request_each_ps_, read_each_ps_, write_each_ps_, atomic_each_ps_, byte_ps_;
  std::vector<Nic> nics_;
};

}  // namespace farleaf::dsm
