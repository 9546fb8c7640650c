#include "server/membership/zookeeper_membership.h"

#include <zookeeper/zookeeper.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "dsm/base/log.h"
#include "server/membership/limits.h"
#include "server/membership/path.h"

namespace farleaf::server::membership {

namespace {

/// A lease ends this part of the timeout early: a quarter for what the leader does not know yet, an eighth for
/// clocks that run apart and for a follower that is slow to answer the leader's ping.
constexpr uint64_t LeaseMarginNs(uint64_t timeout_ns) { return timeout_ns / 4 + timeout_ns / 8; }
constexpr uint64_t kKeeperSleepNsMax = kNsPerSecond;
constexpr int kWatchAttemptsMax = 16;
constexpr int kAnyVersion = -1;

int AsZooVersion(const std::optional<Version>& version) {
  return version ? static_cast<int>(*version) : kAnyVersion;
}

/// The C client tells of each attempt to connect; an operator is told by SetState, once.
void LogLine(const char* message) { FARLEAF_LOG(debug, "ZooKeeper's client: {}", message); }

}  // namespace

/// Where a call's answer goes. Its fields are written by the C client's thread before `ended`, under the session's mutex.
struct ZookeeperMembership::Reply {
  ZookeeperMembership* session;
  dsm::Worker* worker = nullptr;  ///< to resume `handle` on; null: nobody waits
  std::coroutine_handle<> handle;
  bool ended = false;
  int code = ZOK;
  std::string text;
  Entry entry;
  std::vector<std::string> names;
  // What the C client reads and writes until the end of a Commit.
  std::vector<Change> changes;
  std::vector<std::string> nodes;
  std::vector<zoo_op_t> operations;
  std::vector<zoo_op_result_t> results;
};

/// What the C client calls, on its threads.
struct ZookeeperMembership::Callbacks {
  struct Heartbeat {
    ZookeeperMembership* session;
    uint64_t sent_ns;
  };
  using Held = std::shared_ptr<Reply>;

  static void End(int code, const void* data, const std::function<void(Reply&)>& fill) {
    const std::unique_ptr<const Held> held(static_cast<const Held*>(data));
    Reply& reply = **held;
    std::lock_guard lock(reply.session->mutex_);
    reply.code = code;
    if (code == ZOK) fill(reply);
    reply.ended = true;
    if (reply.worker != nullptr) reply.worker->ResumeSoon(reply.handle);
  }
  static void OnVoid(int code, const void* data) {
    End(code, data, [](Reply&) {});
  }
  static void OnString(int code, const char* text, const void* data) {
    End(code, data, [text](Reply& reply) { reply.text = text; });
  }
  static void OnStat(int code, const Stat* stat, const void* data) {
    End(code, data,
        [stat](Reply& reply) { reply.entry.version = static_cast<Version>(stat->version); });
  }
  static void OnData(int code, const char* bytes, int length, const Stat* stat, const void* data) {
    End(code, data, [&](Reply& reply) {
      if (length > 0) reply.entry.bytes.assign(bytes, static_cast<size_t>(length));
      reply.entry.version = static_cast<Version>(stat->version);
    });
  }
  static void OnStrings(int code, const String_vector* strings, const void* data) {
    End(code, data, [strings](Reply& reply) {
      reply.names.assign(strings->data, strings->data + strings->count);
      std::sort(reply.names.begin(), reply.names.end());
    });
  }
  static void OnHeartbeat(int code, const Stat*, const void* data) {
    const std::unique_ptr<const Heartbeat> heartbeat(static_cast<const Heartbeat*>(data));
    heartbeat->session->NoteHeartbeat(code, heartbeat->sent_ns);
  }
  /// Of the session, and of what is watched.
  static void OnEvent(zhandle_t* handle, int type, int state, const char* path, void* context) {
    auto* session = static_cast<ZookeeperMembership*>(context);
    if (type != ZOO_SESSION_EVENT) {
      session->NoteChange(path);
    } else if (state == ZOO_CONNECTED_STATE) {
      session->timeout_ns_ = static_cast<uint64_t>(zoo_recv_timeout(handle)) * kNsPerMs;
      session->SetState(SessionState::kConnected);
    } else if (state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE) {
      FARLEAF_LOG(warn, "ZooKeeper at {} has ended this session", session->url_.hosts);
      session->SetState(SessionState::kExpired);
    } else {
      session->SetState(SessionState::kAway);
    }
  }
};

/// Waits for a reply.
class [[nodiscard]] ZookeeperMembership::Answered {
 public:
  Answered(dsm::Worker* worker, std::shared_ptr<Reply> reply)
      : worker_(worker), reply_(std::move(reply)) {}
  Answered(const Answered&) = delete;
  ~Answered() {  // perhaps with its frame, before the answer is there
    std::lock_guard lock(reply_->session->mutex_);
    reply_->worker = nullptr;
  }
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> handle) {
    std::lock_guard lock(reply_->session->mutex_);
    if (reply_->ended) return false;
    reply_->worker = worker_;
    reply_->handle = handle;
    return true;
  }
  void await_resume() const noexcept {}

