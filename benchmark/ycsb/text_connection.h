// TextConnection: a stream socket that never blocks, what is still to be sent on it, and what has
// come.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "client/endpoint.h"
#include "client/internal/socket.h"
#include "dsm/base/result.h"

namespace farleaf::ycsb {

class TextConnection {
 public:
  /// Tries every address of the endpoint, for no longer than `timeout_ms` in all (looking up a name
  /// may take longer). Unavailable says why the last one did not answer.
  static Result<std::unique_ptr<TextConnection>> Open(const client::Endpoint& endpoint,
                                                      uint64_t timeout_ms);
  explicit TextConnection(client::internal::Fd socket) : socket_(std::move(socket)) {}

  /// Requests are appended here, by nobody but the one caller; sent by Flush.
  std::string& unsent() { return unsent_; }
  /// Bytes appended and bytes sent since the connection was opened.
  uint64_t appended_bytes() const { return sent_bytes_ + unsent_.size() - unsent_begin_; }
  uint64_t sent_bytes() const { return sent_bytes_; }
  /// Sends as much as the socket takes.
  Status Flush();
  /// Until something has come, or can be sent if there is something to send; at most `wait_ns`.
  void Wait(uint64_t wait_ns) const;
  /// Takes some of what has come, be it nothing. Unavailable: the connection is gone.
  Status Receive();
  std::string_view received() const;
  void Consume(size_t bytes) { received_.Consume(bytes); }

 private:
  const client::internal::Fd socket_;
  std::string unsent_;
  size_t unsent_begin_ = 0;
  uint64_t sent_bytes_ = 0;
  client::internal::ReceiveBuffer received_;
};

/// Sleeps until `fd` has one of `events`, at most `wait_ns`; below 0: no descriptor.
void PollFor(int fd, short events, uint64_t wait_ns);

}  // namespace farleaf::ycsb
