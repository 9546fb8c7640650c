// TextClient: a blocking client of a text protocol, of which a test sees every byte.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "client/internal/socket.h"

namespace farleaf::test {

class TextClient {
 public:
  /// `url`: SCHEME://HOST:PORT or SCHEME+unix:PATH. Nothing waits for longer than `patience_ms`, of which tests that pass see nothing.
  explicit TextClient(std::string_view url, int patience_ms = 60'000);

  /// As far as the server takes it: nothing more once that has closed.
  void Send(std::string_view bytes);
  /// What comes up to and with `end`, or until the server closes, or patience ends.
  std::string ReceiveUntil(std::string_view end);
  /// Everything, until the server closes.
  std::string ReceiveAll();
  /// What memcached's protocol answers to `request`, be it nothing.
  std::string Ask(std::string_view request);
  /// What Redis' protocol answers to `request`, be it nothing.
  std::string AskRedis(std::string_view request);
  /// Sends no more.
  void HalfClose();

 private:
  bool Wait(short events);
  bool Receive();

  const int patience_ms_;
  client::internal::Fd socket_;
  std::string received_;
  uint64_t asked_ = 0;
};

}  // namespace farleaf::test
