#include "test/support/scripted_native_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <list>
#include <utility>

#include "client/endpoint.h"
#include "dsm/base/bytes.h"
#include "dsm/base/check.h"

namespace farleaf::test {

using client::internal::Fd;
namespace protocol = client::protocol;

ScriptedNativeServer::ScriptedNativeServer(const std::string& path, Script script)
    : script_(std::move(script)) {
  auto endpoint = *client::ParseUnixPath(path);
  auto address = client::internal::Resolve(endpoint)->front();
  listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  FARLEAF_CHECK(
      ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address.storage), address.bytes) == 0 &&
      ::listen(listener_.get(), 8) == 0);
  url_ = endpoint.ToString();
  thread_ = std::thread([this] { Run(); });
}

ScriptedNativeServer::~ScriptedNativeServer() {
  stopping_ = true;
  {
    std::lock_guard lock(mutex_);  // its thread may be closing it
    ::shutdown(listener_.get(), SHUT_RDWR);
  }
  thread_.join();
}

void ScriptedNativeServer::SetMap(uint32_t view, uint32_t told, Ranges ranges) {
  std::lock_guard lock(mutex_);
  view_ = view;
  told_view_ = told;
  ranges_ = std::move(ranges);
}

void ScriptedNativeServer::Run() {
  std::list<std::thread> connections;
  while (!stopping_) {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) connections.emplace_back([this, fd] { Serve(Fd(fd)); });
  }
  {
    std::lock_guard lock(mutex_);
    listener_.Close();
  }
  for (std::thread& each : connections) each.join();
}

void ScriptedNativeServer::Serve(const Fd& socket) {
  std::string in, out;
  bool greeted = false;
  Then then = Then::kIgnore;
  while (!stopping_ && then == Then::kIgnore) {
    pollfd waited{socket.get(), POLLIN, 0};
    if (::poll(&waited, 1, 20) == 0) continue;
    if (stalled_) {
      std::this_thread::yield();
      continue;
    }
    char buffer[4096];
    const ssize_t n = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (n <= 0) return;
    in.append(buffer, static_cast<size_t>(n));
    while (then == Then::kIgnore) {
      const auto found = protocol::FindFrame(AsBytes(in), protocol::kFrameBytesMax);
      if (found.state != protocol::FrameLookup::State::kComplete) break;
      const std::string body(AsChars(found.body));
      in.erase(0, found.frame_bytes);
      then = Answer(body, &greeted, &out);
      if (then == Then::kClose) return;
    }
    // A client that is gone by now (its test is over) wants no answer.
    if (::send(socket.get(), out.data(), out.size(), MSG_NOSIGNAL) < 0) return;
    out.clear();
  }
}

ScriptedNativeServer::Then ScriptedNativeServer::Answer(const std::string& body, bool* greeted,
                                                        std::string* out) {
  std::lock_guard lock(mutex_);
  if (!*greeted) {
    protocol::ServerHello hello;
    hello.view = view_;
    AppendServerHello(hello, out);
    *greeted = true;
    return Then::kIgnore;
  }
  std::span<const std::byte> requests;
  const auto batch = protocol::ParseBatch(AsBytes(body), &requests);
  FARLEAF_CHECK(batch.ok(), batch.status());
  ++batches_;
  for (uint32_t taken = 0; taken < batch->count; ++taken) {
    protocol::Request request;
    FARLEAF_CHECK(NextRequest(&requests, &request).ok());
    if (batch->view != view_ &&
        (batch->view != 0 || !IsUnrouted(request.opcode, request.max_staleness_ms))) {
      protocol::Response refusal;
      refusal.wrong_view = true;
      refusal.id = batch->number;
      refusal.refused_from = taken;
      refusal.view = view_;
      AppendResponse(refusal, out);
      ++refusals_;
      return Then::kIgnore;
    }
    const Then then = AnswerRequest(request, out);
    if (then != Then::kIgnore) return then;
  }
  return Then::kIgnore;
}

ScriptedNativeServer::Then ScriptedNativeServer::AnswerRequest(const protocol::Request& request,
                                                               std::string* out) {
  protocol::Response response;
  response.id = request.id;
  response.opcode = request.opcode;
  if (request.opcode == protocol::Opcode::kOpenTree) {
    response.trees = {{.id = 1,
                       .layout = protocol::TreeLayout::kBytes,
                       .key_bytes_max = 1024,
                       .value_bytes_max = 1 << 24,
                       .name = std::string(request.name)}};
  } else if (request.opcode == protocol::Opcode::kRangeMap) {
    ++map_requests_;
    response.view = told_view_;
    response.ranges = ranges_;
  } else {
    return script_(request, out);
  }
  AppendResponse(response, out);
  return Then::kIgnore;
}

}  // namespace farleaf::test
