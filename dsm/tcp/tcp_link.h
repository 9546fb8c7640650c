// TcpLink: one transport's connection to one memory server: connects, shakes hands, pipelines
// batches, notices when the server is gone, and reconnects.
//
//   kDown ──► kConnecting ──► kGreeting ──► kUp        kLost: for good; every batch fails
//     ▲            │              │          │
//     └────────────┴──────────────┴──────────┘  broken
//
// What happens to batches when a connection breaks: those in flight are *doomed*. They are reported
// only when nothing of them can land any more: when a new handshake (same nonce) has confirmed that
// the memory server destroyed the old connection, or when nobody listens on its address, since then
// the process and its memory are gone. If neither is known within connect_timeout_ms, they end as
// Unknown. Batches posted meanwhile wait for the new connection, with the same bound.
//
// Invariants:
//   - no call blocks;
//   - a batch is completed exactly once;
//   - memory named by a batch is not touched after its completion.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "dsm/base/clock.h"
#include "dsm/handshake.h"
#include "dsm/socket.h"
#include "dsm/tcp/byte_queue.h"
#include "dsm/tcp/reply_reader.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

struct TcpLinkOptions {
  uint64_t connect_timeout_ms = 1'000;  ///< for connecting and the handshake together
  uint64_t stall_timeout_ms = 5'000;    ///< without any progress while batches are in flight
  uint64_t backoff_ms_min = 10;         ///< between attempts to reconnect, doubling
  uint64_t backoff_ms_max = 1'000;
};

class TcpLink {
 public:
  /// `hello.nonce` must be unique. `expected_incarnation` 0: whatever the server says.
  TcpLink(SocketAddress address, Hello hello, uint64_t expected_incarnation,
          const TcpLinkOptions& options, const Clock* clock);
  TcpLink(const TcpLink&) = delete;

  void Connect();
  void Post(Batch& batch);
  /// Sends, receives, watches deadlines. Returns the number of batches completed.
  size_t Poll();
  /// Sends what was posted.
  void Flush();

  bool up() const { return state_ == State::kUp; }
  bool connecting() const { return state_ == State::kConnecting || state_ == State::kGreeting; }
  /// Why it is not up. REQUIRES: neither up nor connecting.
  const Status& failure() const { return failure_; }
  /// REQUIRES: was up once.
  const RegionInfo& region() const { return region_; }

  /// Whether a batch was completed since the last Poll.
  bool has_completions() const { return completed_ > 0; }
  /// For a poll(): -1 if there is nothing to wait for on a socket.
  int fd() const { return fd_.get(); }
  short poll_events() const;
  /// When Poll has to be called at the latest, on the clock; UINT64_MAX: no need.
  uint64_t due_ns() const;

 private:
  enum class State : uint8_t { kDown, kConnecting, kGreeting, kUp, kLost };
  /// A part of what is to be sent: of out_ if `bytes` is null, else of a batch's own memory.
  struct Segment {
    const std::byte* bytes;
    size_t count;
  };

  void Enqueue(Batch& batch);
  void AppendOwned(std::span<const std::byte> bytes);
  void CheckConnected();
  void ReceiveWelcome();
  void Receive();
  void Accept(const Welcome& welcome);
  /// The connection is no more; what was in flight is doomed.
  void Break(const std::string& reason);
  enum class Server : uint8_t { kGone, kMaybeThere };
  void AttemptFailed(Status why, Server server);
  void LoseForGood(Status why);
  void Drop();
  void FailDoomed(const Status& status);
  void FailWaiting(const Status& status);

  const SocketAddress address_;
  const Hello hello_;
  const std::string name_;  ///< "memory server 3"
  uint64_t expected_incarnation_;
  const TcpLinkOptions options_;
  const Clock* clock_;

  State state_ = State::kDown;
  UniqueFd fd_;
  Status failure_;
  RegionInfo region_;
  uint64_t attempt_deadline_ns_ = 0;  ///< kConnecting, kGreeting
  uint64_t retry_at_ns_ = 0;          ///< kDown
  uint64_t backoff_ms_;
  std::string greeting_;  ///< bytes of the Welcome so far

  ReplyReader replies_;
  ByteQueue in_, out_;
  std::deque<Segment> segments_;
  uint64_t next_sequence_ = 1;
  uint64_t progress_ns_ = 0;
  bool timing_ = false;  ///< progress_ns_ counts

  std::deque<Batch*> waiting_;  ///< for the connection to come up; nothing of them was sent
  std::deque<Batch*> doomed_;
  std::string doomed_reason_;
  uint64_t doomed_deadline_ns_ = 0;
  size_t completed_ = 0;
};

}  // namespace farleaf::dsm
