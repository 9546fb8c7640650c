// Peers of each protocol with a fault: slow readers, garbage, requests that are too large or cut short; and whether a
// server told them what is due.
//
// Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "dsm/base/check.h"
#include "test/support/load_client.h"
#include "test/support/native_peer.h"

namespace farleaf::test {

/// What a server has to be started with for FaultyPeers: its limit of values, of all protocols.
inline constexpr size_t kFaultyValueMax = 32'000;
/// And what has to be under the key "large", in the tree "t" and among the records.
inline const std::string kLargeValue(20'000, 'L');
inline constexpr int kLargeGets = 400;  // 8 MB of answers, which no buffer of a socket takes
inline const std::string kNonsense =
    "\x80 what no protocol begins with, and more bytes than a frame's head";

inline std::string Repeated(const std::string& request) {
  std::string all;
  for (int i = 0; i < kLargeGets; ++i) all += request;
  return all;
}

enum class Fault : uint8_t { kSlowReader, kGarbage, kTooLarge, kTruncated };
inline constexpr uint64_t kFaults = 4;

/// A connection with one fault.
class FaultyPeer {
 public:
  virtual ~FaultyPeer() = default;
  virtual void Begin() = 0;
  /// What was answered; empty: what is due.
  virtual std::string WhatIsWrong() = 0;
};

class FaultyText final : public FaultyPeer {
 public:
  FaultyText(const std::string& url, RecordDialect dialect, Fault fault)
      : dialect_(dialect), fault_(fault), connection_(url) {}

  void Begin() override {
    switch (fault_) {
      case Fault::kSlowReader:
        return connection_.Send(Repeated(dialect_.Get("large")) + dialect_.quit());
      case Fault::kGarbage:
        return connection_.Send(dialect_.redis() ? "*x\r\n" : kNonsense);
      case Fault::kTooLarge:
        return connection_.Send(dialect_.Set("k", std::string(kFaultyValueMax + 1, 'x')) +
                                dialect_.quit());
      case Fault::kTruncated:
        connection_.Send(dialect_.HalfASet("k"));
        return connection_.HalfClose();
    }
  }
  std::string WhatIsWrong() override {
    const std::string answer = connection_.ReceiveAll();
    if (fault_ == Fault::kSlowReader) {
      const size_t due =
          kLargeGets * dialect_.Found("large", kLargeValue).size() + dialect_.farewell().size();
      return answer.size() == due ? "" : std::to_string(answer.size()) + " bytes";
    }
    return answer == Due() ? "" : answer;
  }

 private:
  std::string Due() const {
    switch (fault_) {
      case Fault::kGarbage:
        return dialect_.redis() ? "-ERR Protocol error: invalid multibulk length\r\n"
                                : "CLIENT_ERROR the binary protocol is not spoken here; use the "
                                  "text or meta protocol\r\n";
      case Fault::kTooLarge:
        return (dialect_.redis() ? "-ERR an argument of 32001 bytes; redis_value_bytes_max is 32000"
                                   "\r\n"
                                 : "SERVER_ERROR object too large for cache\r\n") +
               dialect_.farewell();
      default:
        return dialect_.truncated();
    }
  }

  const RecordDialect dialect_;
  const Fault fault_;
  TextClient connection_;
};

class FaultyNative final : public FaultyPeer {
 public:
  FaultyNative(const std::string& url, Fault fault) : fault_(fault), peer_(url) {
    if (fault_ == Fault::kGarbage) return;
    tree_ = peer_.Open("t");
  }

  void Begin() override {
    client::protocol::Request request;
    request.tree = tree_;
    request.opcode = client::protocol::Opcode::kGet;
    request.key = "large";
    std::string frame;
    switch (fault_) {
      case Fault::kSlowReader:
        // At once, as far as the socket's buffer goes: the server soon takes no more.
        client::protocol::AppendBatch(0, NativePeer::kView, request, &frame);
        peer_.Send(Repeated(frame));
        return peer_.EndSending();
      case Fault::kGarbage:
        return peer_.Send(kNonsense);
      case Fault::kTooLarge: {
        const std::string large(kFaultyValueMax + 1, 'x');
        request.opcode = client::protocol::Opcode::kPut;
        request.value = large;
        peer_.SendRequest(request);
        return peer_.EndSending();
      }
      case Fault::kTruncated: {
        client::protocol::AppendBatch(0, NativePeer::kView, request, &frame);
        frame.pop_back();
        peer_.Send(frame);
        return peer_.EndSending();
      }
    }
  }
  std::string WhatIsWrong() override {
    if (fault_ == Fault::kGarbage) {
      const std::string message = peer_.ReceiveHello().message;
      return message == "the peer does not speak Farleaf's native protocol" ? "" : message;
    }
    int answers = 0;
    std::string wrong;
    while (const auto body = peer_.Receive()) {
      client::protocol::Response response;
      if (!client::protocol::ParseResponse(AsBytes(*body), &response).ok())
        return "a malformed answer";
      const bool due = fault_ == Fault::kSlowReader
                           ? response.value && *response.value == kLargeValue
                       : fault_ == Fault::kTooLarge
                           ? response.message ==
                                 "a value of 32001 bytes; this server takes 32000 "
                                 "(value_bytes_max)"
                           : response.message == "the stream ended in the middle of a request";
      if (!due) wrong += std::string(response.message) + "; ";
      ++answers;
    }
    const int due = fault_ == Fault::kSlowReader ? kLargeGets : 1;
    return answers == due ? wrong : wrong + std::to_string(answers) + " answers";
  }

 private:
  const Fault fault_;
  NativePeer peer_;
  uint32_t tree_ = 0;
};

/// The protocol is the peer's number's, as a LoadClient's.
inline std::unique_ptr<FaultyPeer> ConnectFaulty(const FrontEndUrls& urls, uint64_t i,
                                                 Fault fault) {
  using Protocol = RecordDialect::Protocol;
  if (i % 3 == 0)
    return std::make_unique<FaultyNative>(i % 2 == 0 ? urls.tcp : urls.unix_socket, fault);
  const RecordDialect dialect{i % 3 == 1 ? Protocol::kMemcached : Protocol::kRedis};
  return std::make_unique<FaultyText>(dialect.redis() ? urls.redis : urls.memcached, dialect,
                                      fault);
}

}  // namespace farleaf::test