 private:
  dsm::Worker* worker_;
  std::shared_ptr<Reply> reply_;
};

/// Waits for a change.
class [[nodiscard]] ZookeeperMembership::Changed {
 public:
  Changed(ZookeeperMembership* session, Waiter waiter)
      : session_(session), waiter_(std::move(waiter)) {}
  Changed(const Changed&) = delete;
  ~Changed() {
    std::lock_guard lock(session_->mutex_);
    session_->waiters_.remove_if(
        [this](const Waiter& waiter) { return waiter.handle == waiter_.handle; });
  }
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> handle) {
    std::lock_guard lock(session_->mutex_);
    if (session_->counts_.Of(waiter_.path) != waiter_.seen ||
        session_->state_ == SessionState::kExpired) {
      return false;
    }
    waiter_.handle = handle;
    session_->waiters_.push_back(waiter_);
    session_->changed_.notify_all();  // its deadline may be the next
    return true;
  }
  void await_resume() const noexcept {}

 private:
  ZookeeperMembership* session_;
  Waiter waiter_;
};

ZookeeperMembership::ZookeeperMembership(ZookeeperUrl url, const Clock* clock)
    : url_(std::move(url)), root_(url_.chroot + "/entries"), clock_(clock) {}

Result<std::unique_ptr<ZookeeperMembership>> ZookeeperMembership::Open(
    std::string_view url, const ZookeeperOptions& options, const Clock* clock) {
  auto parsed = ParseZookeeperUrl(url);
  if (!parsed.ok()) return parsed.status();
  std::unique_ptr<ZookeeperMembership> session(new ZookeeperMembership(std::move(*parsed), clock));
  FARLEAF_RETURN_IF_ERROR(session->Connect(options));
  FARLEAF_RETURN_IF_ERROR(session->CreateRoots());
  session->keeper_ = std::thread([raw = session.get()] { raw->Keep(); });
  return session;
}

ZookeeperMembership::~ZookeeperMembership() { Disconnect(); }

Status ZookeeperMembership::Connect(const ZookeeperOptions& options) {
  // Its log goes through a static buffer without a lock; what matters of it we say ourselves.
  zoo_set_debug_level(static_cast<ZooLogLevel>(0));
  zhandle_t* handle = zookeeper_init2(url_.hosts.c_str(), &Callbacks::OnEvent,
                                      static_cast<int>(options.session_timeout_ms), nullptr, this,
                                      ZOO_NO_LOG_CLIENTENV, &LogLine);
  if (handle == nullptr) {
    return Status::Unavailable("ZooKeeper at " + url_.hosts + ": " + std::strerror(errno) +
                               "; do the names of these hosts resolve here?");
  }
  {
    std::lock_guard lock(handle_mutex_);
    handle_ = handle;
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(options.connect_timeout_ms),
                    [this] { return state_ != SessionState::kAway; });
  if (state_ == SessionState::kConnected) return Status::Ok();
  return Status::Unavailable(
      "no ZooKeeper at " + url_.hosts + " has answered within " +
      std::to_string(options.connect_timeout_ms) +
      " ms: is one running there (echo srvr | nc HOST PORT), and can it be reached from here?");
}

