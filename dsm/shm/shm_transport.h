// The shm fabric's transport: verbs run at once, on the caller's thread, on mapped regions.
//
// The registration table is shared by all transports of a fabric; a lost memory server is marked in
// it and fails every later verb.
// Thread rule: ShmRegionTable is thread-safe after it is filled; a transport belongs to one thread.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "dsm/transport.h"

namespace farleaf::dsm {

class ShmRegionTable {
 public:
  struct Entry {
    std::span<std::byte> bytes;  ///< empty: no such server
    std::atomic<bool> lost{false};
  };
  /// REQUIRES: called for all servers before the first transport is opened.
  void Add(ServerId server, std::span<std::byte> bytes) {
    if (entries_.size() <= server) entries_.resize(server + size_t{1});
    entries_[server] = std::make_unique<Entry>();
    entries_[server]->bytes = bytes;
  }
  void MarkLost(ServerId server) { entries_[server]->lost.store(true, std::memory_order_release); }
  /// Null if there is no such server.
  const Entry* Find(ServerId server) const {
    return server < entries_.size() ? entries_[server].get() : nullptr;
  }

 private:
  std::vector<std::unique_ptr<Entry>> entries_;
};

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(std::shared_ptr<const ShmRegionTable> regions)
      : regions_(std::move(regions)) {}
  void Post(Batch& batch) override;
  size_t Poll() override { return 0; }
  void Wait(int wake_fd, uint64_t timeout_ns) override;

 private:
  std::shared_ptr<const ShmRegionTable> regions_;
};

}  // namespace farleaf::dsm
