#include "benchmark/ycsb/text_session.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "benchmark/ycsb/record.h"
#include "benchmark/ycsb/text_connection.h"
#include "dsm/base/check.h"

namespace farleaf::ycsb {

namespace {

using Outcome = Answer::Outcome;

/// Sends one request and waits for its answer.
Status Ask(const TextServer& server, TextConnection& connection, const Request& request) {
  const MonotonicClock clock;
  const uint64_t deadline_ns = clock.NowNs() + server.timeout_ms * kNsPerMs;
  server.protocol->AppendRequest(request, &connection.unsent());
  while (true) {
    FARLEAF_RETURN_IF_ERROR(connection.Flush());
    const uint64_t now_ns = clock.NowNs();
    if (now_ns >= deadline_ns) {
      return Status::DeadlineExceeded("no answer within " + std::to_string(server.timeout_ms) +
                                      " ms");
    }
    connection.Wait(deadline_ns - now_ns);
    FARLEAF_RETURN_IF_ERROR(connection.Receive());
    Answer answer;
    const auto bytes = server.protocol->ParseAnswer(request, connection.received(), &answer);
    if (!bytes.ok()) return bytes.status();
    if (*bytes == 0) continue;
    connection.Consume(*bytes);
    return answer.status;
  }
}

Result<std::unique_ptr<TextConnection>> Connect(const TextServer& server) {
  auto connection = TextConnection::Open(server.endpoint, server.timeout_ms);
  if (!connection.ok()) return connection.status().WithContext(server.url);
  if (!server.password.empty()) {
    const Request login{.kind = RequestKind::kLogin, .key = {}, .value = server.password};
    const Status in = Ask(server, **connection, login);
    if (!in.ok()) return in.WithContext(server.url + ": --password-file");
  }
  const Status probed = Ask(server, **connection, {.kind = RequestKind::kProbe});
  if (probed.ok()) return connection;
  const bool refused = probed.code() == StatusCode::kInvalidArgument && server.password.empty();
  return probed.WithContext(server.url + (refused ? " (--password-file gives a password)" : ""));
}

class TextSession final : public Session {
 public:
  TextSession(const TextServer& server, std::string key_prefix, const Clock* clock,
              std::unique_ptr<TextConnection> connection)
      : server_(server),
        key_prefix_(std::move(key_prefix)),
        clock_(*clock),
        connection_(std::move(connection)) {}

  Status Run(OperationSource& source, uint64_t in_flight) override {
    source_ = &source;
    std::vector<Slot> slots(in_flight);
    for (Slot& slot : slots) TakeNext(&slot);
    while (!waiting_.empty() || !unsent_.empty() || !sent_.empty()) {
      BeginDue();
      if (connection_ == nullptr && !unsent_.empty()) TryToConnect();
      const uint64_t wait_ns = WaitNs();
      if (connection_ == nullptr) {
        PollFor(-1, 0, wait_ns);
      } else if (const Status exchanged = Exchange(wait_ns); !exchanged.ok()) {
        // No operation can tell of what nobody has asked for.
        const bool unasked = exchanged.code() == StatusCode::kCorruption && sent_.empty();
        if (unasked) return exchanged.WithContext(server_.url);
        Lose(exchanged);
      }
    }
    return Status::Ok();
  }

 private:
  static constexpr uint64_t kWaitNsMax = 50 * kNsPerMs;  // so that stops and deadlines are noticed
  static constexpr uint64_t kConnectEveryNs = 50 * kNsPerMs;

  struct Slot {
    Operation operation;
    RequestKind request = RequestKind::kGet;
    std::string key;  // with the prefix
    std::string replacement;
    uint64_t version = 0;
    uint64_t request_end = 0;  // in the connection's bytes

    bool writes() const {
      return request != RequestKind::kGet && request != RequestKind::kGetVersion;
    }
    Request AsRequest() const {
      const bool modifies = operation.kind == OpKind::kReadModifyWrite;
      return {.kind = request,
              .key = key,
              .value = modifies ? replacement : operation.value,
              .version = version};
    }
  };

