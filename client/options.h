// What a client may be told. Every wait, queue and retry has its bound here.
//
// Thread rule: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "client/secure_transport.h"
#include "dsm/base/clock.h"
#include "dsm/base/durability.h"

namespace farleaf::client {

/// How bytes reach the server. kRing: through memory that is shared with it, which takes a server on this host
/// and its Unix socket (farleaf+unix:PATH); the same as the URL farleaf+ring:PATH.
enum class Carrier : uint8_t { kSocket, kRing };

struct Options {
  Carrier carrier = Carrier::kSocket;
  /// Of each of a ring's two areas; the server may grant less.
  uint32_t ring_bytes = 256 << 10;
  /// While operations are pending a ring is polled for so long before the caller sleeps.
  uint64_t ring_poll_us = 50;
  /// Of an operation that names none. An operation always ends by its deadline.
  uint64_t deadline_ms = 10'000;
  /// For connecting, the hello and opening the trees again, together.
  uint64_t connect_timeout_ms = 5'000;
  /// Between attempts to connect again: doubles from the first to the second, with jitter.
  uint64_t backoff_ms_min = 5;
  uint64_t backoff_ms_max = 1'000;
  /// Operations that have not ended. A Client's caller waits for room; a Session refuses more.
  size_t pending_max = 65'536;
  /// A batch ends with so many requests, or when it has passed so many bytes.
  uint32_t batch_requests_max = 64;
  size_t batch_bytes = 32 << 10;
  /// How often a read may be sent again after lost connections before it fails as unavailable.
  uint32_t reissues_max = 8;
  /// For servers that want one; empty: none is given. Better in a file: it is read when connecting, and its first line
  /// is the password (client/password.h).
  std::string password;
  std::string password_file;
  /// What bytes go through to the server, as TLS (client/tls.h); null: they go as they are.
  std::shared_ptr<const SecureTransport> transport;
  /// Of a Session: its caller decides by which view operations are routed (Session::set_view), and gets those that are
  /// refused back (kFenced) instead of having them sent again. A Client does this itself.
  bool routed_by_caller = false;
  /// Of the jitter; 0: from clock and process id.
  uint64_t seed = 0;
  /// Outlives the client; null: the machine's monotonic clock.
  const Clock* clock = nullptr;
};

/// What a single operation may be told.
struct CallOptions {
  uint64_t deadline_ms = 0;  ///< 0: Options::deadline_ms
  /// Of a write: what it is to survive, if that is more than its store promises. InvalidArgument, and nothing happens: the store has no disk, or no copies.
  WriteDurability durability = WriteDurability::kOfStore;
  /// Of a read: it may be answered by a copy of the data that is no older than this, at the server that this client was told (or another one that it reaches);
  /// so it may miss what was acknowledged since. 0: it misses nothing. A store without copies answers as if it were 0.
  uint32_t max_staleness_ms = 0;
  /// Of such a read: how old what it has seen may be is written here before it ends. Outlives the operation; null: nobody wants to know.
  uint32_t* staleness_ms = nullptr;
};

}  // namespace farleaf::client
