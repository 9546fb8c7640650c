// What is written back of a locked page: a redo record of what changed, then what changed itself, in as few
// WRITEs as that is worth, then, in the search layer, the change counter.
#include <array>

#include "dsm/base/mutation.h"
#include "index/blink/tree.h"

namespace farleaf::index {

namespace {
/// What a WRITE costs beside its bytes: headers on the wire, and an entry of the queue pair.
constexpr size_t kWriteCostBytes = 64;
constexpr size_t kChangedRangesMax = 32;
}  // namespace

void BlinkTree::Seal(LockedPage& locked) {
  const Node node = locked.node(info_.geometry);
  SealNode(node, node.version() + 1);
}

dsm::RedoHead BlinkTree::RedoHeadOf(const LockedPage& locked) const {
  dsm::RedoHead head;
  head.kind = locked.redo_kind;
  head.lock_word = locked.lock_word;
  head.page = locked.address;
  head.follow_up = locked.follow_up;
  head.follow_up_word = locked.follow_up_word;
  head.level = locked.level();
  head.tree = static_cast<uint8_t>(info_.id);
  return head;
}

size_t BlinkTree::AddRedo(LockedPage& locked, std::span<const std::byte> before,
                          std::span<const std::byte> after, Batch& batch) {
  dsm::RedoHead head = RedoHeadOf(locked);
  // An announcement is no write-back, and the buffer may not hold the page yet.
  const bool announces = head.kind == dsm::RedoKind::kDying && after.empty();
  head.write_back = announces ? 0 : locked.node(info_.geometry).version();
  const size_t bytes = dsm::EncodeRedo(head, before, after, locked.redo);
  AddRedoRecord(locked, bytes, batch);
  return bytes;
}

void BlinkTree::AddRedoRecord(LockedPage& locked, size_t bytes, Batch& batch) {
  const dsm::RedoSlots& slots = pool_->redo_slots(locked.address.server());
  if (Mutated(Mutation::kNoRedoRecord)) return;
  batch.Write(slots.SlotOffset(locked.lock_word), std::span(locked.redo).first(bytes));
}

void BlinkTree::AddWriteBack(LockedPage& locked, Batch& batch) {
  if (options_.placement == Placement::kHashed) locked.placement = Placement::kHashed;
  const auto raw = locked.Pack(info_.geometry);
  if (locked.packed) NoteWholeLeaf(locked, raw);
  // Before it lands: whoever reads the leaf meanwhile may see it either way.
  if (locked.level() == 0 && !value_lists_.empty())
    value_lists_.NoteWritten(locked.address, locked.node(info_.geometry), locked.replaced);
  const auto before = locked.before.image(info_.geometry, locked.level());
  const size_t redo_bytes = AddRedo(locked, before, raw, batch);
  if (!locked.packed && options_.small_write_backs == SmallWriteBacks::kOn) {
    AddChanged(locked, raw, redo_bytes, batch);
  } else if (locked.packed && locked.added) {
    AddLeafAndEntry(locked, raw, batch);
  } else {
    AddImage(locked, raw, batch);
  }
}

void BlinkTree::NoteWholeLeaf(LockedPage& locked, std::span<std::byte> raw) {
  const size_t parts = PartsOf(info_.geometry.leaf_bytes);
  FreshHints fresh = HintsOf(LeafParts(raw, AllParts(parts), RangeOf(locked.node(info_.geometry))));
  // What was just split, most often, grows: its number of entries is soon that of others.
  fresh.ForgetCount(parts);
  hints_.Update(locked.address, fresh.about, fresh.bits);
}

void BlinkTree::AddLeafAndEntry(LockedPage& locked, std::span<std::byte> raw, Batch& batch) {
  const PartMask all = AllParts(PartsOf(info_.geometry.leaf_bytes));
  const LeafParts leaf(raw, all, RangeOf(locked.node(info_.geometry)));
  const LeafParts::Place place = leaf.Find(*locked.added);
  FARLEAF_CHECK(place.outcome == LeafParts::Outcome::kYes, locked.address, *locked.added);
  const size_t begin = place.part * kPartBytes, end = begin + kPartBytes;
  const uint64_t offset = locked.address.offset();
  if (begin > 0) batch.Write(offset, raw.first(begin));
  batch.Write(offset + end, raw.subspan(end));
  batch.Write(offset + begin, raw.subspan(begin, kPartBytes));
}

// The page is under one checksum, which stands in its first words and changes with every write-back, as do
// both versions: an image that has not all of the changes is torn, in whatever pieces they are written.
void BlinkTree::AddChanged(const LockedPage& locked, std::span<const std::byte> raw,
                           size_t redo_bytes, Batch& batch) {
  std::array<dsm::RedoExtent, kChangedRangesMax> ranges;
  const size_t found =
      dsm::RedoExtents(RedoHeadOf(locked), std::span(locked.redo).first(redo_bytes), ranges);
  if (found > ranges.size()) {
    AddImage(locked, raw, batch);
    return;
  }
  size_t count = 0, cost = 0;
  for (const dsm::RedoExtent& range : std::span(ranges).first(found)) {
    const size_t end = range.offset + range.length;
    const size_t last_end = count == 0 ? 0 : ranges[count - 1].offset + ranges[count - 1].length;
    if (count > 0 && range.offset - last_end <= kWriteCostBytes) {
      cost += end - last_end;
      ranges[count - 1].length = static_cast<uint32_t>(end - ranges[count - 1].offset);
    } else {
      cost += kWriteCostBytes + range.length;
      ranges[count++] = range;
    }
  }
  if (cost >= kWriteCostBytes + raw.size()) {
    AddImage(locked, raw, batch);
    return;
  }
  for (const dsm::RedoExtent& range : std::span(ranges).first(count)) {
    batch.Write(locked.address.offset() + range.offset, raw.subspan(range.offset, range.length));
  }
  AddChangeCounter(locked, raw, batch);
}

void BlinkTree::AddImage(const LockedPage& locked, std::span<const std::byte> raw, Batch& batch) {
  batch.Write(locked.address.offset(), raw);
  AddChangeCounter(locked, raw, batch);
}

uint64_t BlinkTree::ChangeCounterOffset(GlobalAddress address) const {
  const dsm::RegionLayout& layout = pool_->allocator().layout(address.server());
  const uint64_t chunk_offset = layout.ChunkOffset(layout.ChunkOf(address.offset()));
  const auto index =
      PageIndexInChunk(PageClassOf(1), layout.chunk_bytes, address.offset() - chunk_offset);
  FARLEAF_CHECK(index, address);
  return chunk_offset + *index * 8;
}

void BlinkTree::AddChangeCounter(const LockedPage& locked, std::span<const std::byte> raw,
                                 Batch& batch) {
  // The change counter is the version, which stands at byte 8 of the image.
  if (locked.level() > 0) batch.Write(ChangeCounterOffset(locked.address), raw.subspan(8, 8));
}

void BlinkTree::AddWriteBackAndUnlock(LockedPage& locked, Batch& batch) {
  const bool unlock_first = Mutated(Mutation::kUnlockBeforeWriteBack);
  if (unlock_first) AddUnlock(locked, batch);
  AddWriteBack(locked, batch);
  if (!unlock_first) AddUnlock(locked, batch);
}

Task<Status> BlinkTree::WriteBackAndUnlock(OpContext& op, LockedPage& locked, Batch& batch) {
  AddWriteBackAndUnlock(locked, batch);
  Status status = co_await PostAndFinish(op, locked, batch);
  co_return status;
}

}  // namespace farleaf::index
