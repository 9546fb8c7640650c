#include "benchmark/ycsb/workload.h"

#include <algorithm>

#include "benchmark/ycsb/record.h"

namespace farleaf::ycsb {

namespace {

constexpr uint64_t kRecordsMax = uint64_t{1} << 40;
constexpr std::string_view kZipfianRanks[] = {"ycsb", "records"};
constexpr std::string_view kRequestDistributions[] = {
    "zipfian", "uniform", "latest", "sequential", "hotspot", "shiftinghotspot", "exponential"};
constexpr std::string_view kScanDistributions[] = {"uniform", "zipfian"};
constexpr std::string_view kInsertOrders[] = {"hashed", "ordered"};
constexpr std::string_view kKeyLayouts[] = {"fixed8", "bytes"};
constexpr std::string_view kKvMixNames[] = {"none", "s", "m", "l", "sd", "md", "ld", "s40", "s80"};
constexpr std::string_view kFieldLengthDistributions[] = {"constant"};

template <typename Enum>
Enum EnumOf(std::string_view name, std::span<const std::string_view> names) {
  return static_cast<Enum>(std::find(names.begin(), names.end(), name) - names.begin());
}

/// Of a workload whose run phase is a trace.
void ReadTrace(PropertyReader& reader, WorkloadOptions* options) {
  options->trace_file = reader.Text("farleaf.trace", "");
  if (reader.Has("farleaf.trace") && options->trace_file.empty()) {
    reader.Refuse("farleaf.trace", "expected a file's name");
  }
  options->trace_own_values = reader.Flag("farleaf.trace_own_values", false);
}

void ReadCounts(PropertyReader& reader, WorkloadOptions* options) {
  // How many records there are before a trace need not be known.
  if (!options->trace_file.empty() && !reader.Has("recordcount")) {
    options->operation_count = reader.Integer("operationcount", 0, 0, UINT64_MAX >> 8);
    options->execution_time_s_max = reader.Integer("maxexecutiontime", 0, 0, 1'000'000);
    return;
  }
  options->record_count = reader.Integer("recordcount", 0, 1, kRecordsMax);
  if (options->record_count == 0) reader.Refuse("recordcount", "say how many records there are");
  options->operation_count = reader.Integer("operationcount", 0, 0, UINT64_MAX >> 8);
  options->insert_start = reader.Integer("insertstart", 0, 0, kRecordsMax);
  if (options->insert_start >= options->record_count) {
    reader.Refuse("insertstart", "must be below recordcount");
    return;
  }
  const uint64_t rest = options->record_count - options->insert_start;
  options->insert_count = reader.Integer("insertcount", rest, 1, rest);
  options->execution_time_s_max = reader.Integer("maxexecutiontime", 0, 0, 1'000'000);
}

/// A mix says all that there is to say of sizes: what else is said must agree.
void ReadKvMix(PropertyReader& reader, WorkloadOptions* options) {
  options->kv_mix = EnumOf<KvMix>(reader.Choice("farleaf.kvmix", "none", kKvMixNames), kKvMixNames);
  if (options->kv_mix == KvMix::kNone) return;
  if (!options->trace_file.empty()) {
    reader.Refuse("farleaf.kvmix", "farleaf.trace tells how large its values are");
  }
  const std::string mix = "farleaf.kvmix=" + std::string(KvMixName(options->kv_mix));
  if (options->key_layout != KeyLayout::kBytes) reader.Refuse("farleaf.keys", mix + " needs bytes");
  for (const char* name : {"fieldcount", "fieldlength"}) {
    if (reader.Has(name)) reader.Refuse(name, mix + " says how large a pair is");
  }
  if (options->zero_padding != kMixKeyDigits) {
    reader.Refuse("zeropadding",
                  mix + " needs keys of " + std::to_string(kMixKeyDigits) + " digits");
  }
}

void ReadRecords(PropertyReader& reader, WorkloadOptions* options) {
  const bool mixed = reader.Text("farleaf.kvmix", "none") != "none";
  options->key_layout = EnumOf<KeyLayout>(
      reader.Choice("farleaf.keys", mixed ? "bytes" : "fixed8", kKeyLayouts), kKeyLayouts);
  options->field_count = reader.Integer("fieldcount", 10, 1, 1'000'000);
  options->field_length = reader.Integer("fieldlength", 100, 1, 16 << 20);
  (void)reader.Choice("fieldlengthdistribution", "constant", kFieldLengthDistributions);
  // A record is one value: all its fields are always read and written.
  (void)reader.Flag("readallfields", true);
  (void)reader.Flag("writeallfields", true);
  (void)reader.Flag("dataintegrity", true);
  if (options->key_layout == KeyLayout::kBytes &&
      (options->value_bytes() < kValueHeaderBytes || options->value_bytes() > 16 << 20)) {
    reader.Refuse("fieldlength", "fieldcount x fieldlength must be from " +
                                     std::to_string(kValueHeaderBytes) + " to 16777216 bytes");
  }
  options->insert_order =
      EnumOf<InsertOrder>(reader.Choice("insertorder", "hashed", kInsertOrders), kInsertOrders);
  options->zero_padding = reader.Integer("zeropadding", mixed ? kMixKeyDigits : 1, 1, 64);
  ReadKvMix(reader, options);
}

void ReadHotSpot(PropertyReader& reader, WorkloadOptions* options) {
  options->hot_data_fraction = reader.Proportion("hotspotdatafraction", 0.2);
  options->hot_operation_fraction = reader.Proportion("hotspotopnfraction", 0.8);
  options->hot_shift_operations =
      reader.Integer("farleaf.hotspot_shift_operations", 0, 1, UINT64_MAX >> 8);
  options->exponential_percentile = reader.Number("exponential.percentile", 95, 0.001, 99.999);
  options->exponential_fraction = reader.Number("exponential.frac", 0.8571428571, 0, 1000);
  if (options->exponential_fraction == 0) reader.Refuse("exponential.frac", "must be above 0");
}

/// Whether there is a key for each operation of the run phase.
void CheckHotSpot(PropertyReader& reader, const WorkloadOptions& options) {
  const bool shifts = options.request_distribution == RequestDistribution::kShiftingHotSpot;
  if (!shifts && options.request_distribution != RequestDistribution::kHotSpot) return;
  const uint64_t count = options.insert_count;
  const uint64_t hot_count = HotSpot::HotCount(count, options.hot_data_fraction);
  if (hot_count == 0 && options.hot_operation_fraction > 0) {
    reader.Refuse("hotspotdatafraction", "no key of " + std::to_string(count) +
                                             " is hot: expected a larger fraction, or "
                                             "hotspotopnfraction=0");
  }
  if (hot_count == count && options.hot_operation_fraction < 1) {
    reader.Refuse("hotspotdatafraction",
                  "every key is hot: expected a smaller fraction, or hotspotopnfraction=1");
  }
  if (shifts && options.hot_shift_operations == 0) {
    reader.Refuse("farleaf.hotspot_shift_operations",
                  "requestdistribution=shiftinghotspot needs the number of operations after which "
                  "the hot spot moves on");
  }
}

void ReadMix(PropertyReader& reader, WorkloadOptions* options) {
  auto set = [&](OpKind kind, const char* name, double fallback) {
    options->proportions[static_cast<size_t>(kind)] = reader.Proportion(name, fallback);
  };
  set(OpKind::kRead, "readproportion", 0.95);
  set(OpKind::kUpdate, "updateproportion", 0.05);
  set(OpKind::kInsert, "insertproportion", 0);
  set(OpKind::kScan, "scanproportion", 0);
  set(OpKind::kReadModifyWrite, "readmodifywriteproportion", 0);
  options->request_distribution = EnumOf<RequestDistribution>(
      reader.Choice("requestdistribution", "uniform", kRequestDistributions),
      kRequestDistributions);
  ReadHotSpot(reader, options);
  options->zipfian_ranks =
      EnumOf<ZipfianRanks>(reader.Choice("farleaf.zipfian", "ycsb", kZipfianRanks), kZipfianRanks);
  options->scan_length_distribution = EnumOf<ScanLengthDistribution>(
      reader.Choice("scanlengthdistribution", "uniform", kScanDistributions), kScanDistributions);
  options->scan_length_min = reader.Integer("minscanlength", 1, 1, 1'000'000);
  options->scan_length_max = reader.Integer(
      "maxscanlength", std::max<uint64_t>(1000, options->scan_length_min), 1, 1'000'000);
  if (options->scan_length_max < options->scan_length_min) {
    reader.Refuse("maxscanlength",
                  "must not be below minscanlength=" + std::to_string(options->scan_length_min));
  }
}

}  // namespace

std::string_view OpKindName(OpKind kind) {
  constexpr std::string_view kNames[] = {"READ", "UPDATE", "INSERT", "SCAN", "READ-MODIFY-WRITE"};
  return kNames[static_cast<size_t>(kind)];
}

std::optional<OpKind> OpKindNamed(std::string_view name) {
  for (size_t i = 0; i < kOpKinds; ++i) {
    if (OpKindName(static_cast<OpKind>(i)) == name) return static_cast<OpKind>(i);
  }
  return std::nullopt;
}

std::string_view PhaseName(Phase phase) { return phase == Phase::kLoad ? "load" : "run"; }

std::string_view WorkloadOptions::request_distribution_name() const {
  if (!trace_file.empty()) return "trace";
  return kRequestDistributions[static_cast<size_t>(request_distribution)];
}

uint64_t WorkloadOptions::key_space_end() const {
  double sum = 0;
  for (double proportion : proportions) sum += proportion;
  const double insert_share = proportions[static_cast<size_t>(OpKind::kInsert)] / sum;
  const auto inserts = static_cast<uint64_t>(static_cast<double>(operation_count) * insert_share);
  return insert_start + insert_count + 2 * inserts;
}

Result<WorkloadOptions> ParseWorkload(const Properties& properties, bool has_run_phase,
                                      std::vector<std::string>* unknown) {
  PropertyReader reader(properties);
  WorkloadOptions options;
  const std::string workload = reader.Text("workload", "CoreWorkload");
  if (!workload.ends_with("CoreWorkload")) {
    reader.Refuse("workload", "only YCSB's CoreWorkload is known here");
  }
  ReadTrace(reader, &options);
  ReadCounts(reader, &options);
  ReadRecords(reader, &options);
  ReadMix(reader, &options);
  options.tree = reader.Text("farleaf.tree", reader.Text("table", "usertable"));
  if (options.tree.empty()) reader.Refuse("farleaf.tree", "a tree needs a name");
  options.allow_errors = reader.Flag("farleaf.allow_errors", false);
  options.operation_timeout_ms =
      reader.Integer("farleaf.operation_timeout_ms", 10'000, 1, 3'600'000);
  if (has_run_phase && options.trace_file.empty()) {
    if (options.operation_count == 0) {
      reader.Refuse("operationcount", "the run phase needs at least 1 operation");
    }
    double sum = 0;
    for (double proportion : options.proportions) sum += proportion;
    if (sum <= 0) reader.Refuse("readproportion", "all proportions are 0: nothing to run");
    CheckHotSpot(reader, options);
  }
  if (!reader.status().ok()) return reader.status();
  *unknown = reader.Unknown();
  return options;
}

}  // namespace farleaf::ycsb
