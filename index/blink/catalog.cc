#include "index/blink/catalog.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "dsm/base/bytes.h"
#include "dsm/base/crc32c.h"
#include "index/blink/page.h"
#include "index/blink/search_cache.h"

namespace farleaf::index {

namespace {

constexpr uint64_t kStateUnused = 0, kStateTree = 1;
constexpr size_t kStateAt = 0, kRootAt = 8, kCrcAt = 16, kBodyAt = 20, kFormatAt = 22, kNameAt = 32;
constexpr uint8_t kEntryFormat = 3;
constexpr uint64_t kCatalogBytes = uint64_t{dsm::kCatalogEntries} * dsm::kCatalogEntryBytes;
constexpr uint64_t kCreationWaitMs = 10'000;
constexpr int kTornReadsMax = 1'000;

using EntryBytes = std::array<std::byte, dsm::kCatalogEntryBytes>;

EntryBytes EncodeEntry(const TreeInfo& info, uint64_t root_word) {
  EntryBytes entry{};
  std::byte* at = entry.data();
  StoreLittle<uint64_t>(at + kStateAt, kStateTree);
  StoreLittle<uint64_t>(at + kRootAt, root_word);
  StoreLittle<uint8_t>(at + kBodyAt, static_cast<uint8_t>(info.geometry.layout));
  StoreLittle<uint8_t>(at + kBodyAt + 1, static_cast<uint8_t>(info.name.size()));
  StoreLittle<uint8_t>(at + kFormatAt, kEntryFormat);
  StoreLittle<uint8_t>(at + 23, static_cast<uint8_t>(info.geometry.leaf_layout));
  StoreLittle<uint16_t>(at + 24, static_cast<uint16_t>(info.geometry.leaf_bytes));
  StoreLittle<uint16_t>(at + 26, static_cast<uint16_t>(info.geometry.node_bytes));
  StoreLittle<uint16_t>(at + 28, static_cast<uint16_t>(info.geometry.key_bytes_max));
  StoreLittle<uint16_t>(at + 30, static_cast<uint16_t>(info.geometry.inline_value_bytes_max));
  std::memcpy(at + kNameAt, info.name.data(), info.name.size());
  const auto body = std::span(entry).subspan(kBodyAt, kNameAt - kBodyAt + info.name.size());
  StoreLittle<uint32_t>(at + kCrcAt, Crc32c(body));
  return entry;
}

/// nullopt: unused. Corruption: torn, or not an entry. Unimplemented: of another format.
Result<std::optional<TreeInfo>> DecodeEntry(TreeId id, std::span<const std::byte> entry) {
  const std::byte* at = entry.data();
  const uint64_t state = LoadLittle<uint64_t>(at + kStateAt);
  if (state == kStateUnused) return std::optional<TreeInfo>();
  const size_t name_bytes = LoadLittle<uint8_t>(at + kBodyAt + 1);
  const auto body = entry.subspan(kBodyAt, kNameAt - kBodyAt + name_bytes);
  if (state != kStateTree || Crc32c(body) != LoadLittle<uint32_t>(at + kCrcAt)) {
    return Status::Corruption("catalog entry " + std::to_string(id) + " fails its checksum");
  }
  TreeInfo info;
  info.id = id;
  info.name.assign(reinterpret_cast<const char*>(at + kNameAt), name_bytes);
  if (const auto format = LoadLittle<uint8_t>(at + kFormatAt); format != kEntryFormat) {
    return Status::Unimplemented(
        "catalog entry of tree '" + info.name + "' has format " + std::to_string(format) +
        ", and this program knows format " + std::to_string(kEntryFormat) +
        ": use the program that made the tree, or load it into a new pool");
  }
  info.geometry = {static_cast<Layout>(LoadLittle<uint8_t>(at + kBodyAt)),
                   LoadLittle<uint16_t>(at + 24),
                   LoadLittle<uint16_t>(at + 26),
                   LoadLittle<uint16_t>(at + 28),
                   LoadLittle<uint16_t>(at + 30),
                   static_cast<LeafLayout>(LoadLittle<uint8_t>(at + 23))};
  if (Status valid = info.geometry.Validate(); !valid.ok()) {
    return Status::Corruption("catalog entry of tree '" + info.name + "': " + valid.ToString());
  }
  return std::optional<TreeInfo>(std::move(info));
}

constexpr uint16_t kNoTree = 0;  ///< in UnresolvedLocks: the catalog's lock is of none
constexpr int kReleaseAttemptsMax = 8;

GlobalAddress CatalogLock() { return {dsm::kCatalogServer, dsm::kCatalogOffset}; }

/// CAS of the catalog's lock, once. What was there before.
Task<Result<uint64_t>> SwapCatalogLock(OpContext& op, uint64_t from, uint64_t to) {
  uint64_t old = 0;
  Batch batch(dsm::kCatalogServer);
  batch.CompareAndSwap(dsm::kCatalogOffset, from, to, &old);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  co_return old;
}

/// The lock is let go, or an attempt at it whose outcome is unknown undone. A swap that succeeds is the
/// last word: this worker has a connection then on which nothing of earlier attempts can land any more,
/// and nobody is ever given this word again. Where none succeeds, the lock is this member's to settle.
Task<void> ReleaseCatalog(OpContext& op, dsm::Pool& pool, uint64_t lock_word) {
  uint64_t wait_ns = dsm::UnresolvedLocks::kWaitNsMin;
  for (int attempt = 0; attempt < kReleaseAttemptsMax; ++attempt, wait_ns *= 2) {
    if (attempt > 0) co_await op.worker.Sleep(wait_ns);
    auto swapped = co_await SwapCatalogLock(op, lock_word, dsm::kUnlockedWord);
    if (swapped.ok()) co_return;
    if (swapped.status().code() == StatusCode::kFenced) co_return;  // for others to recover
  }
  dsm::UnresolvedLocks::Lock lock{.address = CatalogLock(), .word = lock_word, .tree = kNoTree};
  if (op.worker.in_doubt()) lock.worker = op.worker.number();
  pool.unresolved_locks().Add(lock);
}

/// Whether this member has lost sight of that word, which was seen in the pool: then it has landed, and is
/// taken from as safely as it is undone.
bool IsLost(OpContext& op, dsm::Pool& pool, uint64_t word) {
  const dsm::UnresolvedLocks& lost = pool.unresolved_locks();
  return lost.Has(CatalogLock(), word, op.worker.number()) ||
         lost.IsBoundElsewhere(CatalogLock(), word, op.worker.number());
}

Task<Status> LockCatalog(OpContext& op, dsm::Pool& pool, uint64_t lock_word) {
  const uint64_t give_up_ns =
      std::min(op.deadline_ns, op.worker.clock().NowNs() + kCreationWaitMs * kNsPerMs);
  uint64_t expected = dsm::kUnlockedWord;
  for (uint64_t wait_ns = 10 * kNsPerUs;; wait_ns = std::min(2 * wait_ns, kNsPerMs)) {
    auto old = co_await SwapCatalogLock(op, expected, lock_word);
    if (!old.ok()) {
      co_await ReleaseCatalog(op, pool, lock_word);  // it may have been had
      co_return old.status();
    }
    if (*old == expected) {
      pool.unresolved_locks().Remove(CatalogLock(), expected);
      co_return Status::Ok();
    }
    expected = IsLost(op, pool, *old) ? *old : dsm::kUnlockedWord;
    if (op.worker.clock().NowNs() >= give_up_ns) {
      co_return Status::DeadlineExceeded("the catalog's lock is held by compute server " +
                                         std::to_string(dsm::LockWord::Decode(*old).owner));
    }
    co_await op.worker.Sleep(wait_ns);
  }
}

/// Allocates and writes the tree's first leaf, which is its root.
Task<Result<RootWord>> WriteFirstLeaf(OpContext& op, dsm::Pool& pool, const TreeInfo& info) {
  const dsm::PageClass page_class{dsm::ChunkKind::kLeaf, info.geometry.leaf_bytes, 0};
  const dsm::ServerId server = pool.allocator().NextServer(std::nullopt);
  auto grant = co_await pool.allocator().Allocate(op, page_class, server);
  if (!grant.ok()) co_return grant.status();
  PageBuffer page;
  std::memset(page.bytes, 0, sizeof page.bytes);
  Node leaf(info.geometry, page.image(info.geometry, 0));
  leaf.Init({.tree = info.id});
  SealNode(leaf, grant->version + 1);
  PackNewPage(info.geometry, 0, page.image(info.geometry, 0));
  Batch batch(grant->address.server());
  batch.Write(grant->address.offset(), page.page(info.geometry, 0));
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) {
    pool.allocator().GiveUp();
    co_return status;
  }
  pool.allocator().NoteWritten(page_class, grant->address);
  co_return RootWord{grant->address, 0};
}

/// A member's lock words name slots of its redo area, so it claims one on every memory server before
/// it opens a tree. No round trip after the first time.
Task<Status> ClaimRedoAreas(OpContext& op, dsm::Pool& pool) {
  if (pool.self().id == 0) co_return Status::Ok();  // an observer takes no locks
  for (const dsm::RegionLayout& layout : pool.layouts()) {
    auto area = co_await pool.allocator().RedoArea(op, layout.server);
    if (!area.ok()) co_return area.status();
  }
  co_return Status::Ok();
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
  auto root = co_await WriteFirstLeaf(op, pool, info);
  if (!root.ok()) co_return root.status();
  // The state word goes last and on its own: a reader sees no tree, or a whole one.
  const EntryBytes entry = EncodeEntry(info, root->Encode());
  const uint64_t offset = info.root_word_offset() - kRootAt;
  Batch batch(dsm::kCatalogServer);
  batch.Write(offset + kRootAt, std::span(entry).subspan(kRootAt));
  batch.WriteWord(offset, &kStateTree);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) {
    pool.allocator().GiveUp();
    co_return status;
  }
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
  auto created = co_await CreateLocked(op, pool, std::move(info));
  co_await ReleaseCatalog(op, pool, lock_word);
  co_return created;
}

