// Walks over all records of a space: what has expired is deleted at a bounded pace, and everything is where
// that is asked for.
//
// Thread rule: coroutines on one worker; an ExpirySweep has one owner.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "dsm/fabric_counts.h"
#include "server/records/piece_scan.h"
#include "server/records/record_store.h"

namespace farleaf::server {

/// What a walk runs on. Each piece of it has its own deadline, so that a walk is as long as it is.
struct WalkContext {
  dsm::Worker& worker;
  dsm::FabricCounts& counts;
  uint64_t piece_ms;
  std::function<bool()> cancelled;
};

/// Rows of a piece that are deleted side by side, so that a sync serves many of them.
inline constexpr size_t kRowsAtOnce = 64;

/// Deletes each key of the space at some instant between the call and its end: whatever was there at the call
/// and has not been written since is gone; what is written meanwhile may be deleted or not. A tree that can deletes them
/// at once, by one change, whether they can be read or not; else they are deleted one by one, so that there is no instant common to all.
/// Unavailable if it was cancelled.
dsm::Task<Status> DeleteAll(WalkContext context, const RecordStore& store, char space);

/// A walk over a range again and again, a bounded part at a time. A turn takes `turn_s`, or as long as pieces_max
/// pieces a second take: whatever is there for that long is met by this turn or the next.
class PacedWalk {
 public:
  struct Options {
    uint64_t turn_s = 60;
    uint64_t pieces_max = 256;  ///< a second
  };
  struct Counts {
    uint64_t turns = 0, records = 0, deleted = 0;
  };

  /// Rows of a piece are visited in order, `rows_at_once` of them side by side.
  PacedWalk(const RecordStore* store, std::string begin, std::string end, Options options,
            size_t rows_at_once)
      : store_(store),
        begin_(std::move(begin)),
        end_(std::move(end)),
        options_(options),
        rows_at_once_(rows_at_once) {}
  virtual ~PacedWalk() = default;

  /// What is due in one second. To be called about once a second, not while one runs.
  dsm::Task<Status> Step(WalkContext context, uint64_t now_ns);
  const Counts& counts() const { return counts_; }

 protected:
  /// Whether the row was deleted.
  virtual dsm::Task<Result<bool>> Visit(dsm::OpContext& op, const index::KeyValue& row) = 0;
  /// A turn is over, in which every row was visited, or not.
  enum class Turn : uint8_t { kWhole, kPartly };
  virtual void EndTurn(Turn) {}
  const RecordStore& store() const { return *store_; }

 private:
  dsm::Task<Status> Piece(WalkContext context);
  dsm::Task<Status> VisitRow(WalkContext& context, dsm::OpContext& op, const index::KeyValue& row);

  const RecordStore* const store_;
  const std::string begin_, end_;
  const Options options_;
  const size_t rows_at_once_;
  std::optional<PieceScan> scan_;  // of this turn; none between turns
  uint64_t next_turn_ns_ = 0;
  uint64_t pieces_ = 0;  // of this turn
  uint64_t pieces_of_last_turn_ = 0;
  Turn turn_ = Turn::kWhole;
  Counts counts_;
};

/// Deletes records that have expired, and heads of collections that are held by nobody who lives (member_sweep.h).
class ExpirySweep final : public PacedWalk {
 public:
  /// Of the keys that users name, what was there when the sweep came by, and was left there.
  struct Met {
    uint64_t keys = 0;
    uint64_t expiring = 0;  ///< among them
  };
  /// Of all keys from `begin` up to `end`, which are of spaces of records. `abandoned_ms`: what no insertion takes.
  ExpirySweep(const RecordStore* store, std::string begin, std::string end, Options options,
              uint64_t abandoned_ms)
      : PacedWalk(store, std::move(begin), std::move(end), options, kRowsAtOnce),
        abandoned_ms_(abandoned_ms) {}
  /// In the last turn that missed nothing; nullopt: none has ended since this was called.
  std::optional<Met> TakeMet() { return std::exchange(last_met_, std::nullopt); }

 private:
  dsm::Task<Result<bool>> Visit(dsm::OpContext& op, const index::KeyValue& row) override;
  void EndTurn(Turn turn) override;
  void Meet(const index::KeyValue& row, bool expiring);

  const uint64_t abandoned_ms_;
  Met met_;  // in this turn
  std::optional<Met> last_met_;
};

}  // namespace farleaf::server
