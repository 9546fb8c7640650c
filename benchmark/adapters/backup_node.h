// BackupNode: one backup of the target `replicated:`: registered memory that a tcp agent opens, or that the primary maps, a directory, and a thread that executes
// what the primary asks for. In mode kBuild also the threads of its own flushes and merges.
//
// Thread rule: made, asked and destroyed by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "dsm/base/result.h"
#include "dsm/base/thread_cpu.h"
#include "dsm/directory.h"
#include "dsm/epoch.h"
#include "dsm/shm/memory_region.h"
#include "dsm/tcp/tcp_agent.h"
#include "dsm/worker.h"
#include "index/storage/file_storage.h"
#include "server/replication/backup_region.h"
#include "server/replication/channel.h"
#include "server/replication/index_mode.h"

namespace farleaf::ycsb {

/// What a backup has taken since it was started.
struct BackupUse {
  uint64_t agent_cpu_ns = 0;       ///< of the agent: all that comes and goes over the network
  uint64_t thread_cpu_ns = 0;      ///< of the thread that executes messages. Of that:
  uint64_t log_cpu_ns = 0;         ///< messages that open, seal and sync logs' segments
  uint64_t table_cpu_ns = 0;       ///< messages with tables and edits
  uint64_t background_cpu_ns = 0;  ///< of flushes and merges
  uint64_t following_cpu_ns = 0;   ///< of log_cpu_ns: commits that went into the memtable
  uint64_t bytes_read = 0, bytes_written = 0;  ///< of its storage
  uint64_t flushed_bytes = 0, merged_bytes_written = 0;
};

class BackupNode {
 public:
  struct Options {
    uint16_t number = 1;  ///< from 1
    std::string directory;
    /// Of RegionBytes, formatted, which the primary maps; empty: its own, behind an agent.
    std::span<std::byte> region = {};
    index::storage::DirectIo direct = index::storage::DirectIo::kAuto;
    server::replication::AreaLayout layout;
    server::replication::IndexMode mode = server::replication::IndexMode::kSend;
    index::lsm::LsmOptions store;  ///< kBuild: of its own store
  };
  /// What is in the directory is kept, and used as far as it is of the same store. `clock` and `wall` outlive it.
  static Result<std::unique_ptr<BackupNode>> Start(const Options& options, const Clock* clock,
                                                   const Clock* wall);
  ~BackupNode();
  BackupNode(const BackupNode&) = delete;

  static constexpr std::string_view kCluster = "replicated";
  static constexpr uint64_t kChunkBytes = uint64_t{1} << 20;
  /// With what every region has at its beginning.
  static uint64_t RegionBytes(const server::replication::AreaLayout& layout);
  /// REQUIRES: its region is its own.
  dsm::ServerEndpoint endpoint() const;
  server::replication::ChannelAddress address() const;
  uint16_t number() const { return options_.number; }
  uint64_t area_bytes() const { return options_.layout.bytes(); }
  /// As it is now.
  BackupUse Use();
  /// Nothing is being flushed or merged here, nor has to be. REQUIRES: the primary has filled it.
  bool Quiet();

 private:
  BackupNode(const Options& options, const Clock* clock, const Clock* wall)
      : options_(options), clock_(clock), wall_(wall) {}
  Status Open();
  Status OpenMemory();
  std::unique_ptr<dsm::Worker> NewWorker();

  const Options options_;
  const Clock* const clock_;
  const Clock* const wall_;
  const ThreadCpuClock cpu_;
  // In this order: each stands on those before it.
  dsm::EpochDomain epochs_;
  index::lsm::CheckMemory check_memory_{index::lsm::kNodeCheckBuffers};
  std::unique_ptr<dsm::MemoryRegion> memory_;  // its own
  std::span<std::byte> region_bytes_;
  std::unique_ptr<index::storage::FileStorage> storage_;
  std::unique_ptr<dsm::Worker> asking_;  // of who made it
  std::unique_ptr<dsm::Worker> worker_;  // of the thread, once it runs
  std::unique_ptr<server::replication::BackupRegion> region_;
  std::unique_ptr<dsm::TcpAgent> agent_;
  std::thread thread_;
  uint64_t token_ = 0;
};

}  // namespace farleaf::ycsb
