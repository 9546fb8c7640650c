// CopyReader: reads of a store's copy (store_copy.h) on other threads than the copy's own, while it follows.
//
// It sees the tables of the newest state that was shown, and nothing of the logs: so of the store's history a prefix, up to the state's
// `flushed_through`, of all keys the same one for as long as an operation looks at one view. A scan, or a MultiGet, looks at one from its begin
// to its end.
//
// Nothing on the disk waits for readers. A segment goes behind the Show of a state that does not need it any more, so who meets one that is gone while
// its view is the newest has met damage; with an older view he takes the newest and begins again. Segments' numbers are never used twice, so that he
// reads what he looks for, or fails.
//
// Thread rule: thread-safe, but for Show and Hide, which the copy's worker calls. Outlives every operation on it; the storage does, too.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/spin_lock.h"
#include "index/lsm/block_cache.h"
#include "index/lsm/lookup.h"
#include "index/lsm/state.h"
#include "index/lsm/version.h"
#include "index/range_index.h"

namespace farleaf::index::lsm {

class CopyReader final : public RangeIndex {
 public:
  struct Deps {
    storage::Storage* storage = nullptr;  ///< the copy's
    const Clock* wall = nullptr;          ///< time since 1970, by which entries expire
    uint64_t cache_bytes = 0;             ///< of blocks, and of what is known of tables
  };
  explicit CopyReader(Deps deps);

  /// Operations that begin from here on see this state. All that they may need of it is on the storage, and nothing of it goes before the next Show,
  /// or Hide.
  void Show(const StoreState& state);
  /// There is nothing to be read from here on.
  void Hide();

  // Unavailable: nothing is shown, or in kTriesMax tries what was being read has gone. Corruption: what is shown is damaged.
  Task<Result<bool>> Get(OpContext& op, std::string_view key, std::string* value) override;
  Task<Status> MultiGet(OpContext& op, std::span<const std::string_view> keys,
                        std::vector<std::optional<std::string>>* values) override;
  /// With kPassOver, what goes meanwhile may be passed over as damage is.
  Task<Status> Scan(OpContext& op, ScanRange range, std::vector<KeyValue>* rows) override;
  /// InvalidArgument, as all that writes.
  Task<Result<ModifyResult>> Modify(OpContext& op, std::string_view key,
                                    const ModifyFunction& modify, CurrentValue use) override;
  Task<Status> BlindPut(OpContext& op, std::string_view key, std::string_view value) override;
  Task<Status> DeleteRange(OpContext& op, std::string_view start, std::string_view end) override;
  Task<Status> Upkeep(OpContext& /*op*/) override { co_return Status::Ok(); }

  static constexpr uint32_t kTriesMax = 8;
  struct Counts {
    uint64_t reads = 0;        ///< operations
    uint64_t shown = 0;        ///< states
    uint64_t begun_again = 0;  ///< as something had gone
    uint64_t given_up = 0;     ///< of them, behind kTriesMax tries
  };
  Counts counts() const {
    return {reads_.load(std::memory_order_relaxed), shows_.load(std::memory_order_relaxed),
            begun_again_.load(std::memory_order_relaxed),
            given_up_.load(std::memory_order_relaxed)};
  }

 private:
  /// Immutable.
  struct Shown {
    uint64_t epoch = 0;                 ///< of the store
    std::shared_ptr<BlockCache> cache;  ///< of that store's blocks
    std::shared_ptr<const ReadView> view;
  };
  using ShownPtr = std::shared_ptr<const Shown>;
  ShownPtr Newest() const;
  void Replace(ShownPtr shown);
  LookupPlaces PlacesOf(const Shown& shown) const;
  Task<Status> GetFrom(OpContext& op, ShownPtr shown, std::span<const std::string_view> keys,
                       std::vector<std::optional<std::string>>* values);
  Task<Status> ScanFrom(OpContext& op, ShownPtr shown, ScanRange range,
                        std::vector<KeyValue>* rows);
  /// `read` of what is shown, a Task<Status> of a ShownPtr: again with the newest, while that is another one, if something is not there.
  template <typename Read>
  Task<Status> ReadNewest(Read read);

  const Deps deps_;
  const std::shared_ptr<Memtable> nothing_;           // the memtable of all views
  const std::shared_ptr<SegmentRemover> no_remover_;  // removes nothing
  std::shared_ptr<BlockCache> cache_;                 // of the store that was shown last
  uint64_t cache_epoch_ = 0;
  mutable SpinLock lock_;  // guards down to here:
  ShownPtr newest_;        // null: nothing is shown
  std::atomic<uint64_t> reads_{0}, shows_{0}, begun_again_{0}, given_up_{0};
};

}  // namespace farleaf::index::lsm
