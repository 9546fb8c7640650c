// Looking up one key in a view, in memory only: what is missing is said, and fetched by the caller.
//
// Thread rule: pure functions on what is immutable or thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/clock.h"
#include "index/lsm/block_cache.h"
#include "index/lsm/block_fetch.h"
#include "index/lsm/log.h"
#include "index/lsm/version.h"

namespace farleaf::index::lsm {

struct LookupPlaces {
  BlockCache* cache = nullptr;
  const Log* value_log = nullptr;  ///< null: nothing of it is in memory
  const Clock* wall = nullptr;
  uint64_t epoch = 0;
  storage::Storage* storage = nullptr;
};

/// kPresence: nothing is read of the value log.
enum class Wanted : uint8_t { kPresence, kValue };

struct Found {
  Entry entry;             ///< pointers resolved: `value` is the value, if it is wanted
  BlockCache::Handle pin;  ///< of the block that the value is in, if it is in one
  Sequence newest_in_memory =
      0;  ///< that the reader sees of the key in the view's memtables; 0: none
};

/// What a lookup lacks. Good as long as the view.
struct Missing {
  const Table* table = nullptr;  ///< null: a record of the value log
  MissingBlock block;
  ValuePointer record;
};

enum class LookupOutcome : uint8_t { kFound, kAbsent, kMissing };
/// The newest version of the key that a reader at `snapshot` sees, if it is not deleted and has not expired. Views of `found`
/// are good until the worker's next suspension.
LookupOutcome LookUp(const ReadView& view, const LookupPlaces& places, std::string_view key,
                     Sequence snapshot, Wanted wanted, Found* found, Missing* missing);

/// Puts what was missing into the cache; the handle keeps it there.
dsm::Task<Result<BlockCache::Handle>> FetchMissing(dsm::Worker& worker, LookupPlaces places,
                                                   Missing missing);

/// Checks a record of the value log on its way into the cache, where the whole record is the block.
class RecordUnpacker final : public BlockUnpacker {
 public:
  RecordUnpacker(uint64_t epoch, ValuePointer pointer, storage::Storage* storage)
      : epoch_(epoch), pointer_(pointer), storage_(storage) {}
  Result<BlockCache::Memory> Unpack(std::span<const std::byte> stored) const override;

 private:
  uint64_t epoch_;
  ValuePointer pointer_;
  storage::Storage* storage_;
};
BlockRequest RecordRequest(const ValuePointer& pointer, const RecordUnpacker* unpacker,
                           BlockUse use);

/// The value of `entry`, which is a pointer, for a reader who has it in `pin` then. False: it is missing.
bool ResolvePointer(const LookupPlaces& places, Entry* entry, BlockCache::Handle* pin);

}  // namespace farleaf::index::lsm
