#include "index/blink/catalog.h"

#include <cstring>

#include "dsm/base/bytes.h"
#include "dsm/base/crc32c.h"
#include "index/blink/catalog_entry.h"

namespace farleaf::index {

namespace {

constexpr uint64_t kStateUnused = 0;
constexpr size_t kStateAt = 0, kRootAt = kCatalogRootAt, kCrcAt = 16, kBodyAt = 20, kFormatAt = 22,
                 kNameAt = 32;
constexpr uint8_t kEntryFormat = 4;
constexpr uint64_t kCatalogBytes = uint64_t{dsm::kCatalogEntries} * dsm::kCatalogEntryBytes;
constexpr int kTornReadsMax = 1'000;

/// nullopt: unused. Corruption: torn, or not an entry. Unimplemented: of another format.
Result<std::optional<TreeInfo>> DecodeEntry(TreeId id, std::span<const std::byte> entry) {
  const std::byte* at = entry.data();
  const uint64_t state = LoadLittle<uint64_t>(at + kStateAt);
  if (state == kStateUnused) return std::optional<TreeInfo>();
  const size_t name_bytes = LoadLittle<uint8_t>(at + kBodyAt + 1);
  const auto body = entry.subspan(kBodyAt, kNameAt - kBodyAt + name_bytes);
  if (state != kCatalogStateTree || Crc32c(body) != LoadLittle<uint32_t>(at + kCrcAt)) {
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

}  // namespace

CatalogEntry EncodeCatalogEntry(const TreeInfo& info, uint64_t root_word) {
  CatalogEntry entry{};
  std::byte* at = entry.data();
  StoreLittle<uint64_t>(at + kStateAt, kCatalogStateTree);
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

uint64_t DigestKeyOf(const dsm::Pool& pool) {
  return Mix64(pool.layouts()[dsm::kCatalogServer].incarnation);
}

Task<Status> ClaimRedoAreas(OpContext& op, dsm::Pool& pool) {
  if (pool.self().id == 0) co_return Status::Ok();  // an observer takes no locks
  for (const dsm::RegionLayout& layout : pool.layouts()) {
    auto area = co_await pool.allocator().RedoArea(op, layout.server);
    if (!area.ok()) co_return area.status();
    pool.redo_slots(layout.server).set_area(area->offset());
  }
  co_return Status::Ok();
}

Task<Result<std::vector<TreeInfo>>> ListTrees(OpContext& op, dsm::Pool& pool) {
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
        trees.back().geometry.digest_key = DigestKeyOf(pool);
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
