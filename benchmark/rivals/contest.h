// Contest: servers side by side. Every round asks each of them for the same work, one after the other, the first of
// them another one in each round, so that what else runs on the machine disturbs them alike. What is compared is the
// ratio of two servers' figures in one round; the median of the rounds' ratios is the result.
//
// Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "benchmark/rivals/conversation.h"
#include "benchmark/rivals/process_cpu.h"

namespace farleaf::rivals {

struct Contestant {
  std::string name;
  Protocol protocol = Protocol::kRedis;
  std::string address;
  pid_t process = 0;
  std::string rival;  ///< whom it is compared with; empty: nobody
  size_t depth = 0;   ///< the only one it is measured at; 0: at all
};

struct ContestOptions {
  std::vector<Contestant> contestants;
  std::vector<size_t> depths = {1, 16, 64};
  uint64_t keys = 1'000'000;
  uint64_t rounds = 9;
  uint64_t round_ms = 300;  ///< about what a server is measured for in each
  uint64_t seed = 1;
};

/// A server at one kind of request and one depth. One element a round.
struct Measured {
  const Contestant* contestant = nullptr;
  std::vector<double> cpu_us;    ///< of the server, for each request
  std::vector<double> requests;  ///< a second
  uint64_t user_ns = 0, kernel_ns = 0;
  Histogram latency_ns;

  /// Of the server's time.
  double kernel_share() const {
    return static_cast<double>(kernel_ns) /
           static_cast<double>(std::max<uint64_t>(user_ns + kernel_ns, 1));
  }
};

struct Comparison {
  RequestKind kind = RequestKind::kGet;
  size_t depth = 0;
  uint64_t requests = 0;  ///< in each round
  std::vector<Measured> measured;

  const Measured* Find(const std::string& name) const;
};

double Median(std::vector<double> values);
/// The median of the ratios of rounds.
double MedianRatio(const std::vector<double>& of, const std::vector<double>& to);

/// Stores all keys in each server, then compares.
Result<std::vector<Comparison>> RunContest(const ContestOptions& options);

}  // namespace farleaf::rivals
