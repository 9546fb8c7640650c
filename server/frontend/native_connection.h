// NativeConnection: the server's side of the native protocol on one connection, without its socket:
// bytes go in, requests come out; answers go in, in any order, bytes come out.
//
// Invariants: those of Connection; at most `in_flight_max` requests are started and unanswered, and a
// request's views stay valid as long as the InputBlock that it came with.
// Thread rule: one thread for life.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "client/protocol.h"
#include "server/frontend/connection.h"

namespace farleaf::server {

namespace protocol = client::protocol;

class NativeConnection final : public Connection {
 public:
  struct Limits {
    uint32_t in_flight_max = 1024;
    size_t out_bytes_max = size_t{4} << 20;
  };
  /// Whoever runs the requests.
  class Runner {
   public:
    virtual ~Runner() = default;
    virtual protocol::ServerHello Hello() = 0;
    /// Runs the request and calls Answer once, now or later.
    virtual void StartRequest(NativeConnection& connection, InputBlockRef block,
                              protocol::Request request) = 0;
  };

  NativeConnection(Runner* runner, Limits limits)
      : Connection(limits.out_bytes_max), runner_(runner), limits_(limits) {}

  void Answer(const protocol::Response& response) {
    --in_flight_;
    if (!abandoned()) AppendResponse(response, &out());
  }
  bool greeted() const override { return greeted_; }
  uint32_t in_flight() const override { return in_flight_; }

 private:
  bool TakeInput() override;
  size_t BytesWanted() const override;
  bool TooBusy() const override { return in_flight_ >= limits_.in_flight_max; }
  uint32_t frame_bytes_max() const {
    return greeted_ ? protocol::kFrameBytesMax : protocol::kHelloBytesMax;
  }
  void TakeHello(std::span<const std::byte> body);
  void TakeRequest(std::span<const std::byte> body);

  Runner* const runner_;
  const Limits limits_;
  uint32_t in_flight_ = 0;
  bool greeted_ = false;
};

}  // namespace farleaf::server
