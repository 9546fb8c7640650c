// Scrub: reads all that a closed store consists of, and says what is damaged.
//
// Of tables: every block's checksum and form, the order of keys, filters, the way from the root to every leaf, and that the table's
// description is true of its entries. Of both logs: every record. That what names a value leads to a record of that key. What a crash
// leaves behind (log_format.md) is no damage, and is told as a note.
//
// A fault does not end it: the next block, record or file is looked at. What would only follow from a fault is not told besides it.
//
// Thread rule: one worker.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "index/lsm/closed_store.h"
#include "index/lsm/log_buffer.h"
#include "index/lsm/types.h"

namespace farleaf::index::lsm {

struct ScrubFault {
  std::string file;
  uint64_t offset = 0;
  std::string what;
};

struct ScrubReport {
  uint64_t tables = 0, blocks = 0, entries = 0;
  uint64_t commits = 0, values = 0;  ///< records
  uint64_t values_named = 0;         ///< by tables and by the recovery log
  uint64_t bytes_read = 0, bytes_to_read = 0;
  uint64_t faults = 0, notes = 0;
};

struct ScrubObserver {
  std::function<void(const ScrubFault&)> fault = {};
  std::function<void(const ScrubFault&)> note = {};
  /// After each segment, with what was found so far.
  std::function<void(const ScrubReport&)> progress = {};
};

/// Ok, whatever the faults. `store` was not recovered before.
dsm::Task<Result<ScrubReport>> Scrub(dsm::Worker& worker, ClosedStore& store,
                                     ScrubObserver observer);

// ---- Its parts

/// Of one segment of the value log: what leads to records there, in 8 bytes each.
class NamedValues {
 public:
  void Add(const ValuePointer& pointer, std::string_view key) {
    named_[pointer.segment].push_back(uint64_t{pointer.offset} << kHashBits | HashOf(pointer, key));
    ++count_;
  }
  struct Value {
    uint32_t offset;
    uint64_t hash;
  };
  /// Ascending.
  std::vector<Value> Take(SegmentId segment);
  static uint64_t HashOf(const ValuePointer& pointer, std::string_view key);
  uint64_t count() const { return count_; }

 private:
  static constexpr unsigned kHashBits = 43;
  static_assert(storage::kSegmentBytes == uint64_t{1} << (64 - kHashBits));
  std::map<SegmentId, std::vector<uint64_t>> named_;
  uint64_t count_ = 0;
};

/// What the parts share.
struct ScrubContext {
  dsm::Worker& worker;
  ClosedStore& store;
  const ScrubObserver observer;
  ScrubReport report = {};
  NamedValues named = {};
  bool names_collected = false;  ///< a value is named whose segment was collected
  AlignedBytes bytes{storage::kSegmentBytes};

  void Fault(std::string file, uint64_t offset, std::string what);
  void Note(std::string file, uint64_t offset, std::string what);
  void Name(const ValuePointer& pointer, std::string_view key);
  /// Into `bytes`. What cannot be read is told, and is zeros. False: there was such. Named by a table or a log, and not there: so.
  dsm::Task<bool> Load(SegmentId segment);
};

dsm::Task<void> ScrubTable(ScrubContext& context, const StoreState::TableState& table);
/// REQUIRES: the segment exists.
dsm::Task<void> ScrubValues(ScrubContext& context, SegmentId segment, bool perhaps_torn);
dsm::Task<void> ScrubRecoveryLog(ScrubContext& context);

}  // namespace farleaf::index::lsm
