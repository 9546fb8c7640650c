// TcpLink: one transport's connection to one memory server: connects, shakes hands, pipelines
// batches, notices when the server is gone, and reconnects.
//
//   kDown ──► kConnecting ──► kGreeting ──► kUp        kLost: for good; every batch fails, or it has ended
//     ▲            │              │          │
//     └────────────┴──────────────┴──────────┘  broken
//
// What happens to batches when a connection breaks: see dsm/link_recovery.h.
//
// Invariants:
//   - no call blocks;
//   - a batch is completed exactly once;
//   - memory named by a batch is not touched after its completion.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "dsm/base/clock.h"
#include "dsm/handshake.h"
#include "dsm/known_servers.h"
#include "dsm/link_recovery.h"
#include "dsm/socket.h"
#include "dsm/tcp/byte_queue.h"
#include "dsm/tcp/reply_reader.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

struct TcpLinkOptions {
  LinkRecoveryOptions recovery = {};
  uint64_t stall_timeout_ms = 5'000;  ///< without any progress while batches are in flight
};

class TcpLink {
 public:
  /// To the life of a memory server that `server` stands for. `hello`: as HelloTo.
  TcpLink(std::shared_ptr<KnownServer> server, Hello hello, const TcpLinkOptions& options,
          const Clock* clock);
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
  const Status& failure() const { return recovery_.failure(); }
  /// REQUIRES: was up once.
  const RegionInfo& region() const { return region_; }

  /// Whether a batch was completed since the last Poll.
  bool has_completions() const { return completed_ > 0 || recovery_.has_completed(); }
  // For LinkTable.
  const KnownServer& server() const { return *server_; }
  void Retire();
  bool ended() const { return retired_ && state_ == State::kLost; }
  void HoldBack() { held_back_ = true; }
  bool held_back() const { return held_back_; }
  void Release();

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
  using Server = LinkRecovery::Server;
  void AttemptFailed(Status why, Server server);
  void LoseForGood(Status why);
  void Drop();
  void EndIfRetired();

  const std::shared_ptr<KnownServer> server_;
  const SocketAddress& address_;  ///< the server's
  const Hello hello_;
  const TcpLinkOptions options_;
  const Clock* clock_;

  State state_ = State::kDown;
  bool held_back_ = false, retired_ = false;
  UniqueFd fd_;
  LinkRecovery recovery_;
  RegionInfo region_;
  std::string greeting_;  ///< bytes of the Welcome so far

  ReplyReader replies_;
  ByteQueue in_, out_;
  std::deque<Segment> segments_;
  uint64_t next_sequence_ = 1;
  uint64_t progress_ns_ = 0;
  bool timing_ = false;  ///< progress_ns_ counts

  size_t completed_ = 0;
};

}  // namespace farleaf::dsm
