// Finding nodes: through the search-layer cache, by reading what it lacks, and past what is stale.
//
// A stale cache is normal. Whoever reads a node checks tree, level, dead and fences (FitOf):
//   key past the high fence   move right; the cached parent learns of the split from the leaf that was
//                             read, or, at every second one, is re-read beside the sibling in the same
//                             round trip, by one of those that hop there at once, so that the next
//                             search does not hop
//   dead                      move to the node that took over its range
//   key below the low fence,  the page was reused: descend again from the root word, re-reading each
//   other tree or level,      node of the path
//   free page
#include <algorithm>

#include "dsm/base/mutation.h"
#include "index/blink/fence_digest.h"
#include "index/blink/parent_claim.h"
#include "index/blink/tree.h"

namespace farleaf::index {

namespace {
// A READ that stays torn this often is repeated with the lock word beside it: the page may be free.
constexpr int kTornReadsBeforeLockWord = 4;
/// What completing a missing separator may take of a search that found its node.
constexpr uint64_t kUpkeepNsMax = 10 * kNsPerMs;
constexpr uint64_t kRetryNsMin = 500, kRetryNsMax = 200 * kNsPerUs;
/// Whoever has moved right so often asks for a new path: nodes may split faster than one can follow. Twice as
/// often each time, for separators may be missing for good.
constexpr uint32_t kHopsBeforeNewPath = 4;

/// Splits that a cached parent learns from its leaves between one READ of it and the next. A READ tells of
/// some three splits that nobody here has met yet: with more of this a load takes more round trips.
constexpr uint8_t kSplitsLearned = 1;

/// From the node at `address`, which covers the key; not complete.
SearchCache::LeafPath PathToChild(const ConstNode& node, GlobalAddress address,
                                  std::string_view key, Side side) {
  const size_t i = side == Side::kAt ? node.ChildIndexFor(key) : node.ChildIndexBelow(key);
  SearchCache::LeafPath path;
  path.node = node.Child(i);
  path.level = static_cast<Level>(node.level() - 1);
  path.parent = address;
  path.parent_version = node.version();
  if (path.level == 0 && node.geometry().leaf_layout == LeafLayout::kParted) {
    path.fence_digest = ChildFenceDigest(node, i, &path.range);
  }
  return path;
}

constexpr const char* kGoneAdvice =
    ", which is gone: a compute server that works with this tree recovers the page, an observer "
    "cannot";
}  // namespace

Status BlinkTree::CheckKey(std::string_view key) const {
  if (IsKey(key)) return Status::Ok();
  const Geometry& geometry = info_.geometry;
  const std::string range = geometry.layout == Layout::kFixed8
                                ? "exactly 8"
                                : "1 to " + std::to_string(geometry.key_bytes_max);
  return Status::InvalidArgument("a key of tree '" + info_.name + "' has " + range +
                                 " bytes, not " + std::to_string(key.size()));
}

uint64_t BlinkTree::WaitDeadlineNs(const OpContext& op) const {
  return std::min(op.deadline_ns, op.worker.clock().NowNs() + options_.lock_wait_ms * kNsPerMs);
}

BlinkTree::Fit BlinkTree::FitOf(const ConstNode& node, std::string_view key, Side side,
                                Level level) const {
  if (node.tree() != info_.id || node.level() != level) return Fit::kRestart;
  if (Mutated(Mutation::kNoFenceCheckOnLeaf) && level == 0) return Fit::kCovers;
  if (node.BelowLow(key) || (side == Side::kBefore && node.LowEquals(key))) return Fit::kRestart;
  if (node.dead()) return node.forward().is_null() ? Fit::kRestart : Fit::kMoveForward;
  if (side == Side::kAt ? node.AtOrPastHigh(key) : node.PastHigh(key)) return Fit::kMoveRight;
  return Fit::kCovers;
}

bool BlinkTree::IsOfLowerLevel(LockedPage& locked) const {
  return locked.level() > 0 && locked.Open(info_.geometry) == OpenOutcome::kValid &&
         locked.node(info_.geometry).level() < locked.level();
}

Task<Result<BlinkTree::PageState>> BlinkTree::ReadPage(OpContext& op, GlobalAddress address,
                                                       Level level, PageBuffer& page) {
  const Geometry& geometry = info_.geometry;
  const auto image = page.image(geometry, level);
  uint64_t give_up_ns = 0, wait_ns = kRetryNsMin;
  FenceLook look;
  for (int attempt = 0;; ++attempt) {
    const bool with_lock_word = attempt >= kTornReadsBeforeLockWord;
    Batch batch(address.server());
    batch.Read(address.offset(), with_lock_word ? page.page(geometry, level) : image);
    if (look.owner != 0) batch.ReadWord(dsm::FenceWordOffset(look.owner), &look.fence_word);
    Status status = co_await op.worker.RoundTrip(batch, op.counts);
    if (!status.ok()) co_return status;
    const OpenOutcome outcome = OpenPage(geometry, level, image);
    if (outcome == OpenOutcome::kValid) co_return PageState::kRead;
    if (outcome == OpenOutcome::kMalformed) {
      // A leaf page may have been reused by a tree of another layout.
      if (RawTree(geometry, level, image) != info_.id) co_return PageState::kForeign;
      co_return Status::Corruption("page " + address.ToString() + " of tree '" + info_.name +
                                   "' holds no node although its checksum agrees");
    }
    stats_.torn_reads.fetch_add(1, std::memory_order_relaxed);
    if (!with_lock_word) continue;
    const auto lock_word = LoadLittle<uint64_t>(page.bytes + image.size());
    const auto lock = dsm::LockWord::Decode(lock_word);
    if (lock.state == dsm::LockWord::State::kFreePage) co_return PageState::kForeign;
    if (level == 0 && IsOtherLayout(geometry, image)) co_return PageState::kForeign;
    const bool gone = IsGone(op, address, lock_word, look);
    if (gone && pool_->self().id != 0) {
      stats_.readers_recovered.fetch_add(1, std::memory_order_relaxed);
      auto recovered = co_await TryRecoverPage(op, {address, level, lock_word});
      if (!recovered.ok()) co_return recovered.status();
      if (*recovered == Recovery::kForeign) co_return PageState::kForeign;
    }
    look = {lock.state == dsm::LockWord::State::kLocked ? lock.owner : dsm::MemberId{0}};
    if (give_up_ns == 0) give_up_ns = WaitDeadlineNs(op);
    if (op.worker.clock().NowNs() >= give_up_ns) {
      if (lock.state == dsm::LockWord::State::kUnlocked) {
        co_return Status::Corruption("page " + address.ToString() + " of tree '" + info_.name +
                                     "' fails its checksum and nobody holds its lock");
      }
      co_return Status::DeadlineExceeded("page " + address.ToString() + " of tree '" + info_.name +
                                         "' stays half-written under the lock of compute server " +
                                         std::to_string(lock.owner) + (gone ? kGoneAdvice : ""));
    }
    co_await op.worker.Sleep(wait_ns + op.worker.random().Below(wait_ns));
    wait_ns = std::min(2 * wait_ns, kRetryNsMax);
  }
}

Task<Result<RootWord>> BlinkTree::RefreshRoot(OpContext& op) {
  uint64_t word = 0;
  Batch batch(dsm::kCatalogServer);
  batch.ReadWord(info_.root_word_offset(), &word);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  const RootWord root = RootWord::Decode(word);
  if (root.address.is_null() || root.level > kLevelMax) {
    co_return Status::Corruption("the catalog's root word of tree '" + info_.name + "' is " +
                                 std::to_string(word));
  }
  cache_.set_root(root);
  co_return root;
}

Task<Result<SearchCache::LeafPath>> BlinkTree::FindNode(OpContext& op, std::string_view key,
                                                        Side side, Level level,
                                                        Freshness freshness) {
  if (caching() && freshness == Freshness::kCached && !cache_.root().address.is_null()) {
    // Each turn reads one more node of the path, or ends.
    for (Level turn = 0; turn <= kLevelMax; ++turn) {
      SearchCache::LeafPath path;
      if (level == 0 && side == Side::kAt) {
        path = cache_.FindLeaf(key);
      } else {
        path = {cache_.Find(key, side, level)};
      }
      if (path.complete && path.level == level) {
        if (turn == 0) NoteCacheHits(op, 1);
        co_return path;
      }
      if (path.complete || path.stale) break;
      PageBuffer page;
      const uint64_t read_before = op.counts.bytes_read;
      auto state = co_await ReadPage(op, path.node, path.level, page);
      stats_.descent_bytes.fetch_add(op.counts.bytes_read - read_before, std::memory_order_relaxed);
      stats_.cache_misses.fetch_add(1, std::memory_order_relaxed);
      if (!state.ok()) co_return state.status();
      if (*state == PageState::kForeign) break;
      const ConstNode node(info_.geometry, page.image(info_.geometry, path.level));
      if (node.tree() != info_.id || node.level() != path.level) break;
      cache_.Install(path.node, node.image());
      // Not by way of the cache: its budget may have no room, for long, for what another thread wants too.
      if (path.level == level + 1 && FitOf(node, key, side, path.level) == Fit::kCovers) {
        path = PathToChild(node, path.node, key, side);
        path.complete = true;
        co_return path;
      }
    }
  }
  auto path = co_await DescendFromRoot(op, key, side, level, freshness);
  co_return path;
}

Task<Result<SearchCache::LeafPath>> BlinkTree::DescendFromRoot(OpContext& op, std::string_view key,
                                                               Side side, Level level,
                                                               Freshness freshness) {
  const uint64_t give_up_ns = WaitDeadlineNs(op);
  bool read_root = freshness == Freshness::kFromRoot || cache_.root().address.is_null();
  stats_.path_refreshes.fetch_add(caching(), std::memory_order_relaxed);
  for (uint64_t wait_ns = kRetryNsMin;; wait_ns = std::min(2 * wait_ns, kRetryNsMax)) {
    RootWord root = cache_.root();
    if (read_root) {
      auto fresh = co_await RefreshRoot(op);
      if (!fresh.ok()) co_return fresh.status();
      root = *fresh;
    }
    SearchCache::LeafPath path;
    path.node = root.address;
    path.level = root.level;
    if (root.level == 0) {
      path.fence_digest =
          FenceDigest({info_.geometry.digest_key, info_.id}, std::nullopt, std::nullopt);
    }
    while (path.level > level) {
      PageBuffer page;
      const uint64_t read_before = op.counts.bytes_read;
      auto state = co_await ReadPage(op, path.node, path.level, page);
      if (caching()) {
        stats_.path_refresh_bytes.fetch_add(op.counts.bytes_read - read_before,
                                            std::memory_order_relaxed);
      }
      if (!state.ok()) co_return state.status();
      if (*state == PageState::kForeign) break;
      const ConstNode node(info_.geometry, page.image(info_.geometry, path.level));
      const Fit fit = FitOf(node, key, side, path.level);
      if (fit == Fit::kRestart) break;
      if (caching()) cache_.Install(path.node, node.image());
      if (fit == Fit::kCovers) {
        path = PathToChild(node, path.node, key, side);
      } else {
        if (path.level == root.level && !read_root) break;  // the tree has grown since
        path.node = node.right();
      }
    }
    path.complete = path.level == level;
    if (path.complete || (path.level < level && read_root)) co_return path;
    if (op.worker.clock().NowNs() >= give_up_ns) {
      co_return Status::DeadlineExceeded("no path to the key in tree '" + info_.name +
                                         "' within the deadline");
    }
    if (read_root) co_await op.worker.Sleep(wait_ns + op.worker.random().Below(wait_ns));
    read_root = true;
  }
}

bool BlinkTree::ParentIsDue(GlobalAddress parent) const {
  return options_.learn_splits == LearnSplits::kOff || cache_.LearnedOf(parent) >= kSplitsLearned;
}

bool BlinkTree::LearnSplit(GlobalAddress parent, GlobalAddress address, const ConstNode& leaf) {
  return options_.learn_splits == LearnSplits::kOn && cache_.LearnSplit(parent, address, leaf);
}

Task<Result<BlinkTree::PageState>> BlinkTree::ReadNextAndParent(OpContext& op, GlobalAddress next,
                                                                Level level, PageBuffer& page,
                                                                CachedParent parent,
                                                                bool* parent_unchanged) {
  const Geometry& geometry = info_.geometry;
  PageBuffer parent_page;
  const auto image = page.image(geometry, level);
  const auto parent_image = parent_page.image(geometry, static_cast<Level>(level + 1));
  const uint64_t cached_version = cache_.VersionOf(parent.node);
  // Whoever else of this compute server hops over the same split has the parent for us, or will.
  const ParentClaim claim(&parents_being_read_, parent.node);
  if (cached_version > parent.version || !claim.mine()) {
    auto state = co_await ReadPage(op, next, level, page);
    co_return state;
  }
  Batch batches[2] = {Batch(next.server()), Batch(parent.node.server())};
  batches[0].Read(next.offset(), image);
  batches[1].Read(parent.node.offset(), parent_image);
  stats_.hop_refresh_bytes.fetch_add(parent_image.size(), std::memory_order_relaxed);
  Status status = co_await op.worker.RoundTrip(batches, op.counts);
  if (!status.ok() && !batches[0].status().ok()) co_return status;
  const bool parent_read = batches[1].status().ok();  // its server may be lost
  if (parent_read && ConstNode::Open(geometry, parent_image) == OpenOutcome::kValid) {
    const ConstNode node(geometry, parent_image);
    *parent_unchanged = node.version() == parent.version;
    cache_.Install(parent.node, node.image());
  }
  if (OpenPage(geometry, level, image) == OpenOutcome::kValid) co_return PageState::kRead;
  auto state = co_await ReadPage(op, next, level, page);
  co_return state;
}

Task<Result<GlobalAddress>> BlinkTree::ReadNode(OpContext& op, std::string_view key, Side side,
                                                Level level, PageBuffer& page,
                                                std::optional<SearchCache::LeafPath> known) {
  Freshness freshness = Freshness::kCached;
  const uint64_t give_up_ns = WaitDeadlineNs(op);
  uint64_t wait_ns = kRetryNsMin;
  uint32_t hops_before = 0, hops_max = kHopsBeforeNewPath;
  while (op.worker.clock().NowNs() < give_up_ns) {
    Result<SearchCache::LeafPath> path = known.value_or(SearchCache::LeafPath());
    if (!known) {
      auto found = co_await FindNode(op, key, side, level, freshness);
      path = std::move(found);
    }
    known.reset();
    if (!path.ok()) co_return path.status();
    if (!path->complete) co_return GlobalAddress();  // the tree is not that high
    GlobalAddress address = path->node;
    auto state = co_await ReadPage(op, address, level, page);
    bool separator_missing = false;
    bool fell_behind = false;
    uint32_t hops = 0;
    while (state.ok() && *state == PageState::kRead) {
      const ConstNode node(info_.geometry, page.image(info_.geometry, level));
      const Fit fit = FitOf(node, key, side, level);
      if (fit == Fit::kRestart) {
        stats_.restarts.fetch_add(1, std::memory_order_relaxed);
        break;
      }
      if (fit == Fit::kCovers) {
        co_await AfterHops(op, hops_before + hops, separator_missing && level == 0, address);
        co_return address;
      }
      fell_behind = hops == hops_max;
      if (fell_behind) break;
      const bool first_hop = hops == 0 && caching() && !path->parent.is_null();
      bool reads_parent = first_hop;
      if (first_hop && level == 0) {
        const bool due = ParentIsDue(path->parent);
        reads_parent = !LearnSplit(path->parent, address, node) || due;
      }
      address = node.right();  // right sibling, or the node that took over
      stats_.hops.fetch_add(1, std::memory_order_relaxed);
      stats_.forwards.fetch_add(fit == Fit::kMoveForward, std::memory_order_relaxed);
      ++hops;
      if (reads_parent) {
        bool unchanged = false;
        const CachedParent parent{path->parent, path->parent_version};
        state = co_await ReadNextAndParent(op, address, level, page, parent, &unchanged);
        separator_missing = unchanged && fit == Fit::kMoveRight;
      } else {
        separator_missing |= fit == Fit::kMoveRight && path->parent.is_null();
        state = co_await ReadPage(op, address, level, page);
      }
    }
    if (!state.ok()) co_return state.status();
    if (fell_behind) {
      if (hops_before > 0 || path->parent.is_null()) freshness = Freshness::kFromRoot;
      hops_before += hops;
      hops_max *= 2;
      continue;
    }
    if (freshness == Freshness::kFromRoot) {  // a merge is telling the parents: let it
      co_await op.worker.Sleep(wait_ns + op.worker.random().Below(wait_ns));
      wait_ns = std::min(2 * wait_ns, kRetryNsMax);
    }
    freshness = Freshness::kFromRoot;
  }
  co_return Status::DeadlineExceeded("no stable path to the key in tree '" + info_.name +
                                     "' within the deadline");
}

Task<void> BlinkTree::AfterHops(OpContext& op, uint32_t hops, bool separator_missing,
                                GlobalAddress node) {
  if (hops == 0) co_return;
  if (separator_missing && pool_->self().id != 0) {
    // Nobody waits long for a lock that somebody else may hold for ever, only to save others a hop.
    OpContext hurried{op.worker, op.counts,
                      std::min(op.deadline_ns, op.worker.clock().NowNs() + kUpkeepNsMax)};
    Status status = co_await CompleteSeparator(hurried, node);
    stats_.upkeep_given_up.fetch_add(!status.ok(), std::memory_order_relaxed);
  }
  if (hops >= options_.hop_threshold && caching()) {
    Status status = co_await RefreshCache(op);
    stats_.upkeep_given_up.fetch_add(!status.ok(), std::memory_order_relaxed);
  }
}

}  // namespace farleaf::index
