// BlockCache: one budget of bytes for all blocks of a store that are in memory: leaves, inner nodes (with their filters), records
// of the value log. A block is named by where it is stored; segment ids are never used again, so nothing goes stale.
//
// After S3-FIFO (Yang et al., SOSP 2023): what comes is first on probation, in a queue of a tenth of the budget; what
// is used twice there goes to the main queue, where each further use is worth another round (inner nodes get more of them); what was
// put out of probation and comes again soon goes to the main queue at once. So a scan flushes the
// probation queue, and nothing else. Reads of a scan do not count as uses.
//
// Budget: blocks by the size class of their memory, and what is kept about each. It is kept to as soon as blocks that are not
// pinned make that possible. What else is to fit into it is reserved (Reserve): blocks give way, down to a quarter. Memory comes from malloc in sizes of few classes (SizeClass).
//
// Thread rule: thread-safe. A Handle belongs to one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dsm/base/random.h"
#include "index/lsm/types.h"

namespace farleaf::index::lsm {

enum class BlockKind : uint8_t { kLeaf = 0, kInner = 1, kRecord = 2 };
inline constexpr size_t kBlockKinds = 3;

/// What a block is wanted for.
enum class BlockUse : uint8_t {
  kAgain,  ///< counts as a use
  kOnce,   ///< by a scan: does not
};

struct BlockCacheMetrics {
  struct OfKind {
    uint64_t hits = 0, misses = 0, inserts = 0, evictions = 0;
    uint64_t blocks = 0, bytes = 0;  ///< that are there now, with what they take besides
  };
  std::array<OfKind, kBlockKinds> kinds;
  uint64_t bytes() const;
};

class FetchTable;

class BlockCache {
  struct Entry;
  struct Shard;

 public:
  struct Key {
    SegmentId segment = SegmentId::kNone;
    uint32_t offset = 0;
    /// Of a record of the value log: who asks for another length asks for another record. 0: of a block.
    uint32_t bytes = 0;
    bool operator==(const Key&) const = default;
    uint64_t Hash() const {
      return Mix64(storage::Number(segment) * storage::kSegmentBytes + offset);
    }
  };

  /// A block's memory before it is inserted. Aligned to 64 bytes.
  class Memory {
   public:
    Memory() = default;
    explicit Memory(size_t bytes);
    std::span<std::byte> span() { return {bytes_.get(), size_}; }

   private:
    friend class BlockCache;
    struct Free {
      void operator()(std::byte* bytes) const { std::free(bytes); }
    };
    std::unique_ptr<std::byte[], Free> bytes_;
    size_t size_ = 0;
  };

  /// A pinned block: its bytes stay while there is a handle.
  class Handle {
   public:
    Handle() = default;
    Handle(const Handle& other);
    Handle(Handle&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
    Handle& operator=(Handle other) noexcept {
      std::swap(entry_, other.entry_);
      return *this;
    }
    ~Handle() {
      if (entry_) Unpin(entry_);
    }
    explicit operator bool() const { return entry_ != nullptr; }
    std::span<const std::byte> bytes() const;
    const std::byte* data() const;

   private:
    friend class BlockCache;
    explicit Handle(Entry* entry) : entry_(entry) {}
    Entry* entry_ = nullptr;
  };

  explicit BlockCache(uint64_t bytes_max);
  ~BlockCache();  ///< REQUIRES: no handles
  BlockCache(const BlockCache&) = delete;

  /// Empty: it is not there. `kind` is counted for.
  Handle Lookup(Key key, BlockKind kind, BlockUse use = BlockUse::kAgain);
  /// The same, neither counted nor a use: for whoever was told that it is missing.
  Handle Peek(Key key);
  /// Of a block that is there already, its memory is kept, and the new one is given up.
  Handle Insert(Key key, BlockKind kind, Memory memory, BlockUse use = BlockUse::kAgain);

  BlockCacheMetrics metrics() const;
  uint64_t bytes() const { return metrics().bytes(); }
  uint64_t bytes_max() const { return bytes_max_; }
  /// So much of the budget is taken by something else: blocks have the rest, and no less than 1 / kBlocksShareMin of it all.
  void Reserve(uint64_t bytes);
  static constexpr uint64_t kBlocksShareMin = 4;
  uint64_t reserved() const { return reserved_.load(std::memory_order_relaxed); }
  /// What blocks do not give way for.
  uint64_t over_reserved() const {
    const uint64_t most = bytes_max_ - bytes_max_ / kBlocksShareMin;
    return reserved() > most ? reserved() - most : 0;
  }
  /// Who reads what just now (block_fetch.h).
  FetchTable& fetches() { return *fetches_; }

  /// Bytes that a request of so many takes: the sizes that jemalloc has classes for, so that nothing is lost unseen.
  static size_t SizeClass(size_t bytes);

 private:
  static void Unpin(Entry* entry);
  Shard& ShardOf(uint64_t hash) const { return *shards_[hash >> 58 & (shards_.size() - 1)]; }

  const uint64_t bytes_max_;
  std::atomic<uint64_t> reserved_{0};
  std::vector<std::unique_ptr<Shard>> shards_;
  std::unique_ptr<FetchTable> fetches_;
};

}  // namespace farleaf::index::lsm
