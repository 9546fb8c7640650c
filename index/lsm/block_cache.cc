#include "index/lsm/block_cache.h"

#include <algorithm>
#include <bit>

#include "dsm/base/check.h"
#include "dsm/base/spin_lock.h"
#include "index/lsm/block_fetch.h"

namespace farleaf::index::lsm {

namespace {

constexpr uint64_t kShardBytesMin = uint64_t{4} << 20;
constexpr size_t kShardsMax = 64;
/// Share of the budget that is for blocks on probation: 1 / kProbationShare.
constexpr uint64_t kProbationShare = 10;
/// Uses in probation that are worth a place in the main queue. One is the retry of whoever has fetched the block.
constexpr uint8_t kUsesToStay = 2;
/// Rounds in the main queue that uses may earn, by kind.
constexpr std::array<uint8_t, kBlockKinds> kRoundsMax = {3, 7, 3};

}  // namespace

struct BlockCache::Entry {
  Key key;
  BlockKind kind;
  bool on_probation = true;
  uint8_t uses = 0;
  std::atomic<uint32_t> pins{1};  // goes up from 0 only under the shard's lock
  uint32_t charge = 0;
  uint32_t hash_low = 0;
  Shard* shard = nullptr;
  Entry* below = nullptr;  // in the bucket
  Entry *newer = nullptr, *older = nullptr;
  Memory memory;
};

struct alignas(64) BlockCache::Shard {
  /// First in, first out, unless it is put in again.
  struct Queue {
    Entry *newest = nullptr, *oldest = nullptr;
    uint64_t bytes = 0;
    size_t count = 0;

    void Push(Entry* entry) {
      entry->newer = nullptr;
      entry->older = newest;
      (newest ? newest->newer : oldest) = entry;
      newest = entry;
      bytes += entry->charge;
      ++count;
    }
    void Remove(Entry* entry) {
      (entry->newer ? entry->newer->older : newest) = entry->older;
      (entry->older ? entry->older->newer : oldest) = entry->newer;
      bytes -= entry->charge;
      --count;
    }
  };
  /// Who was put out of probation lately: the hash, and when by the count of those who were.
  struct Ghost {
    uint32_t hash = 0;
    uint32_t put_out = 0;
  };

  mutable SpinLock lock;  // guards all below
  std::atomic<bool> over_budget{false};
  uint64_t bytes_max = 0;
  Queue probation, main;
  std::vector<Entry*> buckets;
  std::vector<Ghost> ghosts;
  uint32_t put_out = 0;
  BlockCacheMetrics counts;

  Entry* Find(const Key& key, uint64_t hash) const {
    Entry* at = buckets[hash & (buckets.size() - 1)];
    while (at && at->key != key) at = at->below;
    return at;
  }
  uint64_t bytes() const { return probation.bytes + main.bytes; }
  void Link(Entry* entry, uint64_t hash);
  void Unlink(Entry* entry);
  void Grow();
  bool WasHereLately(uint32_t hash) const {
    const Ghost& ghost = ghosts[hash % ghosts.size()];
    return ghost.hash == hash && put_out - ghost.put_out < ghosts.size();
  }
  /// Puts out what is over the budget; returned, linked by `below`, to be freed without the lock.
  Entry* Evict();
  /// One step of it. Null: `entry` stays.
  Entry* Judge(Entry* entry);
};

uint64_t BlockCacheMetrics::bytes() const {
  uint64_t bytes = 0;
  for (const OfKind& kind : kinds) bytes += kind.bytes;
  return bytes;
}

size_t BlockCache::SizeClass(size_t bytes) {
  const size_t step = bytes <= 256 ? 64 : std::bit_floor(bytes - 1) / 4;
  return (std::max<size_t>(bytes, 1) + step - 1) / step * step;
}

BlockCache::Memory::Memory(size_t bytes) : size_(bytes) {
  bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(64, SizeClass(bytes))));
  FARLEAF_CHECK(bytes_ != nullptr, "out of memory", bytes);
}

