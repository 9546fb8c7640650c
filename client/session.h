// Session: one connection to a compute server, driven by its caller. Nothing happens in the
// background: operations are started by a SessionTree or the calls below, and sent, answered,
// reissued and expired inside Poll, which calls their callbacks. It is the cheapest way to keep
// many operations in flight from one thread (client.h adds a thread, and blocking calls from any
// thread).
//
//   auto session = Session::Connect("farleaf://127.0.0.1:7400");
//   auto tree = (*session)->OpenTree("accounts");
//   tree->PutAsync("k", "v", [](Result<bool> is_new) { … });
//   while ((*session)->pending() > 0) (*session)->Poll(1'000);
//
// Invariants:
//   - every started operation's callback is called exactly once, by its deadline plus the time
//     between two Polls (at the latest by the destructor, with Unavailable or Unknown);
//   - a write is handed to the kernel at most once, unless the server said that it was not begun;
//   - operations are sent in the order in which they were started, and those of refused batches are
//     sent again in that order, before any other: from the first refusal on nothing is sent until the
//     map of ranges has been read anew and no batch of an older view is left unanswered and unrefused;
//   - tree handles outlive connections: trees are opened again by name before anything else is
//   sent.
// Thread rule: one thread. Callbacks may start operations, but not Poll or destroy the session.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/internal/connection.h"
#include "client/internal/tree_handles.h"
#include "client/operation.h"
#include "client/options.h"
#include "client/tree.h"
#include "dsm/base/random.h"

namespace farleaf::client {

class Session;
using SessionTree = BasicTree<Session>;

class Session {
 public:
  static constexpr bool kHasThread = false;

  /// `url`: of one server, or of several that serve the same (ParseEndpoints): the first that answers is used, and after a
  /// lost connection again. Fails after the first round of attempts: Unavailable, or what the server refused with.
  /// Blocks for at most Options::connect_timeout_ms an address (and the machine's resolver).
  static Result<std::unique_ptr<Session>> Connect(std::string_view url, Options options = {}) {
    auto session = New(url, std::move(options));
    if (!session.ok()) return session.status();
    Session& made = **session;
    while (!made.ready_ && made.failed_rounds_ == 0) made.Poll(1'000);
    if (!made.ready_) return made.last_error_.WithContext(made.name_);
    return session;
  }
  /// Does not wait: it connects when it is polled, and keeps what is started until then.
  static Result<std::unique_ptr<Session>> New(std::string_view url, Options options = {}) {
    auto endpoints = ParseEndpoints(url);
    if (!endpoints.ok()) return endpoints.status();
    if (!options.password_file.empty()) {
      auto passwords = ReadPasswords(options.password_file);
      if (!passwords.ok()) return passwords.status();
      options.password = passwords->front();
    }
    if (options.password.size() > kPasswordBytesMax) {
      return Status::InvalidArgument("a password of more than " +
                                     std::to_string(kPasswordBytesMax) + " bytes");
    }
    for (Endpoint& endpoint : *endpoints) {
      if (options.carrier == Carrier::kRing) endpoint.ring = true;
      if (endpoint.ring && !endpoint.is_unix()) {
        return Status::InvalidArgument("\"" + std::string(url) +
                                       "\": a ring needs a Unix socket, farleaf+unix:PATH");
      }
      if (endpoint.ring && options.transport) {
        return Status::InvalidArgument(
            "a ring takes no secure transport: its bytes do not leave the "
            "host's memory");
      }
    }
    return std::unique_ptr<Session>(new Session(std::move(*endpoints), std::move(options)));
  }
  ~Session() {
    closing_ = true;
    connection_.Close();
    for (uint32_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].state != SlotState::kFree)
        Finish(i, LossOf(slots_[i], "the session was closed"));
    }
  }
  Session(const Session&) = delete;

