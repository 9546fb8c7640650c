#include "server/frontend/native_service.h"

#include <algorithm>
#include <utility>

namespace farleaf::server {

protocol::ServerHello NativeService::Hello() {
  protocol::ServerHello hello;
  hello.view = deps_.host->view();
  hello.instance = options_.instance;
  if (deps_.thread->stopping()) {
    hello.code = StatusCode::kUnavailable;
    hello.message = "the server is stopping";
  } else if (deps_.thread->full()) {
    hello.code = StatusCode::kResourceExhausted;
    hello.message = "the server has its " + std::to_string(options_.connections_max) +
                    " connections, the limit (connections_max)";
  }
  return hello;
}

void NativeService::StartRequest(NativeConnection& connection, InputBlockRef block,
                                 protocol::Request request, NativeConnection::Token token) {
  protocol::Response response;
  response.id = request.id;
  response.opcode = request.opcode;
  if (deps_.thread->stopping()) {
    response.code = StatusCode::kUnavailable;
    response.message = "the server is stopping";
    return connection.Answer(response, token);
  }
  if (request.opcode == protocol::Opcode::kPing) return connection.Answer(response, token);
  if (request.opcode == protocol::Opcode::kRangeMap) {
    deps_.host->GetRangeMap(&response.view, &response.ranges);
    return connection.Answer(response, token);
  }
  if (request.opcode == protocol::Opcode::kServerStats) {
    const std::string text = deps_.stats_text();
    response.text = text;
    return connection.Answer(response, token);
  }
  if (request.opcode == protocol::Opcode::kSlowLog) {
    const std::string text = deps_.slow_log->ToJson();
    response.text = text;
    return connection.Answer(response, token);
  }
  deps_.thread->Serve(connection,
                      RunRequest(connection, std::move(block), std::move(request), token));
}

// What needs not wait is done here, without a coroutine for each; gets beside one another, so that the cache misses of one
// hide behind those of others.
void NativeService::StartRequests(NativeConnection& connection, const InputBlockRef& block,
                                  std::span<NativeConnection::Taken> taken) {
  using protocol::Opcode;
  const bool at_once = !deps_.thread->stopping();
  for (size_t i = 0; i < taken.size();) {
    const protocol::Request& first = taken[i].request;
    const bool puts = first.opcode == Opcode::kPut && first.durability == WriteDurability::kOfStore;
    size_t alike = 0;
    const bool get = first.opcode == Opcode::kGet && first.max_staleness_ms == 0;
    while (at_once && (puts || get) && i + alike < taken.size() &&
           taken[i + alike].request.opcode == first.opcode &&
           taken[i + alike].request.tree == first.tree &&
           taken[i + alike].request.max_staleness_ms == first.max_staleness_ms &&
           taken[i + alike].request.durability == first.durability) {
      ++alike;
    }
    const auto some = taken.subspan(i, alike);
    const size_t answered = alike == 0 ? 0
                            : puts     ? AnswerPuts(connection, some)
                                       : AnswerGets(connection, some);
    i += answered;
    if (alike > 0 && answered == alike) continue;
    StartRequest(connection, block, std::move(taken[i].request), taken[i].token);
    ++i;
  }
}

void NativeService::ExpectRequest(const protocol::Request& request) {
  if (request.opcode != protocol::Opcode::kPut) return;
  const HostedTree tree = FindTree(request.tree);
  dsm::FabricCounts counts;
  dsm::OpContext op{deps_.thread->worker(), counts};
  if (tree.index != nullptr) tree.index->Expect(op, request.key);
}

class NativeService::Answerer final : public index::ValueVisitor {
 public:
  Answerer(NativeConnection& connection, std::span<const NativeConnection::Taken> gets)
      : connection_(connection), gets_(gets) {
    response_.opcode = protocol::Opcode::kGet;
  }
  void Visit(size_t number, std::optional<std::string_view> value) override {
    response_.id = gets_[number].request.id;
    response_.value = value;
    connection_.Answer(response_, gets_[number].token);
  }

 private:
  NativeConnection& connection_;
  const std::span<const NativeConnection::Taken> gets_;
  protocol::Response response_;
};

size_t NativeService::AnswerGets(NativeConnection& connection,
                                 std::span<const NativeConnection::Taken> gets) {
  const HostedTree tree = FindTree(gets.front().request.tree);
  if (tree.index == nullptr) return 0;
  keys_.clear();
  for (const auto& get : gets) keys_.push_back(get.request.key);
  OperationRecord record{protocol::Opcode::kGet, StatusCode::kOk, 0, {}};
  dsm::OpContext op{deps_.thread->worker(), record.counts};
  Answerer answerer(connection, gets);
  const size_t answered = tree.index->VisitAtOnce(op, keys_, answerer);
  if (answered > 0) NoteAnswered(connection, gets.first(answered), record, deps_.clock->NowNs());
  return answered;
}

class NativeService::Puts final : public index::KeyChanges {
 public:
  Puts(NativeConnection& connection, std::span<const NativeConnection::Taken> puts,
       std::string* room)
      : KeyChanges(room), connection_(connection), puts_(puts) {
    response_.opcode = protocol::Opcode::kPut;
  }
  index::ModifyAction Decide(size_t number, std::optional<std::string_view>,
                             std::string* replacement) override {
    replacement->assign(puts_[number].request.value);
    return index::ModifyAction::kWrite;
  }
  void Done(size_t number, const Result<index::ModifyResult>& result) override {
    response_.id = puts_[number].request.id;
    if (result.ok()) {
      response_.changed = !result->existed;
    } else {  // the last one
      response_.code = result.status().code();
      response_.message = result.status().message();
    }
    connection_.Answer(response_, puts_[number].token);
  }
  /// Of the put that was answered last: none is done behind one that has failed.
  StatusCode last_code() const { return response_.code; }

