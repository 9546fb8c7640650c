// Publish: telling the parents. See publication.h for the cases and README.md for the argument.
#include "dsm/base/mutation.h"
#include "index/blink/publication.h"
#include "index/blink/tree.h"

namespace farleaf::index {

ParentEdit EditParent(Node& parent, std::string_view position, const Publication& publication) {
  ParentEdit edit;
  const GlobalAddress child = publication.child;
  const auto in_range = [&](std::string_view key) {
    return !publication.high || key < *publication.high;
  };
  size_t i = parent.ChildIndexFor(position);
  const bool exact = i == 0 ? parent.LowEquals(position) : parent.CompareKey(i, position) == 0;
  bool insert = false;
  if (exact) {
    if (!in_range(position) && parent.Child(i) != publication.replaced) return edit;
    if (parent.Child(i) != child) {
      parent.SetChild(i, child);
      edit.changed = true;
    }
  } else if (position == publication.low && parent.Child(i) != child) {
    // A merge does not add what is missing: the entry in front leads to the survivor, or to its left.
    insert = publication.insert_missing;
  }
  // One entry in the range is enough. Behind it, what names the replaced node goes too.
  while (i + 1 < parent.count()) {
    const GlobalAddress next = parent.Child(i + 1);
    if (!in_range(parent.Key(i + 1))) {
      if (next != publication.replaced && next != child) break;
    } else if (!insert && parent.Child(i) != child) {
      edit.changed |= next != child;
      parent.SetChild(++i, child);
      continue;
    }
    parent.RemoveChild(i + 1);
    edit.changed = true;
  }
  if (insert) {
    edit.overflow = !parent.InsertChild(i + 1, publication.low, child);
    edit.changed = true;
  } else if (i > 0 && parent.Child(i) == child && parent.Child(i - 1) == child) {
    parent.RemoveChild(i);
    edit.changed = true;
  }
  const bool tail_possible =
      !publication.insert_missing && parent.Child(parent.count() - 1) == child;
  edit.goes_on = parent.has_high() && (in_range(parent.high()) || tail_possible);
  return edit;
}

namespace {
constexpr int kAttemptsMax = 10;
constexpr uint64_t kPublishAgainNsMin = 20 * kNsPerUs;  // doubling: 10 ms in all

bool IsTransient(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kUnknown;
}
}  // namespace

Task<Status> BlinkTree::Publish(OpContext& op, Publication& publication) {
  // The operation's deadline does not end a publication half-way: an entry that it leaves untrue
  // (invariant 4) would stay so. lock_wait_ms bounds each wait.
  // A missing separator, however, leaves nothing untrue: all entries of its range were set before.
  OpContext context{op.worker, op.counts};
  if (publication.replaced.is_null()) context.deadline_ns = op.deadline_ns;
  if (publication.child_lock && publication.insert_missing &&
      Mutated(Mutation::kSplitUnlocksBeforePublish)) {
    Batch early(publication.child_lock->address.server());
    AddChildWriteBack(publication, *publication.child_lock, early);
    AddUnlock(*publication.child_lock, early);
    Status let_go = co_await PostAndFinish(op, *publication.child_lock, early);
    publication.child_lock = nullptr;
    publication.child_status = std::move(let_go);
  }
  Status status = co_await PublishHoldingChild(context, publication);
  uint64_t wait_ns = kPublishAgainNsMin;
  for (int attempt = 1; attempt < kAttemptsMax && IsTransient(status); ++attempt) {
    // Connections broke; again from the beginning, unless the child's lock was let go beside.
    if (publication.child_lock && !publication.child_lock->held()) break;
    co_await op.worker.Sleep(wait_ns);
    wait_ns *= 2;
    Status again = co_await PublishHoldingChild(context, publication);
    status = std::move(again);
  }
  if (publication.child_lock && publication.child_lock->held()) {
    if (!status.ok() && publication.child_lock->redo_kind == dsm::RedoKind::kMergeLeft) {
      // Parents may still name the dead page (invariant 4): the child stays locked until they do not.
      AbandonPage(op, *publication.child_lock, status);
      co_return status;
    }
    Batch batch(publication.child_lock->address.server());
    AddChildWriteBack(publication, *publication.child_lock, batch);
    AddUnlock(*publication.child_lock, batch);
    if (!batch.empty()) {  // a failure is resolved by Finish
      [[maybe_unused]] Status posted = co_await op.worker.RoundTrip(batch, op.counts);
    }
    Status finished = co_await Finish(op, *publication.child_lock, batch);
    publication.child_status = std::move(finished);
  }
  if (status.ok()) status = publication.child_status;
  co_return status;
}

Task<Status> BlinkTree::PublishHoldingChild(OpContext& op, Publication& publication) {
  const Geometry& geometry = info_.geometry;
  std::string position = publication.low;
  Status deferred;
  for (;;) {
    if (position != publication.low && publication.high && position >= *publication.high) {
      auto goes_on = co_await RunGoesOn(op, position, publication);
      if (!goes_on.ok()) co_return goes_on.status();
      if (!*goes_on) co_return deferred;
    }
    LockedPage own;
    LockedPage* const early = std::exchange(publication.parent, nullptr);
    LockedPage& parent = early ? *early : own;
    Status status = co_await LockParent(op, position, publication, parent);
    if (!status.ok()) co_return status;
    if (!parent.held()) {
      if (!publication.insert_missing) co_return deferred;  // there is no parent to correct
      auto grown = co_await GrowRoot(op, publication);
      if (!grown.ok()) co_return grown.status();
      if (*grown) co_return Status::Ok();
      continue;
    }
    Node node = parent.node(geometry);
    std::string next;
    if (node.has_high()) next = node.high();
    const ParentEdit edit = EditParent(node, position, publication);
    stats_.publications_done_by_others.fetch_add(!edit.changed, std::memory_order_relaxed);
    stats_.publications_across_parents.fetch_add(edit.goes_on, std::memory_order_relaxed);
    if (edit.changed && Underfull(node)) {
      publication.parent_underfull = true;
      publication.underfull_key = position;
    }
    publication.root_has_one_child |= node.count() == 1 && !node.has_low() && !node.has_high();
    status = co_await FinishParent(op, parent, edit, publication);
    if (status.code() == StatusCode::kResourceExhausted && publication.insert_missing) {
      // The parent cannot be split: what entries there are in the range must be corrected all the
      // same (invariant 4).
      deferred = status;
      publication.insert_missing = false;
      continue;
    }
    if (!status.ok()) co_return status;
    if (!edit.goes_on) co_return deferred;
    position = std::move(next);
  }
}

Task<Status> BlinkTree::LockParent(OpContext& op, const std::string& position,
                                   Publication& publication, LockedPage& parent) {
  if (parent.held()) {
    const ConstNode node = parent.node(info_.geometry);
    if (caching()) cache_.Install(parent.address, node.image());
    if (FitOf(node, position, Side::kAt, publication.level) == Fit::kCovers) co_return Status::Ok();
    stats_.stale_locks.fetch_add(1, std::memory_order_relaxed);
    Status unlocked = co_await Unlock(op, parent);
    if (!unlocked.ok()) co_return unlocked;
  }
  Status status = co_await LockNodeFor(op, position, publication.level,
                                       LeftLockClass(publication.level), parent);
  co_return status;
}

Task<Status> BlinkTree::FinishParent(OpContext& op, LockedPage& parent, ParentEdit edit,
                                     Publication& publication) {
  if (edit.overflow) {
    PendingEntry pending;
    pending.key = publication.low;
    pending.child = publication.child;
    Batch batch(parent.address.server());
    Status status = co_await SplitAndInsert(op, parent, pending, batch);
    co_return status;
  }
  Batch batch(parent.address.server());
  if (edit.changed) {
    Seal(parent);
    AddWriteBack(parent, batch);
    if (caching()) cache_.Install(parent.address, parent.node(info_.geometry).image());
  }
  AddUnlock(parent, batch);
  LockedPage* child = edit.goes_on ? nullptr : publication.child_lock;
  // A merge's left page stays locked until this has landed: should it get lost, or its author die, nothing
  // but that page's record would tell that the parents name a dead page. On one server its unlock stands behind
  // the parent's; a parent that is handed over is not unlocked, so that Finish would repeat the whole batch.
  const bool is_merge = child && child->redo_kind == dsm::RedoKind::kMergeLeft;
  const bool one_server = child && child->address.server() == parent.address.server();
  if (is_merge && (!one_server || parent.handing_over)) child = nullptr;
  Status status = co_await LetGoWithChild(op, parent, std::move(batch), child, publication);
  co_return status;
}

void BlinkTree::AddChildWriteBack(const Publication& publication, LockedPage& child, Batch& batch) {
  if (!publication.child_changed) return;
  if (publication.child_parts != 0) {
    AddPartsWriteBack(child, publication.child_parts, batch);
  } else {
    AddWriteBack(child, batch);
  }
}

Task<Status> BlinkTree::LetGoWithChild(OpContext& op, LockedPage& parent, Batch parent_batch,
                                       LockedPage* child, Publication& publication) {
  Batch batches[2] = {std::move(parent_batch),
                      Batch(child ? child->address.server() : parent.address.server())};
  // The child's unlock need not wait for the parent's: whoever then takes the child's lock, and wants
  // to correct the parents, must take theirs, and finds what stands in this batch.
  const bool behind = child && child->redo_kind == dsm::RedoKind::kMergeLeft;
  Batch& child_batch = batches[behind ? 0 : 1];
  if (child) {
    AddChildWriteBack(publication, *child, child_batch);
    AddUnlock(*child, child_batch);
  }
  // Failures are resolved by Finish, batch by batch.
  [[maybe_unused]] Status posted = co_await op.worker.RoundTrip(batches, op.counts);
  Status status = co_await Finish(op, parent, batches[0]);
  if (!child) co_return status;
  Status failed = behind ? batches[0].status() : Status::Ok();
  if (failed.ok()) {
    Status finished = co_await Finish(op, *child, child_batch);
    publication.child_status = std::move(finished);
  } else if (!status.ok()) {
    AbandonPage(op, *child, failed);
    publication.child_status =
        Status::Unknown("unlock of a merge's left page: " + failed.ToString());
  } else {
    // The parent's unlock has landed. Whether the child's has too, which stood behind it, its word tells.
    Batch unlock(child->address.server());
    if (child->handing_over) {
      failed = Status::Ok();
    } else {
      unlock.ReplaceWord(LockWordOffset(child->address, child->level()), child->lock_word,
                         &dsm::kUnlockedWord);
    }
    Status finished = co_await Finish(op, *child, unlock, std::move(failed));
    publication.child_status = std::move(finished);
  }
  co_return status;
}

Task<Result<bool>> BlinkTree::RunGoesOn(OpContext& op, std::string_view position,
                                        const Publication& publication) {
  PageBuffer page;
  auto address = co_await ReadNode(op, position, Side::kAt, publication.level, page);
  if (!address.ok()) co_return address.status();
  if (address->is_null()) co_return false;
  const ConstNode node(info_.geometry, page.image(info_.geometry, publication.level));
  co_return node.Child(node.ChildIndexFor(position)) == publication.replaced;
}

Task<Status> BlinkTree::ClaimRoot(OpContext& op, Level level, LockedPage& root) {
  const dsm::ServerId server = pool_->allocator().NextServer(std::nullopt);
  auto grant = co_await pool_->allocator().Allocate(op, PageClassOf(level), server);
  if (!grant.ok()) co_return grant.status();
  Status claimed = co_await ClaimNewPage(op, grant->address, LeftLockClass(level), root);
  if (!claimed.ok()) {
    Status returned = co_await GiveBackUnused(op, level, *grant);
    if (!returned.ok()) co_return returned;
    co_return claimed;
  }
  root.redo_kind = dsm::RedoKind::kNewPage;
  Node node = root.node(info_.geometry);
  node.Init({.tree = info_.id, .level = level});
  node.Seal(grant->version);  // of the page's last life; the caller seals what it makes of it
  co_return Status::Ok();
}

// The new root is locked until the root word names it, and after that until the child is let go, in
// the same round trip: a page in use that nothing names has a lock that tells whose it is.
Task<Result<bool>> BlinkTree::GrowRoot(OpContext& op, Publication& publication) {
  const Geometry& geometry = info_.geometry;
  // LockNodeFor has just read the root word and found the tree too low. Should another thread have
  // read an older one since, the CAS fails.
  const RootWord old_root = cache_.root();
  if (old_root.level + 1 != publication.level) co_return false;
  LockedPage root;
  Status status = co_await ClaimRoot(op, publication.level, root);
  if (!status.ok()) co_return status;
  Node node = root.node(geometry);
  const bool built = node.InsertChild(0, node.low(), old_root.address) &&
                     node.InsertChild(1, publication.low, publication.child);
  FARLEAF_CHECK(built, "two children fit into an empty node");
  Seal(root);

  Batch write(root.address.server());
  AddNewPage(root, write);
  status = co_await PostUntilDone(op, write);
  if (!status.ok()) {  // nothing names it
    co_await VoidNewPage(op, root);
    co_return status;
  }
  pool_->allocator().NoteWritten(PageClassOf(publication.level), root.address);
  auto swapped = co_await SwapRoot(op, old_root, {root.address, publication.level});
  if (!swapped.ok()) {  // it may be the root
    AbandonPage(op, root, swapped.status());
    co_return swapped.status();
  }
  if (!*swapped) {
    stats_.root_races.fetch_add(1, std::memory_order_relaxed);
    co_await VoidNewPage(op, root);
    co_return false;
  }
  stats_.roots_grown.fetch_add(1, std::memory_order_relaxed);
  if (caching()) cache_.Install(root.address, node.image());
  Batch unlock(root.address.server());
  AddUnlock(root, unlock);
  status =
      co_await LetGoWithChild(op, root, std::move(unlock), publication.child_lock, publication);
  if (!status.ok()) co_return status;
  co_return true;
}

Task<Result<bool>> BlinkTree::SwapRoot(OpContext& op, RootWord from, RootWord to) {
  uint64_t old = 0;
  if (Mutated(Mutation::kRootSwappedByWrite)) {
    const uint64_t word = to.Encode();
    Batch write(dsm::kCatalogServer);
    write.WriteWord(info_.root_word_offset(), &word);
    Status written = co_await op.worker.RoundTrip(write, op.counts);
    if (!written.ok()) co_return written;
    cache_.set_root(to);
    co_return true;
  }
  Batch swap(dsm::kCatalogServer);
  swap.CompareAndSwap(info_.root_word_offset(), from.Encode(), to.Encode(), &old);
  Status status = co_await op.worker.RoundTrip(swap, op.counts);
  if (!status.ok()) {
    // The CAS may have run: look. Where the word is neither, it may have run and been followed by
    // another: whatever it was to link or unlink is then given up, never used again.
    auto root = co_await RefreshRoot(op);
    if (!root.ok()) co_return status.code() == StatusCode::kUnknown ? status : root.status();
    if (*root == to) co_return true;
    if (*root == from) co_return false;
    co_return Status::Unknown("swap of the root of tree '" + info_.name +
                              "': " + status.ToString());
  }
  cache_.set_root(old == from.Encode() ? to : RootWord::Decode(old));
  co_return old == from.Encode();
}

Task<Status> BlinkTree::CompleteSeparator(OpContext& op, GlobalAddress address) {
  LockedPage child;
  // Whoever has the lock may be the one that is about to publish.
  Status status = co_await LockPage(op, address, LeftLockClass(0), kNoWait, child);
  if (!status.ok() || !child.held()) co_return status;
  const ConstNode node = child.node(info_.geometry);
  if (node.tree() != info_.id || node.dead() || !node.has_low() || node.level() != 0) {
    status = co_await Unlock(op, child);
    co_return status;
  }
  Publication publication;
  publication.level = static_cast<Level>(node.level() + 1);
  publication.low = node.low();
  if (node.has_high()) publication.high = node.high();
  publication.child = address;
  publication.insert_missing = true;
  publication.child_lock = &child;
  stats_.separators_completed.fetch_add(1, std::memory_order_relaxed);
  status = co_await Publish(op, publication);
  co_return status;
}

}  // namespace farleaf::index
