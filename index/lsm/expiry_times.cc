#include "index/lsm/expiry_times.h"

#include <algorithm>

namespace farleaf::index::lsm {

void ExpiryTimes::Add(uint64_t expires_ms, uint64_t bytes) {
  const uint64_t number = expires_ms >> shift_;
  const auto at = std::ranges::lower_bound(spans_, number, {}, &Span::number);
  if (at != spans_.end() && at->number == number) {
    at->bytes += bytes;
    return;
  }
  spans_.insert(at, {number, bytes});
  while (spans_.size() > kSpansMax) Coarsen();
}

void ExpiryTimes::Coarsen() {
  ++shift_;
  std::vector<Span> longer;
  for (const Span& span : spans_) {
    const uint64_t number = span.number >> 1;
    if (longer.empty() || longer.back().number != number) longer.push_back({number, 0});
    longer.back().bytes += span.bytes;
  }
  spans_ = std::move(longer);
}

uint64_t ExpiryTimes::ExpiredBytes(uint64_t now_ms) const {
  uint64_t bytes = 0;
  for (const Span& span : spans_) {
    const uint64_t last_ms = span.number << shift_ | ((uint64_t{1} << shift_) - 1);
    if (last_ms > now_ms) break;
    bytes += span.bytes;
  }
  return bytes;
}

uint64_t ExpiryTimes::all_bytes() const {
  uint64_t bytes = 0;
  for (const Span& span : spans_) bytes += span.bytes;
  return bytes;
}

bool ExpiryTimes::Fits() const {
  if (shift_ > 63 || spans_.size() > kSpansMax) return false;
  for (size_t i = 0; i < spans_.size(); ++i) {
    if (spans_[i].number > UINT64_MAX >> shift_) return false;
    if (i > 0 && spans_[i].number <= spans_[i - 1].number) return false;
  }
  return true;
}

}  // namespace farleaf::index::lsm
