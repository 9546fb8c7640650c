#include "benchmark/ycsb/operations.h"

#include <algorithm>

#include "benchmark/ycsb/scan_rows.h"
#include "dsm/base/check.h"

namespace farleaf::ycsb {

namespace {

constexpr int kDrawsMax = 1000;

}  // namespace

OperationGenerator::OperationGenerator(PhaseState* phase, const GeneratorOptions& options)
    : phase_(*phase),
      run_(phase->run),
      workload_(phase->run.options),
      options_(options),
      random_(Mix64(options.seed) +
              Mix64(options.thread * 4 + static_cast<uint64_t>(options.mix))) {
  if (options.series_interval_ns > 0) intervals_.emplace(options.series_interval_ns);
  if (options.mix != Mix::kRun) return;
  if (options.trace) {
    player_.emplace(options.trace, &run_.codec,
                    TracePlayerOptions{.thread = options.thread,
                                       .interval_ns = options.interval_ns,
                                       .own_values = workload_.trace_own_values,
                                       .stop = &phase_.stop});
    return;
  }
  double sum = 0;
  for (size_t i = 0; i < kOpKinds; ++i) {
    sum += workload_.proportions[i];
    cumulative_[i] = sum;
  }
  for (double& bound : cumulative_) bound /= sum;
  const uint64_t first = workload_.insert_start;
  if (workload_.request_distribution == RequestDistribution::kZipfian) {
    zipfian_.emplace(first, workload_.key_space_end() - first, workload_.zipfian_ranks);
  } else if (workload_.request_distribution == RequestDistribution::kLatest) {
    FARLEAF_CHECK(options.latest);
    latest_ = *options.latest;
  } else if (workload_.request_distribution == RequestDistribution::kHotSpot ||
             workload_.request_distribution == RequestDistribution::kShiftingHotSpot) {
    hot_spot_.emplace(HotSpotOptions{.first = first,
                                     .count = workload_.insert_count,
                                     .data_fraction = workload_.hot_data_fraction,
                                     .operation_fraction = workload_.hot_operation_fraction});
  } else if (workload_.request_distribution == RequestDistribution::kExponential) {
    exponential_.emplace(
        workload_.exponential_percentile,
        static_cast<double>(workload_.record_count) * workload_.exponential_fraction);
  }
  next_sequential_ = workload_.insert_count * options.thread / options.threads;
  if (workload_.scan_length_distribution == ScanLengthDistribution::kZipfian) {
    scan_lengths_.emplace(workload_.scan_length_max - workload_.scan_length_min + 1);
  }
}

OpKind OperationGenerator::ChooseKind() {
  if (options_.mix == Mix::kLoad) return OpKind::kInsert;
  if (options_.mix == Mix::kWarmup) return OpKind::kRead;
  const double u = random_.Uniform();
  for (size_t i = 0; i < kOpKinds; ++i) {
    if (u < cumulative_[i]) return static_cast<OpKind>(i);
  }
  // Rounding put u behind the last bound: the last kind that occurs.
  size_t last = kOpKinds - 1;
  while (last > 0 && workload_.proportions[last] == 0) --last;
  return static_cast<OpKind>(last);
}

uint64_t OperationGenerator::ChooseNumber() {
  const uint64_t first = workload_.insert_start, count = workload_.insert_count;
  if (options_.mix == Mix::kWarmup) return first + random_.Below(count);
  switch (workload_.request_distribution) {
    case RequestDistribution::kUniform:
      return first + random_.Below(count);
    case RequestDistribution::kSequential:
      return first + next_sequential_++ % count;
    case RequestDistribution::kLatest: {
      const uint64_t end = run_.inserts.end();
      latest_->Grow(end - first);
      return end - 1 - latest_->Next(random_);
    }
    case RequestDistribution::kHotSpot:
      return hot_spot_->Next(random_);
    case RequestDistribution::kShiftingHotSpot:
      return hot_spot_->Next(random_, turn() / workload_.hot_shift_operations);
    case RequestDistribution::kExponential:
      return ChooseExponential();
    case RequestDistribution::kZipfian:
      break;
  }
  // As in YCSB, numbers not inserted yet are drawn again; but where they are nearly all of the key
  // space (many more inserts to come than records loaded), the last draw is folded instead.
  const uint64_t end = run_.inserts.end();
  uint64_t number = zipfian_->Next(random_);
  for (int draws = 1; number >= end && draws < kDrawsMax; ++draws) number = zipfian_->Next(random_);
  return number < end ? number : first + (number - first) % (end - first);
}

uint64_t OperationGenerator::ChooseExponential() {
  // As in YCSB, ages beyond the oldest record are drawn again.
  const uint64_t end = run_.inserts.end(), count = end - workload_.insert_start;
  uint64_t age = exponential_->Next(random_);
  for (int draws = 1; age >= count && draws < kDrawsMax; ++draws) age = exponential_->Next(random_);
  return end - 1 - age % count;
}

uint64_t OperationGenerator::ChooseScanLength() {
  const uint64_t min = workload_.scan_length_min;
  if (scan_lengths_) return min + scan_lengths_->Next(random_);
  return min + random_.Below(workload_.scan_length_max - min + 1);
}

std::string OperationGenerator::Describe(const Operation& operation) const {
  const std::string place =
      player_ ? options_.trace->file + " line " + std::to_string(operation.trace_line)
              : "number " + std::to_string(operation.key_number);
  return std::string(OpKindName(operation.kind)) + " of key " + Printable(operation.key) + " (" +
         place + ")";
}

bool OperationGenerator::Next(Operation* operation) {
  if (issued_ >= options_.operations || stopped()) return false;
  if (!player_) {
    MakeChosen(operation);
  } else if (!MakeTraced(operation)) {
    return false;
  }
  operation->counts = &stats_[static_cast<size_t>(operation->kind)].fabric;
  ++issued_;
  return true;
}

bool OperationGenerator::MakeTraced(Operation* operation) {
  const auto made = player_->Next(phase_.start_ns.load(std::memory_order_relaxed), operation);
  if (!made.ok()) Fail(made.status().ToString());
  return made.ok() && *made;
}

bool OperationGenerator::Blocked(const Operation& operation) const {
  return player_ && player_->Blocked(operation);
}

void OperationGenerator::MakeChosen(Operation* operation) {
  operation->kind = ChooseKind();
  if (options_.mix == Mix::kLoad) {
    operation->key_number = options_.first_number + issued_;
  } else if (operation->kind == OpKind::kInsert) {
    operation->key_number = run_.inserts.Take();
  } else {
    operation->key_number = ChooseNumber();
  }
  run_.codec.MakeKey(operation->key_number, &operation->key);
  if (operation->kind == OpKind::kInsert || operation->kind == OpKind::kUpdate) {
    const uint64_t version = options_.mix == Mix::kLoad ? 0 : random_.Next();
    run_.codec.MakeValue(operation->key, operation->key_number, version, &operation->value);
  } else if (operation->kind == OpKind::kScan) {
    operation->scan_length = ChooseScanLength();
  }
  operation->due_ns = 0;
  if (options_.interval_ns > 0) {
    operation->due_ns = phase_.start_ns.load(std::memory_order_relaxed) +
                        static_cast<uint64_t>(static_cast<double>(turn()) * options_.interval_ns);
  }
}

bool OperationGenerator::Begin(Operation* operation) {
  if (stopped()) return false;
  operation->found = false;
  if (operation->kind == OpKind::kScan) operation->present_end = run_.inserts.end();
  const uint64_t now_ns = run_.clock.NowNs();
  operation->start_ns = operation->due_ns != 0 ? operation->due_ns : now_ns;
  operation->deadline_ns = now_ns + workload_.operation_timeout_ms * kNsPerMs;
  return true;
}

bool OperationGenerator::Modify(const Operation& operation, std::string_view current,
                                std::string* replacement) {
  if (player_) return player_->Modify(operation, current, replacement);
  if (run_.codec.Check(operation.key, current)) return false;
  run_.codec.MakeValue(operation.key, operation.key_number, run_.codec.VersionOf(current) + 1,
                       replacement);
  return true;
}

Return OperationGenerator::Classify(const Operation& operation) {
  if (!operation.status.ok()) return ReturnOf(operation.status.code());
  if (operation.kind == OpKind::kInsert) return operation.found ? Return::kExists : Return::kOk;
  if (operation.kind == OpKind::kScan) return Return::kOk;
  return operation.found ? Return::kOk : Return::kNotFound;
}

void OperationGenerator::Done(const Operation& operation) {
  const uint64_t now_ns = run_.clock.NowNs();
  if (player_) player_->Ended(operation);
  KindStats& stats = stats_[static_cast<size_t>(operation.kind)];
  const Return returned = Classify(operation);
  ++stats.returns[static_cast<size_t>(returned)];
  gaps_.Complete(now_ns);
  done_.store(done_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const bool is_insert = operation.kind == OpKind::kInsert;
  std::optional<uint64_t> latency_ns;
  if (IsError(returned)) {
    if (is_insert) run_.insert_failed.store(true, std::memory_order_relaxed);
    phase_.problems.Add(Describe(operation) + ": " + operation.status.ToString());
    if (!workload_.allow_errors) {
      phase_.failed.store(true, std::memory_order_relaxed);
      phase_.stop.store(true, std::memory_order_relaxed);
    }
  } else {
    latency_ns = now_ns > operation.start_ns ? now_ns - operation.start_ns : 0;
    stats.latency_ns.Record(*latency_ns);
    if (operation.kind == OpKind::kScan) stats.rows += operation.rows.size();
    if (operation.answered) CountUserBytes(operation, &stats);
    auto problem = operation.answered ? FindProblem(operation) : std::nullopt;
    if (problem) Fail(Describe(operation) + ": " + *problem);
  }
  if (intervals_) {
    const uint64_t start_ns = phase_.start_ns.load(std::memory_order_relaxed);
    intervals_->Record(operation.kind, now_ns - start_ns, latency_ns);
  }
  if (is_insert && options_.mix == Mix::kRun && !player_) {
    run_.inserts.Acknowledge(operation.key_number);
  }
}

void OperationGenerator::CountUserBytes(const Operation& operation, KindStats* stats) const {
  const uint64_t key_bytes = operation.key.size();
  switch (operation.kind) {
    case OpKind::kRead:
      if (operation.found) stats->user_bytes_read += key_bytes + operation.found_value.size();
      return;
    case OpKind::kInsert:
      if (!operation.found) stats->user_bytes_written += key_bytes + operation.value.size();
      return;
    case OpKind::kUpdate:
      if (operation.found) stats->user_bytes_written += key_bytes + operation.value.size();
      return;
    case OpKind::kScan:
      for (const index::KeyValue& row : operation.rows) {
        stats->user_bytes_read += row.key.size() + row.value.size();
      }
      return;
    case OpKind::kReadModifyWrite:
      if (!operation.found) return;
      stats->user_bytes_read += key_bytes + operation.found_value.size();
      stats->user_bytes_written +=
          key_bytes + (player_ ? operation.value.size() : run_.codec.ValueBytes(operation.key));
      return;
  }
}

void OperationGenerator::Fail(std::string problem) {
  phase_.problems.Add(std::move(problem));
  phase_.failed.store(true, std::memory_order_relaxed);
  phase_.stop.store(true, std::memory_order_relaxed);
}

bool OperationGenerator::MustBePresent(uint64_t number, uint64_t present_end) const {
  if (run_.insert_failed.load(std::memory_order_relaxed)) return false;
  const uint64_t first = workload_.insert_start;
  if (number >= first && number < first + workload_.insert_count) return true;
  return number >= workload_.record_count && number < present_end;
}

std::optional<std::string> OperationGenerator::FindProblem(const Operation& operation) {
  if (player_) return player_->FindProblem(operation);
  switch (operation.kind) {
    case OpKind::kScan:
      return FindScanProblem(operation);
    case OpKind::kInsert:
      if (operation.found && options_.mix == Mix::kLoad && !workload_.allow_errors) {
        return "the key is there already: load into an empty tree (-p farleaf.tree=NAME names "
               "another)";
      }
      return std::nullopt;
    default:
      break;
  }
  if (!operation.found) {
    if (run_.insert_failed.load(std::memory_order_relaxed)) return std::nullopt;
    return "expected a value, found none: the key must be there (is recordcount the number of "
           "records loaded?)";
  }
  if (operation.kind == OpKind::kUpdate) return std::nullopt;
  return run_.codec.Check(operation.key, operation.found_value);
}

std::optional<std::string> OperationGenerator::FindScanProblem(const Operation& operation) const {
  const auto& rows = operation.rows;
  if (rows.size() > operation.scan_length) {
    return "expected at most " + std::to_string(operation.scan_length) + " rows, found " +
           std::to_string(rows.size());
  }
  const bool starts_right = !rows.empty() && rows.front().key == operation.key;
  if (!starts_right && !run_.insert_failed.load(std::memory_order_relaxed)) {
    return "expected its first row to be that key, found " +
           (rows.empty() ? "no row" : Printable(rows.front().key));
  }
  auto problem = FindRowProblem(operation, [this](std::string_view key, std::string_view value) {
    return run_.codec.Check(key, value);
  });
  if (problem) return problem;
  return FindGap(operation);
}

std::optional<std::string> OperationGenerator::FindGap(const Operation& operation) const {
  // Only where keys sort like their numbers is it known which key comes next.
  if (!run_.codec.NumberOfOrderedKey(operation.key)) return std::nullopt;
  uint64_t expected = operation.key_number;
  for (const index::KeyValue& row : operation.rows) {
    const uint64_t found = run_.codec.NumberOfOrderedKey(row.key).value_or(expected);
    if (found > expected && MustBePresent(expected, operation.present_end)) {
      return "expected key number " + std::to_string(expected) + " next, found " +
             std::to_string(found);
    }
    expected = found + 1;
  }
  if (operation.rows.size() < operation.scan_length &&
      MustBePresent(expected, operation.present_end)) {
    return "expected key number " + std::to_string(expected) + " next, found the end after " +
           std::to_string(operation.rows.size()) + " rows";
  }
  return std::nullopt;
}

}  // namespace farleaf::ycsb
