// ScriptedTextServer: a server of a text protocol that says what a test wants it to say.
//
// One connection after another on a thread of its own; what is received on one is given to the script, which
// answers or hangs up. Both end with the object.
//
// Thread rule: the script runs on the server's thread; the rest belongs to the test's.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "client/internal/socket.h"

namespace farleaf::test {

class ScriptedTextServer {
 public:
  struct Reply {
    std::string bytes;
    bool hang_up = false;    ///< behind them
    bool in_pieces = false;  ///< byte by byte, of which a reader may see each by itself
  };
  /// Called when something has come. May take from `received` what it answers.
  using Script = std::function<Reply(std::string* received)>;

  /// On a free port of loopback. `connections_max`: then it listens no more; 0: no bound.
  explicit ScriptedTextServer(Script script, int connections_max = 0);
  ~ScriptedTextServer();
  ScriptedTextServer(const ScriptedTextServer&) = delete;

  const std::string& address() const { return address_; }  ///< HOST:PORT

 private:
  void Serve(int connections_max);
  void Talk(const client::internal::Fd& connection);

  const Script script_;
  std::string address_;
  client::internal::Fd listener_;
  client::internal::Fd stop_;
  std::jthread thread_;
};

}  // namespace farleaf::test
