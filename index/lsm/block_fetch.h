// Blocks that the cache lacks: read, checked, and put into it. Whoever wants a block that another one is reading waits for that.
//
// Invariant: who leads a fetch completes it, well or badly, before it waits for another's; so nobody waits in a circle.
// Thread rule: thread-safe; a fetch runs on its worker.
#pragma once

#include <coroutine>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/block_cache.h"
#include "index/storage/storage.h"

namespace farleaf::index::lsm {

/// What makes a block for the cache of the bytes that are stored.
class BlockUnpacker {
 public:
  virtual ~BlockUnpacker() = default;
  /// Corruption names segment and offset.
  virtual Result<BlockCache::Memory> Unpack(std::span<const std::byte> stored) const = 0;
};

struct BlockRequest {
  BlockCache::Key key;
  uint32_t bytes = 0;  ///< stored, at key.offset
  BlockKind kind = BlockKind::kLeaf;
  BlockUse use = BlockUse::kAgain;
  const BlockUnpacker* unpacker = nullptr;  ///< outlives the fetch
};

/// Fetches in flight.
class FetchTable {
 public:
  /// Someone who waits for another's fetch.
  struct Follower {
    explicit Follower(dsm::Worker* of) : worker(of) {}
    Follower(const Follower&) = delete;
    ~Follower() {
      if (joined && !result) joined->Forget(this);  // its worker was abandoned
    }
    dsm::Worker* worker;
    FetchTable* joined = nullptr;
    BlockCache::Key key;
    std::coroutine_handle<> handle;
    std::optional<Result<BlockCache::Handle>> result;
  };
  /// Someone for whom others may wait.
  class Leader {
   public:
    Leader(FetchTable* fetches, const BlockCache::Key& key) : fetches_(fetches), key_(key) {}
    Leader(const Leader&) = delete;
    ~Leader() {
      if (fetches_) fetches_->Drop(key_);  // its worker was abandoned, and with it whoever waits
    }
    void Complete(const Result<BlockCache::Handle>& result) {
      std::exchange(fetches_, nullptr)->Complete(key_, result);
    }

   private:
    FetchTable* fetches_;
    BlockCache::Key key_;
  };

  ~FetchTable() { FARLEAF_CHECK(flights_.empty(), flights_.size()); }

  /// Whether the caller leads the fetch of `key`: then it is its Leader from now on. Otherwise `follower` gets the result, and stays
  /// where it is until then.
  bool Lead(const BlockCache::Key& key, Follower* follower);

  struct [[nodiscard]] Waiting {
    FetchTable* fetches;
    Follower* follower;
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> handle) {
      std::lock_guard lock(fetches->mutex_);
      if (follower->result) return false;
      follower->handle = handle;
      return true;
    }
    Result<BlockCache::Handle> await_resume() const { return std::move(*follower->result); }
  };
  Waiting Wait(Follower& follower) { return {this, &follower}; }

 private:
  void Complete(const BlockCache::Key& key, const Result<BlockCache::Handle>& result);
  void Drop(const BlockCache::Key& key);
  void Forget(Follower* follower);

  struct HashOf {
    size_t operator()(const BlockCache::Key& key) const { return key.Hash(); }
  };
  std::mutex mutex_;  // guards flights_, and the followers in it
  std::unordered_map<BlockCache::Key, std::vector<Follower*>, HashOf> flights_;
};

/// The block, from the cache or by one READ.
dsm::Task<Result<BlockCache::Handle>> FetchBlock(dsm::Worker& worker, storage::Storage& storage,
                                                 BlockCache& cache, BlockRequest request);
/// All of them, those that nobody is reading yet by one Run. `pins` gets a handle for each, or stays as it is if the first failure is
/// returned. REQUIRES: no block twice.
dsm::Task<Status> FetchBlocks(dsm::Worker& worker, storage::Storage& storage, BlockCache& cache,
                              std::span<const BlockRequest> requests,
                              std::vector<BlockCache::Handle>& pins);

}  // namespace farleaf::index::lsm
