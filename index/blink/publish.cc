// Publish: telling the parents. See publication.h for the cases and README.md for the argument.
#include "index/blink/publication.h"
#include "index/blink/tree.h"

namespace farleaf::index {

ParentEdit EditParent(Node& parent, std::string_view position, const Publication& publication) {
  ParentEdit edit;
  const bool at_low = position == publication.low;
  const auto before_high = [&](std::string_view key) {
    return !publication.high || key < *publication.high;
  };
  size_t i = parent.ChildIndexFor(position);
  const bool exact = i == 0 ? parent.LowEquals(position) : parent.CompareKey(i, position) == 0;
  bool insert = false;
  if (exact) {
    if (!at_low && !before_high(position) && parent.Child(i) != publication.replaced) return edit;
    if (parent.Child(i) != publication.child) {
      parent.SetChild(i, publication.child);
      edit.changed = true;
    }
  } else if (parent.Child(i) != publication.child) {
    if (!at_low) return edit;
    // A merge does not add what is missing: the entry in front leads to the survivor, or to its left.
    insert = publication.insert_missing;
  }
  // Separators inside the range, and those behind it that still name the replaced node, go.
  while (i + 1 < parent.count()) {
    const std::string next = parent.Key(i + 1);
    const GlobalAddress child = parent.Child(i + 1);
    if (!before_high(next) && child != publication.replaced && child != publication.child) break;
    parent.RemoveChild(i + 1);
    edit.changed = true;
  }
  if (insert) {
    edit.reaches_end = i + 1 == parent.count();
    edit.overflow = !parent.InsertChild(i + 1, publication.low, publication.child);
    edit.changed = true;
  } else {
    if (i > 0 && parent.Child(i) == publication.child && parent.Child(i - 1) == publication.child) {
      parent.RemoveChild(i);
      edit.changed = true;
    }
    edit.reaches_end = parent.Child(parent.count() - 1) == publication.child;
  }
  edit.reaches_end = edit.reaches_end && parent.has_high();
  return edit;
}

Task<Status> BlinkTree::Publish(OpContext& op, Publication& publication) {
  Status status = co_await PublishHoldingChild(op, publication);
  if (publication.child_lock && publication.child_lock->held()) {
    Status unlocked = co_await Unlock(op, *publication.child_lock);
    if (status.ok()) status = unlocked;
  }
  co_return status;
}

Task<Status> BlinkTree::PublishHoldingChild(OpContext& op, Publication& publication) {
  const Geometry& geometry = info_.geometry;
  std::string position = publication.low;
  for (;;) {
    if (position != publication.low && publication.high && position >= *publication.high) {
      auto goes_on = co_await RunGoesOn(op, position, publication);
      if (!goes_on.ok()) co_return goes_on.status();
      if (!*goes_on) co_return Status::Ok();
    }
    LockedPage parent;
    Status status = co_await LockNodeFor(op, position, publication.level,
                                         LeftLockClass(publication.level), parent);
    if (!status.ok()) co_return status;
    if (!parent.held()) {
      if (!publication.insert_missing) co_return Status::Ok();  // there is no parent to correct
      auto grown = co_await GrowRoot(op, publication);
      if (!grown.ok()) co_return grown.status();
      if (*grown) co_return Status::Ok();
      continue;
    }
    Node node = parent.node(geometry);
    std::string next;
    if (node.has_high()) next = node.high();
    const ParentEdit edit = EditParent(node, position, publication);
    if (edit.changed && Underfull(node)) {
      publication.parent_underfull = true;
      publication.underfull_key = position;
    }
    publication.root_has_one_child |= node.count() == 1 && !node.has_low() && !node.has_high();
    status = co_await FinishParent(op, parent, edit, publication);
    if (!status.ok()) co_return status;
    if (!edit.reaches_end) co_return Status::Ok();
    position = std::move(next);
  }
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
  LockedPage* child = edit.reaches_end ? nullptr : publication.child_lock;
  Batch batches[2] = {Batch(parent.address.server()),
                      Batch(child ? child->address.server() : parent.address.server())};
  if (edit.changed) {
    Seal(parent);
    AddWriteBack(parent, batches[0]);
    if (caching()) cache_.Install(parent.address, parent.node(info_.geometry).image());
  }
  AddUnlock(parent, batches[0]);
  // The child's unlock need not wait for the parent's: whoever then takes the child's lock, and wants
  // to correct the parents, must take theirs, and finds what stands in this batch.
  if (child) AddUnlock(*child, batches[1]);
  // Failures are resolved by Finish, batch by batch.
  [[maybe_unused]] Status posted = co_await op.worker.RoundTrip(batches, op.counts);
  Status status = co_await Finish(op, parent, batches[0]);
  if (child) {
    Status child_status = co_await Finish(op, *child, batches[1]);
    if (status.ok()) status = child_status;
  }
  co_return status;
}

Task<Result<bool>> BlinkTree::RunGoesOn(OpContext& op, std::string_view position,
                                        const Publication& publication) {
  PageBuffer page;
  auto address = co_await ReadNode(op, position, Side::kAt, publication.level, page);
  if (!address.ok()) co_return address.status();
  if (address->is_null()) co_return false;
  const ConstNode node(info_.geometry, page.image(info_.geometry));
  co_return node.Child(node.ChildIndexFor(position)) == publication.replaced;
}

Task<Result<bool>> BlinkTree::GrowRoot(OpContext& op, const Publication& publication) {
  const Geometry& geometry = info_.geometry;
  // LockNodeFor has just read the root word and found the tree too low.
  const RootWord old_root = cache_.root();
  if (old_root.level + 1 != publication.level) co_return false;
  const dsm::ServerId server = pool_->allocator().NextServer(std::nullopt);
  auto grant = co_await pool_->allocator().Allocate(op, PageClassOf(publication.level), server);
  if (!grant.ok()) co_return grant.status();
  PageBuffer page;
  StoreLittle<uint64_t>(page.bytes + geometry.image_bytes(), dsm::kUnlockedWord);
  Node root(geometry, page.image(geometry));
  root.Init({.tree = info_.id, .level = publication.level});
  const bool built = root.InsertChild(0, root.low(), old_root.address) &&
                     root.InsertChild(1, publication.low, publication.child);
  FARLEAF_CHECK(built, "two children fit into an empty node");
  root.Seal(grant->version + 1);

  const RootWord new_root{grant->address, publication.level};
  Batch write(grant->address.server());
  write.Write(grant->address.offset(), page.page(geometry));
  write.Write(ChangeCounterOffset(grant->address), page.image(geometry).subspan(8, 8));
  Status status = co_await PostUntilDone(op, write);
  if (!status.ok()) co_return status;
  auto swapped = co_await SwapRoot(op, old_root, new_root);
  if (!swapped.ok()) co_return swapped.status();
  if (!*swapped) {
    status = co_await GiveBackUnused(op, publication.level, {grant->address, grant->version + 1});
    if (!status.ok()) co_return status;
    co_return false;
  }
  stats_.roots_grown.fetch_add(1, std::memory_order_relaxed);
  if (caching()) cache_.Install(grant->address, root.image());
  co_return true;
}

Task<Result<bool>> BlinkTree::SwapRoot(OpContext& op, RootWord from, RootWord to) {
  uint64_t old = 0;
  Batch swap(dsm::kCatalogServer);
  swap.CompareAndSwap(info_.root_word_offset(), from.Encode(), to.Encode(), &old);
  Status status = co_await op.worker.RoundTrip(swap, op.counts);
  if (!status.ok()) {
    // The CAS may have run: look.
    status = co_await RefreshRoot(op);
    if (!status.ok()) co_return status;
    co_return cache_.root() == to;
  }
  cache_.set_root(old == from.Encode() ? to : RootWord::Decode(old));
  co_return old == from.Encode();
}

Task<Status> BlinkTree::CompleteSeparator(OpContext& op, GlobalAddress address) {
  LockedPage child;
  const Level any_level = 0;
  Status status = co_await LockPage(op, address, LeftLockClass(any_level), child);
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