 private:
  NativeConnection& connection_;
  const std::span<const NativeConnection::Taken> puts_;
  protocol::Response response_;
};

size_t NativeService::AnswerPuts(NativeConnection& connection,
                                 std::span<const NativeConnection::Taken> puts) {
  const HostedTree tree = FindTree(puts.front().request.tree);
  if (tree.index == nullptr) return 0;
  std::string room;
  size_t answered = 0;
  for (bool all = true; all && answered < puts.size();) {
    const auto some =
        puts.subspan(answered, std::min(puts_together_.count(), puts.size() - answered));
    if (some.size() == 1 && answered + 1 < puts.size()) ExpectRequest(puts[answered + 1].request);
    keys_.clear();
    for (const auto& put : some) keys_.push_back(put.request.key);
    OperationRecord record{protocol::Opcode::kPut, StatusCode::kOk, 0, {}};
    dsm::OpContext op{deps_.thread->worker(), record.counts};
    Puts changes(connection, some, &room);
    const size_t done =
        tree.index->ModifyAtOnce(op, keys_, index::CurrentValue::kPresenceOnly, changes);
    const size_t failed = changes.last_code() != StatusCode::kOk ? 1 : 0;
    if (done > 0) {
      const uint64_t now_ns = deps_.clock->NowNs();
      NoteAnswered(connection, some.first(done - failed), record, now_ns);
      record.code = changes.last_code();
      NoteAnswered(connection, some.subspan(done - failed, failed), record, now_ns);
    }
    puts_together_.Note(some.size(), done);
    answered += done;
    all = done == some.size();
  }
  return answered;
}

void NativeService::NoteAnswered(const NativeConnection& connection,
                                 std::span<const NativeConnection::Taken> answered,
                                 OperationRecord& record, uint64_t now_ns) {
  if (answered.empty()) return;
  record.latency_ns = now_ns - deps_.thread->arrival_ns();
  record.operations = answered.size();
  deps_.thread->Record(record);
  const bool slow = deps_.slow_log->IsSlow(record.latency_ns);
  for (size_t i = 0; slow && i < answered.size(); ++i) {
    NoteSlow(connection, answered[i].request, record);
    record.counts = {};  // those that were answered together share it
  }
  record.counts = {};
}

dsm::Task<void> NativeService::RunRequest(NativeConnection& connection,
                                          [[maybe_unused]] InputBlockRef block,
                                          protocol::Request request,
                                          NativeConnection::Token token) {
  const uint64_t arrival_ns = deps_.thread->arrival_ns();
  const uint64_t asked_ms =
      request.deadline_ms != 0 ? request.deadline_ms : options_.deadline_ms_default;
  OperationRecord record{request.opcode, StatusCode::kOk, 0, {}};
  dsm::OpContext op{deps_.thread->worker(), record.counts,
                    arrival_ns + std::min(asked_ms, options_.deadline_ms_max) * kNsPerMs};
  op.max_staleness_ns = request.max_staleness_ms * kNsPerMs;
  op.durability = request.durability;
  Running running(&op);
  deps_.thread->Link(running);
  const HostedTree tree = FindTree(request.tree);
  protocol::Response response;
  response.id = request.id;
  response.opcode = request.opcode;
  ResponseStorage storage;
  Status status = deps_.host->CheckDurability(request.durability);
  if (status.ok()) {
    status = co_await Execute(*deps_.host, tree, op, request, &response, &storage);
  }
  if (!status.ok()) {
    response.code = status.code();
    response.message = status.message();
  }
  if (request.max_staleness_ms > 0) {
    response.staleness_ms = static_cast<uint32_t>((op.staleness_ns + kNsPerMs - 1) / kNsPerMs);
  }
  connection.Answer(response, token);
  record.code = status.code();
  record.latency_ns = deps_.clock->NowNs() - arrival_ns;
  deps_.thread->Record(record);
  if (deps_.slow_log->IsSlow(record.latency_ns)) NoteSlow(connection, request, record);
  deps_.thread->Served(connection);
}

void NativeService::NoteSlow(const NativeConnection& connection, const protocol::Request& request,
                             const OperationRecord& record) {
  SlowRequest slow;
  slow.time_ms = deps_.wall_clock->NowNs() / kNsPerMs;
  slow.duration_us = record.latency_ns / 1'000;
  slow.round_trips = record.counts.round_trips;
  slow.protocol = "native";
  slow.command = OpcodeName(request.opcode);
  slow.key = !request.keys.empty()   ? request.keys.front()
             : !request.name.empty() ? request.name
                                     : request.key;
  slow.client = deps_.thread->PeerName(connection);
  slow.failed = record.code != StatusCode::kOk;
  deps_.slow_log->Add(std::move(slow));
}

HostedTree NativeService::FindTree(uint32_t id) {
  const auto known = trees_.find(id);
  if (known != trees_.end()) return known->second;
  const HostedTree found = deps_.host->Find(id);
  if (found.index != nullptr) trees_.emplace(id, found);
  return found;
}

}  // namespace farleaf::server
