// InterleavedMembers: several compute servers of one pool on one thread, under a seed that decides
// what happens next (test/support/interleaving_fabric.h), and a clock that moves with each turn: a
// wait of seconds takes no time, and a run repeats exactly.
//
// Thread rule: one thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/pool.h"
#include "index/blink/tree.h"
#include "test/support/interleaving_fabric.h"
#include "test/support/shared_fabric.h"

namespace farleaf::index {

struct Member {
  std::unique_ptr<dsm::Pool> pool;
  std::unique_ptr<BlinkTree> tree;
  std::vector<std::unique_ptr<dsm::Worker>> workers;
};

/// Drives workers of several members on this thread until all that they were given is done.
class InterleavedMembers {
 public:
  struct Options {
    uint64_t seed = 1;
    Geometry geometry = Geometry::Fixed8(256);
    TreeOptions tree;
    size_t members = 3;
    uint32_t servers = 2;
    uint64_t region_bytes = uint64_t{8} << 20;
    uint64_t grace_ms = 0;  ///< pages are reused at once: nothing may rely on the grace period
    uint32_t local_free_pages_max = 512;
    dsm::BatchFault fail = nullptr;
  };

  explicit InterleavedMembers(const Options& options);
  ~InterleavedMembers();

  std::vector<Member>& members() { return members_; }
  Member& setup() { return setup_; }
  dsm::LocalFabric& servers() { return *servers_; }
  ManualClock& clock() { return clock_; }
  Random& random() { return random_; }

  void RunAll();
  /// On the setup member, whose verbs complete at once.
  template <typename T>
  T RunSetup(Task<T> task) {
    return RunOn(*setup_.workers[0], std::move(task));
  }
  /// Only sleeps need the clock.
  template <typename T>
  T RunOn(dsm::Worker& worker, Task<T> task) {
    worker.GoOnline();
    task.Start();
    while (!task.done()) {
      worker.RunOnce(dsm::Worker::Idle::kReturn);
      clock_.AdvanceNs(1'000);
    }
    worker.GoOffline();
    return task.TakeResult();
  }

  /// A worker of a pool whose batches take their time.
  std::unique_ptr<dsm::Worker> NewSlowWorker(dsm::Pool& pool);
  /// A member whose batches complete at once, without a tree object yet.
  Member Join(dsm::PoolOptions::Role role = dsm::PoolOptions::Role::kMember);
  const TreeInfo& info() const { return info_; }

 private:
  Member Join(std::unique_ptr<dsm::Fabric> fabric,
              dsm::PoolOptions::Role role = dsm::PoolOptions::Role::kMember);

  Options options_;
  Random random_;
  ManualClock clock_;
  std::unique_ptr<dsm::LocalFabric> servers_;
  Member setup_;
  TreeInfo info_;
  std::vector<Member> members_;  // destroyed before the memory servers
};

}  // namespace farleaf::index
