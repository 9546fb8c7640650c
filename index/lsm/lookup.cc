#include "index/lsm/lookup.h"

#include <fmt/format.h>

#include "index/lsm/log_reader.h"

namespace farleaf::index::lsm {

namespace {

bool Expired(const Entry& entry, const LookupPlaces& places) {
  return entry.expires_ms != 0 && entry.expires_ms <= places.wall->NowNs() / kNsPerMs;
}

// The newest version in one place; kMissing and kAbsent say the same of the place alone.
struct InPlace {
  LookupOutcome outcome = LookupOutcome::kAbsent;
  bool deleted_by_range = false;  ///< kAbsent: and so it is in all places below
};

InPlace InMemtable(const Memtable* memtable, std::string_view key, Sequence snapshot,
                   Found* found) {
  if (!memtable) return {};
  const auto entry = memtable->Find(key, snapshot);
  if (!entry) return {};
  found->newest_in_memory = entry->sequence;
  found->entry = *entry;
  return {LookupOutcome::kFound};
}

InPlace InRun(const Run& run, const LookupPlaces& places, const LookupKey& key, Sequence snapshot,
              Found* found, Missing* missing) {
  InPlace result;
  if (const TableRef* const ref = run.TableOf(key.key)) {
    const Table& table = ref->file->table();
    Table::Found in_table;
    const auto outcome = table.Find(*places.cache, key, snapshot, &in_table);
    if (outcome == Table::Outcome::kMissing) {
      *missing = {.table = &table, .block = in_table.missing};
      return {LookupOutcome::kMissing};
    }
    if (outcome == Table::Outcome::kFound) {
      result.outcome = LookupOutcome::kFound;
      found->entry = in_table.entry;
      found->pin = std::move(in_table.pin);
    }
  }
  if (run.range_deletes.empty()) return result;
  const RangeDelete* const range = NewestCovering(run.range_deletes, key.key, snapshot);
  if (range &&
      (result.outcome == LookupOutcome::kAbsent || range->sequence > found->entry.sequence)) {
    return {LookupOutcome::kAbsent, true};
  }
  return result;
}

InPlace InAnyPlace(const ReadView& view, const LookupPlaces& places, std::string_view key,
                   Sequence snapshot, Found* found, Missing* missing) {
  for (const Memtable* memtable : {view.active.get(), view.flushing.get()}) {
    const InPlace result = InMemtable(memtable, key, snapshot, found);
    if (result.outcome != LookupOutcome::kAbsent) return result;
  }
  std::optional<LookupKey> hashed;
  for (const Run& run : view.version->runs) {
    if (!hashed) hashed.emplace(key);
    const InPlace result = InRun(run, places, *hashed, snapshot, found, missing);
    if (result.outcome != LookupOutcome::kAbsent || result.deleted_by_range) return result;
  }
  return {};
}

BlockCache::Key KeyOf(const ValuePointer& pointer) {
  return {pointer.segment, pointer.offset, pointer.bytes};
}

}  // namespace

Result<BlockCache::Memory> RecordUnpacker::Unpack(std::span<const std::byte> stored) const {
  const uint32_t seed = SegmentSeed(epoch_, pointer_.segment);
  const auto record = ParseLogRecord(seed, pointer_.offset, stored);
  const bool fits = record && record->bytes() == pointer_.bytes;
  const auto value = fits ? ParseValueRecord(*record) : std::nullopt;
  if (!value || value->value.size() != pointer_.value_bytes) {
    return Status::Corruption(fmt::format("{} at offset {}: the value's record is damaged",
                                          storage_->NameOf(pointer_.segment), pointer_.offset));
  }
  BlockCache::Memory memory(stored.size());
  std::memcpy(memory.span().data(), stored.data(), stored.size());
  return memory;
}

BlockRequest RecordRequest(const ValuePointer& pointer, const RecordUnpacker* unpacker,
                           BlockUse use) {
  return {.key = KeyOf(pointer),
          .bytes = pointer.bytes,
          .kind = BlockKind::kRecord,
          .use = use,
          .unpacker = unpacker};
}

bool ResolvePointer(const LookupPlaces& places, Entry* entry, BlockCache::Handle* pin) {
  if (places.value_log) {
    if (const auto record = places.value_log->Find(entry->pointer)) {
      entry->value = record->value;
      return true;
    }
  }
  BlockCache::Handle handle = places.cache->Lookup(KeyOf(entry->pointer), BlockKind::kRecord);
  if (!handle) return false;
  // It was checked when it came into the cache.
  const auto bytes = handle.bytes();
  entry->value = AsChars(bytes.last(entry->pointer.value_bytes));
  *pin = std::move(handle);
  return true;
}

LookupOutcome LookUp(const ReadView& view, const LookupPlaces& places, std::string_view key,
                     Sequence snapshot, Wanted wanted, Found* found, Missing* missing) {
  *found = {};
  const InPlace result = InAnyPlace(view, places, key, snapshot, found, missing);
  if (result.outcome != LookupOutcome::kFound) return result.outcome;
  if (found->entry.kind == EntryKind::kDeleted || Expired(found->entry, places)) {
    return LookupOutcome::kAbsent;
  }
  if (wanted == Wanted::kPresence || found->entry.kind == EntryKind::kValue) {
    return LookupOutcome::kFound;
  }
  if (ResolvePointer(places, &found->entry, &found->pin)) return LookupOutcome::kFound;
  *missing = {.table = nullptr, .block = {}, .record = found->entry.pointer};
  return LookupOutcome::kMissing;
}

dsm::Task<Result<BlockCache::Handle>> FetchMissing(dsm::Worker& worker, LookupPlaces places,
                                                   Missing missing) {
  if (missing.table) {
    auto fetched = co_await missing.table->Fetch(worker, *places.cache, missing.block);
    co_return fetched;
  }
  const RecordUnpacker unpacker(places.epoch, missing.record, places.storage);
  const BlockRequest request = RecordRequest(missing.record, &unpacker, BlockUse::kAgain);
  auto fetched = co_await FetchBlock(worker, *places.storage, *places.cache, request);
  co_return fetched;
}

}  // namespace farleaf::index::lsm
