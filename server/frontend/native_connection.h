// NativeConnection: the server's side of the native protocol on one connection, without its socket:
// bytes go in, requests come out; answers go in, in any order, bytes come out.
//
// Invariants, beside those of Connection:
//   - at most `in_flight_max` requests are started and unanswered, and no more than fit into the
//     connection's memory (out_bytes_max) with their answers, as far as those of late tell;
//   - a request is started only if its batch's view is the server's. The views are compared when a batch
//     has arrived whole, so that one of an old view is refused whole, and again when the rest of one that
//     was begun is taken up after a pause: nothing starts behind the moment in which its thread has seen
//     that the view has become an old one. What is not started is refused, from the first such request on;
//   - refusals are put out in the order of their batches;
//   - a request's views stay valid as long as the InputBlock that it came with.
// Thread rule: one thread for life.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/protocol.h"
#include "server/frontend/connection.h"
#include "server/frontend/ring_channel.h"

namespace farleaf::server {

namespace protocol = client::protocol;

class NativeConnection final : public Connection {
 public:
  struct Limits {
    uint32_t in_flight_max = 1024;
    /// Of unsent answers; also what requests in flight and their answers may take together.
    uint64_t out_bytes_max = uint64_t{4} << 20;
    uint64_t value_bytes_max = protocol::kValueBytesMax;  ///< larger ones are refused
    uint64_t ring_bytes_max = uint64_t{1} << 20;  ///< of each area of a ring; 0: none is opened
  };
  /// What a request holds until it is answered.
  struct Token {
    uint32_t request_bytes = 0;
    uint32_t reply = 0;  ///< over a ring: which answer of RingChannel it is part of
  };
  /// A request that is to be run.
  struct Taken {
    protocol::Request request;
    Token token;
  };
  /// Whoever runs the requests.
  class Runner {
   public:
    virtual ~Runner() = default;
    virtual protocol::ServerHello Hello() = 0;
    /// The number of the map of ranges to servers.
    virtual uint32_t view() = 0;
    /// The ring that a client asks for, with the descriptor that it is sent.
    virtual Result<std::unique_ptr<RingChannel>> OpenRing(protocol::RingBytes wanted,
                                                          uint64_t bytes_max,
                                                          RingChannel::Fd* descriptor) {
      return RingChannel::Create(wanted, bytes_max, descriptor);
    }
    /// Whoever says hello with it may stay.
    virtual bool Admits(std::string_view /*password*/) const { return true; }
    /// Runs the request and calls Answer once, now or later.
    virtual void StartRequest(NativeConnection& connection, InputBlockRef block,
                              protocol::Request request, Token token) = 0;
    /// The same for some that have come together; their requests may be moved from.
    virtual void StartRequests(NativeConnection& connection, const InputBlockRef& block,
                               std::span<Taken> taken) {
      for (Taken& each : taken) {
        StartRequest(connection, block, std::move(each.request), each.token);
      }
    }
  };

  NativeConnection(Runner* runner, Limits limits)
      : Connection(limits.out_bytes_max),
        runner_(runner),
        limits_(limits),
        answer_bytes_(std::min<uint64_t>(kAnswerBytesFirst, limits.out_bytes_max / 8)) {}

  void Answer(const protocol::Response& response, Token token);
  bool greeted() const override { return greeted_; }
  bool has_ring() const override { return ring_ != nullptr; }
  bool RingReady() const override { return ring_->half().Ready(); }
  void TakeRing() override;
  bool RingMaySleep() override { return ring_->MaySleep(); }
  void RingAwake() override { ring_->Awake(); }
  uint32_t in_flight() const override { return in_flight_; }
  void ServerStops() override;
  bool SayGoodbye() override;
  void GiveBackRoom() override {
    if (taken_.empty()) Free(&taken_);
    if (ring_) ring_->GiveBackRoom();
    Connection::GiveBackRoom();
  }

 private:
  static constexpr uint64_t kAnswerBytesFirst = 64 << 10;
  static constexpr char kWakeByte = 'w';
  static constexpr size_t kTakenTogether = 64;

  bool TakeInput() override;
  void TellTruncated(const Status& why) override { TellWhy(why); }
  void TellWhy(const Status& why);
  size_t BytesWanted() const override;
  bool TooBusy() const override {
    const uint64_t held = ring_ && !abandoned() ? ring_->held_bytes() : 0;
    return in_flight_ >= limits_.in_flight_max || held > limits_.out_bytes_max ||
           (in_flight_ > 0 && request_bytes_ + in_flight_ * answer_bytes_ + output().size() + held >
                                  limits_.out_bytes_max);
  }
  uint32_t frame_bytes_max() const {
    return greeted_ ? protocol::FrameBytesMax(static_cast<uint32_t>(limits_.value_bytes_max))
                    : protocol::kHelloBytesMax;
  }
  void TakeHello(std::span<const std::byte> body);
  void AnswerHello(const Status& outcome, protocol::ServerHello answer);
  void TakeBatch(std::span<const std::byte> body);
  void RunBatch();
  void TakeRequest();
  void StartTaken();
  void RefuseRest();
  void OpenRing(const protocol::Request& request, Token token);
  void DeliverFromRing(const client::ring::ArrivedMessage& message);
  void DeliverDeferred();
  bool KnowsGoodbye() const { return greeted_ && !ring_; }
  /// Nothing is being taken, and more may be.
  bool ReadyForFrame() const { return wants_input() && batch_.count == 0; }
  /// Where answers of the batch `reply` go.
  std::string& AnswersOf(uint32_t reply) { return ring_ ? ring_->BytesOf(reply) : out(); }
  void Answered(uint32_t reply, uint32_t count) {
    if (ring_ && ring_->Answered(reply, count)) out().push_back(kWakeByte);
  }

  Runner* const runner_;
  const Limits limits_;
  uint32_t in_flight_ = 0;
  uint64_t request_bytes_ = 0;  // of those in flight
  // What an answer is expected to take: the largest of late. Until they are known, few are begun at once.
  uint64_t answer_bytes_;
  protocol::Batch batch_;  // being run; `count` is what is left of it
  uint32_t batch_taken_ = 0;
  InputBlockRef batch_block_;
  std::span<const std::byte> batch_rest_;  // in batch_block_
  uint32_t batch_reply_ = 0;
  std::vector<Taken> taken_;  // of it, and not started yet
  std::unique_ptr<RingChannel> ring_;
  bool greeted_ = false;
};

}  // namespace farleaf::server
