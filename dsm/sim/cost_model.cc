#include "dsm/sim/cost_model.h"

namespace farleaf::dsm {

namespace {

constexpr CostModelField Integer(std::string_view key, uint64_t CostModel::*field, double min,
                                 double max) {
  return {.key = key, .integer = field, .min = min, .max = max};
}
constexpr CostModelField Ns(std::string_view key, double CostModel::*field) {
  return {.key = key, .number = field, .min = 0, .max = 1e9};
}
constexpr CostModelField Rate(std::string_view key, double CostModel::*field) {
  return {.key = key, .number = field, .min = 1e-6, .max = 1e6};
}
constexpr CostModelField NsPerByte(std::string_view key, double CostModel::*field) {
  return {.key = key, .number = field, .min = 0, .max = 1e3};
}

constexpr CostModelField kFields[] = {
    Integer("machine.memory_servers", &CostModel::memory_servers, 1, 64),
    Integer("machine.compute_servers", &CostModel::compute_servers, 1, 256),
    Integer("machine.shared_hosts", &CostModel::shared_hosts, 0, 1),
    Integer("machine.cores", &CostModel::cores, 1, 1024),
    Ns("latency.request_ns", &CostModel::request_ns),
    Ns("latency.wire_ns", &CostModel::wire_ns),
    Ns("latency.read_ns", &CostModel::read_ns),
    Ns("latency.write_ns", &CostModel::write_ns),
    Ns("latency.atomic_ns", &CostModel::atomic_ns),
    Ns("latency.device_atomic_ns", &CostModel::device_atomic_ns),
    Ns("latency.reply_ns", &CostModel::reply_ns),
    Ns("latency.jitter_ns_max", &CostModel::jitter_ns_max),
    Rate("nic.request_rate_mps", &CostModel::request_rate_mps),
    Rate("nic.read_rate_mps", &CostModel::read_rate_mps),
    Rate("nic.write_rate_mps", &CostModel::write_rate_mps),
    Rate("nic.atomic_rate_mps", &CostModel::atomic_rate_mps),
    Integer("nic.atomic_slot_bits", &CostModel::atomic_slot_bits, 3, 48),
    Rate("nic.bandwidth_gbps", &CostModel::bandwidth_gbps),
    Integer("nic.header_bytes", &CostModel::header_bytes, 0, 4096),
    Integer("nic.device_memory_bytes", &CostModel::device_memory_bytes, 0, 1 << 20),
    Ns("cpu.operation_ns", &CostModel::operation_ns),
    Ns("cpu.post_ns", &CostModel::post_ns),
    Ns("cpu.verb_ns", &CostModel::verb_ns),
    Ns("cpu.complete_ns", &CostModel::complete_ns),
    NsPerByte("cpu.read_byte_ns", &CostModel::read_byte_ns),
    NsPerByte("cpu.write_byte_ns", &CostModel::write_byte_ns),
    Ns("cpu.handover_ns", &CostModel::handover_ns),
};

}  // namespace

std::span<const CostModelField> CostModelFields() { return kFields; }

void BatchLoad::Clear() {
  reads = writes = 0;
  bytes_out = bytes_in = 0;
  atomics.clear();
}

}  // namespace farleaf::dsm