Status ZookeeperMembership::CreateNode(const std::string& path) {
  const int code =
      zoo_create(handle_, path.c_str(), "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT, nullptr, 0);
  if (code == ZOK || code == ZNODEEXISTS) return Status::Ok();
  return Failure(code, Kind::kRead, path).WithContext("creating " + path);
}

Status ZookeeperMembership::CreateRoots() {
  const std::string sessions = url_.chroot + "/sessions";
  for (size_t end = url_.chroot.find('/', 1); end != std::string::npos;
       end = url_.chroot.find('/', end + 1)) {
    FARLEAF_RETURN_IF_ERROR(CreateNode(url_.chroot.substr(0, end)));
  }
  for (const std::string& path : {url_.chroot, root_, sessions}) {
    FARLEAF_RETURN_IF_ERROR(CreateNode(path));
  }
  const uint64_t sent_ns = clock_->NowNs();
  char name[kPathBytesMax];
  const std::string wanted = sessions + "/s-";
  const int code = zoo_create(handle_, wanted.c_str(), "", 0, &ZOO_OPEN_ACL_UNSAFE,
                              ZOO_EPHEMERAL_SEQUENTIAL, name, sizeof name);
  if (code != ZOK) return Failure(code, Kind::kRead, wanted).WithContext("creating " + wanted);
  session_node_ = name;
  NoteHeartbeat(code, sent_ns);
  return Status::Ok();
}

void ZookeeperMembership::Disconnect() {
  SetState(SessionState::kExpired);
  zhandle_t* handle;
  {
    std::lock_guard lock(handle_mutex_);
    handle = std::exchange(handle_, nullptr);
  }
  if (handle == nullptr) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (keeper_.joinable()) keeper_.join();
  zookeeper_close(handle);  // ends all calls that are under way
}

std::string ZookeeperMembership::NodeOf(const std::string& path) const {
  return path == "/" ? root_ : root_ + path;
}

Status ZookeeperMembership::CheckState() const {
  switch (state()) {
    case SessionState::kConnected:
      return Status::Ok();
    case SessionState::kAway:
      return Status::Unavailable("ZooKeeper at " + url_.hosts + " does not answer");
    case SessionState::kExpired:
      break;
  }
  return Status::Fenced("the session with ZooKeeper at " + url_.hosts + " is over");
}

Status ZookeeperMembership::Failure(int code, Kind kind, const std::string& path) {
  const std::string what = "ZooKeeper at " + url_.hosts + ": " + path + ": " + zerror(code);
  switch (code) {
    case ZOK:
      return Status::Ok();
    case ZNONODE:
      return Status::NotFound(what);
    case ZNODEEXISTS:
      return Status::AlreadyExists(what);
    case ZBADVERSION:
      return Status::VersionMismatch(what);
    case ZNOTEMPTY:
    case ZNOCHILDRENFOREPHEMERALS:
    case ZBADARGUMENTS:
    case ZNOAUTH:
      return Status::InvalidArgument(what);
    case ZCONNECTIONLOSS:
    case ZOPERATIONTIMEOUT:
      if (state() == SessionState::kExpired) return CheckState();
      return kind == Kind::kChange
                 ? Status::Unknown(what + " during a change, which may have taken effect")
                 : Status::Unavailable(what);
    case ZSESSIONMOVED:
    case ZTHROTTLEDOP:
      return Status::Unavailable(what);
    case ZSESSIONEXPIRED:
    case ZAUTHFAILED:
    case ZINVALIDSTATE:
    case ZCLOSING:
      SetState(SessionState::kExpired);
      return CheckState();
    default:
      return Status::IoError(what);
  }
}

void ZookeeperMembership::SetState(SessionState state) {
  std::lock_guard lock(mutex_);
  const SessionState was = state_;
  if (was == SessionState::kExpired || was == state) return;
  state_ = state;
  if (state == SessionState::kExpired) lease_until_ns_ = 0;
  if (state == SessionState::kConnected) next_heartbeat_ns_ = 0;
  if (lease_until_ns_ != 0 && state == SessionState::kAway) {
    FARLEAF_LOG(warn, "ZooKeeper at {} does not answer", url_.hosts);
  } else if (lease_until_ns_ != 0 && state == SessionState::kConnected) {
    FARLEAF_LOG(info, "ZooKeeper at {} answers again", url_.hosts);
  }
  counts_.NoteAll();
  WakeWaiters();
  changed_.notify_all();
}

void ZookeeperMembership::NoteChange(std::string_view node) {
  if (!node.starts_with(root_)) return;
  node.remove_prefix(root_.size());
  counts_.Note(node.empty() ? std::string_view("/") : node);
  std::lock_guard lock(mutex_);
  WakeWaiters();
}

void ZookeeperMembership::WakeWaiters() {
  waiters_.remove_if([this](const Waiter& waiter) {
    if (counts_.Of(waiter.path) == waiter.seen && state_ != SessionState::kExpired &&
        clock_->NowNs() < waiter.deadline_ns) {
      return false;
    }
    waiter.worker->ResumeSoon(waiter.handle);
    return true;
  });
}

void ZookeeperMembership::NoteHeartbeat(int code, uint64_t sent_ns) {
  std::lock_guard lock(mutex_);
  heartbeat_in_flight_ = false;
  if (state_ == SessionState::kExpired) return;
  if (code == ZOK) {
    const uint64_t until_ns = sent_ns + timeout_ns_ - LeaseMarginNs(timeout_ns_);
    lease_until_ns_ = std::max(lease_until_ns_.load(), until_ns);
  } else if (code != ZCONNECTIONLOSS) {
    FARLEAF_LOG(warn, "ZooKeeper at {}: heartbeat to {}: {}", url_.hosts, session_node_,
                zerror(code));
  }
  next_heartbeat_ns_ = sent_ns + timeout_ns_ / kHeartbeatsOfTimeout;
  changed_.notify_all();
}

void ZookeeperMembership::SendHeartbeat() {
  auto heartbeat = std::make_unique<Callbacks::Heartbeat>();
  heartbeat->session = this;
  heartbeat->sent_ns = clock_->NowNs();
  std::lock_guard lock(handle_mutex_);
  const int code = handle_ == nullptr ? static_cast<int>(ZCLOSING)
                                      : zoo_aset(handle_, session_node_.c_str(), "", 0, kAnyVersion,
                                                 &Callbacks::OnHeartbeat, heartbeat.get());
  if (code == ZOK) {
    [[maybe_unused]] auto* held = heartbeat.release();  // by the callback
  } else {
    NoteHeartbeat(code, heartbeat->sent_ns);
  }
}

void ZookeeperMembership::Keep() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    WakeWaiters();
    const uint64_t now_ns = clock_->NowNs();
    uint64_t next_ns = now_ns + kKeeperSleepNsMax;
    for (const Waiter& waiter : waiters_) next_ns = std::min(next_ns, waiter.deadline_ns);
    if (state_ == SessionState::kConnected && !heartbeat_in_flight_) {
      if (next_heartbeat_ns_ <= now_ns) {
        heartbeat_in_flight_ = true;
        lock.unlock();
        SendHeartbeat();
        lock.lock();
        continue;
      }
      next_ns = std::min(next_ns, next_heartbeat_ns_);
    }
    changed_.wait_for(lock, std::chrono::nanoseconds(next_ns > now_ns ? next_ns - now_ns : 0));
  }
}

