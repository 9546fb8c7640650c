// ReadableCopy: when a StoreCopy may be read, at which staleness, and what stays on its disk for that. Of the StoreCopy.
//
// A *stamp* is a time of the copy's clock. It is *proved* when the copy's tables hold all that its primary had committed when that clock showed it, and so
// all that anybody had acknowledged by then; who proves that, and how, is not known here (server/replication/README.md, Staleness). The copy is shown to
// its reader while it has a proved stamp, and what is read is no older than that.
//
// Why it does not follow the edits alone: collection drops a segment of values when what lived in it is in the recovery log again, and not in a table yet. From
// then on a table may name what is gone, and nothing in another table tells that it is of no meaning. So dropped segments of values are *kept*, as files
// that no manifest names and the next opening removes, until a stamp is proved that was taken behind the drop. By cases, for a segment that a table of
// the state names under a key whose newest version is elsewhere:
//   - it was dropped here, at d: each version that hid the old one then was committed at the primary before it dropped the segment, so before d. With a
//     proved stamp behind d that version, or a newer one, is in a table, and in front. Until then the segment is kept;
//   - it was dropped before this copy was filled: only a stamp that was taken behind Install makes the copy readable, and it is behind that drop, too;
//   - it was kept, and had to go (there are too many, or the device is full): as in the case before: nothing is shown before a stamp is proved that was
//     taken behind its drop.
//
// Thread rule: one worker; proved_ns by any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/status.h"
#include "index/lsm/copy_reader.h"
#include "index/lsm/state.h"

namespace farleaf::index::lsm {

class ReadableCopy {
 public:
  struct Options {
    CopyReader* reader = nullptr;    ///< outlives this; null: nobody reads, and nothing is kept
    const Clock* clock = nullptr;    ///< of stamps: monotonic, in this process
    size_t kept_segments_max = 1024;  ///< of 2 MiB
  };
  ReadableCopy() = default;
  explicit ReadableCopy(Options options) : options_(options) {}

  /// There is no copy, or none to be read, from here on. Kept segments are forgotten: they go with all that no manifest names.
  void Hide();
  /// A copy begins here.
  void Begin();
  /// Behind an edit that changes tables, before anything goes that the state does not name.
  void Change(const StoreState& state);

  /// An edit has dropped a segment of values. Returns those that are to go now.
  [[nodiscard]] std::vector<SegmentId> Drop(SegmentId segment);
  /// The kept ones, which are to go now: their room is needed.
  [[nodiscard]] std::vector<SegmentId> LetGo();
  /// What the clock shows now.
  uint64_t TakeStamp();
  /// The stamp is proved by `state`, which is the copy's; 0: none is yet. Puts what is to go now into `gone`. InvalidArgument: it was never taken.
  Status Prove(uint64_t stamp_ns, const StoreState& state, std::vector<SegmentId>* gone);

  /// Whoever looks at this, and begins to read then, sees all that was acknowledged before. nullopt: it cannot be read.
  std::optional<uint64_t> proved_ns() const {
    const uint64_t proved = proved_ns_.load(std::memory_order_acquire);
    return proved == 0 ? std::nullopt : std::optional(proved);
  }
  size_t kept() const { return kept_.size(); }

 private:
  struct Kept {
    SegmentId segment = SegmentId::kNone;
    uint64_t dropped_ns = 0;
  };
  /// Only stamps that were taken later are of use from here on.
  void Lack(uint64_t since_ns);

  const Options options_;
  std::deque<Kept> kept_;      // in the order of their drops
  uint64_t lacks_ns_ = 0;      // what was dropped up to here may be needed by a state that no later stamp proves
  uint64_t last_stamp_ns_ = 0;
  std::atomic<uint64_t> proved_ns_{0};  // 0: none, and nothing is shown
};

}  // namespace farleaf::index::lsm
