// A get of a parted leaf in memory that this process can load from (shared memory): its parts are copied as a READ would
// copy them, and believed by the same checks, without a batch and a coroutine around that. Whatever else there is to be done
// goes the way that all fabrics have: a leaf that is not the one expected, or is being written, is read again there.
#include "index/blink/leaf_peek.h"
#include "index/blink/parts_look.h"
#include "index/blink/tree.h"

namespace farleaf::index {

std::optional<bool> BlinkTree::GetPartsInPlace(OpContext& op, std::string_view key,
                                               std::string* value) {
  if (options_.in_place == InPlace::kOff || !caching()) return std::nullopt;
  const SearchCache::LeafPath path = cache_.FindLeaf(key);
  if (!path.complete || path.node.is_null()) return std::nullopt;
  const Geometry& geometry = info_.geometry;
  const std::byte* const leaf = op.worker.transport().Mapped(path.node, geometry.page_bytes(0));
  if (leaf == nullptr) return std::nullopt;
  NoteCacheHits(op, 1);
  const uint64_t number = LoadBig64(key.data());
  PrefetchHome(op, path, number);
  PartMask window = UsualWindow(path, number);
  PageBuffer page;
  for (int looks = 0; looks < kPartReadsMax; ++looks) {
    dsm::FabricCounts read{.round_trips = 1};
    const auto parts = LookAtParts(MappedPage(leaf), window, path.range, path.fence_digest,
                                   page.image(geometry, 0), &read);
    if (!parts) break;
    op.counts += read;
    NoteHints(path.node, *parts);
    const LeafParts::Place at = parts->Find(number);
    if (at.outcome == LeafParts::Outcome::kYes) {
      AssignWord(parts->part(at.part).value(at.slot), value);
      return true;
    }
    if (at.outcome == LeafParts::Outcome::kNo) return false;
    stats_.more_parts.fetch_add(1, std::memory_order_relaxed);
    window |= PartMask{1} << at.part | NextWindow(path, *parts, number);
  }
  return std::nullopt;
}

}  // namespace farleaf::index