dsm::Task<Status> ZookeeperMembership::Call(dsm::Worker& worker, std::shared_ptr<Reply> reply,
                                            const Start& start) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckState());
  {
    auto held = std::make_unique<Callbacks::Held>(reply);
    std::lock_guard lock(handle_mutex_);
    const int code = handle_ == nullptr ? static_cast<int>(ZCLOSING) : start(handle_, held.get());
    if (code != ZOK) co_return Failure(code, Kind::kRead, url_.chroot);
    [[maybe_unused]] auto* until_the_end = held.release();  // Callbacks::End frees it
  }
  Answered answered(&worker, std::move(reply));
  co_await answered;
  co_return Status::Ok();
}

dsm::Task<Result<std::string>> ZookeeperMembership::Create(dsm::Worker& worker, std::string path,
                                                           std::string bytes,
                                                           CreateOptions options) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckEntry(path, bytes));
  const bool ephemeral = options.lifetime == Lifetime::kEphemeral;
  const bool sequential = options.naming == Naming::kSequential;
  const int mode = sequential ? (ephemeral ? ZOO_EPHEMERAL_SEQUENTIAL : ZOO_PERSISTENT_SEQUENTIAL)
                              : (ephemeral ? ZOO_EPHEMERAL : ZOO_PERSISTENT);
  const auto reply = std::make_shared<Reply>(this);
  const Start start = [&](zhandle_t* handle, const void* data) {
    return zoo_acreate(handle, NodeOf(path).c_str(), bytes.data(), static_cast<int>(bytes.size()),
                       &ZOO_OPEN_ACL_UNSAFE, mode, &Callbacks::OnString, data);
  };
  const Status called = co_await Call(worker, reply, start);
  FARLEAF_CO_RETURN_IF_ERROR(called);
  if (reply->code != ZOK) co_return Failure(reply->code, Kind::kChange, path);
  if (!reply->text.starts_with(root_)) {
    co_return Status::Corruption("ZooKeeper at " + url_.hosts + " names '" + reply->text +
                                 "' what was created as " + path);
  }
  co_return reply->text.substr(root_.size());
}

