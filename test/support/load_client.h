// LoadClient: clients of each protocol with keys of their own, every answer of which is judged.
//
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "client/session.h"
#include "dsm/base/random.h"
#include "test/support/native_under_test.h"
#include "test/support/record_dialect.h"
#include "test/support/text_client.h"

namespace farleaf::test {

/// A client of one protocol with keys of its own. The n-th has the same keys and sizes in each round.
class LoadClient {
 public:
  virtual ~LoadClient() = default;
  /// Sends all requests; the answers wait.
  virtual void Begin() = 0;
  /// Awaits all answers. What was wrong with the first that was not right; empty: nothing.
  virtual std::string WhatIsWrong() = 0;
};

inline std::string KeyOfClient(uint64_t client, uint64_t i) {
  return "client" + std::to_string(client) + "." + std::to_string(i);
}
inline std::string ValueOfClient(uint64_t client, uint64_t i, uint64_t round) {
  const uint64_t bytes = 10 + Mix64(client * 1000 + i) % (i % 8 == 0 ? 20'000 : 200);
  return std::string(bytes, static_cast<char>('a' + (client + i + round) % 26));
}

/// What a client does.
struct LoadTurn {
  uint64_t client = 0, round = 0;
  uint64_t requests = 40;
  bool half_closes = true;  ///< before it reads its answers; else it quits
};

class NativeLoad final : public LoadClient {
 public:
  NativeLoad(const std::string& url, const LoadTurn& turn)
      : turn_(turn), session_(NativeUnderTest::ConnectSession(url)) {
    auto tree = session_->OpenTree("t");
    FARLEAF_CHECK(tree.ok(), tree.status());
    tree_.emplace(std::move(*tree));
  }
  void Begin() override {
    for (uint64_t i = 0; i < turn_.requests; ++i) {
      tree_->PutAsync(KeyOfClient(turn_.client, i), ValueOfClient(turn_.client, i, turn_.round),
                      [this](Result<bool> put) { Judge(put.ok(), put.status()); });
    }
    session_->Flush();
  }
  std::string WhatIsWrong() override {
    AwaitAnswers();
    for (uint64_t i = 0; i < turn_.requests; ++i) {
      tree_->GetAsync(KeyOfClient(turn_.client, i), [this, i](Result<client::Value> value) {
        Judge(value.ok() && *value == ValueOfClient(turn_.client, i, turn_.round), value.status());
      });
    }
    AwaitAnswers();
    if (wrong_.empty() && answered_ != 2 * turn_.requests) {
      wrong_ = std::to_string(answered_) + " answers";
    }
    return wrong_;
  }

 private:
  void AwaitAnswers() {
    while (session_->pending() > 0) session_->Poll(1'000);
  }
  void Judge(bool right, const Status& status) {
    ++answered_;
    if (!right && wrong_.empty()) wrong_ = status.ok() ? "another value" : status.ToString();
  }

  const LoadTurn turn_;
  uint64_t answered_ = 0;
  std::string wrong_;
  std::unique_ptr<client::Session> session_;
  std::optional<client::SessionTree> tree_;  // destroyed first
};

class TextLoad final : public LoadClient {
 public:
  TextLoad(const std::string& url, RecordDialect dialect, const LoadTurn& turn)
      : half_closes_(turn.half_closes), connection_(url) {
    for (uint64_t i = 0; i < turn.requests; ++i) {
      const std::string key = KeyOfClient(turn.client, i),
                        value = ValueOfClient(turn.client, i, turn.round);
      requests_ += dialect.Set(key, value) + dialect.Get(key);
      answers_ += dialect.stored() + dialect.Found(key, value);
    }
    if (half_closes_) return;
    requests_ += dialect.quit();
    answers_ += dialect.farewell();
  }
  void Begin() override { connection_.Send(requests_); }
  std::string WhatIsWrong() override {
    if (half_closes_) connection_.HalfClose();
    const std::string answer = connection_.ReceiveAll();
    if (answer == answers_) return "";
    const auto at = static_cast<size_t>(
        std::mismatch(answer.begin(), answer.end(), answers_.begin(), answers_.end()).first -
        answer.begin());
    return std::to_string(answer.size()) + " bytes of " + std::to_string(answers_.size()) +
           ", from byte " + std::to_string(at) + " '" + answer.substr(at, 100) + "', not '" +
           answers_.substr(at, 100) + "'";
  }

 private:
  const bool half_closes_;
  TextClient connection_;
  std::string requests_, answers_;
};

/// The protocol is the client's number's.
inline std::unique_ptr<LoadClient> ConnectLoad(const FrontEndUrls& urls, const LoadTurn& turn) {
  using Protocol = RecordDialect::Protocol;
  switch (turn.client % 3) {
    case 0:
      return std::make_unique<NativeLoad>(turn.client % 2 == 0 ? urls.tcp : urls.unix_socket, turn);
    case 1:
      return std::make_unique<TextLoad>(urls.memcached, RecordDialect{Protocol::kMemcached}, turn);
    default:
      return std::make_unique<TextLoad>(urls.redis, RecordDialect{Protocol::kRedis}, turn);
  }
}

}  // namespace farleaf::test
