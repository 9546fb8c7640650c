#include "dsm/delay/delay_fabric.h"

#include <algorithm>

namespace farleaf::dsm {

void DelayTransport::Post(Batch& batch) {
  uint64_t due_ns = clock_->NowNs() + options_.delay_ns;
  if (options_.jitter_ns_max > 0) due_ns += random_.Below(options_.jitter_ns_max + 1);
  uint64_t& last_due_ns = last_due_ns_[batch.server()];
  due_ns = std::max(due_ns, last_due_ns);
  last_due_ns = due_ns;
  held_.emplace(due_ns, &batch);
}

size_t DelayTransport::Poll() {
  size_t completed = 0;
  if (!held_.empty()) {
    const uint64_t now_ns = clock_->NowNs();
    while (!held_.empty() && held_.begin()->first <= now_ns) {
      Batch* batch = held_.begin()->second;
      held_.erase(held_.begin());
      below_->Post(*batch);
      completed += !batch->in_flight();
    }
  }
  return completed + below_->Poll();
}

void DelayTransport::Wait(int wake_fd, uint64_t timeout_ns) {
  if (!held_.empty()) {
    const uint64_t now_ns = clock_->NowNs();
    const uint64_t due_ns = held_.begin()->first;
    timeout_ns = std::min(timeout_ns, due_ns > now_ns ? due_ns - now_ns : 0);
  }
  below_->Wait(wake_fd, timeout_ns);
}

Result<std::unique_ptr<Transport>> DelayFabric::OpenTransport() {
  auto below = below_->OpenTransport();
  if (!below.ok()) return below.status();
  DelayOptions options = options_;
  options.seed = Mix64(options_.seed + transports_opened_.fetch_add(1));
  return std::unique_ptr<Transport>(
      std::make_unique<DelayTransport>(std::move(*below), options, clock_));
}

}  // namespace farleaf::dsm