  void TakeNext(Slot* slot) {
    if (source_->Next(&slot->operation)) waiting_.push_back(slot);
  }

  /// A source's operations are due in the order in which it gives them.
  void BeginDue() {
    std::vector<Slot*> blocked;
    while (!waiting_.empty()) {
      Slot* const slot = waiting_.front();
      const uint64_t due_ns = slot->operation.due_ns;
      if (due_ns != 0 && due_ns > clock_.NowNs() && !source_->stopped()) break;
      waiting_.pop_front();
      if (source_->Blocked(slot->operation) && !source_->stopped()) {
        blocked.push_back(slot);
        continue;
      }
      if (!source_->Begin(&slot->operation)) continue;
      slot->key.assign(key_prefix_).append(slot->operation.key);
      slot->request = FirstRequest(slot->operation.kind);
      unsent_.push_back(slot);
    }
    waiting_.insert(waiting_.begin(), blocked.begin(), blocked.end());
    AppendUnsent();
  }
  RequestKind FirstRequest(OpKind kind) const {
    switch (kind) {
      case OpKind::kUpdate:
        return RequestKind::kReplace;
      case OpKind::kInsert:
        return RequestKind::kInsert;
      case OpKind::kReadModifyWrite:
        return server_.protocol->has_versions() ? RequestKind::kGetVersion : RequestKind::kGet;
      case OpKind::kRead:
      case OpKind::kScan:
        break;
    }
    FARLEAF_CHECK(kind == OpKind::kRead, static_cast<int>(kind));  // scans are refused before
    return RequestKind::kGet;
  }
  void AppendUnsent() {
    if (connection_ == nullptr) return;
    for (Slot* slot : unsent_) {
      server_.protocol->AppendRequest(slot->AsRequest(), &connection_->unsent());
      slot->request_end = connection_->appended_bytes();
      sent_.push_back(slot);
    }
    unsent_.clear();
  }

  void TryToConnect() {
    const uint64_t now_ns = clock_.NowNs();
    if (now_ns >= connect_ns_) {
      auto connection = Connect(server_);
      connect_ns_ = clock_.NowNs() + kConnectEveryNs;
      if (connection.ok()) {
        connection_ = std::move(*connection);
        return AppendUnsent();
      }
      why_not_connected_ = connection.status();
    }
    while (!unsent_.empty() && unsent_.front()->operation.deadline_ns <= clock_.NowNs()) {
      Slot* const slot = unsent_.front();
      unsent_.pop_front();
      slot->operation.status =
          Status::Unavailable("not connected until its deadline: " + why_not_connected_.ToString());
      End(slot);
    }
  }

  uint64_t WaitNs() const {
    // What is blocked waits for an answer.
    const auto next = std::find_if(waiting_.begin(), waiting_.end(), [this](const Slot* slot) {
      return !source_->Blocked(slot->operation);
    });
    if (next == waiting_.end() || source_->stopped()) return kWaitNsMax;
    const uint64_t now_ns = clock_.NowNs(), due_ns = (*next)->operation.due_ns;
    const uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    const uint64_t awake_ns = source_->awake_before_due_ns();
    return left_ns > awake_ns ? std::min(left_ns - awake_ns, kWaitNsMax) : 0;
  }