dsm::Task<Result<bool>> ZookeeperMembership::WatchMissing(dsm::Worker& worker,
                                                          const std::string& path) {
  const auto reply = std::make_shared<Reply>(this);
  const Start start = [&](zhandle_t* handle, const void* data) {
    return zoo_awexists(handle, NodeOf(path).c_str(), &Callbacks::OnEvent, this, &Callbacks::OnStat,
                        data);
  };
  const Status called = co_await Call(worker, reply, start);
  FARLEAF_CO_RETURN_IF_ERROR(called);
  if (reply->code == ZNONODE) co_return false;
  if (reply->code != ZOK) co_return Failure(reply->code, Kind::kRead, path);
  co_return true;
}

dsm::Task<Result<Entry>> ZookeeperMembership::Get(dsm::Worker& worker, std::string path,
                                                  Watch watch) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckPath(path));
  for (int attempt = 0; attempt < kWatchAttemptsMax; ++attempt) {
    const auto reply = std::make_shared<Reply>(this);
    const Start start = [&](zhandle_t* handle, const void* data) {
      return zoo_awget(handle, NodeOf(path).c_str(),
                       watch == Watch::kChanges ? &Callbacks::OnEvent : nullptr, this,
                       &Callbacks::OnData, data);
    };
    const Status called = co_await Call(worker, reply, start);
    FARLEAF_CO_RETURN_IF_ERROR(called);
    if (reply->code == ZOK) co_return std::move(reply->entry);
    if (reply->code != ZNONODE || watch == Watch::kNothing) {
      co_return Failure(reply->code, Kind::kRead, path);
    }
    auto exists = co_await WatchMissing(worker, path);
    if (!exists.ok()) co_return exists.status();
    if (!*exists) co_return Failure(ZNONODE, Kind::kRead, path);
  }
  co_return Status::Unavailable("entry " + path + " comes and goes too fast to be watched");
}

dsm::Task<Result<Version>> ZookeeperMembership::Set(dsm::Worker& worker, std::string path,
                                                    std::string bytes,
                                                    std::optional<Version> version) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckEntry(path, bytes));
  const auto reply = std::make_shared<Reply>(this);
  const Start start = [&](zhandle_t* handle, const void* data) {
    return zoo_aset(handle, NodeOf(path).c_str(), bytes.data(), static_cast<int>(bytes.size()),
                    AsZooVersion(version), &Callbacks::OnStat, data);
  };
  const Status called = co_await Call(worker, reply, start);
  FARLEAF_CO_RETURN_IF_ERROR(called);
  if (reply->code != ZOK) co_return Failure(reply->code, Kind::kChange, path);
  co_return reply->entry.version;
}

