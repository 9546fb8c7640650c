#include "server/membership/in_process_membership.h"

#include <algorithm>

#include "server/membership/limits.h"

namespace farleaf::server::membership {

namespace {

/// A lease ends this part of the timeout before the service could expire the session: for clocks that run apart, up to an
/// eighth of the time.
constexpr uint64_t kMarginOfTimeout = 8;
constexpr uint64_t kReconnectsOfTimeout = 32;

}  // namespace

Result<std::unique_ptr<InProcessMembership>> InProcessService::Open() {
  std::lock_guard lock(mutex_);
  Expire();
  if (away_) return Status::Unavailable("the coordination service of this process is away");
  const SessionId id{++last_session_};
  sessions_[id].expires_at_ns = ServiceNowNs() + options_.session_timeout_ms * kNsPerMs;
  return std::unique_ptr<InProcessMembership>(new InProcessMembership(this, id));
}

void InProcessService::Part(const InProcessMembership& session) {
  std::lock_guard lock(mutex_);
  Expire();
  parted_.insert(session.id_);
}

void InProcessService::Heal(const InProcessMembership& session) {
  std::lock_guard lock(mutex_);
  Expire();
  parted_.erase(session.id_);
}

void InProcessService::GoAway() {
  std::lock_guard lock(mutex_);
  Expire();
  away_ = true;
}

void InProcessService::ComeBack() {
  std::lock_guard lock(mutex_);
  if (!away_) return;
  away_ = false;
  const uint64_t expires_at_ns = ServiceNowNs() + options_.session_timeout_ms * kNsPerMs;
  for (auto& [id, session] : sessions_) session.expires_at_ns = expires_at_ns;
}

bool InProcessService::Holds(const InProcessMembership& session) {
  std::lock_guard lock(mutex_);
  Expire();
  return sessions_.contains(session.id_);
}

uint64_t InProcessService::ServiceNowNs() const {
  const uint64_t now_ns = clock_->NowNs();
  return now_ns + now_ns / 1'000'000 * options_.service_clock_ahead_ppm;
}

void InProcessService::Expire() {
  if (away_) return;
  const uint64_t now_ns = ServiceNowNs();
  for (auto at = sessions_.begin(); at != sessions_.end();) {
    if (at->second.expires_at_ns > now_ns) {
      ++at;
      continue;
    }
    entries_.EndSession(at->first);
    at = sessions_.erase(at);
  }
  SendNotices();
}

void InProcessService::SendNotices() {
  const uint64_t now_ns = clock_->NowNs();
  for (EntryTree::Notice& notice : entries_.TakeNotices()) {
    const auto at = sessions_.find(notice.session);
    if (at == sessions_.end()) continue;
    std::deque<Notice>& notices = at->second.notices;
    const uint64_t delay_ns = options_.delay_ns_max ? random_.Below(options_.delay_ns_max + 1) : 0;
    const uint64_t due_ns =
        std::max(now_ns + delay_ns, notices.empty() ? 0 : notices.back().due_ns);
    notices.push_back({due_ns, std::move(notice.path)});
    ++notices_sent_;
  }
}

bool InProcessService::IsParted(SessionId session) const {
  return away_ || parted_.contains(session);
}

InProcessService::Arrival InProcessService::Take(SessionId session, const Effect& effect) {
  std::lock_guard lock(mutex_);
  Expire();
  if (IsParted(session)) return Arrival::kLost;
  const auto at = sessions_.find(session);
  if (at == sessions_.end()) return Arrival::kSessionIsOver;
  at->second.expires_at_ns = ServiceNowNs() + options_.session_timeout_ms * kNsPerMs;
  if (effect) effect(entries_);
  SendNotices();
  return Arrival::kTaken;
}

void InProcessService::End(SessionId session) {
  std::lock_guard lock(mutex_);
  Expire();
  if (IsParted(session) || sessions_.erase(session) == 0) return;
  entries_.EndSession(session);
  SendNotices();
}

bool InProcessService::Reaches(SessionId session) {
  std::lock_guard lock(mutex_);
  Expire();
  return !IsParted(session);
}

std::vector<std::string> InProcessService::TakeDueNotices(SessionId session) {
  std::lock_guard lock(mutex_);
  Expire();
  std::vector<std::string> paths;
  const auto at = sessions_.find(session);
  if (at == sessions_.end() || IsParted(session)) return paths;
  std::deque<Notice>& notices = at->second.notices;
  while (!notices.empty() && notices.front().due_ns <= clock_->NowNs()) {
    paths.push_back(std::move(notices.front().path));
    notices.pop_front();
  }
  return paths;
}

uint64_t InProcessService::DrawDelayNs() {
  return options_.delay_ns_max ? DrawBelow(options_.delay_ns_max + 1) : 0;
}

uint64_t InProcessService::DrawBelow(uint64_t bound_ns) {
  std::lock_guard lock(mutex_);
  return random_.Below(bound_ns);
}

InProcessMembership::InProcessMembership(InProcessService* service, SessionId id)
    : service_(service), id_(id), timeout_ns_(service->options_.session_timeout_ms * kNsPerMs) {
  NoteAnswer(service->clock_->NowNs());
}

Status InProcessMembership::CheckState() const {
  switch (state()) {
    case SessionState::kConnected:
      return Status::Ok();
    case SessionState::kAway:
      return Status::Unavailable("the coordination service of this process is away");
    case SessionState::kExpired:
      break;
  }
  return Status::Fenced("session " + std::to_string(static_cast<uint64_t>(id_)) +
                        " with the coordination service is over");
}

void InProcessMembership::SetState(SessionState state) {
  {
    std::lock_guard lock(mutex_);
    if (state_ == SessionState::kExpired || state_ == state) return;
    state_ = state;
    if (state == SessionState::kExpired) lease_until_ns_ = 0;
  }
  counts_.NoteAll();
}

void InProcessMembership::NoteAnswer(uint64_t sent_ns) {
  std::lock_guard lock(mutex_);
  if (state_ == SessionState::kExpired) return;
  lease_until_ns_ =
      std::max(lease_until_ns_.load(), sent_ns + timeout_ns_ - timeout_ns_ / kMarginOfTimeout);
}

Status InProcessMembership::TellLoss(Kind kind) {
  SetState(SessionState::kAway);
  const Status status = CheckState();
  if (status.code() == StatusCode::kFenced || kind != Kind::kChange) return status;
  return Status::Unknown(
      "the coordination service of this process went away during a change, which may have taken "
      "effect");
}

dsm::Task<Status> InProcessMembership::Exchange(dsm::Worker& worker, Kind kind,
                                                const InProcessService::Effect& effect) {
  if (kind != Kind::kReconnect) FARLEAF_CO_RETURN_IF_ERROR(CheckState());
  const uint64_t sent_ns = worker.clock().NowNs();
  const uint64_t there_ns = service_->DrawDelayNs();
  if (there_ns > 0) co_await worker.Sleep(there_ns);
  const InProcessService::Arrival arrival = service_->Take(id_, effect);
  const uint64_t back_ns = service_->DrawDelayNs();
  if (back_ns > 0) co_await worker.Sleep(back_ns);
  if (arrival == InProcessService::Arrival::kLost || !service_->Reaches(id_)) {
    // Noticed when the connection breaks, or at the latest when an answer is overdue.
    if (kind != Kind::kReconnect) {
      co_await worker.Sleep(service_->DrawBelow(timeout_ns_ * 2 / 3));
    }
    co_return TellLoss(kind);
  }
  if (arrival == InProcessService::Arrival::kSessionIsOver) SetState(SessionState::kExpired);
  if (arrival == InProcessService::Arrival::kTaken) NoteAnswer(sent_ns);
  if (kind == Kind::kReconnect) SetState(SessionState::kConnected);
  if (state() == SessionState::kExpired) co_return CheckState();
  co_return Status::Ok();
}

dsm::Task<void> InProcessMembership::KeepAlive(dsm::Worker& worker) {
  while (state() != SessionState::kExpired) {
    const bool connected = state() == SessionState::kConnected;
    const uint64_t next_ns =
        worker.clock().NowNs() +
        timeout_ns_ / (connected ? kHeartbeatsOfTimeout : kReconnectsOfTimeout);
    const InProcessService::Effect nothing;
    // How it ends is told by state().
    [[maybe_unused]] const Status status =
        co_await Exchange(worker, connected ? Kind::kHeartbeat : Kind::kReconnect, nothing);
    const SessionState now = state();
    while (state() == now && now != SessionState::kExpired && worker.clock().NowNs() < next_ns) {
      const uint64_t left_ns = next_ns - worker.clock().NowNs();
      co_await worker.Sleep(std::min(left_ns, service_->options_.look_interval_ns));
    }
  }
}

dsm::Task<Result<std::string>> InProcessMembership::Create(dsm::Worker& worker, std::string path,
                                                           std::string bytes,
                                                           CreateOptions options) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckEntry(path, bytes));
  Result<std::string> created = Status::Unknown("");
  const InProcessService::Effect effect = [&](EntryTree& entries) {
    created = entries.Create(id_, path, bytes, options);
  };
  const Status status = co_await Exchange(worker, Kind::kChange, effect);
  FARLEAF_CO_RETURN_IF_ERROR(status);
  co_return created;
}

