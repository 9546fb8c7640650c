// What the tests of a replication channel have in common: primaries that call, a backup that checks what it is given, and a record of both.
//
// Checked: every message is executed at most once, in the order of the calls, by the backup that serves its primary; its payload is what was
// sent; its reply is its own. Checks are FARLEAF_CHECKs.
// Thread rule: ChannelCalls belong to the primary's thread, ChannelExecutions to the backup's; both may be looked at when both have ended.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/base/random.h"
#include "server/replication/channel.h"
#include "server/replication/channel_server.h"

namespace farleaf::server::replication {

/// The bytes that belong to a number; the same everywhere.
inline std::string BytesOf(uint64_t number, size_t size) {
  std::string bytes(RoundUp(size, 8), '\0');
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = Mix64(number * 1'000'003 + i);
    std::memcpy(bytes.data() + i, &word, 8);
  }
  bytes.resize(size);
  return bytes;
}
/// Not a CRC: it is to see what the channel's do not.
inline uint64_t SumOf(std::string_view bytes) {
  uint64_t sum = bytes.size();
  for (const char c : bytes) sum = (sum ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return sum;
}

/// A backup's handler.
class ChannelExecutions {
 public:
  ChannelExecutions(uint64_t seed, uint64_t handler_ns_max)
      : random_(seed), handler_ns_max_(handler_ns_max) {}

  /// Who may have messages executed now.
  void set_primary(uint64_t primary) { primary_ = primary; }
  MessageHandler handler() {
    return [this](dsm::Worker& worker, const ReceivedMessage& message) {
      return Execute(worker, message);
    };
  }
  /// Numbers of the calls, in the order in which they were executed.
  const std::vector<uint64_t>& of(uint64_t primary) const { return executed_[primary]; }

  static constexpr uint64_t kPrimaries = 4;

 private:
  dsm::Task<Reply> Execute(dsm::Worker& worker, const ReceivedMessage& message) {
    const auto [primary, number, head_sum, payload_sum] = message.arguments;
    FARLEAF_CHECK(primary == primary_, "a message of another primary", primary, primary_);
    if (handler_ns_max_ > 0 && random_.OneIn(2)) {
      co_await worker.Sleep(random_.Below(handler_ns_max_));
    }
    // Behind the wait: the payload stays.
    FARLEAF_CHECK(SumOf(message.head) == head_sum, number);
    FARLEAF_CHECK(SumOf(AsChars(message.payload)) == payload_sum, number, message.payload.size());
    FARLEAF_CHECK(message.sequence == executed_[primary].size() + 1, message.sequence);
    FARLEAF_CHECK(message.kind == number % 256, number);
    executed_[primary].push_back(number);
    Reply reply{.code = static_cast<StatusCode>(number % (kStatusCodeMax + 1)),
                .values = {primary, number, executed_[primary].size(), 0},
                .text = BytesOf(number, number % 200)};
    if (number % 3 == 0) reply.payload = BytesOf(number + 1, number * 977 % 9'000);
    co_return reply;
  }

  Random random_;
  const uint64_t handler_ns_max_;
  uint64_t primary_ = 0;
  std::array<std::vector<uint64_t>, kPrimaries> executed_;
};

/// What one primary calls through one channel.
class ChannelCalls {
 public:
  ChannelCalls(uint64_t primary, uint64_t seed) : primary_(primary), random_(seed) {}

  /// One of several callers: calls one by one, until the channel ends.
  dsm::Task<void> CallMany(dsm::Worker& worker, Channel& channel, uint64_t calls) {
    for (uint64_t i = 0; i < calls; ++i) {
      if (random_.OneIn(3)) co_await worker.Sleep(random_.Below(200'000));
      const uint64_t number = next_++;
      const std::string head = BytesOf(number, random_.Below(300));
      const size_t size = random_.OneIn(4) ? 0 : random_.Below(channel.layout().payload_bytes + 1);
      const std::string payload = BytesOf(number, size);
      const bool goes_on = channel.failure().ok();
      if (goes_on) called_.push_back(number);
      const Message message{.kind = static_cast<uint8_t>(number),
                            .arguments = {primary_, number, SumOf(head), SumOf(payload)},
                            .head = head,
                            .payload = AsBytes(payload)};
      Result<Reply> reply = co_await channel.Call(worker, message, counts_);
      if (!reply.ok()) {
        FARLEAF_CHECK(!channel.failure().ok() &&
                          reply.status().message().find("memory server 0") != std::string::npos,
                      reply.status());
        ++failed_;
        co_return;
      }
      FARLEAF_CHECK(goes_on);
      CheckReply(number, *reply);
      answered_.push_back({number, reply->values[2]});
    }
  }
  /// What was executed is how the calls began, and what was answered was executed, at the place that the answer tells.
  void CheckAgainst(const std::vector<uint64_t>& executed) const {
    FARLEAF_CHECK(executed.size() <= called_.size(), executed.size(), called_.size());
    for (size_t i = 0; i < executed.size(); ++i) {
      FARLEAF_CHECK(executed[i] == called_[i], i, executed[i], called_[i]);
    }
    for (const auto& [number, place] : answered_) {
      FARLEAF_CHECK(place <= executed.size() && executed[place - 1] == number, number, place);
    }
  }
  uint64_t answered() const { return answered_.size(); }
  uint64_t called() const { return called_.size(); }
  uint64_t failed() const { return failed_; }

 private:
  void CheckReply(uint64_t number, const Reply& reply) const {
    FARLEAF_CHECK(reply.values[0] == primary_ && reply.values[1] == number, reply.values[1],
                  number);
    FARLEAF_CHECK(reply.code == static_cast<StatusCode>(number % (kStatusCodeMax + 1)), number);
    FARLEAF_CHECK(reply.text == BytesOf(number, number % 200).substr(0, kReplyTextBytesMax),
                  number);
    const std::string payload =
        number % 3 == 0 ? BytesOf(number + 1, number * 977 % 9'000) : std::string();
    FARLEAF_CHECK(reply.payload == payload, number, reply.payload.size());
  }

  const uint64_t primary_;
  Random random_;
  uint64_t next_ = 1;
  std::vector<uint64_t> called_;
  std::vector<std::pair<uint64_t, uint64_t>> answered_;  // number, place
  uint64_t failed_ = 0;
  dsm::FabricCounts counts_;
};

}  // namespace farleaf::server::replication
