// WorkloadOptions: what YCSB's core workload is told by its properties, checked.
//
// Thread rule: a value type, unchanged while threads read it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "benchmark/ycsb/distributions.h"
#include "benchmark/ycsb/kv_mix.h"
#include "benchmark/ycsb/properties.h"
#include "dsm/base/result.h"

namespace farleaf::ycsb {

enum class OpKind : uint8_t { kRead, kUpdate, kInsert, kScan, kReadModifyWrite };
inline constexpr size_t kOpKinds = 5;
/// As YCSB prints it.
std::string_view OpKindName(OpKind kind);
/// The kind of that name.
std::optional<OpKind> OpKindNamed(std::string_view name);

enum class Phase : uint8_t { kLoad, kRun };
std::string_view PhaseName(Phase phase);

enum class RequestDistribution : uint8_t {
  kZipfian,
  kUniform,
  kLatest,
  kSequential,
  kHotSpot,
  kShiftingHotSpot,
  kExponential
};
enum class ScanLengthDistribution : uint8_t { kUniform, kZipfian };
enum class InsertOrder : uint8_t { kHashed, kOrdered };
enum class KeyLayout : uint8_t { kFixed8, kBytes };

struct WorkloadOptions {
  uint64_t record_count = 0;
  uint64_t operation_count = 0;
  uint64_t insert_start = 0;
  uint64_t insert_count = 0;                   ///< records of the load phase
  std::array<double, kOpKinds> proportions{};  ///< by OpKind; they need not sum to 1
  RequestDistribution request_distribution = RequestDistribution::kUniform;
  double hot_data_fraction = 0.2, hot_operation_fraction = 0.8;
  /// kShiftingHotSpot: operations of all threads until the hot interval moves on by its length.
  uint64_t hot_shift_operations = 0;
  double exponential_percentile = 95;          ///< of requests are for the newest records:
  double exponential_fraction = 0.8571428571;  ///< of record_count
  ScanLengthDistribution scan_length_distribution = ScanLengthDistribution::kUniform;
  uint64_t scan_length_min = 1;
  uint64_t scan_length_max = 1000;
  uint64_t field_count = 10;
  uint64_t field_length = 100;
  InsertOrder insert_order = InsertOrder::kHashed;
  uint64_t zero_padding = 1;          ///< digits of a byte-string key's number, at least
  uint64_t execution_time_s_max = 0;  ///< 0: until operation_count
  KeyLayout key_layout = KeyLayout::kFixed8;
  KvMix kv_mix =
      KvMix::kNone;  ///< else of byte strings, and fieldcount and fieldlength say nothing
  ZipfianRanks zipfian_ranks = ZipfianRanks::kYcsb;
  std::string tree = "usertable";
  bool allow_errors = false;
  uint64_t operation_timeout_ms = 10'000;
  std::string trace_file;         ///< not empty: the run phase replays it
  bool trace_own_values = false;  ///< all that it may read has been written by this benchmark

  /// Without a mix.
  uint64_t value_bytes() const {
    return key_layout == KeyLayout::kFixed8 ? 8 : field_count * field_length;
  }
  /// Key numbers that the run phase may use are below this; as in YCSB, twice the inserts expected.
  uint64_t key_space_end() const;

  std::string_view request_distribution_name() const;
  std::string_view key_layout_name() const {
    return key_layout == KeyLayout::kFixed8 ? "fixed8" : "bytes";
  }
};

/// Reads every property; InvalidArgument names the property, its value and what was expected.
/// `unknown` receives the names of properties that mean nothing here.
Result<WorkloadOptions> ParseWorkload(const Properties& properties, bool has_run_phase,
                                      std::vector<std::string>* unknown);

}  // namespace farleaf::ycsb
