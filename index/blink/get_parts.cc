// Gets of a parted leaf: one READ of the part that the key belongs to, or of the few that entries of that
// part went past.
//
// The cached separators say which fences the leaf should have. If the part's digest is theirs, the leaf
// was alive with just these fences when the part was read. Where it says that it is the key's home, its
// answer is the leaf's, present or absent; else the home is read next. If the digest is another, the cache
// is stale: the leaf is read whole, and its parent beside it.
#include <algorithm>
#include <cstring>

#include "dsm/base/mutation.h"
#include "index/blink/entry_change.h"
#include "index/blink/tree.h"

namespace farleaf::index {

namespace {

using dsm::SharedReads;

void CopyParts(std::span<const std::byte> from, PartMask parts, std::span<std::byte> into) {
  ForEachRun(parts, [&](size_t first, size_t count) {
    std::memcpy(into.data() + first * kPartBytes, from.data() + first * kPartBytes,
                count * kPartBytes);
  });
}
}  // namespace

void BlinkTree::AddPartReads(GlobalAddress leaf, PartMask parts, std::span<std::byte> image,
                             Batch& batch) const {
  ForEachRun(parts, [&](size_t first, size_t count) {
    const size_t offset = first * kPartBytes;
    batch.Read(leaf.offset() + offset, image.subspan(offset, count * kPartBytes));
  });
}

void BlinkTree::NoteHints(GlobalAddress leaf, const LeafParts& parts) {
  if (!caching()) return;
  const FreshHints fresh = HintsOf(parts);
  if ((hints_.Load(leaf) & fresh.about) == fresh.bits) [[likely]]
    return;
  hints_.Update(leaf, fresh.about, fresh.bits);
}

void BlinkTree::PrefetchHome(OpContext& op, const SearchCache::LeafPath& path, uint64_t key) const {
  const LeafHomes homes(PartsOf(info_.geometry.leaf_bytes), Placement::kOrdered, path.range);
  op.worker.transport().Prefetch(
      GlobalAddress(path.node.server(), path.node.offset() + homes.Of(key) * kPartBytes),
      kPartBytes);
}

PartMask BlinkTree::UsualWindow(const SearchCache::LeafPath& path, uint64_t key) const {
  const size_t parts = PartsOf(info_.geometry.leaf_bytes);
  if (!caching()) [[unlikely]] {
    const LeafHomes ordered(parts, Placement::kOrdered, path.range);
    // One more of those in order, as most are: a key that is absent is asked for behind its neighbours', too.
    return WindowOfChain(key, ordered, kUsualParts + 1) |
           WindowOfChain(key, LeafHomes(parts, Placement::kHashed, path.range), kUsualParts);
  }
  const PartHints hints{hints_.Load(path.node)};
  return WindowToRead(key, LeafHomes(parts, hints.placement(), path.range), hints);
}

PartMask BlinkTree::NextWindow(const SearchCache::LeafPath& path, const LeafParts& leaf,
                               uint64_t key) const {
  // Without a cache nothing has been learned that would tell more.
  if (!caching()) return leaf.all();
  return UsualWindow(path, key) | WindowOfChain(key, leaf.homes(), ChainPartsOf(leaf.parts()));
}

PartMask BlinkTree::WindowToChange(const SearchCache::LeafPath& path,
                                   const EntryChange& change) const {
  const size_t parts = PartsOf(info_.geometry.leaf_bytes);
  if (options_.small_write_backs == SmallWriteBacks::kOff) return AllParts(parts);
  if (change.use == CurrentValue::kMustExist) return UsualWindow(path, change.number);
  if (!caching()) return AllParts(parts);  // or a split would need a round trip more
  const PartHints hints{hints_.Load(path.node)};
  return WindowToCreate(change.number, LeafHomes(parts, hints.placement(), path.range), hints);
}

Task<Result<std::optional<bool>>> BlinkTree::GetFromParts(OpContext& op, std::string_view key,
                                                          std::string* value, PageBuffer& page,
                                                          bool* covers) {
  SearchCache::LeafPath path;
  if (caching()) path = cache_.FindLeaf(key);
  if (path.complete && !path.node.is_null()) [[likely]] {
    NoteCacheHits(op, 1);
  } else {
    auto found = co_await FindNode(op, key, Side::kAt, 0, Freshness::kCached);
    if (!found.ok()) co_return found.status();
    path = *found;
  }
  const auto image = page.image(info_.geometry, 0);
  const uint64_t number = LoadBig64(key.data());
  PrefetchHome(op, path, number);
  PartMask window = UsualWindow(path, number);
  const bool shares = options_.read_sharing == ReadSharing::kOn;
  SharedReads& shared = op.worker.shared_reads();
  SharedReads::Reader reader(path.node, window, image);
  for (int reads = 0; reads < kPartReadsMax; ++reads) {
    auto joined = SharedReads::Joined::kNobody;
    if (shares) joined = co_await shared.Join(reader);
    if (joined == SharedReads::Joined::kServed) {
      stats_.shared_reads.fetch_add(1, std::memory_order_relaxed);
    } else {
      Batch batch(path.node.server());
      AddPartReads(path.node, window, image, batch);
      auto trip = op.worker.RoundTrip(batch, op.counts);
      if (shares && joined != SharedReads::Joined::kFailed && !trip.await_ready()) {
        shared.Lead(reader);
        if (!Mutated(Mutation::kJoinsReadInFlight)) shared.Posted(reader);
      }
      Status status = co_await trip;
      if (reader.leads()) {
        const auto brought =
            status.ok() ? SharedReads::Brought::kBytes : SharedReads::Brought::kNothing;
        shared.Complete(reader, brought,
                        [image, window](std::span<std::byte> into, std::span<std::byte>) {
                          CopyParts(image, window, into);
                        });
      }
      if (!status.ok()) co_return status;
    }
    const LeafParts leaf(image, window, path.range);
    if (!leaf.Fits(path.fence_digest)) [[unlikely]] {
      if (!leaf.HasDigest(path.fence_digest)) break;
      stats_.torn_reads.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    NoteHints(path.node, leaf);
    const LeafParts::Place at = leaf.Find(number);
    if (at.outcome == LeafParts::Outcome::kYes) {
      AssignWord(leaf.part(at.part).value(at.slot), value);
      co_return true;
    }
    if (at.outcome == LeafParts::Outcome::kNo) co_return false;
    stats_.more_parts.fetch_add(1, std::memory_order_relaxed);
    window |= PartMask{1} << at.part | NextWindow(path, leaf, number);
    reader.set_part(window);
  }
  stats_.stale_parts.fetch_add(1, std::memory_order_relaxed);
  if (!caching()) {
    auto found = co_await ReadNode(op, key, Side::kAt, 0, page, path);
    if (!found.ok()) co_return found.status();
    *covers = true;
    co_return std::nullopt;
  }
  Result<PageState> state = PageState::kForeign;
  const bool learns = !path.parent.is_null() && !ParentIsDue(path.parent);
  if (path.parent.is_null() || learns) {
    auto read = co_await ReadPage(op, path.node, 0, page);
    state = std::move(read);
  } else {
    const CachedParent parent{path.parent, path.parent_version};
    bool unchanged = false;
    auto read = co_await ReadNextAndParent(op, path.node, 0, page, parent, &unchanged);
    state = std::move(read);
  }
  if (!state.ok()) co_return state.status();
  if (*state != PageState::kRead) co_return std::nullopt;
  const ConstNode whole(info_.geometry, image);
  if (learns) LearnSplit(path.parent, path.node, whole);
  *covers = FitOf(whole, key, Side::kAt, 0) == Fit::kCovers;
  co_return std::nullopt;
}

}  // namespace farleaf::index
