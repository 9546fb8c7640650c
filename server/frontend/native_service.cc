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
                    " connections, the limit";
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
  Running running(&op);
  deps_.thread->Link(running);
  const HostedTree tree = FindTree(request.tree);
  protocol::Response response;
  response.id = request.id;
  response.opcode = request.opcode;
  ResponseStorage storage;
  const Status status = co_await Execute(*deps_.host, tree, op, request, &response, &storage);
  if (!status.ok()) {
    response.code = status.code();
    response.message = status.message();
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
