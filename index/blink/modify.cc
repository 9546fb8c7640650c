// Modify, and with it every single-key write: lock and read the leaf (one round trip),
// decide, write back and unlock (one round trip).
//
// What waits locally for the same lock, and is the leaf's, is done by its holder with the image in hand (combining), unless
// it needs a block for its value, frees one, or would split the leaf: then it is handed the lock, or takes it.
#include "dsm/base/mutation.h"
#include "index/blink/entry_change.h"
#include "index/blink/tree.h"

namespace farleaf::index {

Status BlinkTree::CheckValue(std::string_view value) const {
  if (info_.geometry.layout == Layout::kFixed8) {
    if (value.size() == 8) return Status::Ok();
    return Status::InvalidArgument("a value of tree '" + info_.name +
                                   "' has exactly 8 bytes, not " + std::to_string(value.size()));
  }
  if (value.size() <= kValueBytesMax) return Status::Ok();
  return Status::InvalidArgument("a value has at most " + std::to_string(kValueBytesMax) +
                                 " bytes, not " + std::to_string(value.size()));
}

double BlinkTree::UsualFillMax(const ConstNode& node) const {
  return node.is_leaf() && info_.geometry.leaf_layout == LeafLayout::kParted ? kPartedFillMax : 1.0;
}

bool BlinkTree::Underfull(const ConstNode& node, double slack) const {
  return static_cast<double>(node.used_bytes()) < slack * options_.merge_below *
                                                      UsualFillMax(node) *
                                                      static_cast<double>(node.capacity_bytes());
}

Task<Result<ModifyResult>> BlinkTree::Modify(OpContext& op, std::string_view key,
                                             const ModifyFunction& modify, CurrentValue use) {
  return info_.geometry.leaf_layout == LeafLayout::kParted ? ModifyInParts(op, key, modify, use)
                                                           : ModifyInLeaf(op, key, modify, use);
}

bool BlinkTree::GoesOutOfLine(const ModifyFunction& modify, CurrentValue use,
                              std::string* replacement) const {
  // Of a tree without such values nothing is asked twice.
  if (use != CurrentValue::kPresenceOnly || value_hints_.bytes() == 0) return false;
  return modify(std::nullopt, replacement) == ModifyAction::kWrite &&
         replacement->size() > info_.geometry.inline_value_bytes_max;
}

bool BlinkTree::ApplyInLeaf(LockedPage& leaf, EntryChange& change) const {
  Node node = leaf.node(info_.geometry);
  const ConstNode::Position at = node.Search(change.key);
  std::optional<std::string_view> current;
  if (at.found) {
    const StoredValue stored = node.Value(at.index);
    if (stored.out_of_line) return false;
    current = change.use == CurrentValue::kRead ? stored.bytes : std::string_view();
  }
  Decide(change, current);
  if (change.result.action == ModifyAction::kKeep) return true;
  if (change.result.action == ModifyAction::kDelete) {
    node.Remove(at.index);
    change.merges = ShouldMerge(node);
    return true;
  }
  if (change.replacement.size() > info_.geometry.inline_value_bytes_max) return false;
  const StoredValue stored{change.replacement, false};
  return at.found ? node.ReplaceValue(at.index, stored) : node.Insert(at.index, change.key, stored);
}

void BlinkTree::CombineInLeaf(LockedPage& leaf, dsm::LocalLockTable::TakenWork* served) {
  dsm::LocalLockTable& locks = pool_->locks();
  dsm::LocalLockTable::TakenWork taken, left;
  locks.TakeWork(leaf.address, kCombinedMax, &taken);
  const ConstNode node = leaf.node(info_.geometry);
  EntryChange* merges = nullptr;
  for (auto* waiter : taken) {
    auto& change = static_cast<EntryChange&>(dsm::LocalLockTable::WorkOf(waiter));
    const bool same_leaf = !change.alone && change.tree == this &&
                           (FitOf(node, change.key, Side::kAt, 0) == Fit::kCovers ||
                            Mutated(Mutation::kCombinesOtherLeaves));
    const bool done = same_leaf && ApplyInLeaf(leaf, change);
    if (same_leaf && !done) {
      change.alone = true;  // not to be looked at again by each who holds the lock
      change.Forget();
    } else if (std::exchange(change.merges, false)) {
      merges = &change;
    }
    (done ? served : &left)->push_back(waiter);
  }
  locks.PutBack(leaf.address, left);
  if (served->empty()) return;
  // One of them, if it is so in the end.
  if (merges) merges->merges = Underfull(node);
  stats_.combined.fetch_add(served->size(), std::memory_order_relaxed);
  if (Mutated(Mutation::kServedBeforeWriteBack)) {
    dsm::LocalLockTable::Serve(*served);
    served->clear();
  }
}

Task<Result<ModifyResult>> BlinkTree::ModifyInLeaf(OpContext& op, std::string_view key,
                                                   const ModifyFunction& modify, CurrentValue use) {
  EntryChange change(this, key, modify, use);
  std::string for_absent;  // the value that the key gets if it is absent, in no other's reach
  const bool goes_out_of_line = GoesOutOfLine(modify, use, &for_absent);
  change.alone = goes_out_of_line;
  if (!goes_out_of_line) {
    if (auto done = ModifyInPlace(op, key, modify, use)) co_return std::move(*done);
  }
  FARLEAF_CO_RETURN_IF_ERROR(CheckKey(key));
  if (HasUnfinished()) [[unlikely]] {
    // What cannot be resolved yet is no reason to fail this write.
    [[maybe_unused]] Status resolved = co_await ResolveDue(op, 0);
  }
  LockedPage leaf;
  if (options_.write_combining == WriteCombining::kOn) leaf.work = &change;
  // What usually happens, in one frame: nobody has the leaf, and it is the one expected.
  bool in_hand = false;
  SearchCache::Path path;
  if (caching()) path = cache_.Find(key, Side::kAt, 0);
  if (path.complete && !path.node.is_null()) {
    Batch batch(path.node.server());
    if (BeginLock(path.node, LeftLockClass(0), leaf, batch)) {
      NoteCacheHits(op, 1);
      Status posted = co_await op.worker.RoundTrip(batch, op.counts);
      leaf.begun.status = std::move(posted);
      in_hand = TakeBegunLeaf(leaf) &&
                FitOf(leaf.node(info_.geometry), key, Side::kAt, 0) == Fit::kCovers;
    }
  }
  Status status;
  if (!in_hand) status = co_await LockNodeFor(op, key, 0, LeftLockClass(0), leaf);
  if (!status.ok()) co_return status;
  if (leaf.turn.served) {
    if (!change.status.ok()) co_return change.status;
    if (change.merges) co_await MergeAfterDelete(op, key);
    co_return change.result;
  }

  const ConstNode::Position at = leaf.node(info_.geometry).Search(key);
  std::string fetched;
  std::optional<std::string_view> current;
  std::optional<OutOfLineValue> old_block;
  if (at.found) {
    const StoredValue stored = leaf.node(info_.geometry).Value(at.index);
    current = stored.bytes;
    if (stored.out_of_line) old_block = DecodeOutOfLine(stored.bytes);
    if (use != CurrentValue::kRead) {
      current = std::string_view();
    } else if (stored.out_of_line) {
      auto state = co_await ReadValue(op, *old_block, &fetched);
      if (state.ok() && *state != ValueState::kRead) {
        state =
            Status::Corruption("the leaf " + leaf.address.ToString() + " names the value block " +
                               old_block->block.ToString() + ", which holds another value");
      }
      if (!state.ok()) {
        Status unlocked = co_await Unlock(op, leaf);
        if (!unlocked.ok()) co_return unlocked;
        co_return state.status();
      }
      current = fetched;
    }
  }
  if (goes_out_of_line && !at.found) {
    change.replacement = std::move(for_absent);
    change.status = CheckValue(change.replacement);
    change.result.action = change.status.ok() ? ModifyAction::kWrite : ModifyAction::kKeep;
  } else {
    Decide(change, current);
  }
  if (change.result.action == ModifyAction::kKeep) {
    Status unlocked = co_await Unlock(op, leaf);
    if (!unlocked.ok()) co_return unlocked;
    if (!change.status.ok()) co_return change.status;
    co_return change.result;
  }
  if (change.result.action == ModifyAction::kDelete) {
    status = co_await DeleteEntry(op, leaf, at.index, key, old_block);
  } else {
    status = co_await WriteEntry(op, leaf, at, key, change.replacement, old_block);
  }
  if (!status.ok()) co_return status;
  co_return change.result;
}

bool BlinkTree::ShouldMerge(const ConstNode& leaf) const {
  // A leaf that stays underfull is looked at again at every fourth removal, not at each.
  return Underfull(leaf) && leaf.count() % 4 == 0 && (leaf.has_low() || leaf.has_high());
}

Task<void> BlinkTree::MergeAfterDelete(OpContext& op, std::string_view key) {
  // The delete is done; a merge that cannot be finished now (a full or failing pool) is left for a
  // later one, and the tree is correct without it.
  Status merged = co_await MergeAround(op, 0, std::string(key), {});
  stats_.merges_given_up.fetch_add(!merged.ok(), std::memory_order_relaxed);
}

Task<Status> BlinkTree::DeleteEntry(OpContext& op, LockedPage& leaf, size_t index,
                                    std::string_view key, std::optional<OutOfLineValue> old_block) {
  Node node = leaf.node(info_.geometry);
  node.Remove(index);
  const bool merges = ShouldMerge(node);
  dsm::LocalLockTable::TakenWork served;
  CombineInLeaf(leaf, &served);
  Seal(leaf);
  Batch batch(leaf.address.server());
  Status status = co_await WriteBackAndFree(op, leaf, batch, old_block, served);
  if (!status.ok()) co_return status;
  if (merges) co_await MergeAfterDelete(op, key);
  co_return Status::Ok();
}

Task<Status> BlinkTree::WriteEntry(OpContext& op, LockedPage& leaf, ConstNode::Position at,
                                   std::string_view key, std::string_view value,
                                   std::optional<OutOfLineValue> old_block) {
  StoredValue stored{value, false};
  NewValue fresh;
  Node node = leaf.node(info_.geometry);
  const auto put = [&] {
    return at.found ? node.ReplaceValue(at.index, stored) : node.Insert(at.index, key, stored);
  };
  const bool is_long = value.size() > info_.geometry.inline_value_bytes_max;
  bool fits = !is_long && put();
  Batch batch(leaf.address.server());
  // A value that takes the place of one with a block, and does not fit, gets a block too: its entry is as
  // long as the old one. So a leaf never splits while there is a block to be freed: the redo record, which
  // names that block for whoever comes after us, would have to name the new leaf too.
  if (is_long || (!fits && old_block)) {
    // Noted behind the write-back, for which the block is filled, and the leaf's checksum made, meanwhile.
    if (value_hints_.enabled()) value_hints_.Prefetch(ValueHints::HashOf(info_.id, key));
    Status placed = co_await PrepareValue(op, value, leaf.address.server(), fresh);
    if (placed.ok()) placed = co_await PlaceValue(op, key, fresh, batch);
    if (!placed.ok()) {
      Status unlocked = co_await Unlock(op, leaf);
      if (!unlocked.ok()) co_return unlocked;
      co_return placed;
    }
    stored = {{fresh.encoded, kOutOfLineBytes}, true};
    fits = put();
  }
  Status status;
  if (fits) {
    dsm::LocalLockTable::TakenWork served;
    CombineInLeaf(leaf, &served);
    Seal(leaf);
    if (at.found && served.empty()) leaf.replaced = static_cast<uint32_t>(at.index);
    status = co_await WriteBackAndFree(op, leaf, batch, old_block, served);
  } else {
    FARLEAF_CHECK(!old_block, "an entry that names a block does not fit where another did");
    PendingEntry pending;
    pending.key = key;
    pending.value = stored;
    pending.replaces = at.found;
    status = co_await SplitAndInsert(op, leaf, pending, batch);
  }
  if (!fresh.bytes.empty()) co_await SettleNewValue(op, key, fresh, status);
  co_return status;
}

Task<void> BlinkTree::SettleNewValue(OpContext& op, std::string_view key, const NewValue& fresh,
                                     Status written) {
  const OutOfLineValue where = DecodeOutOfLine({fresh.encoded, kOutOfLineBytes});
  if (written.ok()) {
    if (value_hints_.enabled()) NoteValue(ValueHints::HashOf(info_.id, key), where);
    if (const auto page_class = BlockClassOf(where)) {
      pool_->allocator().NoteWritten(*page_class, where.block);
    }
  } else if (written.code() == StatusCode::kUnknown) {
    pool_->allocator().GiveUp();  // if no leaf names it
  } else {  // no leaf names it: the outcome is the same whether or not it can be freed
    Status discarded = co_await DiscardValue(op, where);
    stats_.upkeep_given_up.fetch_add(!discarded.ok(), std::memory_order_relaxed);
  }
}

}  // namespace farleaf::index
