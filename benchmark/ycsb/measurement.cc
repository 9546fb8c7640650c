#include "benchmark/ycsb/measurement.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace farleaf::ycsb {

std::string ReturnName(Return value) {
  if (value == Return::kOk) return "OK";
  if (value == Return::kNotFound) return "NOT_FOUND";
  if (value == Return::kExists) return "EXISTS";
  const auto code = static_cast<size_t>(value) - static_cast<size_t>(Return::kFirstError);
  std::string name;
  for (char c : StatusCodeName(static_cast<StatusCode>(code))) {
    name += std::isalnum(static_cast<unsigned char>(c))
                ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
                : '_';
  }
  return name;
}

uint64_t KindStats::operations() const {
  return std::accumulate(returns.begin(), returns.end(), uint64_t{0});
}

uint64_t KindStats::errors() const {
  return std::accumulate(returns.begin() + static_cast<size_t>(Return::kFirstError), returns.end(),
                         uint64_t{0});
}

void KindStats::Merge(const KindStats& other) {
  latency_ns.Merge(other.latency_ns);
  fabric += other.fabric;
  for (size_t i = 0; i < kReturns; ++i) returns[i] += other.returns[i];
  rows += other.rows;
  user_bytes_read += other.user_bytes_read;
  user_bytes_written += other.user_bytes_written;
}

uint64_t PhaseResult::operations() const {
  uint64_t sum = 0;
  for (const KindStats& kind : kinds) sum += kind.operations();
  return sum;
}

uint64_t PhaseResult::user_bytes_read() const {
  uint64_t sum = 0;
  for (const KindStats& kind : kinds) sum += kind.user_bytes_read;
  return sum;
}

uint64_t PhaseResult::user_bytes_written() const {
  uint64_t sum = 0;
  for (const KindStats& kind : kinds) sum += kind.user_bytes_written;
  return sum;
}

uint64_t PhaseResult::longest_latency_ns() const {
  uint64_t longest = 0;
  for (const KindStats& kind : kinds) longest = std::max(longest, kind.latency_ns.max());
  return longest;
}

uint64_t PhaseResult::errors() const {
  uint64_t sum = 0;
  for (const KindStats& kind : kinds) sum += kind.errors();
  return sum;
}

}  // namespace farleaf::ycsb
