// LeaseEnforcer: has a memory server cut off compute servers that do not renew their leases
// (dsm/lease_watch.h), and those whose processes have ended without leaving the pool, where the fabric
// tells (shm).
//
// A cut that fails (shm: a killed process that does not end) is asked for again at every look. A cut
// that takes long is a pause of the looks, and so postpones the others.
// Thread rule: Look by one thread; after Start that is the enforcer's own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/status.h"
#include "dsm/lease_watch.h"
#include "dsm/member.h"

namespace farleaf::dsm {

class LeaseEnforcer {
 public:
  struct Deps {
    ServerId server = 0;
    std::span<const std::byte> region;  ///< outlives the enforcer
    uint64_t lease_ms = 0;              ///< not 0
    const Clock* clock = nullptr;       ///< outlives the enforcer
    /// RegionAgent::CutOff.
    std::function<Status(const MemberIdentity&)> cut_off;
    /// RegionAgent::TakeEnded; may be empty.
    std::function<std::vector<MemberIdentity>()> take_ended;
  };
  explicit LeaseEnforcer(Deps deps);
  /// Ends the thread, if there is one.
  ~LeaseEnforcer();
  LeaseEnforcer(const LeaseEnforcer&) = delete;

  /// One look; cuts off whom it has to.
  void Look();
  /// From now on a thread looks often enough.
  void Start();

 private:
  void Run();
  void CutOff(const MemberIdentity& member);

  const Deps deps_;
  LeaseWatch watch_;
  std::vector<uint64_t> words_;
  std::map<MemberId, uint64_t> told_, failing_;  // incarnations that a line was logged of

  std::mutex mutex_;  // guards stop_
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace farleaf::dsm
