// LsmEngine: an engine whose trees are in an LSM store in a directory of this machine, which no other process has open
// meanwhile (its LOCK). It has the store's background threads; all workers are without memory servers.
//
// Thread rule: that of Engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "dsm/base/clock.h"
#include "dsm/base/result.h"
#include "dsm/epoch.h"
#include "index/lsm/background.h"
#include "index/lsm/store.h"
#include "index/storage/file_storage.h"
#include "server/engine.h"
#include "server/lsm/lsm_tree_host.h"
#include "server/records/record.h"

namespace farleaf::server {

struct LsmEngineOptions {
  index::storage::FileStorageOptions files;  ///< its directory is the data directory
  index::lsm::LsmOptions store;
  uint32_t collect_above_percent = 50;  ///< LsmOptions::collect_above
  uint32_t garbage_max_percent = 60;    ///< LsmOptions::garbage_max
  uint64_t close_flush_ms = 10'000;  ///< what Close grants the flush of memtables; 0: none is made
};

/// The store's options, with what is given in percent.
index::lsm::LsmOptions StoreOptionsOf(const LsmEngineOptions& options);
/// InvalidArgument: the directory is somebody else's. Nothing is changed in it.
Status CheckStoreDirectory(const std::string& path);
/// Until nothing is in memory only, or `within_ms` is over, or writing fails: then it is replayed instead. The store's background runs.
dsm::Task<void> FlushMemtables(index::lsm::LsmStore& store, dsm::Worker& worker, uint64_t within_ms,
                               Engine::Hurried hurried);

class LsmEngine final : public Engine {
 public:
  /// Makes the directory or the store if there is none; logs how recovery gets on. AlreadyExists: another process has it open.
  /// InvalidArgument: something else is there. Corruption names the file. `clock` outlives the engine.
  static Result<std::unique_ptr<LsmEngine>> Open(const LsmEngineOptions& options, uint64_t seed,
                                                 const Clock* clock);
  /// As if the process had crashed, if Close did not come before.
  ~LsmEngine() override;

  TreeHost& host() override { return *host_; }
  Status Health() const override { return host_->Health(); }
  std::string Describe() const override { return description_; }
  /// Flushes memtables, so that the next start has little to replay, and makes everything durable.
  Status Close(const Hurried& hurried) override;

 private:
  LsmEngine(const LsmEngineOptions& options, uint64_t seed, const Clock* clock)
      : options_(options), seed_(seed), clock_(clock) {}
  Status OpenStore();
  dsm::Task<void> TellProgress(const bool* opened);
  std::string DescribeStore(uint64_t took_ns);
  Result<std::unique_ptr<dsm::Worker>> OpenWorker();

  const LsmEngineOptions options_;
  const uint64_t seed_;
  const Clock* const clock_;
  const WallClock wall_;
  std::string description_;
  std::atomic<uint64_t> workers_{0};
  // In this order: each stands on those before it.
  dsm::EpochDomain epochs_;
  std::unique_ptr<index::storage::FileStorage> storage_;
  std::unique_ptr<dsm::Worker> worker_;  // of the thread that opens and closes
  std::unique_ptr<index::lsm::LsmStore> store_;
  std::unique_ptr<index::lsm::Background> background_;
  std::unique_ptr<LsmTreeHost> host_;
};

}  // namespace farleaf::server
