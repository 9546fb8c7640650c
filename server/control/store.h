// Store: what farleafctl works on, be it a pool that it joins itself or a compute server.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/operation.h"
#include "client/options.h"
#include "dsm/address.h"
#include "dsm/base/clock.h"
#include "dsm/member.h"
#include "index/blink/check.h"
#include "index/blink/recover_member.h"

namespace farleaf::server {

/// A compute server, as the pool's member table has it.
struct PoolMember {
  dsm::MemberIdentity identity;           ///< the newest of this id
  bool live = false;                      ///< it has not left; it may have died
  std::vector<dsm::ServerId> fenced_by;   ///< memory servers whose fence words name it
  std::vector<dsm::ServerId> watched_by;  ///< memory servers at which it has a lease
  /// Of watched_by, those at which it did not renew while it was watched from here.
  std::vector<dsm::ServerId> silent_at;
};

/// What one memory server answered to a cut.
struct CutOffOutcome {
  dsm::ServerId server = 0;
  Status status;
};

/// Whether the command changes anything: a pool is joined as a member, or only looked at.
enum class StoreAccess : uint8_t { kRead, kWrite };

class Store {
 public:
  virtual ~Store() = default;
  virtual Result<std::vector<client::TreeInfo>> ListTrees() = 0;
  virtual Result<client::TreeInfo> CreateTree(const client::TreeSpec& spec) = 0;
  /// The calls below are about the tree opened last.
  virtual Result<client::TreeInfo> OpenTree(std::string_view name) = 0;
  virtual Result<client::Value> Get(std::string_view key) = 0;
  virtual Result<bool> Put(std::string_view key, std::string_view value) = 0;
  virtual Result<bool> Delete(std::string_view key) = 0;
  virtual Result<client::CompareAndSetResult> CompareAndSet(std::string_view key,
                                                            std::string_view expected,
                                                            std::string_view value) = 0;
  virtual Result<int64_t> Add(std::string_view key, int64_t delta,
                              std::optional<int64_t> initial) = 0;
  /// `range` has no prefix.
  virtual Result<client::Rows> Scan(const client::ScanRange& range) = 0;
  /// Names and values, in a sensible order.
  virtual Result<std::vector<std::pair<std::string, std::string>>> Status() = 0;
  /// Likewise, of the pool itself, be it that of a compute server.
  virtual Result<std::vector<std::pair<std::string, std::string>>> PoolStatus() = 0;
  /// A compute server's slow requests, as JSON. Unimplemented: a pool has none.
  virtual Result<std::string> SlowLog() = 0;
  /// Of every tree and page of the pool. It takes as long as it takes.
  virtual Result<index::CheckReport> Check() = 0;
  /// Every id that was ever given, in ascending order, its leases being watched for `watch_ms`; 0: not.
  virtual Result<std::vector<PoolMember>> Members(uint64_t watch_ms) = 0;
  /// Has every memory server cut `member`, and its older incarnations, off (dsm/transport.h).
  virtual Result<std::vector<CutOffOutcome>> CutOff(const dsm::MemberIdentity& member) = 0;
  /// Returns what a member holds that every memory server has cut off (index/blink/recover_member.h), and
  /// tells of it line by line. It takes as long as it takes.
  virtual Result<index::MemberRecovered> Recover(
      const dsm::MemberIdentity& member, std::function<void(const std::string&)> progress) = 0;
};

/// `clock` outlives either store.
Result<std::unique_ptr<Store>> OpenServerStore(const std::string& url,
                                               const client::Options& options, const Clock* clock);
Result<std::unique_ptr<Store>> OpenPoolStore(const std::string& bootstrap, uint64_t deadline_ms,
                                             StoreAccess access, const Clock* clock);

}  // namespace farleaf::server
