// Probes: rare paths of the product, and how often runs took them. A set of runs that never takes one of
// them proves nothing about it.
//
// Thread rule: pure functions over plain values.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "index/blink/tree.h"

namespace farleaf::simulation {

struct Probe {
  std::string_view name;
  std::atomic<uint64_t> index::TreeStats::*counter;  ///< null: a RunProbe
};

/// What is not counted by a tree.
enum class RunProbe : uint8_t { kRecoveredBeside, kClaimTakenOver };

std::span<const Probe> Probes();
inline constexpr size_t kProbesMax = 64;

/// Hits, by the number of the probe.
struct ProbeCounts {
  std::array<uint64_t, kProbesMax> hits{};
  std::array<uint64_t, kProbesMax> runs{};  ///< with a hit

  void AddTree(const index::TreeStats& stats);
  void AddRun(RunProbe probe, uint64_t count);
  /// Behind the last AddTree of a run.
  void EndRun();
  void Add(const ProbeCounts& other);
  /// A line a probe.
  std::string Table() const;
  /// The names of those that were never hit, joined by commas.
  std::string Missed() const;
};

}  // namespace farleaf::simulation