  Result<SessionTree> OpenTree(std::string_view name, CallOptions call = {}) {
    auto opened = Await<OpenedTree>(NewOpenTree(name), call);
    if (!opened.ok()) return opened.status();
    return SessionTree(this, std::move(*opened));
  }
  Result<SessionTree> CreateTree(const TreeSpec& spec, CallOptions call = {}) {
    auto opened = Await<OpenedTree>(NewCreateTree(spec), call);
    if (!opened.ok()) return opened.status();
    return SessionTree(this, std::move(*opened));
  }
  Result<std::vector<TreeInfo>> ListTrees(CallOptions call = {}) {
    return Await<std::vector<TreeInfo>>(NewPlain(protocol::Opcode::kListTrees), call);
  }
  /// The server's counters: lines `name value`.
  Result<std::string> ServerStats(CallOptions call = {}) {
    return Await<std::string>(NewPlain(protocol::Opcode::kServerStats), call);
  }
  /// The server's slow requests, as JSON.
  Result<std::string> SlowLog(CallOptions call = {}) {
    return Await<std::string>(NewPlain(protocol::Opcode::kSlowLog), call);
  }
  Status Ping(CallOptions call = {}) {
    return Await<std::string>(NewPlain(protocol::Opcode::kPing), call).status();
  }

  /// The last view the server has told, in a hello, a map or a refusal; 0: none yet.
  uint32_t server_view() const { return server_view_; }
  /// REQUIRES: Options::routed_by_caller. Batches carry `view` from now on; until the first call none, so that the
  /// server refuses what names a key. An operation whose batch the server refuses ends with kFenced, which says both
  /// views: it has not been executed. One that was given to the session before goes under the new view as well if it
  /// has not been sent (but see Recall). What any server does (Operation::unrouted) goes in batches of its own, which no server refuses.
  void set_view(uint32_t view);
  /// Gives back all that has not been sent, as if it had been refused.
  void Recall() { GiveBackQueued(Which::kAll); }

  /// Operations whose callback has not been called.
  size_t pending() const { return slots_.size() - free_slots_.size(); }
  bool connected() const { return ready_; }
  /// Why it is not, or was not the last time.
  const Status& last_error() const { return last_error_; }
  /// Of several servers, the one that it is connected to, or tries.
  const std::string& server() const { return name_; }
  const Clock& clock() const { return *clock_; }

  /// Sends, receives, calls callbacks; waits for up to `timeout_ms` for something to do if there is
  /// nothing now. Also returns when `wake_fd` is readable. Returns the number of operations ended.
  size_t Poll(uint64_t timeout_ms, int wake_fd = -1);
  /// Hands to the kernel what was started, without waiting for answers.
  void Flush() {
    // Without a ring what opens the trees again goes out when the socket has room.
    if (!ready_ && connection_.ring() == nullptr) return;
    if (ready_ && !connection_.send_failed()) FillOut();
    connection_.Send();
  }

  // For a caller that waits for several sessions at once (internal/router.h), in turns of
  //   Advance: all that Poll does without waiting; returns whether anything has come or ended. If none has:
  //   BeginWait: what to wait for; false: not now, something has come. The time at which it has something to do: NextDueNs.
  //   EndWait, behind a BeginWait that has returned true: takes the events.
  bool Advance();
  bool BeginWait(pollfd* waited);
  void EndWait(const pollfd& waited);
  uint64_t NextDueNs() const;

  /// Where operations go that are given back, instead of ending with kFenced, and scans whose part at this server is
  /// done. It may start operations.
  void set_returns(std::function<void(Operation)> returns) { returns_ = std::move(returns); }
  /// Shared with other sessions of the client; outlives the session. REQUIRES: no tree has been opened.
  void set_tree_handles(internal::TreeHandles* handles) { handles_ = handles; }
  /// Ends the connection, as if it were lost. REQUIRES: not in a callback.
  void Reconnect(const Status& why) { Disconnect(why); }