void BlockCache::Shard::Link(Entry* entry, uint64_t hash) {
  if (probation.count + main.count >= buckets.size()) Grow();
  Entry*& bucket = buckets[hash & (buckets.size() - 1)];
  entry->below = std::exchange(bucket, entry);
}

void BlockCache::Shard::Unlink(Entry* entry) {
  Entry** at = &buckets[entry->key.Hash() & (buckets.size() - 1)];
  while (*at != entry) at = &(*at)->below;
  *at = entry->below;
}

void BlockCache::Shard::Grow() {
  std::vector<Entry*> larger(2 * buckets.size());
  for (Entry* at : buckets) {
    while (at) {
      Entry* const next = at->below;
      Entry*& bucket = larger[at->key.Hash() & (larger.size() - 1)];
      at->below = std::exchange(bucket, at);
      at = next;
    }
  }
  buckets.swap(larger);
}

BlockCache::Entry* BlockCache::Shard::Judge(Entry* entry) {
  Queue& queue = entry->on_probation ? probation : main;
  queue.Remove(entry);
  if (entry->pins.load(std::memory_order_acquire) > 0) {
    queue.Push(entry);
    return nullptr;
  }
  if (entry->on_probation ? entry->uses >= kUsesToStay : entry->uses > 0) {
    entry->uses = entry->on_probation ? 0 : entry->uses - 1;
    entry->on_probation = false;
    main.Push(entry);
    return nullptr;
  }
  if (entry->on_probation) ghosts[entry->hash_low % ghosts.size()] = {entry->hash_low, ++put_out};
  Unlink(entry);
  auto& kind = counts.kinds[static_cast<size_t>(entry->kind)];
  ++kind.evictions;
  --kind.blocks;
  kind.bytes -= entry->charge;
  return entry;
}

BlockCache::Entry* BlockCache::Shard::Evict() {
  Entry* freed = nullptr;
  // A block is judged at most as often as it may have rounds to go. If that did not do, the queue whose turn it is, is pinned:
  // then as often in the other one.
  const size_t turns_each = (probation.count + main.count) * (kRoundsMax[1] + size_t{2});
  for (size_t turn = 0; bytes() > bytes_max && turn < 2 * turns_each; ++turn) {
    const bool by_rule = probation.bytes > bytes_max / kProbationShare;
    const Queue& queue = by_rule == (turn < turns_each) ? probation : main;
    Entry* const oldest = queue.oldest       ? queue.oldest
                          : probation.oldest ? probation.oldest
                                             : main.oldest;
    if (!oldest) break;
    Entry* const out = Judge(oldest);
    if (!out) continue;
    out->below = freed;
    freed = out;
  }
  over_budget.store(bytes() > bytes_max, std::memory_order_relaxed);
  return freed;
}

BlockCache::BlockCache(uint64_t bytes_max)
    : bytes_max_(bytes_max), fetches_(std::make_unique<FetchTable>()) {
  const size_t shards =
      std::bit_floor(std::clamp<uint64_t>(bytes_max / kShardBytesMin, 1, kShardsMax));
  for (size_t i = 0; i < shards; ++i) {
    auto shard = std::make_unique<Shard>();
    shard->bytes_max = bytes_max / shards;
    const size_t blocks = std::bit_ceil(std::max<uint64_t>(shard->bytes_max / 4096, 16));
    shard->buckets.resize(blocks);
    shard->ghosts.resize(blocks);
    shards_.push_back(std::move(shard));
  }
}

BlockCache::~BlockCache() {
  for (const auto& shard : shards_) {
    for (Entry* at : shard->buckets) {
      while (at) {
        FARLEAF_CHECK(at->pins.load() == 0, "a block of a cache that goes is pinned");
        delete std::exchange(at, at->below);
      }
    }
  }
}

BlockCache::Handle::Handle(const Handle& other) : entry_(other.entry_) {
  if (entry_) entry_->pins.fetch_add(1, std::memory_order_relaxed);
}
std::span<const std::byte> BlockCache::Handle::bytes() const { return entry_->memory.span(); }
const std::byte* BlockCache::Handle::data() const { return entry_->memory.bytes_.get(); }

