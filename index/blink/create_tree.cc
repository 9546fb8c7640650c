// Making a tree: its first leaf, which is its root, then the catalog's entry.
//
// The first leaf is a new page like any other: locked until it is linked, which the catalog's entry does, and
// with a redo record that says so. By cases, of an author who dies:
//   before the entry's state word   no tree; whoever recovers the author finds the lock, and that no root
//                                   word names the page: the page is free (RecoverLocks)
//   behind it                       a tree; its leaf is unlocked by whoever wants it, as the root word names it
// While the leaf is locked nobody changes the root word: so the entry may be written again and again.
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dsm/member_holdings.h"
#include "dsm/redo_record.h"
#include "index/blink/catalog_entry.h"
#include "index/blink/page.h"
#include "index/blink/search_cache.h"

namespace farleaf::index {

namespace {

/// The tree's first leaf on its way.
struct FirstLeaf {
  dsm::PageClass page_class;
  GlobalAddress address;
  uint64_t lock_word = 0;
  PageBuffer page;
  std::byte redo[dsm::RedoBytesMax(0)];

  uint64_t lock_offset() const { return address.offset() + dsm::LockWordOffset(page_class); }
};

/// As long as there is hope. REQUIRES: the batch may land as often as it likes.
Task<Status> PostAgain(OpContext& op, Batch& batch) {
  Status status, unknown;  // of an attempt that may land yet, for all that the later ones tell
  uint64_t wait_ns = dsm::UnresolvedLocks::kWaitNsMin;
  for (int attempt = 0; attempt < kCatalogAttemptsMax; ++attempt, wait_ns *= 2) {
    if (attempt > 0) co_await op.worker.Sleep(wait_ns);
    status = co_await op.worker.RoundTrip(batch, op.counts);
    if (status.ok()) co_return status;
    if (status.code() == StatusCode::kUnknown) unknown = status;
    if (status.code() == StatusCode::kFenced) break;
  }
  co_return unknown.ok() ? status : unknown;
}

Task<Status> LockFirstLeaf(OpContext& op, dsm::Pool& pool, FirstLeaf& leaf) {
  dsm::RedoSlots& slots = pool.redo_slots(leaf.address.server());
  const std::atomic<bool> lost = false;  // there is no turn to lose
  for (;;) {
    if (auto word = co_await slots.TakeInTurn(op.worker, LeftLockClass(0), op.deadline_ns, lost)) {
      leaf.lock_word = *word;
      co_return Status::Ok();
    }
    if (op.expired()) co_return Status::DeadlineExceeded("waiting for a redo slot");
  }
}

/// Granted, and not written.
Task<Status> GiveBack(OpContext& op, dsm::Pool& pool, const FirstLeaf& leaf, uint64_t version) {
  const uint64_t word = dsm::FreeWordOf(pool.self());
  Batch batch(leaf.address.server());
  batch.WriteWord(leaf.lock_offset(), &word);
  Status status = co_await PostAgain(op, batch);
  if (status.ok()) {
    pool.allocator().Retire(pool.clock(), leaf.page_class, {leaf.address, version});
  } else {
    pool.allocator().GiveUp();
  }
  co_return status;
}

Task<Status> WriteFirstLeaf(OpContext& op, dsm::Pool& pool, const TreeInfo& info, FirstLeaf& leaf) {
  const Geometry& geometry = info.geometry;
  leaf.page_class = {dsm::ChunkKind::kLeaf, geometry.leaf_bytes, 0};
  const dsm::ServerId server = pool.allocator().NextServer(std::nullopt);
  auto grant = co_await pool.allocator().Allocate(op, leaf.page_class, server);
  if (!grant.ok()) co_return grant.status();
  leaf.address = grant->address;
  Status status = co_await LockFirstLeaf(op, pool, leaf);
  if (!status.ok()) {
    [[maybe_unused]] Status given_back = co_await GiveBack(op, pool, leaf, grant->version);
    co_return status;
  }
  std::memset(leaf.page.bytes, 0, sizeof leaf.page.bytes);
  Node node(geometry, leaf.page.image(geometry, 0));
  node.Init({.tree = info.id});
  SealNode(node, grant->version + 1);
  PackNewPage(geometry, 0, leaf.page.image(geometry, 0));
  StoreLittle(leaf.page.bytes + geometry.image_bytes(0), leaf.lock_word);
  dsm::RedoHead head{.kind = dsm::RedoKind::kNewPage, .lock_word = leaf.lock_word};
  head.page = leaf.address;
  head.write_back = grant->version + 1;
  head.tree = static_cast<uint8_t>(info.id);
  const size_t redo_bytes = dsm::EncodeRedo(head, {}, {}, leaf.redo);
  Batch batch(leaf.address.server());
  batch.Write(pool.redo_slots(leaf.address.server()).SlotOffset(leaf.lock_word),
              std::span(leaf.redo).first(redo_bytes));
  batch.Write(leaf.address.offset(), leaf.page.page(geometry, 0));
  status = co_await PostAgain(op, batch);
  if (status.ok()) {
    pool.allocator().NoteWritten(leaf.page_class, leaf.address);
  } else {
    pool.allocator().GiveUp();  // the slot is never used again: the page may be locked with it
  }
  co_return status;
}

/// By a swap: if it has landed, and is tried again, somebody else may have locked the leaf.
Task<Status> UnlockFirstLeaf(OpContext& op, dsm::Pool& pool, FirstLeaf& leaf) {
  uint64_t old = 0;
  Batch batch(leaf.address.server());
  batch.CompareAndSwap(leaf.lock_offset(), leaf.lock_word, dsm::kUnlockedWord, &old);
  Status status = co_await PostAgain(op, batch);
  if (status.ok()) pool.redo_slots(leaf.address.server()).Give(leaf.lock_word);
  co_return status;
}

/// Whether there is a tree, or its leaf is let go, is not to be learned: whoever opens it, if there is one,
/// settles the lock as any other (Upkeep); until then the slot keeps its record.
void LoseFirstLeaf(OpContext& op, dsm::Pool& pool, const FirstLeaf& leaf, TreeId tree) {
  pool.allocator().GiveUp();
  dsm::UnresolvedLocks::Lock lock{.address = leaf.address, .word = leaf.lock_word, .tree = tree};
  if (op.worker.in_doubt()) lock.worker = op.worker.number();
  lock.keeps_slot = true;
  lock.page_bytes = leaf.page_class.page_bytes;
  pool.unresolved_locks().Add(lock);
}

/// The part of CreateTree that runs under the catalog's lock.
Task<Result<TreeInfo>> CreateLocked(OpContext& op, dsm::Pool& pool, TreeInfo info) {
  auto trees = co_await ListTrees(op, pool);
  if (!trees.ok()) co_return trees.status();
  std::vector<bool> used(dsm::kCatalogEntries);
  for (const TreeInfo& tree : *trees) {
    if (tree.name == info.name) {
      co_return Status::AlreadyExists("tree '" + info.name + "' already exists");
    }
    used[tree.id] = true;
  }
  info.id = 1;
  while (info.id <= kTreeIdMax && used[info.id]) ++info.id;
  if (info.id > kTreeIdMax) {
    co_return Status::ResourceExhausted("the catalog is full: " + std::to_string(kTreeIdMax) +
                                        " trees");
  }
  FirstLeaf leaf;
  Status status = co_await WriteFirstLeaf(op, pool, info, leaf);
  if (!status.ok()) co_return status;
  // The state word goes last and on its own: a reader sees no tree, or a whole one.
  const CatalogEntry entry = EncodeCatalogEntry(info, RootWord{leaf.address, 0}.Encode());
  const uint64_t offset = info.root_word_offset() - kCatalogRootAt;
  Batch batch(dsm::kCatalogServer);
  batch.Write(offset + kCatalogRootAt, std::span(entry).subspan(kCatalogRootAt));
  batch.WriteWord(offset, &kCatalogStateTree);
  status = co_await PostAgain(op, batch);
  if (!status.ok()) {
    LoseFirstLeaf(op, pool, leaf, info.id);
    co_return status;
  }
  status = co_await UnlockFirstLeaf(op, pool, leaf);
  if (!status.ok()) LoseFirstLeaf(op, pool, leaf, info.id);
  co_return info;
}

}  // namespace

Task<Result<TreeInfo>> CreateTree(OpContext& op, dsm::Pool& pool, std::string name,
                                  Geometry geometry) {
  if (name.empty() || name.size() > kTreeNameBytesMax) {
    co_return Status::InvalidArgument("a tree's name has 1 to 255 bytes, not " +
                                      std::to_string(name.size()));
  }
  FARLEAF_CO_RETURN_IF_ERROR(geometry.Validate());
  if (pool.self().id == 0) {
    co_return Status::InvalidArgument("an observer of the pool cannot create a tree");
  }
  Status claimed = co_await ClaimRedoAreas(op, pool);
  if (!claimed.ok()) co_return claimed;
  const uint64_t lock_word = NewCatalogWord(pool);
  Status locked = co_await LockCatalog(op, pool, lock_word);
  if (!locked.ok()) co_return locked;
  TreeInfo info;
  info.name = std::move(name);
  info.geometry = geometry;
  info.geometry.digest_key = DigestKeyOf(pool);
  auto created = co_await CreateLocked(op, pool, std::move(info));
  co_await ReleaseCatalog(op, pool, lock_word);
  co_return created;
}

}  // namespace farleaf::index