dsm::Task<Result<Entry>> InProcessMembership::Get(dsm::Worker& worker, std::string path,
                                                  Watch watch) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckPath(path));
  Result<Entry> entry = Status::Unknown("");
  const InProcessService::Effect effect = [&](EntryTree& entries) {
    entry = entries.Get(id_, path, watch);
  };
  const Status status = co_await Exchange(worker, Kind::kRead, effect);
  FARLEAF_CO_RETURN_IF_ERROR(status);
  co_return entry;
}

dsm::Task<Result<Version>> InProcessMembership::Set(dsm::Worker& worker, std::string path,
                                                    std::string bytes,
                                                    std::optional<Version> version) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckEntry(path, bytes));
  Result<Version> set = Status::Unknown("");
  const InProcessService::Effect effect = [&](EntryTree& entries) {
    set = entries.Set(path, bytes, version);
  };
  const Status status = co_await Exchange(worker, Kind::kChange, effect);
  FARLEAF_CO_RETURN_IF_ERROR(status);
  co_return set;
}

dsm::Task<Status> InProcessMembership::Remove(dsm::Worker& worker, std::string path,
                                              std::optional<Version> version) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckPath(path));
  Status removed;
  const InProcessService::Effect effect = [&](EntryTree& entries) {
    removed = entries.Remove(path, version);
  };
  const Status status = co_await Exchange(worker, Kind::kChange, effect);
  FARLEAF_CO_RETURN_IF_ERROR(status);
  co_return removed;
}

