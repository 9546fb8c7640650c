#include "dsm/shm/shm_transport.h"

#include <poll.h>

#include <ctime>

#include "dsm/base/clock.h"
#include "dsm/shm/mapped_verbs.h"

namespace farleaf::dsm {

void ShmTransport::Post(Batch& batch) {
  const ShmRegionTable::Entry* entry = regions_->Find(batch.server());
  if (entry == nullptr) [[unlikely]] {
    batch.CompleteWith(Status::Unavailable("memory server " + std::to_string(batch.server()) +
                                           " is not in this pool"));
    return;
  }
  if (entry->lost.load(std::memory_order_acquire)) [[unlikely]] {
    batch.CompleteWith(
        Status::Unavailable("memory server " + std::to_string(batch.server()) + " lost"));
    return;
  }
  Status status = ExecuteBatch(batch.verbs(), entry->bytes);
  if (!status.ok()) [[unlikely]] {
    status = status.WithContext("memory server " + std::to_string(batch.server()));
  }
  batch.CompleteWith(std::move(status));
}

void ShmTransport::Wait(int wake_fd, uint64_t timeout_ns) {
  pollfd waited{wake_fd, POLLIN, 0};
  const timespec timeout{static_cast<time_t>(timeout_ns / kNsPerSecond),
                         static_cast<long>(timeout_ns % kNsPerSecond)};
  ::ppoll(&waited, 1, &timeout, nullptr);
}

}  // namespace farleaf::dsm
