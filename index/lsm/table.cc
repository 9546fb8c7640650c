#include "index/lsm/table.h"

#include <deque>
#include <string>

#include "index/lsm/block_fetch.h"

namespace farleaf::index::lsm {

class Table::Unpacker final : public BlockUnpacker {
 public:
  Unpacker(const Table* table, MissingBlock block) : table_(table), block_(block) {}

  Result<BlockCache::Memory> Unpack(std::span<const std::byte> stored) const override {
    Fault fault = CheckStored(table_->info_.stamp, block_.place.at, stored);
    if (fault) return table_->Corrupt(block_.place.at, fault);
    BlockCache::Memory memory(BlockHeader::Load(stored.data()).raw_bytes);
    fault = lsm::Unpack(stored, memory.span());
    if (!fault) fault = Block::Check(memory.span(), table_->Limits(block_.level));
    if (fault) return table_->Corrupt(block_.place.at, fault);
    return memory;
  }

 private:
  const Table* table_;
  MissingBlock block_;
};

namespace {

BlockKind KindOf(uint8_t level) { return level == 0 ? BlockKind::kLeaf : BlockKind::kInner; }

/// What a parent says of a block and what it is may differ if the parent was forged: nothing else gives a block with a
/// right checksum. Then it is fetched, and refused.
bool Fits(const Block& block, const MissingBlock& wanted) {
  return block.level() == wanted.level && block.stored_bytes() == wanted.place.bytes;
}

}  // namespace

BlockCache::Handle Table::Lookup(BlockCache& cache, const MissingBlock& block, BlockUse use) const {
  BlockCache::Handle handle = cache.Lookup(KeyOf(block.place), KindOf(block.level), use);
  if (handle && !Fits(Block(handle.data()), block)) return {};
  return handle;
}

Table::Outcome Table::Find(BlockCache& cache, const LookupKey& key, Sequence snapshot, Found* found,
                           BlockUse use) const {
  MissingBlock at{info_.root, info_.root_level};
  for (;; --at.level) {
    BlockCache::Handle handle = Lookup(cache, at, use);
    if (!handle) {
      found->missing = at;
      return Outcome::kMissing;
    }
    const Block block(handle.data());
    block.Prefetch();
    if (at.level > 0) {
      if (block.has_filter() && !block.MayContain(key.hash)) return Outcome::kAbsent;
      at.place = block.Child(block.ChildOf(key.key, snapshot));
      continue;
    }
    const Block::Position position = block.LowerBound(key.key, snapshot);
    if (!position.same_key) return Outcome::kAbsent;
    found->entry = Entry{.key = key.key};
    Resolve(block.entry(position.index), &found->entry);
    found->pin = std::move(handle);
    return Outcome::kFound;
  }
}

void Table::Resolve(const PackedEntry& packed, Entry* entry) const {
  entry->sequence = packed.sequence;
  entry->kind = packed.kind;
  entry->expires_ms = packed.expires_ms;
  if (packed.kind == EntryKind::kPointer) [[unlikely]] {
    const PackedPointer pointer = Block::ParsePointer(packed.value);
    entry->value = {};
    entry->pointer = {.segment = info_.dictionary[pointer.dictionary_index].segment,
                      .offset = static_cast<uint32_t>(pointer.offset),
                      .bytes = static_cast<uint32_t>(pointer.bytes),
                      .value_bytes = static_cast<uint32_t>(pointer.value_bytes)};
    return;
  }
  entry->value = packed.value;
  entry->pointer = {};
}

Status Table::Corrupt(uint64_t at, std::string_view what) const {
  const BlockPlace place{at, 0};
  return Status::Corruption(storage_->NameOf(info_.segments[place.segment_index()]) + ": " +
                            std::string(what) + " at offset " + std::to_string(place.offset()));
}

dsm::Task<Result<BlockCache::Handle>> Table::Fetch(dsm::Worker& worker, BlockCache& cache,
                                                   MissingBlock missing, BlockUse use) const {
  const Unpacker unpacker(this, missing);
  const BlockRequest request{.key = KeyOf(missing.place),
                             .bytes = missing.place.bytes,
                             .kind = KindOf(missing.level),
                             .use = use,
                             .unpacker = &unpacker};
  Result<BlockCache::Handle> handle = co_await FetchBlock(worker, *storage_, cache, request);
  if (handle.ok() && !Fits(Block(handle->data()), missing)) {
    co_return Corrupt(missing.place.at, "block that is not what its parent says");
  }
  co_return handle;
}

dsm::Task<Status> Table::FetchAll(dsm::Worker& worker, BlockCache& cache,
                                  std::span<const MissingBlock> missing,
                                  std::vector<BlockCache::Handle>& pins, BlockUse use) const {
  std::vector<BlockOfTable> blocks;
  for (const MissingBlock& each : missing) blocks.push_back({this, each});
  const std::span<const BlockOfTable> all = blocks;
  Status status = co_await FetchAll(worker, cache, all, pins, use);
  co_return status;
}

dsm::Task<Status> Table::FetchAll(dsm::Worker& worker, BlockCache& cache,
                                  std::span<const BlockOfTable> missing,
                                  std::vector<BlockCache::Handle>& pins, BlockUse use) {
  if (missing.empty()) co_return Status::Ok();
  std::deque<Unpacker> unpackers;
  std::vector<BlockRequest> requests;
  for (const auto& [table, block] : missing) {
    unpackers.emplace_back(table, block);
    requests.push_back({.key = table->KeyOf(block.place),
                        .bytes = block.place.bytes,
                        .kind = KindOf(block.level),
                        .use = use,
                        .unpacker = &unpackers.back()});
  }
  std::vector<BlockCache::Handle> fetched;
  storage::Storage* const storage = missing.front().table->storage_;
  Status status = co_await FetchBlocks(worker, *storage, cache, requests, fetched);
  if (!status.ok()) co_return status;
  for (size_t i = 0; i < missing.size(); ++i) {
    const auto& [table, block] = missing[i];
    if (!Fits(Block(fetched[i].data()), block)) {
      co_return table->Corrupt(block.place.at, "block that is not what its parent says");
    }
  }
  pins.insert(pins.end(), fetched.begin(), fetched.end());
  co_return Status::Ok();
}

}  // namespace farleaf::index::lsm