dsm::Task<Result<std::vector<std::string>>> InProcessMembership::Children(dsm::Worker& worker,
                                                                          std::string path,
                                                                          Watch watch) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckPath(path));
  Result<std::vector<std::string>> names = Status::Unknown("");
  const InProcessService::Effect effect = [&](EntryTree& entries) {
    names = entries.Children(id_, path, watch);
  };
  const Status status = co_await Exchange(worker, Kind::kRead, effect);
  FARLEAF_CO_RETURN_IF_ERROR(status);
  co_return names;
}

dsm::Task<Status> InProcessMembership::Commit(dsm::Worker& worker, std::vector<Change> changes) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckChanges(changes));
  Status committed;
  const InProcessService::Effect effect = [&](EntryTree& entries) {
    committed = entries.Commit(changes);
  };
  const Status status = co_await Exchange(worker, Kind::kChange, effect);
  FARLEAF_CO_RETURN_IF_ERROR(status);
  co_return committed;
}

uint64_t InProcessMembership::ChangeCount(const std::string& path) {
  for (const std::string& changed : service_->TakeDueNotices(id_)) counts_.Note(changed);
  return counts_.Of(path);
}

dsm::Task<bool> InProcessMembership::AwaitChange(dsm::Worker& worker, std::string path,
                                                 uint64_t seen, uint64_t timeout_ns) {
  const uint64_t begun_ns = worker.clock().NowNs();
  while (ChangeCount(path) == seen && state() != SessionState::kExpired) {
    const uint64_t waited_ns = worker.clock().NowNs() - begun_ns;
    if (waited_ns >= timeout_ns) co_return false;
    co_await worker.Sleep(std::min(timeout_ns - waited_ns, service_->options_.look_interval_ns));
  }
  co_return true;
}

dsm::Task<Status> InProcessMembership::Close(dsm::Worker& worker) {
  SetState(SessionState::kExpired);  // and with it the lease, before any entry goes
  const uint64_t there_ns = service_->DrawDelayNs();
  if (there_ns > 0) co_await worker.Sleep(there_ns);
  service_->End(id_);
  co_return Status::Ok();
}

}  // namespace farleaf::server::membership
