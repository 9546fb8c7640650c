#include "benchmark/simulated/program_costs.h"

namespace farleaf::ycsb {

namespace {

using Kind = ProgramVerb::Kind;

void AddVerb(const VerbProgram& program, const ProgramVerb& verb, double leaves,
             ProgramCosts* costs) {
  const double times = verb.place == ProgramVerb::Place::kLeaves ? leaves : 1;
  switch (verb.kind) {
    case Kind::kRead:
      costs->reads += times;
      costs->bytes_read += times * verb.asked_bytes;
      costs->bytes_read_moved += times * verb.bytes;
      return;
    case Kind::kUnlock:
      if (program.lock_owned) return;
      [[fallthrough]];
    case Kind::kWrite:
      costs->writes += times;
      costs->bytes_written += times * verb.asked_bytes;
      costs->bytes_written_moved += times * verb.bytes;
      return;
    case Kind::kLock:
      if (program.lock_owned) return;
      [[fallthrough]];
    case Kind::kShare:
    case Kind::kUnshare:
    case Kind::kSwap:
    case Kind::kAdd:
      costs->atomics += 1;
      return;
  }
}

ProgramCosts CostsOfSteps(const VerbProgram& program, const std::vector<ProgramStep>& steps,
                          bool skewed, double leaves) {
  ProgramCosts sum;
  double before = 1;  // the chance that the round trip before is taken
  for (const ProgramStep& step : steps) {
    const double chance = step.otherwise ? 1 - before : skewed ? step.chance_skewed : step.chance;
    before = chance;
    ProgramCosts one;
    for (const ProgramVerb& verb : step.verbs) AddVerb(program, verb, leaves, &one);
    one.round_trips = one.reads + one.writes + one.atomics > 0 ? 1 : 0;
    sum.Add(one, chance * (step.per_leaf ? leaves : step.times));
  }
  return sum;
}

}  // namespace

ProgramCosts& ProgramCosts::Add(const ProgramCosts& other, double times) {
  round_trips += times * other.round_trips;
  reads += times * other.reads;
  writes += times * other.writes;
  atomics += times * other.atomics;
  bytes_read += times * other.bytes_read;
  bytes_written += times * other.bytes_written;
  bytes_read_moved += times * other.bytes_read_moved;
  bytes_written_moved += times * other.bytes_written_moved;
  return *this;
}

uint64_t LeavesOfScan(const VerbProgram& program, uint64_t scan_length, uint64_t first) {
  return 1 + (scan_length + first % program.leaf_entries) / program.leaf_entries;
}

ProgramCosts CostsOf(const VerbProgram& program, const CostCase& of) {
  double leaves = 1;
  if (of.kind == OpKind::kScan) {
    leaves = 0;
    for (uint64_t first = 0; first < program.leaf_entries; ++first) {
      leaves +=
          static_cast<double>(LeavesOfScan(program, of.scan_length, first)) / program.leaf_entries;
    }
  }
  ProgramCosts costs =
      CostsOfSteps(program, program.steps[static_cast<size_t>(of.kind)], of.skewed, leaves);
  if (of.kind == OpKind::kInsert && program.split_every > 0) {
    costs.Add(CostsOfSteps(program, program.split, of.skewed, leaves), 1 / program.split_every);
  }
  return costs;
}

}  // namespace farleaf::ycsb
