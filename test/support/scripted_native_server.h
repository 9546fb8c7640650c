// ScriptedNativeServer: a server of the native protocol that says what a test wants it to say. It greets, opens any tree,
// tells the map of ranges that it was given, refuses batches of another view, and asks the script of each other request.
//
// Thread rule: thread-safe. The script is called under a lock, by one connection at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/internal/socket.h"
#include "client/protocol.h"

namespace farleaf::test {

class ScriptedNativeServer {
 public:
  enum class Then : uint8_t { kIgnore, kClose, kSendAndClose };
  /// Appends what it answers, if anything.
  using Script = std::function<Then(const client::protocol::Request&, std::string* out)>;
  using Ranges = std::vector<client::protocol::ServedRange>;

  /// On a Unix socket. View 1, and one range, its own.
  ScriptedNativeServer(const std::string& path, Script script);
  ~ScriptedNativeServer();
  ScriptedNativeServer(const ScriptedNativeServer&) = delete;

  const std::string& url() const { return url_; }
  /// What it refuses and greets by, and what it tells when it is asked for the map.
  void set_view(uint32_t view) { SetMap(view, {{.start = "", .url = ""}}); }
  void SetMap(uint32_t view, Ranges ranges) { SetMap(view, view, std::move(ranges)); }
  void SetMap(uint32_t view, uint32_t told, Ranges ranges);
  /// From then on it takes in nothing, or what has come meanwhile.
  void Stall() { stalled_ = true; }
  void Resume() { stalled_ = false; }
  uint64_t refusals() const { return refusals_; }
  uint64_t map_requests() const { return map_requests_; }
  uint64_t batches() const { return batches_; }

 private:
  void Run();
  void Serve(const client::internal::Fd& socket);
  Then Answer(const std::string& body, bool* greeted, std::string* out);
  Then AnswerRequest(const client::protocol::Request& request, std::string* out);

  Script script_;
  client::internal::Fd listener_;
  std::string url_;
  std::atomic<bool> stopping_{false}, stalled_{false};
  std::atomic<uint64_t> refusals_{0}, map_requests_{0}, batches_{0};
  std::mutex mutex_;  // guards what follows, and the script
  uint32_t view_ = 1, told_view_ = 1;
  Ranges ranges_{{.start = "", .url = ""}};
  std::thread thread_;
};

}  // namespace farleaf::test
