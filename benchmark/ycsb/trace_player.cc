#include "benchmark/ycsb/trace_player.h"

#include <algorithm>

#include "benchmark/ycsb/scan_rows.h"

namespace farleaf::ycsb {

TracePlayer::TracePlayer(const TraceSummary* trace, const RecordCodec* codec,
                         const TracePlayerOptions& options)
    : trace_(*trace), values_(codec), options_(options) {}

Status TracePlayer::Changed() const {
  return Status::InvalidArgument("trace " + trace_.file + " has changed since it was checked");
}

Result<bool> TracePlayer::Next(uint64_t start_ns, Operation* operation) {
  if (!reader_) {
    auto reader = TraceReader::Open(trace_.file, trace_.format);
    if (!reader.ok()) return reader.status();
    reader_ = std::move(*reader);
  }
  uint64_t hash = 0;
  do {
    if (options_.stop && options_.stop->load(std::memory_order_relaxed)) return false;
    auto more = reader_->Next(&next_);
    if (!more.ok()) return more.status();
    if (!*more || next_.at_us.has_value() != trace_.timed) return Changed();
    hash = TraceKeyHash(next_.key);
  } while (TraceThread(hash, trace_.of_thread.size()) != options_.thread);
  operation->kind = next_.kind;
  operation->key = next_.key;
  operation->key_number = hash;
  operation->trace_line = next_.line;
  operation->scan_length = next_.rows;
  operation->value.clear();
  if (next_.kind != OpKind::kRead && next_.kind != OpKind::kScan) {
    values_.Make(next_.key, next_.line, next_.value_bytes, &operation->value);
  }
  operation->due_ns = 0;
  // Time 0 of a clock would mean that it is due at no time.
  if (next_.at_us) {
    operation->due_ns = std::max<uint64_t>(start_ns + *next_.at_us * kNsPerUs, 1);
  } else if (options_.interval_ns > 0) {
    const double after_ns = static_cast<double>(next_.index) * options_.interval_ns;
    operation->due_ns = std::max<uint64_t>(start_ns + static_cast<uint64_t>(after_ns), 1);
  }
  running_.emplace(hash, next_.line);
  return true;
}

bool TracePlayer::Blocked(const Operation& operation) const {
  const auto first_of_key = running_.lower_bound({operation.key_number, 0});
  return first_of_key != running_.end() && first_of_key->first == operation.key_number &&
         first_of_key->second < operation.trace_line;
}

void TracePlayer::Ended(const Operation& operation) {
  running_.erase({operation.key_number, operation.trace_line});
}

bool TracePlayer::Modify(const Operation& operation, std::string_view current,
                         std::string* replacement) const {
  std::string problem;
  const ValueOrigin origin = values_.Check(operation.key, current, &problem);
  if (origin == ValueOrigin::kDamaged) return false;
  if (origin == ValueOrigin::kForeign && options_.own_values) return false;
  *replacement = operation.value;
  return true;
}

std::optional<std::string> TracePlayer::FindProblem(const Operation& operation) {
  if (operation.kind == OpKind::kScan) return FindScanProblem(operation);
  const bool reads =
      operation.kind == OpKind::kRead || operation.kind == OpKind::kReadModifyWrite;
  if (!reads || !operation.found) return std::nullopt;
  return FindValueProblem(operation.key, operation.found_value);
}

std::optional<std::string> TracePlayer::FindValueProblem(std::string_view key,
                                                         std::string_view value) {
  std::string problem;
  const ValueOrigin origin = values_.Check(key, value, &problem);
  if (origin == ValueOrigin::kOwn) return std::nullopt;
  if (origin == ValueOrigin::kDamaged || options_.own_values) return problem;
  ++unverified_;
  return std::nullopt;
}

std::optional<std::string> TracePlayer::FindScanProblem(const Operation& operation) {
  const auto& rows = operation.rows;
  if (rows.size() > operation.scan_length) {
    return "expected at most " + std::to_string(operation.scan_length) + " rows, found " +
           std::to_string(rows.size());
  }
  return FindRowProblem(operation, [this](std::string_view key, std::string_view value) {
    return FindValueProblem(key, value);
  });
}

}  // namespace farleaf::ycsb
