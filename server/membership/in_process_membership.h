// InProcessService: a coordination service in this process, for servers on one machine and for simulations; and
// InProcessMembership: a session with it. There is no thread and no timer of its own: what is due is done when somebody
// calls, and whoever waits looks every look_interval_ns, by Worker::Sleep. So it runs in virtual time as well, and the same
// seed and calls give the same run.
//
// A call is a message there and a message back, each late by a drawn delay. Between a session and the service nothing passes
// while the two are parted or the service is away: a message that would arrive then is lost, which its sender notices after a
// drawn time. A service that comes back has all entries, and all sessions for a whole timeout more, as a restarted
// ZooKeeper has.
//
// Thread rule: thread-safe. The service outlives its sessions.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/random.h"
#include "server/membership/change_counts.h"
#include "server/membership/entry_tree.h"
#include "server/membership/membership.h"

namespace farleaf::server::membership {

struct InProcessOptions {
  uint64_t seed = 1;
  uint64_t session_timeout_ms = 10'000;
  uint64_t delay_ns_max = 0;                  ///< of a message, and of a notice
  uint64_t look_interval_ns = 10 * kNsPerMs;  ///< how often who waits looks
  uint32_t service_clock_ahead_ppm = 0;       ///< by how much its clock is faster than the nodes'
};

class InProcessMembership;

class InProcessService {
 public:
  /// `clock` outlives it, and is that of the workers that its sessions are used on.
  InProcessService(const Clock* clock, const InProcessOptions& options)
      : clock_(clock), options_(options), random_(options.seed) {}
  InProcessService(const InProcessService&) = delete;

  /// Unavailable: it is away.
  Result<std::unique_ptr<InProcessMembership>> Open();

  // ---- Faults
  void Part(const InProcessMembership& session);
  void Heal(const InProcessMembership& session);
  void GoAway();
  void ComeBack();

  // ---- For tests
  /// Whether the session has neither expired nor been closed.
  bool Holds(const InProcessMembership& session);
  uint64_t notices_sent() const { return notices_sent_; }

 private:
  friend class InProcessMembership;
  struct Notice {
    uint64_t due_ns;
    std::string path;
  };
  struct Session {
    uint64_t expires_at_ns = 0;  // on the service's clock
    std::deque<Notice> notices;
  };
  enum class Arrival : uint8_t { kTaken, kLost, kSessionIsOver };
  /// REQUIRES: the service's mutex is held.
  using Effect = std::function<void(EntryTree& entries)>;

  /// A message of the session arrives: the session lives on for a timeout, and `effect` takes place.
  Arrival Take(SessionId session, const Effect& effect);
  void End(SessionId session);
  bool Reaches(SessionId session);
  std::vector<std::string> TakeDueNotices(SessionId session);
  uint64_t DrawDelayNs();
  uint64_t DrawBelow(uint64_t bound_ns);

  // All REQUIRE mutex_.
  uint64_t ServiceNowNs() const;
  void Expire();
  void SendNotices();
  bool IsParted(SessionId session) const;

  const Clock* const clock_;
  const InProcessOptions options_;
  std::mutex mutex_;  // guards all below
  Random random_;
  EntryTree entries_;
  std::map<SessionId, Session> sessions_;
  std::set<SessionId> parted_;  // also of sessions that are over
  uint64_t last_session_ = 0;
  bool away_ = false;
  std::atomic<uint64_t> notices_sent_{0};
};

class InProcessMembership final : public Membership {
 public:
  /// Ends with the session. Without it the session expires: whoever opens one spawns it on a worker. After Close it ends
  /// within look_interval_ns.
  dsm::Task<void> KeepAlive(dsm::Worker& worker);

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
  uint64_t ChangeCount(const std::string& path) override;
  dsm::Task<bool> AwaitChange(dsm::Worker& worker, std::string path, uint64_t seen,
                              uint64_t timeout_ns) override;
  SessionState state() const override { return state_.load(); }
  uint64_t lease_until_ns() const override { return lease_until_ns_.load(); }
  dsm::Task<Status> Close(dsm::Worker& worker) override;

 private:
  friend class InProcessService;
  enum class Kind : uint8_t { kRead, kChange, kHeartbeat, kReconnect };

  InProcessMembership(InProcessService* service, SessionId id);
  /// Ok: `effect` took place, and its answer is here. REQUIRES: `effect` lives until then.
  dsm::Task<Status> Exchange(dsm::Worker& worker, Kind kind,
                             const InProcessService::Effect& effect);
  /// Ok: a call may be sent.
  Status CheckState() const;
  Status TellLoss(Kind kind);
  void NoteAnswer(uint64_t sent_ns);
  /// From any state but kExpired.
  void SetState(SessionState state);

  InProcessService* const service_;
  const SessionId id_;
  const uint64_t timeout_ns_;
  ChangeCounts counts_;
  std::mutex mutex_;  // guards changes of the two below
  std::atomic<SessionState> state_{SessionState::kConnected};
  std::atomic<uint64_t> lease_until_ns_{0};
};

}  // namespace farleaf::server::membership
