// Options of the verbs fabric, for both of its sides.
//
// Thread rule: value types and a pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dsm/base/result.h"
#include "dsm/link_recovery.h"

namespace farleaf::dsm {

/// Which RDMA device serves. What is left open, librdmacm chooses by the routing table.
struct VerbsDeviceChoice {
  static constexpr int kAnyGid = -1;
  std::string device;       ///< as `ibv_devices` lists it, "mlx5_0"; empty: any
  uint8_t port = 0;         ///< 0: any
  int gid_index = kAnyGid;  ///< in the port's GID table: fixes the source address

  bool any() const { return device.empty() && port == 0 && gid_index == kAnyGid; }
};

/// Reads "DEVICE[:PORT[:GID INDEX]]"; an empty part is left open. InvalidArgument otherwise.
Result<VerbsDeviceChoice> ParseDeviceChoice(std::string_view text);

struct VerbsOptions {
  VerbsDeviceChoice device;
  LinkRecoveryOptions recovery{.connect_timeout_ms = 3'000};
  /// Work requests that one queue pair holds; bounded by the device.
  uint32_t queue_depth = 256;
  /// Queue pairs of this process to one memory server. Every thread has one of its own, as long as
  /// there are enough; the last quarter of them (at least one) is shared by all further threads.
  uint32_t queue_pairs_max = 64;
  /// Registered memory of one queue pair, through which the payload of READs and WRITEs passes. A
  /// power of two.
  uint64_t landing_bytes = 256 << 10;
  /// WRITEs up to this size travel inside the work request; bounded by the device.
  uint32_t inline_bytes = 220;
  /// A packet that is not acknowledged is sent again after this time, rounded up to 4.096 us x 2^n,
  /// `retries` times (at most kRetriesMax); then the connection is broken.
  uint64_t ack_timeout_ms = 250;
  uint8_t retries = kRetriesMax;
  static constexpr uint8_t kRetriesMax = 6;  ///< soft RoCE takes 7 for "for ever"
};

}  // namespace farleaf::dsm
