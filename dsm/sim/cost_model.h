// CostModel: what a fabric and its compute servers take for each step, for runs in virtual time
// (model_world.h). Read from a model file (benchmark/simulated/model_file.h), which gives every
// parameter and, in comments, where it comes from.
//
// Thread rule: a value type.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace farleaf::dsm {

struct CostModel {
  // ---- machine
  uint64_t memory_servers = 2;
  uint64_t compute_servers = 2;
  uint64_t shared_hosts = 0;  ///< 1: compute server i and memory server i share a host and its NIC
  uint64_t cores = 24;        ///< of each compute server; thread t runs on core t mod cores

  // ---- latency: what an idle fabric takes beyond its rates. ns
  double request_ns = 0;  ///< from the doorbell to the NIC's first verb
  double wire_ns = 0;     ///< one way; none between a compute and a memory server of one host
  double read_ns = 0;     ///< the memory server's NIC reads memory
  double write_ns = 0;    ///< it writes memory
  double atomic_ns = 0;   ///< it reads and writes a word of memory; atomics on a slot wait so long
  double device_atomic_ns = 0;  ///< likewise, of a word in the NIC's own memory
  double reply_ns = 0;          ///< from the reply's last byte to a completion that can be polled
  double jitter_ns_max = 0;     ///< added to each way over the wire, drawn uniformly from 0 to this

  // ---- nic: rates of one NIC
  double request_rate_mps = 1;  ///< verbs sent for its compute server, millions a second
  double read_rate_mps = 1;     ///< READs served for its memory server
  double write_rate_mps = 1;
  double atomic_rate_mps = 1;
  uint64_t atomic_slot_bits = 48;  ///< atomics whose offsets agree in so many low bits share a slot
  double bandwidth_gbps = 100;     ///< each direction, 10^9 bits a second
  uint64_t header_bytes = 0;       ///< on the wire with each request and each reply of a verb
  uint64_t device_memory_bytes = 0;  ///< the last bytes of each region lie in the NIC

  // ---- cpu: of a compute server's thread. ns
  double operation_ns = 0;   ///< an operation: find the leaf, check and search it, make the result
  double post_ns = 0;        ///< a batch: doorbell
  double verb_ns = 0;        ///< a verb of it
  double complete_ns = 0;    ///< a completion: poll, resume
  double read_byte_ns = 0;   ///< a byte that arrived: checksum
  double write_byte_ns = 0;  ///< a byte that leaves: copy, checksum
  double handover_ns = 0;    ///< from one thread's wake-up of another to its turn
};

/// One parameter: its key in a model file, `table.name`, and which values it may have.
struct CostModelField {
  std::string_view key;
  double CostModel::*number = nullptr;
  uint64_t CostModel::*integer = nullptr;  ///< one of the two
  double min = 0, max = 0;
};
/// All parameters of a CostModel, in the order of its declaration.
std::span<const CostModelField> CostModelFields();

/// A batch as the network sees it.
struct BatchLoad {
  uint32_t reads = 0, writes = 0;
  uint64_t bytes_out = 0, bytes_in = 0;  ///< payload
  /// Of the atomics, in order: the slot that each waits for, and whether it is in device memory.
  struct Atomic {
    uint64_t slot;
    bool device;
  };
  std::vector<Atomic> atomics;

  void Clear();
  uint32_t verbs() const { return reads + writes + static_cast<uint32_t>(atomics.size()); }
};

}  // namespace farleaf::dsm
