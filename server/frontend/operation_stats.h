// What a front end counts for each kind of operation, and its form as text.
//
// Thread rule: a value type with one owner; merge copies.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "client/protocol.h"
#include "dsm/base/histogram.h"
#include "dsm/fabric_counts.h"
#include "server/frontend/command_stats.h"
#include "server/metrics/metrics_text.h"

namespace farleaf::server {

/// One operation that has ended, or some that have ended alike.
struct OperationRecord {
  client::protocol::Opcode opcode;
  StatusCode code;
  uint64_t latency_ns;       ///< from the arrival of its request to its answer
  dsm::FabricCounts counts;  ///< of all of them
  uint64_t operations = 1;
};

class OperationStats {
 public:
  void Record(const OperationRecord& record) {
    Kind& kind = kinds_[IndexOf(record.opcode)];
    kind.count += record.operations;
    kind.failed += record.code != StatusCode::kOk ? record.operations : 0;
    kind.counts += record.counts;
    kind.latency_us.RecordMany(record.latency_ns / 1'000, record.operations);
  }
  void Merge(const OperationStats& other) {
    for (size_t i = 0; i < kinds_.size(); ++i) {
      kinds_[i].count += other.kinds_[i].count;
      kinds_[i].failed += other.kinds_[i].failed;
      kinds_[i].counts += other.kinds_[i].counts;
      kinds_[i].latency_us.Merge(other.kinds_[i].latency_us);
    }
  }
  uint64_t count(client::protocol::Opcode opcode) const { return kinds_[IndexOf(opcode)].count; }

  /// Lines `get.count 5`, of the kinds that occurred.
  void AppendTo(std::string* text) const;
  void AppendMetrics(MetricsText* out) const;
  /// One line for a log: "get 5 (1.00 round trips, p99 12 us), …".
  std::string Summary() const;

 private:
  using Opcode = client::protocol::Opcode;
  static constexpr std::array kOpcodes = {
      Opcode::kPing,          Opcode::kListTrees,  Opcode::kOpenTree, Opcode::kServerStats,
      Opcode::kGet,           Opcode::kMultiGet,   Opcode::kScan,     Opcode::kInsert,
      Opcode::kPut,           Opcode::kUpdate,     Opcode::kDelete,   Opcode::kDeleteIf,
      Opcode::kCompareAndSet, Opcode::kCreateTree, Opcode::kAdd,      Opcode::kSlowLog};
  static constexpr size_t IndexOf(Opcode opcode) {
    for (size_t i = 0; i < kOpcodes.size(); ++i) {
      if (kOpcodes[i] == opcode) return i;
    }
    return 0;
  }
  struct Kind {
    /// With latencies in the buckets of CommandCounts.
    CommandCounts Counts() const;
    uint64_t count = 0;
    uint64_t failed = 0;
    dsm::FabricCounts counts;
    Histogram latency_us;
  };
  std::array<Kind, kOpcodes.size()> kinds_;
};

}  // namespace farleaf::server
