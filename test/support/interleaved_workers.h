// InterleavedWorkers: several workers of one process on this thread, whose turns a seed decides, under a clock that
// moves with each turn and jumps to what is due when nobody has anything to do. A run repeats exactly.
//
//   InterleavedWorkers workers({.seed = seed, .workers = 3});
//   SimStorage disk({.seed = seed, .clock = &workers.clock()});
//   workers[1].Spawn(Compaction(workers[1], disk));      // in the background
//   workers[0].Spawn(Puts(workers[0], disk));
//   EXPECT_EQ(workers.RunWhile([&] { return workers[0].spawned() > 0 && !disk.stopped(); }), RunEnd::kDone);
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/random.h"
#include "dsm/null_transport.h"
#include "dsm/worker.h"

namespace farleaf::test {

class InterleavedWorkers {
 public:
  struct Options {
    uint64_t seed = 1;
    size_t workers = 2;
    uint64_t turn_ns_max = 600;
  };
  explicit InterleavedWorkers(const Options& options) : options_(options), random_(options.seed) {
    for (size_t i = 0; i < options.workers; ++i) {
      workers_.push_back(std::make_unique<dsm::Worker>(
          dsm::Worker::Deps{.transport = std::make_unique<dsm::NullTransport>(),
                            .epochs = &epochs_,
                            .clock = &clock_,
                            .seed = random_.Next()}));
    }
  }

  dsm::Worker& operator[](size_t i) { return *workers_[i]; }
  ManualClock& clock() { return clock_; }
  Random& random() { return random_; }
  dsm::EpochDomain& epochs() { return epochs_; }

  enum class RunEnd : uint8_t {
    kDone,
    kStuck,  ///< nothing will ever happen again
  };
  /// Turns while `goes_on`.
  RunEnd RunWhile(const std::function<bool()>& goes_on) {
    for (auto& worker : workers_) worker->GoOnline();
    RunEnd end = RunEnd::kDone;
    while (goes_on() && end == RunEnd::kDone) {
      uint64_t due_ns = UINT64_MAX;
      for (auto& worker : workers_) due_ns = std::min(due_ns, worker->NextDueNs());
      if (due_ns == UINT64_MAX) {
        end = RunEnd::kStuck;
      } else {
        const uint64_t now_ns = clock_.NowNs();
        const uint64_t turn_ns = random_.Below(options_.turn_ns_max + 1);
        clock_.AdvanceNs(due_ns > now_ns + turn_ns ? due_ns - now_ns : turn_ns);
        workers_[random_.Below(workers_.size())]->RunOnce(dsm::Worker::Idle::kReturn);
      }
    }
    for (auto& worker : workers_) worker->GoOffline();
    return end;
  }
  /// Until no worker runs anything.
  RunEnd RunAll() {
    return RunWhile([this] {
      for (auto& worker : workers_) {
        if (worker->spawned() > 0) return true;
      }
      return false;
    });
  }
  /// The process has crashed: everything ends where it stands. REQUIRES: the storage's Crash came before.
  void Abandon() {
    for (auto& worker : workers_) worker->Abandon();
  }

 private:
  const Options options_;
  Random random_;
  ManualClock clock_;
  dsm::EpochDomain epochs_;
  std::vector<std::unique_ptr<dsm::Worker>> workers_;
};

}  // namespace farleaf::test
