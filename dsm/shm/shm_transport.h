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
  void Prefetch(GlobalAddress from, uint32_t bytes) override {
    const ShmRegionTable::Entry* entry = regions_->Find(from.server());
    if (entry == nullptr || from.offset() >= entry->bytes.size()) [[unlikely]]
      return;
    const std::byte* const at = entry->bytes.data() + from.offset();
    for (uint32_t line = 0; line < bytes; line += kCacheLineBytes) {
      __builtin_prefetch(at + line);
      // GCC takes a function that does nothing but prefetch for one without effect, and drops its calls.
      asm volatile("" ::"r"(at + line));
    }
  }
  const std::byte* Mapped(GlobalAddress from, uint32_t bytes) override {
    const ShmRegionTable::Entry* entry = regions_->Find(from.server());
    if (entry == nullptr || entry->lost.load(std::memory_order_acquire)) return nullptr;
    if (from.offset() % 8 != 0 || bytes > entry->bytes.size() ||
        from.offset() > entry->bytes.size() - bytes) {
      return nullptr;
    }
    return entry->bytes.data() + from.offset();
  }
  void Wait(int wake_fd, uint64_t timeout_ns) override;
  bool completes_at_once() const override { return true; }

 private:
  static constexpr uint32_t kCacheLineBytes = 64;
  std::shared_ptr<const ShmRegionTable> regions_;
};

}  // namespace farleaf::dsm
