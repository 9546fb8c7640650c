#include "benchmark/rivals/contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace farleaf::rivals {

namespace {

constexpr size_t kLoadDepth = 64;
constexpr uint64_t kCalibrationRequests = 2'048;
constexpr uint64_t kRequestsMin = 1'000;

class Contest {
 public:
  explicit Contest(const ContestOptions& options) : options_(options) {}

  Status Begin() {
    for (const Contestant& contestant : options_.contestants) {
      auto conversation = Connect(contestant.protocol, contestant.address);
      if (!conversation.ok()) return conversation.status().WithContext(contestant.name);
      conversations_.push_back(std::move(*conversation));
      fmt::print(stderr, "storing {} keys in {}\n", options_.keys, contestant.name);
      Histogram ignored;
      AllKeys all(options_.keys);
      const Status stored =
          conversations_.back()->Run({RequestKind::kSet, options_.keys, kLoadDepth}, all, &ignored);
      if (!stored.ok()) return stored.WithContext(contestant.name);
    }
    return Status::Ok();
  }

  Result<Comparison> Compare(RequestKind kind, size_t depth) {
    Comparison comparison;
    comparison.kind = kind;
    comparison.depth = depth;
    std::vector<size_t> who;
    for (size_t i = 0; i < conversations_.size(); ++i) {
      const Contestant& contestant = options_.contestants[i];
      if (contestant.depth != 0 && contestant.depth != depth) continue;
      who.push_back(i);
      comparison.measured.emplace_back().contestant = &contestant;
    }
    auto requests = Calibrate(kind, depth, who);
    if (!requests.ok()) return requests.status();
    comparison.requests = *requests;
    for (uint64_t round = 0; round < options_.rounds; ++round) {
      fmt::print(stderr, "{}, {} in flight, round {} of {}\n", NameOf(kind), depth, round + 1,
                 options_.rounds);
      for (size_t i = 0; i < who.size(); ++i) {
        const size_t at = (i + round) % who.size();
        RandomKeys keys(options_.seed + round, options_.keys);
        const Work work{kind, *requests, depth};
        FARLEAF_RETURN_IF_ERROR(Measure(who[at], work, keys, &comparison.measured[at]));
      }
    }
    return comparison;
  }

 private:
  /// How many requests the slowest of them does in a round.
  Result<uint64_t> Calibrate(RequestKind kind, size_t depth, const std::vector<size_t>& who) {
    uint64_t least = UINT64_MAX;
    const uint64_t warm_up = kCalibrationRequests / depth * depth;
    for (const size_t i : who) {
      Histogram ignored;
      RandomKeys keys(options_.seed, options_.keys);
      const uint64_t begin_ns = clock_.NowNs();
      FARLEAF_RETURN_IF_ERROR(conversations_[i]->Run({kind, warm_up, depth}, keys, &ignored));
      const uint64_t took_ns = clock_.NowNs() - begin_ns;
      least =
          std::min(least, warm_up * options_.round_ms * kNsPerMs / std::max(took_ns, uint64_t{1}));
    }
    return std::max(least, kRequestsMin) / depth * depth + depth;
  }

  Status Measure(size_t i, const Work& work, KeySequence& keys, Measured* into) {
    const Contestant& contestant = options_.contestants[i];
    const auto before = ReadProcessCpu(contestant.process);
    if (!before.ok()) return before.status();
    const uint64_t begin_ns = clock_.NowNs();
    const Status done = conversations_[i]->Run(work, keys, &into->latency_ns);
    if (!done.ok()) return done.WithContext(contestant.name);
    const uint64_t took_ns = clock_.NowNs() - begin_ns;
    const auto after = ReadProcessCpu(contestant.process);
    if (!after.ok()) return after.status();
    const auto requests = static_cast<double>(work.requests);
    into->cpu_us.push_back(static_cast<double>(after->total_ns - before->total_ns) / 1e3 /
                           requests);
    into->requests.push_back(requests * 1e9 / static_cast<double>(took_ns));
    into->user_ns += after->user_ns - before->user_ns;
    into->kernel_ns += after->kernel_ns - before->kernel_ns;
    return Status::Ok();
  }

  const ContestOptions& options_;
  const MonotonicClock clock_;
  std::vector<std::unique_ptr<Conversation>> conversations_;
};

}  // namespace

const Measured* Comparison::Find(const std::string& name) const {
  const auto at = std::find_if(measured.begin(), measured.end(),
                               [&](const Measured& of) { return of.contestant->name == name; });
  return at == measured.end() ? nullptr : &*at;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double MedianRatio(const std::vector<double>& of, const std::vector<double>& to) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(of.size(), to.size()); ++i) ratios.push_back(of[i] / to[i]);
  return Median(std::move(ratios));
}

Result<std::vector<Comparison>> RunContest(const ContestOptions& options) {
  Contest contest(options);
  FARLEAF_RETURN_IF_ERROR(contest.Begin());
  std::vector<Comparison> comparisons;
  for (const RequestKind kind : {RequestKind::kGet, RequestKind::kSet}) {
    for (const size_t depth : options.depths) {
      auto comparison = contest.Compare(kind, depth);
      if (!comparison.ok()) return comparison.status();
      comparisons.push_back(std::move(*comparison));
    }
  }
  return comparisons;
}

}  // namespace farleaf::rivals