uint64_t NewCatalogWord(dsm::Pool& pool) {
  return dsm::LockWord{
      .state = dsm::LockWord::State::kLocked,
      .owner = pool.self().id,
      .incarnation = pool.self().short_incarnation(),
      .sequence = static_cast<uint32_t>(pool.NextUniqueId() >> 26 & dsm::kLockSequenceMax)}
      .Encode();
}

Task<Status> SettleCatalogLock(OpContext& op, dsm::Pool& pool) {
  const uint64_t now_ns = op.worker.clock().NowNs();
  const auto due = pool.unresolved_locks().TakeDue(kNoTree, op.worker.number(), now_ns,
                                                   dsm::UnresolvedLocks::kWaitNsMax);
  for (const dsm::UnresolvedLocks::Lock& lock : due) {
    auto old = co_await SwapCatalogLock(op, lock.word, dsm::kUnlockedWord);
    if (old.status().code() == StatusCode::kFenced) co_return old.status();
    if (!old.ok()) {
      co_return Status::Unavailable("the catalog's lock may be in this compute server's name: " +
                                    old.status().ToString());
    }
    pool.unresolved_locks().Remove(CatalogLock(), lock.word);
  }
  co_return Status::Ok();
}

Task<Result<std::vector<TreeInfo>>> ListTrees(OpContext& op, dsm::Pool& /*pool*/) {
  std::vector<std::byte> area(kCatalogBytes);
  Status torn;
  for (int attempt = 0; attempt < kTornReadsMax; ++attempt) {
    Batch batch(dsm::kCatalogServer);
    batch.Read(dsm::kCatalogOffset, area);
    Status status = co_await op.worker.RoundTrip(batch, op.counts);
    if (!status.ok()) co_return status;
    std::vector<TreeInfo> trees;
    torn = Status::Ok();
    for (TreeId id = 1; id <= kTreeIdMax && torn.ok(); ++id) {
      auto entry = DecodeEntry(id, std::span(area).subspan(id * size_t{dsm::kCatalogEntryBytes},
                                                           dsm::kCatalogEntryBytes));
      if (!entry.ok()) {
        torn = entry.status();
      } else if (entry->has_value()) {
        trees.push_back(std::move(**entry));
      }
    }
    if (torn.ok()) co_return trees;
    if (torn.code() != StatusCode::kCorruption) break;
  }
  co_return torn;
}

Task<Result<TreeInfo>> OpenTree(OpContext& op, dsm::Pool& pool, std::string name) {
  auto trees = co_await ListTrees(op, pool);
  if (!trees.ok()) co_return trees.status();
  std::string names;
  for (TreeInfo& tree : *trees) {
    if (tree.name == name) {
      Status claimed = co_await ClaimRedoAreas(op, pool);
      if (!claimed.ok()) co_return claimed;
      co_return std::move(tree);
    }
    names += (names.empty() ? "" : ", ") + tree.name;
  }
  co_return Status::NotFound("there is no tree '" + name +
                             "' in this pool; there are: " + (names.empty() ? "none" : names));
}

}  // namespace farleaf::index