BlockCache::Handle BlockCache::Lookup(Key key, BlockKind kind, BlockUse use) {
  const uint64_t hash = key.Hash();
  Shard& shard = ShardOf(hash);
  std::lock_guard lock(shard.lock);
  auto& counts = shard.counts.kinds[static_cast<size_t>(kind)];
  Entry* const entry = shard.Find(key, hash);
  if (!entry) {
    ++counts.misses;
    return {};
  }
  ++counts.hits;
  if (use == BlockUse::kAgain && entry->uses < kRoundsMax[static_cast<size_t>(entry->kind)])
    ++entry->uses;
  entry->pins.fetch_add(1, std::memory_order_relaxed);
  return Handle(entry);
}

BlockCache::Handle BlockCache::Peek(Key key) {
  const uint64_t hash = key.Hash();
  Shard& shard = ShardOf(hash);
  std::lock_guard lock(shard.lock);
  Entry* const entry = shard.Find(key, hash);
  if (!entry) return {};
  entry->pins.fetch_add(1, std::memory_order_relaxed);
  return Handle(entry);
}

BlockCache::Handle BlockCache::Insert(Key key, BlockKind kind, Memory memory, BlockUse use) {
  const uint64_t hash = key.Hash();
  Shard& shard = ShardOf(hash);
  auto entry = std::make_unique<Entry>();
  entry->key = key;
  entry->kind = kind;
  entry->hash_low = static_cast<uint32_t>(hash >> 20);
  entry->shard = &shard;
  entry->charge = static_cast<uint32_t>(SizeClass(memory.size_) + SizeClass(sizeof(Entry)) +
                                        2 * sizeof(Entry*));
  entry->memory = std::move(memory);
  Entry* freed = nullptr;
  Handle handle;
  {
    std::lock_guard lock(shard.lock);
    if (Entry* const there = shard.Find(key, hash)) {
      there->pins.fetch_add(1, std::memory_order_relaxed);
      return Handle(there);
    }
    entry->on_probation = kind != BlockKind::kInner &&
                          (use == BlockUse::kOnce || !shard.WasHereLately(entry->hash_low));
    auto& counts = shard.counts.kinds[static_cast<size_t>(kind)];
    ++counts.inserts;
    ++counts.blocks;
    counts.bytes += entry->charge;
    shard.Link(entry.get(), hash);
    (entry->on_probation ? shard.probation : shard.main).Push(entry.get());
    handle = Handle(entry.release());
    freed = shard.Evict();
  }
  while (freed) delete std::exchange(freed, freed->below);
  return handle;
}

void BlockCache::Reserve(uint64_t bytes) {
  reserved_.store(bytes, std::memory_order_relaxed);
  const uint64_t blocks = bytes_max_ - bytes + over_reserved();
  for (const auto& shard : shards_) {
    Entry* freed = nullptr;
    {
      std::lock_guard lock(shard->lock);
      shard->bytes_max = blocks / shards_.size();
      freed = shard->Evict();
    }
    while (freed) delete std::exchange(freed, freed->below);
  }
}

void BlockCache::Unpin(Entry* entry) {
  Shard* const shard = entry->shard;
  // From the last unpin on, the entry may be gone.
  if (entry->pins.fetch_sub(1, std::memory_order_release) > 1) return;
  if (!shard->over_budget.load(std::memory_order_relaxed)) [[likely]]
    return;
  Entry* freed = nullptr;
  {
    std::lock_guard lock(shard->lock);
    freed = shard->Evict();
  }
  while (freed) delete std::exchange(freed, freed->below);
}

BlockCacheMetrics BlockCache::metrics() const {
  BlockCacheMetrics sum;
  for (const auto& shard : shards_) {
    std::lock_guard lock(shard->lock);
    for (size_t i = 0; i < kBlockKinds; ++i) {
      const auto& from = shard->counts.kinds[i];
      auto& to = sum.kinds[i];
      to.hits += from.hits;
      to.misses += from.misses;
      to.inserts += from.inserts;
      to.evictions += from.evictions;
      to.blocks += from.blocks;
      to.bytes += from.bytes;
    }
  }
  return sum;
}

}  // namespace farleaf::index::lsm
