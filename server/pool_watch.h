// PoolWatch: a compute server's thread that looks at the pool's memory servers once in a while, for those who watch
// the compute server: which of them answer, and what is in use of each.
//
// A look is one round trip to all memory servers. What is in use is read from their chunk tables, at most
// kTableBytesMax of them at a look, so that a look stays cheap in a large pool; the rest at the next ones.
// Thread rule: Start and the destructor by one thread; the rest from any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/pool.h"
#include "server/chunk_metrics.h"
#include "server/metrics/metrics_text.h"

namespace farleaf::server {

class PoolWatch {
 public:
  static constexpr uint64_t kLookMs = 1'000;

  struct MemoryServer {
    dsm::RegionLayout layout;
    Status status;       ///< of the last look
    ChunkCounts chunks;  ///< as last read; all 0 before
  };

  /// `pool` outlives it.
  static Result<std::unique_ptr<PoolWatch>> Start(dsm::Pool* pool);
  ~PoolWatch();
  PoolWatch(const PoolWatch&) = delete;

  /// As of the last look.
  std::vector<MemoryServer> MemoryServers() const;
  /// Unavailable, or Fenced, naming a memory server that did not answer, or has cut this one off.
  Status CheckMemoryServers() const;
  void AppendMetrics(MetricsText* out) const;

 private:
  static constexpr uint64_t kTableBytesMax = 64 << 10;  // at a look, of each memory server

  /// Where reading a memory server's chunk table has come to.
  struct Reading {
    uint64_t next_chunk = 0;
    ChunkCounts so_far{};
  };

  PoolWatch(dsm::Pool* pool, std::unique_ptr<dsm::Worker> worker);
  void Run();
  void Look();
  dsm::Task<void> LookAt(size_t number);

  dsm::Pool* const pool_;
  std::unique_ptr<dsm::Worker> worker_;
  dsm::FabricCounts counts_;
  std::vector<Reading> readings_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stop_ = false;
  std::vector<MemoryServer> servers_;
  std::thread thread_;
};

}  // namespace farleaf::server