dsm::Task<Status> ZookeeperMembership::Remove(dsm::Worker& worker, std::string path,
                                              std::optional<Version> version) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckPath(path));
  if (path == "/") co_return Status::InvalidArgument("entry / has no end");
  const auto reply = std::make_shared<Reply>(this);
  const Start start = [&](zhandle_t* handle, const void* data) {
    return zoo_adelete(handle, NodeOf(path).c_str(), AsZooVersion(version), &Callbacks::OnVoid,
                       data);
  };
  const Status called = co_await Call(worker, reply, start);
  FARLEAF_CO_RETURN_IF_ERROR(called);
  co_return Failure(reply->code, Kind::kChange, path);
}

dsm::Task<Result<std::vector<std::string>>> ZookeeperMembership::Children(dsm::Worker& worker,
                                                                          std::string path,
                                                                          Watch watch) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckPath(path));
  for (int attempt = 0; attempt < kWatchAttemptsMax; ++attempt) {
    const auto reply = std::make_shared<Reply>(this);
    const Start start = [&](zhandle_t* handle, const void* data) {
      return zoo_awget_children(handle, NodeOf(path).c_str(),
                                watch == Watch::kChanges ? &Callbacks::OnEvent : nullptr, this,
                                &Callbacks::OnStrings, data);
    };
    const Status called = co_await Call(worker, reply, start);
    FARLEAF_CO_RETURN_IF_ERROR(called);
    if (reply->code == ZOK) co_return std::move(reply->names);
    if (reply->code != ZNONODE || watch == Watch::kNothing) {
      co_return Failure(reply->code, Kind::kRead, path);
    }
    auto exists = co_await WatchMissing(worker, path);
    if (!exists.ok()) co_return exists.status();
    if (!*exists) co_return Failure(ZNONODE, Kind::kRead, path);
  }
  co_return Status::Unavailable("entry " + path + " comes and goes too fast to be watched");
}

dsm::Task<Status> ZookeeperMembership::Commit(dsm::Worker& worker, std::vector<Change> changes) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckChanges(changes));
  const auto reply = std::make_shared<Reply>(this);
  reply->changes = std::move(changes);
  const size_t count = reply->changes.size();
  reply->operations.resize(count);
  reply->results.resize(count);
  for (const Change& change : reply->changes) reply->nodes.push_back(NodeOf(change.path));
  for (size_t i = 0; i < count; ++i) {
    const Change& change = reply->changes[i];
    const char* node = reply->nodes[i].c_str();
    const int length = static_cast<int>(change.bytes.size());
    switch (change.kind) {
      case Change::Kind::kCreate:
        zoo_create_op_init(&reply->operations[i], node, change.bytes.data(), length,
                           &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT, nullptr, 0);
        break;
      case Change::Kind::kSet:
        zoo_set_op_init(&reply->operations[i], node, change.bytes.data(), length,
                        AsZooVersion(change.version), nullptr);
        break;
      case Change::Kind::kRemove:
        zoo_delete_op_init(&reply->operations[i], node, AsZooVersion(change.version));
        break;
    }
  }
  const Start start = [&](zhandle_t* handle, const void* data) {
    return zoo_amulti(handle, static_cast<int>(count), reply->operations.data(),
                      reply->results.data(), &Callbacks::OnVoid, data);
  };
  const Status called = co_await Call(worker, reply, start);
  FARLEAF_CO_RETURN_IF_ERROR(called);
  // Of a failed one, only the first change that does not fit tells why.
  size_t failed = 0;
  while (failed + 1 < count && reply->results[failed].err == ZOK) ++failed;
  co_return Failure(reply->code, Kind::kChange, reply->changes[failed].path);
}

dsm::Task<bool> ZookeeperMembership::AwaitChange(dsm::Worker& worker, std::string path,
                                                 uint64_t seen, uint64_t timeout_ns) {
  const uint64_t now_ns = clock_->NowNs();
  const uint64_t deadline_ns = timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + timeout_ns;
  {
    Changed changed(this, Waiter{&worker, nullptr, path, seen, deadline_ns});
    co_await changed;
  }
  co_return counts_.Of(path) != seen || state() == SessionState::kExpired;
}

dsm::Task<Status> ZookeeperMembership::Close(dsm::Worker&) {
  Disconnect();
  co_return Status::Ok();
}

}  // namespace farleaf::server::membership