  /// Fails when the connection is of no more use.
  Status Exchange(uint64_t wait_ns) {
    FARLEAF_RETURN_IF_ERROR(connection_->Flush());
    connection_->Wait(wait_ns);
    FARLEAF_RETURN_IF_ERROR(connection_->Receive());
    bool answered = false;
    while (!sent_.empty()) {
      Slot* const slot = sent_.front();
      Answer answer;
      const auto bytes =
          server_.protocol->ParseAnswer(slot->AsRequest(), connection_->received(), &answer);
      if (!bytes.ok()) return bytes.status();
      if (*bytes == 0) break;
      answered = true;
      sent_.pop_front();
      Take(answer, slot);
      connection_->Consume(*bytes);
    }
    if (sent_.empty() && !connection_->received().empty()) {
      return WrongAnswer("no more answers", connection_->received());
    }
    // The first of those sent has the earliest deadline, but for a second request of an operation,
    // which is late by one deadline at most.
    const bool late = !answered && !sent_.empty() &&
                      sent_.front()->operation.deadline_ns <= clock_.NowNs();
    if (late) {
      return Status::DeadlineExceeded("no answer by the deadline of the first request in flight");
    }
    return Status::Ok();
  }

  void Take(const Answer& answer, Slot* slot) {
    Operation& operation = slot->operation;
    operation.status = answer.status.WithContext(server_.url);
    if (!answer.status.ok()) return End(slot);
    const bool done = answer.outcome == Outcome::kDone;
    const bool inserts = operation.kind == OpKind::kInsert;
    operation.found = inserts ? answer.outcome == Outcome::kPresent : done;
    if (!slot->writes()) {
      if (done) operation.found_value.assign(answer.value);
      if (done && operation.kind == OpKind::kReadModifyWrite) return Modify(answer.version, slot);
    } else if (answer.outcome == Outcome::kDifferent) {
      return ReadAgain(slot);
    }
    End(slot);
  }
  void Modify(uint64_t version, Slot* slot) {
    Operation& operation = slot->operation;
    if (!source_->Modify(operation, operation.found_value, &slot->replacement)) return End(slot);
    slot->version = version;
    slot->request = server_.protocol->has_versions() ? RequestKind::kReplaceVersion
                                                     : RequestKind::kReplace;
    unsent_.push_back(slot);
  }
  void ReadAgain(Slot* slot) {
    if (clock_.NowNs() < slot->operation.deadline_ns) {
      slot->request = FirstRequest(slot->operation.kind);
      return unsent_.push_back(slot);
    }
    slot->operation.status = Status::DeadlineExceeded(
        server_.url + ": read-modify-write: another write came between each time");
    End(slot);
  }
  void End(Slot* slot) {
    source_->Done(slot->operation);
    TakeNext(slot);
  }

  /// What was sent and not answered has failed, of which the server may have done some.
  void Lose(const Status& why) {
    const uint64_t sent_bytes = connection_->sent_bytes();
    connection_.reset();
    connect_ns_ = 0;
    std::deque<Slot*> lost;
    lost.swap(sent_);
    for (Slot* slot : lost) {
      const bool may_have_run = slot->writes() && slot->request_end <= sent_bytes;
      const std::string what = server_.url + ": " + std::string(why.message());
      slot->operation.status =
          may_have_run ? Status::Unknown(what + "; it may or may not have taken effect")
                       : Status(why.code(), what);
      End(slot);
    }
  }

  const TextServer server_;
  const std::string key_prefix_;
  const Clock& clock_;
  std::unique_ptr<TextConnection> connection_;  // null: lost
  uint64_t connect_ns_ = 0;                     // the next attempt, if it is lost
  Status why_not_connected_;
  OperationSource* source_ = nullptr;
  // Each slot is in one of them, or the source has no more for it. In the order of
  std::deque<Slot*> waiting_;  // when they are due
  std::deque<Slot*> unsent_;   // their beginning; empty, but for moments, while connected
  std::deque<Slot*> sent_;     // their requests
};

}  // namespace

Result<std::unique_ptr<Session>> OpenTextSession(const TextServer& server, std::string key_prefix,
                                                 const Clock* clock) {
  auto connection = Connect(server);
  if (!connection.ok()) return connection.status();
  return std::unique_ptr<Session>(std::make_unique<TextSession>(
      server, std::move(key_prefix), clock, std::move(*connection)));
}

}  // namespace farleaf::ycsb
