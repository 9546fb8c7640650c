// Reading a view, with the fetches of what is not in memory: a key, or a range of them. What a store's reads and those of its copies
// (copy_reader.h) have in common.
//
// Thread rule: runs on the worker of the operation; views are immutable but for memtables, which are thread-safe.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "index/lsm/lookup.h"
#include "index/range_index.h"

namespace farleaf::index::lsm {

/// InvalidArgument: no key can be that long, or empty.
Status CheckLookupKey(std::string_view key);

/// All that was committed up to `sequence`, and whatever else the view has, which is newer.
struct ReadPoint {
  std::shared_ptr<const ReadView> view;
  Sequence sequence = 0;
};

struct SoughtKey {
  std::string_view key;
  Sequence snapshot = 0;
  Wanted wanted = Wanted::kValue;
};

/// Looks until the outcome is known, or the deadline is over; each time at what `view_of` returns, `const ReadView&`, which is good until the
/// next suspension. `found` is likewise, but for what it pins. Corruption: something cannot be read.
template <typename ViewOf>
Task<Result<bool>> FindInView(OpContext& op, LookupPlaces places, SoughtKey sought, Found* found,
                              ViewOf view_of) {
  std::vector<BlockCache::Handle> pins;  // so that each turn gets further
  for (;;) {
    Missing missing;
    const ReadView& view = view_of();
    switch (LookUp(view, places, sought.key, sought.snapshot, sought.wanted, found, &missing)) {
      case LookupOutcome::kFound:
        co_return true;
      case LookupOutcome::kAbsent:
        co_return false;
      case LookupOutcome::kMissing:
        break;
    }
    // The very view that was looked at: what is missing is part of it.
    const std::shared_ptr<const ReadView> pinned = view.shared_from_this();
    auto fetched = co_await FetchMissing(op.worker, places, missing);
    if (!fetched.ok()) co_return fetched.status();
    if (op.expired()) co_return Status::DeadlineExceeded("reading from disk");
    pins.push_back(std::move(*fetched));
  }
}

/// As RangeIndex::Scan, of what the point sees. `places`: with the time by which entries expire. Corruption: as FindInView.
Task<Status> ScanView(OpContext& op, LookupPlaces places, ReadPoint point, ScanRange range,
                      std::vector<KeyValue>* rows);

}  // namespace farleaf::index::lsm
