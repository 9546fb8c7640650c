#include "test/simulation/probes.h"

#include <fmt/format.h>

namespace farleaf::simulation {

namespace {

using Stats = index::TreeStats;

constexpr Probe kProbes[] = {
    {"node split", &Stats::splits},
    {"nodes merged", &Stats::merges},
    {"root grown", &Stats::roots_grown},
    {"root race: grown by another first", &Stats::root_races},
    {"root shrunk", &Stats::roots_shrunk},
    {"torn read repeated", &Stats::torn_reads},
    {"stale cache: hop", &Stats::hops},
    {"stale cache: forward from a dead node", &Stats::forwards},
    {"stale cache: node of elsewhere, descent again", &Stats::restarts},
    {"path read again from the root word", &Stats::path_refreshes},
    {"whole cache refreshed", &Stats::cache_refreshes},
    {"stale writer: locked page has split or died", &Stats::stale_locks},
    {"lock conflict", &Stats::lock_conflicts},
    {"redo slot waited for", &Stats::slot_waits},
    {"lock handed over", &Stats::handovers},
    {"lock left unresolved when connections broke", &Stats::locks_unresolved},
    {"unresolved lock let go", &Stats::locks_resolved},
    {"lock of a dead member taken over, or resolved", &Stats::locks_taken_over},
    {"take-over: nothing written under the lock", &Stats::dead_locks_without_record},
    {"take-over: redo record replayed", &Stats::redo_replays},
    {"take-over: merge finished", &Stats::dead_merges_finished},
    {"take-over: split published", &Stats::dead_splits_published},
    {"take-over: new or dying page voided", &Stats::dead_pages_voided},
    // Under way when a compute server crashed: of those that live, none is left at the end.
    {"second death: ahead of the taker's swap", &Stats::takeovers_copying},
    {"second death: behind the taker's swap", &Stats::takeovers_finishing},
    {"take-over: begun by a reader", &Stats::readers_recovered},
    {"publication: another had done it", &Stats::publications_done_by_others},
    {"publication across parents", &Stats::publications_across_parents},
    {"separator completed by who hopped", &Stats::separators_completed},
    {"separator deferred", &Stats::separators_deferred},
    {"merge given up", &Stats::merges_given_up},
    {"upkeep given up", &Stats::upkeep_given_up},
    {"torn value block", &Stats::torn_values},
    {"value block reused before it was read", &Stats::reused_values},
    {"value hint: the leaf names another block, or none", &Stats::stale_value_hints},
    {"value list: a scan wants other blocks than were guessed", &Stats::stale_listed_values},
    {"get answered by another's READ", &Stats::shared_reads},
    {"parted leaf: change made by another's holder", &Stats::combined},
    {"parted leaf: more parts read under the lock", &Stats::more_locked_parts},
    {"dead member recovered beside the workload", nullptr},
    {"recovery whose claimer had died at another", nullptr},
};
static_assert(std::size(kProbes) <= kProbesMax);
constexpr size_t kRunProbes = 2;  // the last ones, in the order of RunProbe
constexpr size_t kTreeProbes = std::size(kProbes) - kRunProbes;
static_assert(kProbes[kTreeProbes].counter == nullptr);

}  // namespace

std::span<const Probe> Probes() { return kProbes; }

void ProbeCounts::AddTree(const index::TreeStats& stats) {
  for (size_t i = 0; i < kTreeProbes; ++i) hits[i] += stats.*kProbes[i].counter;
}

void ProbeCounts::AddRun(RunProbe probe, uint64_t count) {
  hits[kTreeProbes + static_cast<size_t>(probe)] += count;
}

void ProbeCounts::EndRun() {
  for (size_t i = 0; i < std::size(kProbes); ++i) runs[i] += hits[i] > 0;
}

void ProbeCounts::Add(const ProbeCounts& other) {
  for (size_t i = 0; i < std::size(kProbes); ++i) {
    hits[i] += other.hits[i];
    runs[i] += other.runs[i];
  }
}

std::string ProbeCounts::Table() const {
  std::string table = fmt::format("  {:<48} {:>12} {:>10}\n", "probe", "hits", "in runs");
  for (size_t i = 0; i < std::size(kProbes); ++i) {
    table += fmt::format("  {:<48} {:>12} {:>10}\n", kProbes[i].name, hits[i], runs[i]);
  }
  return table;
}

std::string ProbeCounts::Missed() const {
  std::string missed;
  for (size_t i = 0; i < std::size(kProbes); ++i) {
    if (hits[i] == 0) missed += (missed.empty() ? "" : ", ") + std::string(kProbes[i].name);
  }
  return missed;
}

}  // namespace farleaf::simulation
