// NativePeer: a client of the native protocol that says what it likes, byte by byte.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "client/internal/socket.h"
#include "client/protocol.h"
#include "test/support/native_under_test.h"

namespace farleaf::test {

class NativePeer {
 public:
  static constexpr uint32_t kView = 1;  // of all hosts, unless a test changes it

  explicit NativePeer(const std::string& url);
  /// Sends all of it, or as much as the server takes before it closes.
  void Send(std::string_view bytes);
  void SendHello(uint16_t version = client::protocol::kVersion);
  void SendRequest(const client::protocol::Request& request);
  void EndSending();
  /// The next frame's body; nullopt when the server has closed.
  std::optional<std::string> Receive();
  /// Says hello, and opens the tree. Returns its id.
  uint32_t Open(const std::string& tree);
  client::protocol::ServerHello ReceiveHello();

 private:
  bool Await(short events);
  client::internal::Fd fd_;
  std::string in_;
};

}  // namespace farleaf::test
