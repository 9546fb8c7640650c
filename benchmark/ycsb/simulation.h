// Simulation: a target whose threads run in virtual time, all on the thread that calls it.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "benchmark/ycsb/target.h"
#include "dsm/base/clock.h"
#include "dsm/base/status.h"

namespace farleaf::ycsb {

class Simulation {
 public:
  enum class Pace : uint8_t {
    kFree,   ///< nothing takes time
    kTimed,  ///< everything takes what the cost model says
  };
  virtual ~Simulation() = default;

  /// Virtual time, also inside an operation.
  virtual const Clock& clock() const = 0;
  /// CPU time of the simulated threads.
  virtual uint64_t cpu_ns() const = 0;
  /// Simulated events so far.
  virtual uint64_t events() const = 0;
  /// Runs one simulated thread a source, each with `in_flight` operations at a time, until the
  /// sources have no more. `now_and_then` is called after every few thousand events.
  virtual Status Run(std::span<OperationSource* const> sources, uint64_t in_flight, Pace pace,
                     const std::function<void()>& now_and_then) = 0;
  /// What was simulated, and how busy it has been since the last call.
  virtual nlohmann::ordered_json Describe() = 0;
};

}  // namespace farleaf::ycsb
