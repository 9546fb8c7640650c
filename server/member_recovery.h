// MemberRecovery: a compute server's thread that returns what other compute servers hold that are dead
// (index/blink/recover_member.h), some time after all memory servers have cut them off.
//
// Every compute server of a pool may run one: a claim in the pool lets one at a time do it.
// Thread rule: Start and Stop by one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/pool.h"
#include "index/blink/options.h"
#include "server/frontend/tree_host.h"

namespace farleaf::server {

class MemberRecovery {
 public:
  struct Options {
    uint64_t after_ms = 10'000;  ///< since it was first seen cut off everywhere
    uint64_t look_ms = 1'000;    ///< between looks
    index::TreeOptions tree;
  };
  /// `pool` and `host`, whose trees' upkeep it does for what it leaves behind itself, outlive it.
  static Result<std::unique_ptr<MemberRecovery>> Start(dsm::Pool* pool, TreeHost* host,
                                                       Options options);
  /// Stops; a recovery that runs is given up, and found again by the next one.
  ~MemberRecovery();
  MemberRecovery(const MemberRecovery&) = delete;

 private:
  MemberRecovery(dsm::Pool* pool, TreeHost* host, Options options,
                 std::unique_ptr<dsm::Worker> worker);
  void Run();
  void Look();
  /// Locks that this thread took over, and lost sight of when connections broke, are for it to let go.
  dsm::OpContext UpkeepOp();
  Result<std::vector<dsm::MemberIdentity>> CutOffEverywhere();
  void Recover(const dsm::MemberIdentity& member);
  bool stopping();

  dsm::Pool* const pool_;
  TreeHost* const host_;
  const Options options_;
  std::unique_ptr<dsm::Worker> worker_;
  dsm::FabricCounts counts_;
  std::map<dsm::MemberId, std::pair<uint64_t, uint64_t>>
      seen_;  // incarnation, and when it was seen

  std::mutex mutex_;  // guards stop_
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace farleaf::server