  // For BasicTree and Client. Submit: the operation's deadline is set here, unless it has one.
  void Submit(Operation&& operation, CallOptions call);
  template <typename T>
  Result<T> Await(Result<Operation> operation, CallOptions call) {
    if (!operation.ok()) return operation.status();
    std::optional<Result<T>> outcome;
    operation->callback =
        Callback<T>([&outcome](Result<T> result) { outcome = std::move(result); });
    Submit(std::move(*operation), call);
    while (!outcome) Poll(1'000);
    return std::move(*outcome);
  }
  std::string TakeFrameBuffer() {
    if (spare_frames_.empty()) return {};
    std::string frame = std::move(spare_frames_.back());
    spare_frames_.pop_back();
    return frame;
  }
  static Result<Operation> NewPlain(protocol::Opcode opcode) {
    protocol::Request request;
    request.opcode = opcode;
    return Encode(request);
  }
  static Result<Operation> NewOpenTree(std::string_view name) {
    protocol::Request request;
    request.opcode = protocol::Opcode::kOpenTree;
    request.name = name;
    return Encode(request);
  }
  static Result<Operation> NewCreateTree(const TreeSpec& spec) {
    protocol::Request request;
    request.opcode = protocol::Opcode::kCreateTree;
    request.name = spec.name;
    request.layout = spec.layout;
    request.geometry = spec.geometry;
    return Encode(request);
  }

 private:
  enum class SlotState : uint8_t { kFree, kQueued, kSent };
  struct Slot {
    Operation operation;
    uint64_t batch_end = 0;   // position in the connection's stream, if kSent
    uint64_t order = 0;       // among all requests, of when it was started
    uint32_t batch = 0;       // if kSent: its number
    uint32_t generation = 0;  // of the slot's uses; the upper half of request ids
    uint32_t reissues = 0;
    SlotState state = SlotState::kFree;
  };
  /// A batch on this connection that has not been answered and refused to its end.
  struct SentBatch {
    uint32_t requests = 0;  // its slots stand in sent_slots_
    uint32_t left = 0;      // of them, neither answered nor refused
    uint32_t view = 0;
  };
  /// A tree at the server.
  struct KnownTree {
    enum class State : uint8_t { kUnknown, kOpening, kOpen, kFailed };
    State state = State::kUnknown;
    uint32_t server_id = 0;
    Status status;             // kFailed: why the server does not open it
    uint64_t retry_at_ns = 0;  // kFailed: when it is asked again
  };
  /// What becomes of an operation whose turn it is.
  enum class Encoded : uint8_t { kYes, kDropped, kTreeIsNotOpen };
  enum class Which : uint8_t { kRouted, kAll };
  struct Address {
    internal::SocketAddress address;
    size_t endpoint = 0;
  };

  // Ids of the session's own requests: open_tree by handle, and range_map.
  static constexpr uint64_t kReopenIds = uint64_t{1} << 63;
  static constexpr uint64_t kRangeMapId = UINT64_MAX;
  static constexpr size_t kOutBytesWanted = 256 << 10;    // encoded ahead of the kernel,
  static constexpr size_t kRingOutBytesWanted = 4 << 10;  // or of a ring, which has room of its own
  static constexpr size_t kSpareFramesMax = 1024, kSpareFrameBytesMax = 4096;
  static constexpr uint64_t kTreeRetryMs = 10;

  Session(std::vector<Endpoint> endpoints, Options options)
      : endpoints_(std::move(endpoints)),
        name_(endpoints_.front().ToString()),
        options_(std::move(options)),
        clock_(options.clock ? options.clock : &own_clock_),
        random_(options.seed ? options.seed
                             : clock_->NowNs() ^ (static_cast<uint64_t>(::getpid()) << 32)) {
    connection_.set_password(options_.password);
  }

  static Result<Operation> Encode(const protocol::Request& request) {
    FARLEAF_RETURN_IF_ERROR(CheckLimits(request));
    Operation operation;
    operation.opcode = request.opcode;
    AppendRequest(request, &operation.frame);
    return operation;
  }

  // Connecting.
  void StartConnecting(uint64_t now_ns);
  /// There is a connection from which answers may come.
  bool Talks() const;
  void ConnectingFailed(const Status& why);
  void HelloDone();
  void TreesAreOpen();
  void OpenHere(uint32_t handle);
  void TreeReopened(const protocol::Response& response);
  void Disconnect(const Status& why);

  // Operations.
  void FillOut();
  void SendBatch(uint64_t now_ns);
  Encoded EncodeForBatch(uint32_t index, uint64_t now_ns);
  void EndBatch(size_t begin);
  void NoteSent(std::span<const uint32_t> slots);
  void LeaveBatch(const Slot& slot);
  void BatchRefused(const protocol::Response& response);
  void GiveBack(uint32_t index, uint32_t view);
  void GiveBackQueued(Which which);
  void TakeGoodbye();
  void TakeRangeMap(const protocol::Response& response);
  void EndHoldIfClear();
  void EndHold();
  void SendUnrouted(const protocol::Request& request);
  bool ReceiveAll();
  void TakeResponse(const protocol::Response& response);
  void Complete(uint32_t index, const protocol::Response& response);
  void Finish(uint32_t index, const Status& failure);
  Operation Release(uint32_t index);
  Operation Free(uint32_t index);
  void Requeue(uint32_t index) {
    slots_[index].state = SlotState::kQueued;
    slots_[index].order = next_order_++;
    queue_.push_back(index);
  }
  /// REQUIRES: something is queued.
  bool NextIsUnrouted() const { return slots_[queue_.front()].operation.unrouted(); }
  void RequeueInFront(std::vector<uint32_t> indexes);
  Status LossOf(const Slot& slot, std::string_view why) const;
  uint32_t RegisterTree(const TreeInfo& tree);
  void ExpireDeadlines(uint64_t now_ns);
  void WaitForEvents(uint64_t timeout_ns, int wake_fd);
  bool PollRing();

  const std::vector<Endpoint> endpoints_;
  std::string name_;  // of that which it is connected to, or tries
  const Options options_;
  const MonotonicClock own_clock_;
  const Clock* const clock_;
  Random random_;

  internal::Connection connection_;
  bool ready_ = false;        // connected, and every known tree is open
  uint32_t view_ = 0;         // of batches
  uint32_t server_view_ = 0;  // as it has last told
  uint32_t next_batch_ = 0;
  std::vector<uint32_t> batch_slots_;   // of the batch that is being encoded
  std::deque<SentBatch> sent_batches_;  // up to next_batch_
  std::deque<uint32_t> sent_slots_;     // of these batches, one behind the other
  // Routing anew: set from a refusal on, while nothing is sent.
  bool holding_ = false;
  bool map_asked_ = false;
  uint32_t first_refused_ = 0;      // batch; those before it were taken
  std::vector<uint32_t> refused_;   // slots of refused requests
  std::vector<Address> addresses_;  // still to be tried in this round
  uint64_t retry_at_ns_ = 0;
  uint64_t handshake_end_ns_ = 0;
  uint32_t failed_rounds_ = 0;  // in a row, quickly lost connections included
  uint64_t ready_since_ns_ = 0;
  Status last_error_;
  internal::TreeHandles own_handles_;
  internal::TreeHandles* handles_ = &own_handles_;
  std::vector<KnownTree> trees_;  // by handle
  size_t trees_opening_ = 0;      // while any is, nothing else is sent
  uint32_t tree_to_open_ = Operation::kNoTree;
  std::function<void(Operation)> returns_;

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  uint64_t next_order_ = 0;
  std::deque<uint32_t> queue_;  // kQueued slots in order, and some that are stale
  std::vector<std::string> spare_frames_;
  uint64_t earliest_deadline_ns_ = UINT64_MAX;  // no pending deadline is earlier
  size_t ended_ = 0;                            // in this Poll
  uint64_t turn_ns_ = 0;                        // when it began
  bool closing_ = false;
};

}  // namespace farleaf::client

#include "client/internal/session_impl.h"
#include "client/internal/session_views.h"
