// ZookeeperMembership: a session with ZooKeeper, over its C client.
//
//   CHROOT/entries/...     the entries: "/a" is CHROOT/entries/a
//   CHROOT/sessions/s-N    ephemeral, one a session, which its heartbeats set
//
// The lease. A heartbeat is a write, so that its answer proves that a quorum has followed the leader since it was sent: no
// other leader has begun, and a later one begins with a whole timeout for each session. The leader itself hears from a
// follower of the sessions that were active there when the follower answers the leader's ping, which comes each half a tick, and a
// timeout has at least two ticks: so it may count from up to a quarter of the timeout before the heartbeat. README.md has the cases.
//
// Threads: the C client's two, which complete calls and tell of changes, and one that sends heartbeats and ends waits.
// Coroutines are resumed on their workers only.
// Thread rule: that of Membership; REQUIRES that a worker lives until no call of it is under way.
#pragma once

#include <atomic>
#include <condition_variable>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dsm/base/clock.h"
#include "server/membership/change_counts.h"
#include "server/membership/membership.h"
#include "server/membership/zookeeper_url.h"

struct _zhandle;

namespace farleaf::server::membership {

struct ZookeeperOptions {
  uint32_t session_timeout_ms =
      10'000;  ///< asked for; the server has bounds (2 to 20 of its ticks)
  uint32_t connect_timeout_ms = 10'000;  ///< of Open
};

class ZookeeperMembership final : public Membership {
 public:
  /// Connects, and creates CHROOT if it is missing. Blocks, for connect_timeout_ms at most if nobody answers. InvalidArgument: no
  /// such URL. Unavailable, with the hosts: nobody answers there as ZooKeeper does. `clock` is monotonic, and outlives it.
  static Result<std::unique_ptr<ZookeeperMembership>> Open(std::string_view url,
                                                           const ZookeeperOptions& options,
                                                           const Clock* clock);
  ~ZookeeperMembership() override;

  dsm::Task<Result<std::string>> Create(dsm::Worker& worker, std::string path, std::string bytes,
                                        CreateOptions options) override;
  dsm::Task<Result<Entry>> Get(dsm::Worker& worker, std::string path, Watch watch) override;
  dsm::Task<Result<Version>> Set(dsm::Worker& worker, std::string path, std::string bytes,
                                 std::optional<Version> version) override;
  dsm::Task<Status> Remove(dsm::Worker& worker, std::string path,
                           std::optional<Version> version) override;
  dsm::Task<Result<std::vector<std::string>>> Children(dsm::Worker& worker, std::string path,
                                                       Watch watch) override;
  dsm::Task<Status> Commit(dsm::Worker& worker, std::vector<Change> changes) override;
  uint64_t ChangeCount(const std::string& path) override { return counts_.Of(path); }
  dsm::Task<bool> AwaitChange(dsm::Worker& worker, std::string path, uint64_t seen,
                              uint64_t timeout_ns) override;
  SessionState state() const override { return state_.load(); }
  uint64_t lease_until_ns() const override { return lease_until_ns_.load(); }
  /// Blocks for the time that it takes to send the farewell, at most a few seconds.
  dsm::Task<Status> Close(dsm::Worker& worker) override;

  /// What was agreed on with the server.
  uint64_t session_timeout_ns() const { return timeout_ns_.load(); }

 private:
  struct Reply;
  struct Callbacks;
  class Answered;
  class Changed;
  struct Waiter {
    dsm::Worker* worker;
    std::coroutine_handle<> handle;
    std::string path;
    uint64_t seen;
    uint64_t deadline_ns;
  };
  enum class Kind : uint8_t { kRead, kChange };
  /// Starts a call of the C client; a code other than 0 says that it has not begun.
  using Start = std::function<int(_zhandle* handle, const void* data)>;

  ZookeeperMembership(ZookeeperUrl url, const Clock* clock);
  Status Connect(const ZookeeperOptions& options);
  Status CreateRoots();
  Status CreateNode(const std::string& path);
  void Disconnect();

  /// Sends what `start` starts; Ok: its answer is in `reply`, and may be a failure of ZooKeeper's.
  dsm::Task<Status> Call(dsm::Worker& worker, std::shared_ptr<Reply> reply, const Start& start);
  /// Of a path that has no entry: true if it has one now. Its watch tells of one that comes.
  dsm::Task<Result<bool>> WatchMissing(dsm::Worker& worker, const std::string& path);
  Status CheckState() const;
  Status Failure(int code, Kind kind, const std::string& path);
  std::string NodeOf(const std::string& path) const;

  void SetState(SessionState state);
  void NoteChange(std::string_view node);
  /// REQUIRES: mutex_ is held.
  void WakeWaiters();
  void NoteHeartbeat(int code, uint64_t sent_ns);
  void SendHeartbeat();
  void Keep();

  const ZookeeperUrl url_;
  const std::string root_;    // CHROOT/entries
  std::string session_node_;  // CHROOT/sessions/s-N
  const Clock* const clock_;
  ChangeCounts counts_;
  std::atomic<SessionState> state_{SessionState::kAway};
  std::atomic<uint64_t> lease_until_ns_{0};
  std::atomic<uint64_t> timeout_ns_{0};

  std::mutex handle_mutex_;  // guards handle_: held while a call is started, not while one ends
  _zhandle* handle_ = nullptr;

  std::mutex
      mutex_;  // guards all below, changes of state_ and lease_until_ns_, and replies; taken behind handle_mutex_
  std::condition_variable changed_;  // of state_, waiters_, stopping_ or the next heartbeat
  std::list<Waiter> waiters_;
  bool heartbeat_in_flight_ = false;
  uint64_t next_heartbeat_ns_ = 0;
  bool stopping_ = false;
  std::thread keeper_;  // runs Keep
};

}  // namespace farleaf::server::membership
