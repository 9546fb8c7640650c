// A session on one connection to a server that answers requests in their order.
//
// Requests are sent when they are due, whatever is still to be answered, and those that are due at
// the same time together. When the connection is lost, what was sent and not answered has failed,
// and a new one is tried for until the deadlines of what is waiting.
//
// Thread rule: a TextServer is immutable; a session belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "benchmark/ycsb/target.h"
#include "benchmark/ycsb/text_protocol.h"
#include "client/endpoint.h"

namespace farleaf::ycsb {

struct TextServer {
  std::string url;  ///< for messages
  client::Endpoint endpoint;
  std::shared_ptr<const TextProtocol> protocol;
  std::string password;      ///< empty: none is given
  uint64_t timeout_ms = 0;  ///< of connecting and being let in
};

/// Connected and let in. A record is under `key_prefix` and its key. InvalidArgument: the server
/// wants a password, or another; Corruption: it speaks another protocol.
Result<std::unique_ptr<Session>> OpenTextSession(const TextServer& server, std::string key_prefix,
                                                 const Clock* clock);

}  // namespace farleaf::ycsb
