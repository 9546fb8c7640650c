#include "server/control/lsm_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace farleaf::server {

namespace {

using index::lsm::Entry;
using index::lsm::EntryKind;
using index::lsm::RunKind;
using index::lsm::StoreStats;
using Json = nlohmann::ordered_json;

double MiB(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

const char* NameOf(EntryKind kind) {
  return kind == EntryKind::kValue ? "value" : kind == EntryKind::kPointer ? "pointer" : "deleted";
}

/// 0: there is no data.
double SpaceAmplification(const StoreStats& stats) {
  return stats.data_bytes() == 0
             ? 0
             : static_cast<double>(stats.disk_bytes()) / static_cast<double>(stats.data_bytes());
}

/// 0: nothing was flushed yet.
double WriteAmplification(const index::lsm::WrittenBytes& written) {
  return written.user == 0
             ? 0
             : static_cast<double>(written.device()) / static_cast<double>(written.user);
}

void AddLevels(const StoreStats& stats, std::string* text) {
  *text += fmt::format("{:<6} {:<8} {:>7} {:>13} {:>11} {:>10} {:>10} {:>13}\n", "level", "run",
                       "tables", "entries", "deletes", "MiB", "data MiB", "range deletes");
  for (const StoreStats::RunStats& run : stats.runs) {
    *text += fmt::format("{:<6} {:<8} {:>7} {:>13} {:>11} {:>10.1f} {:>10.1f} {:>13}\n",
                         run.place.level + 1, NameOf(run.place.kind), run.tables, run.entries,
                         run.deletes, MiB(run.bytes()), MiB(run.content_bytes), run.range_deletes);
    if (run.cut_tables > 0) {
      *text += fmt::format("       {} of them cut: some of their entries do not count any more\n",
                           run.cut_tables);
    }
  }
  if (stats.runs.empty()) *text += "no tables\n";
}

void AddRecovery(const StoreStats& stats, std::string* text) {
  *text += fmt::format("recovery log  {} segments", stats.recovery_segments);
  if (!stats.recovery.ok()) {
    *text += fmt::format("; damaged: {}\n", stats.recovery.status().message());
    return;
  }
  *text +=
      fmt::format("; {} commits with {} changes ({:.1f} MiB) are to be replayed",
                  stats.recovery->commits, stats.recovery->changes, MiB(stats.recovery->bytes));
  *text += fmt::format(", up to {}; tables have all up to {}", stats.recovery->last,
                       stats.flushed_through);
  if (stats.recovery->gap) *text += "; behind that there is a gap, as a crash may leave it";
  *text += "\n";
}

void AddWritten(const index::lsm::WrittenBytes& written, std::string* text) {
  if (written.user == 0) {
    *text += "written       no memtable was flushed yet\n";
    return;
  }
  *text += fmt::format(
      "written       for {:.1f} MiB of keys and values flushed since the store was made: values "
      "{:.1f}, recovery log {:.1f}, flushes {:.1f}, merges {:.1f} MiB; write amplification "
      "{:.2f}\n",
      MiB(written.user), MiB(written.values), MiB(written.recovery), MiB(written.flushed),
      MiB(written.merged), WriteAmplification(written));
}

}  // namespace

std::string StatsText(const std::string& directory, const StoreStats& stats) {
  std::string text;
  AddLevels(stats, &text);
  text += fmt::format(
      "value log     {} segments, {:.1f} MiB: {:.1f} live, {:.1f} garbage, {:.1f} neither (not "
      "filled, or of nobody)\n",
      stats.value_segments, MiB(stats.value_bytes()), MiB(stats.value_live_bytes),
      MiB(stats.value_garbage_bytes), MiB(stats.value_other_bytes()));
  if (stats.value_segments_torn > 0) {
    text += fmt::format("              {} of them were being filled at a crash\n",
                        stats.value_segments_torn);
  }
  AddRecovery(stats, &text);
  text += fmt::format("manifest      {}: {} records, {} bytes", stats.manifest.name,
                      stats.manifest.records, stats.manifest.bytes);
  if (stats.manifest.unfinished_bytes > 0) {
    text += fmt::format(", the last {} of an unfinished one", stats.manifest.unfinished_bytes);
  }
  text += fmt::format("; store {:016x}, next segment {}\n", stats.epoch, stats.segments_end);
  text += fmt::format("space         {:.1f} MiB in {}: {} segments", MiB(stats.disk_bytes()),
                      directory, stats.segments);
  if (stats.unnamed_segments > 0) {
    text += fmt::format(" ({} of nobody, which go at the next start)", stats.unnamed_segments);
  }
  text += fmt::format(", {} free files\n", stats.free_files);
  text +=
      fmt::format("data          {:.1f} MiB of keys and values, with versions not merged away yet",
                  MiB(stats.data_bytes()));
  if (stats.data_bytes() > 0) {
    text += fmt::format("; space amplification {:.2f}", SpaceAmplification(stats));
  }
  text += "\n";
  AddWritten(stats.written, &text);
  // Filters spare it most of them.
  text += fmt::format("read          a get looks into at most {} {}, a leaf of each\n",
                      stats.runs.size(), stats.runs.size() == 1 ? "run" : "runs");
  return text;
}

std::string StatsJson(const StoreStats& stats) {
  Json levels = Json::array();
  for (const StoreStats::RunStats& run : stats.runs) {
    levels.push_back({{"level", run.place.level + 1},
                      {"run", NameOf(run.place.kind)},
                      {"tables", run.tables},
                      {"tables_cut", run.cut_tables},
                      {"entries", run.entries},
                      {"deletes", run.deletes},
                      {"expiring", run.expiring},
                      {"range_deletes", run.range_deletes},
                      {"bytes", run.bytes()},
                      {"content_bytes", run.content_bytes}});
    if (run.place.kind == RunKind::kFresh) levels.back()["through"] = run.place.through;
  }
  Json recovery = {{"segments", stats.recovery_segments},
                   {"flushed_through", stats.flushed_through}};
  if (stats.recovery.ok()) {
    recovery["commits"] = stats.recovery->commits;
    recovery["changes"] = stats.recovery->changes;
    recovery["bytes"] = stats.recovery->bytes;
    recovery["last"] = stats.recovery->last;
    recovery["gap"] = stats.recovery->gap;
  } else {
    recovery["damaged"] = stats.recovery.status().message();
  }
  const Json json = {{"levels", levels},
                     {"value_log",
                      {{"segments", stats.value_segments},
                       {"segments_torn", stats.value_segments_torn},
                       {"bytes", stats.value_bytes()},
                       {"live_bytes", stats.value_live_bytes},
                       {"garbage_bytes", stats.value_garbage_bytes},
                       {"other_bytes", stats.value_other_bytes()}}},
                     {"recovery_log", recovery},
                     {"manifest",
                      {{"file", stats.manifest.name},
                       {"records", stats.manifest.records},
                       {"bytes", stats.manifest.bytes},
                       {"unfinished_bytes", stats.manifest.unfinished_bytes},
                       {"epoch", stats.epoch},
                       {"segments_end", stats.segments_end}}},
                     {"space",
                      {{"segments", stats.segments},
                       {"segments_unnamed", stats.unnamed_segments},
                       {"free_files", stats.free_files},
                       {"bytes", stats.disk_bytes()},
                       {"data_bytes", stats.data_bytes()},
                       {"amplification", SpaceAmplification(stats)}}},
                     {"written",
                      {{"user_bytes", stats.written.user},
                       {"value_log_bytes", stats.written.values},
                       {"recovery_log_bytes", stats.written.recovery},
                       {"flushed_bytes", stats.written.flushed},
                       {"merged_bytes", stats.written.merged},
                       {"amplification", WriteAmplification(stats.written)}}},
                     {"runs_per_get_max", stats.runs.size()}};
  return json.dump();
}

std::string TableRowText(const index::lsm::ClosedStore::TableRow& row, TextForm form, bool is_new) {
  std::string text;
  if (is_new) {
    text += fmt::format("# level {} {}, table {}: {} entries, {} leaves, {} segments\n",
                        row.place.level + 1, NameOf(row.place.kind),
                        index::storage::Number(row.table.id()), row.table.entries, row.table.leaves,
                        row.table.segments.size());
  }
  const Entry& entry = row.entry;
  text +=
      fmt::format("{}\t{}\t{}", PrintBytes(entry.key, form), entry.sequence, NameOf(entry.kind));
  if (entry.kind == EntryKind::kValue) text += "\t" + PrintBytes(entry.value, form);
  if (entry.kind == EntryKind::kPointer) {
    text += fmt::format("\tsegment {} offset {}, {} bytes",
                        index::storage::Number(entry.pointer.segment), entry.pointer.offset,
                        entry.pointer.value_bytes);
  }
  if (entry.expires_ms != 0) text += fmt::format("\texpires {}", entry.expires_ms);
  if (row.cut) text += "\tcut";
  return text + "\n";
}

std::string TableRowJson(const index::lsm::ClosedStore::TableRow& row) {
  const Entry& entry = row.entry;
  std::string text = fmt::format(
      "{{\"level\":{},\"run\":\"{}\",\"table\":{},\"key\":{},\"sequence\":{},\"kind\":\"{}\"",
      row.place.level + 1, NameOf(row.place.kind), index::storage::Number(row.table.id()),
      JsonString(entry.key), entry.sequence, NameOf(entry.kind));
  if (entry.kind == EntryKind::kValue) text += ",\"value\":" + JsonString(entry.value);
  if (entry.kind == EntryKind::kPointer) {
    text += fmt::format(",\"segment\":{},\"offset\":{},\"value_bytes\":{}",
                        index::storage::Number(entry.pointer.segment), entry.pointer.offset,
                        entry.pointer.value_bytes);
  }
  if (entry.expires_ms != 0) text += fmt::format(",\"expires_ms\":{}", entry.expires_ms);
  return text + (row.cut ? ",\"cut\":true}\n" : "}\n");
}

}  // namespace farleaf::server
