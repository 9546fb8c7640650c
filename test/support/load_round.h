// LoadRound: many connections of all protocols at once, every tenth with a fault, all faults among them, and others
// killed at random with requests in flight.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "dsm/base/random.h"
#include "test/support/faulty_peer.h"

namespace farleaf::test {

struct LoadRoundOptions {
  uint64_t connections = 2'000, requests = 8;
  uint64_t round = 0;
  /// Of the clients: every so many-th closes its half before it reads, one in so many is killed.
  uint64_t half_closing_every = 5, killed_one_in = 10;
  /// Where connection `i` goes.
  std::function<FrontEndUrls(uint64_t)> urls_of;
};

class LoadRound {
 public:
  /// Connects them all.
  explicit LoadRound(LoadRoundOptions options)
      : options_(std::move(options)),
        clients_(options_.connections),
        faulty_(options_.connections) {
    for (uint64_t i = 0; i < options_.connections; ++i) {
      if (i % 10 == 9) {
        const auto fault = static_cast<Fault>(i / 10 % kFaults);
        faulty_[i] = ConnectFaulty(options_.urls_of(i), i, fault);
        garbage_ += fault == Fault::kGarbage;
        truncated_ += fault == Fault::kTruncated;
      } else {
        clients_[i] =
            ConnectLoad(options_.urls_of(i), {.client = i,
                                              .round = options_.round,
                                              .requests = options_.requests,
                                              .half_closes = i % options_.half_closing_every == 0});
      }
    }
  }

  /// All send what they have to. A client that is killed has sent all its requests, and read none of the answers.
  void Begin(Random& random) {
    for (uint64_t i = 0; i < options_.connections; ++i) {
      if (faulty_[i]) faulty_[i]->Begin();
      if (clients_[i]) clients_[i]->Begin();
      if (clients_[i] && random.OneIn(options_.killed_one_in)) {
        clients_[i].reset();
        ++killed_;
      }
    }
  }
  /// All that live get right answers, and each fault is told or served as it is due; then all are closed.
  void End() {
    for (uint64_t i = 0; i < options_.connections; ++i) {
      if (clients_[i]) {
        EXPECT_EQ(clients_[i]->WhatIsWrong(), "") << "client " << i;
      }
    }
    // The slow readers have waited for the end of all others.
    for (uint64_t i = 0; i < options_.connections; ++i) {
      if (faulty_[i]) {
        EXPECT_EQ(faulty_[i]->WhatIsWrong(), "") << "peer " << i;
      }
    }
    clients_.clear();
    faulty_.clear();
  }

  /// How many connections a server refuses, how many send less than a request, and how many were killed.
  uint64_t garbage() const { return garbage_; }
  uint64_t truncated() const { return truncated_; }
  uint64_t killed() const { return killed_; }

 private:
  const LoadRoundOptions options_;
  std::vector<std::unique_ptr<LoadClient>> clients_;
  std::vector<std::unique_ptr<FaultyPeer>> faulty_;
  uint64_t garbage_ = 0, truncated_ = 0, killed_ = 0;
};

}  // namespace farleaf::test
