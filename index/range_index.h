// RangeIndex: an ordered map from byte strings to byte strings, the interface of every index.
//
// Keys compare as unsigned bytes (memcmp). A fixed8 index takes keys and values of exactly 8 bytes;
// an integer key is stored big-endian (StoreBig64) so that bytes and integers sort alike. Arguments
// that do not fit the index (EmptyKey, too long, wrong fixed size) answer InvalidArgument.
//
// Guarantees: single-key operations are linearizable, ReadModifyWrite included. A scan is not a
// snapshot: each leaf is read consistently, keys come in order, and no key that stays throughout the
// scan is missed or repeated. An operation that fails with Unknown may or may not have happened;
// one that fails otherwise has not. The rows of a scan that fails are the first of its range, each whole; more
// may be missing.
//
// Every view passed in must live until the operation ends.
// Thread rule: thread-safe; an operation runs on the worker of its OpContext.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/op_context.h"
#include "dsm/task.h"

namespace farleaf::index {

using dsm::OpContext;
using dsm::Task;

/// What a ReadModifyWrite's function decides about the key.
enum class ModifyAction : uint8_t { kKeep, kWrite, kDelete };

/// A pure function of the key's value (nullopt: absent). The last call decides; others may come before it, with kPresenceOnly one without a lock
/// of an absent key: what it leaves behind must be the last call's. On whichever thread; it must not wait. For kWrite the new value is in `replacement` (empty at the call).
using ModifyFunction =
    std::function<ModifyAction(std::optional<std::string_view> current, std::string* replacement)>;

/// Whether a ModifyFunction looks at the value, or only at whether there is one. kPresenceOnly spares
/// a large value's transfer; the function then sees an empty view in its place. kMustExist: likewise,
/// and it never stores a key that is absent, so that no room for one needs to be found.
enum class CurrentValue : uint8_t { kRead, kPresenceOnly, kMustExist };

/// Where damage hides whether the key was there, and the change is the same in both cases (Put, Delete), it is done, and says
/// that it was. Without kRead; all else fails there.
struct ModifyResult {
  bool existed = false;  ///< before
  ModifyAction action = ModifyAction::kKeep;
};

enum class DeleteIfResult : uint8_t { kDeleted, kAbsent, kDifferent };

struct KeyValue {
  std::string key;
  std::string value;
  bool operator==(const KeyValue&) const = default;
};

enum class ScanDirection : uint8_t { kForward, kReverse };

/// kKeys spares the transfer of large values: those of the rows may be left empty.
enum class ScanContent : uint8_t { kRows, kKeys };

/// kPassOver: what damage hides is left out, and older versions of it may stand in its place: for whoever does not believe a row
/// without another look.
enum class ScanDamage : uint8_t { kFail, kPassOver };

/// Keys in [start, end), at most `limit` and about `bytes_max`, ascending; kReverse: the same keys, descending from the
/// largest.
struct ScanRange {
  std::string_view start;               ///< empty: from the smallest key
  std::optional<std::string_view> end;  ///< exclusive; nullopt: to the largest key
  uint64_t limit = UINT64_MAX;
  /// Ends behind the row with which keys and values reach this many bytes.
  uint64_t bytes_max = UINT64_MAX;
  ScanDirection direction = ScanDirection::kForward;
  ScanContent content = ScanContent::kRows;
  ScanDamage damage = ScanDamage::kFail;
};

/// Who is told what keys have.
class ValueVisitor {
 public:
  virtual ~ValueVisitor() = default;
  /// `number`: of the key. `value`: nullopt where absent; good until this returns.
  virtual void Visit(size_t number, std::optional<std::string_view> value) = 0;
};

/// Changes of some keys, one after the other.
class KeyChanges {
 public:
  /// `room`: for what is decided; used again from one to the next, and outlives this.
  explicit KeyChanges(std::string* room) : room_(*room) {}
  virtual ~KeyChanges() = default;
  std::string& room() const { return room_; }
  /// What is to become of the key of this number: as a ModifyFunction.
  virtual ModifyAction Decide(size_t number, std::optional<std::string_view> current,
                              std::string* replacement) = 0;
  /// It is done, or has failed: told of each in their order, by ModifyAtOnce before the next is decided.
  virtual void Done(size_t number, const Result<ModifyResult>& result) = 0;

 private:
  std::string& room_;
};

class RangeIndex {
 public:
  virtual ~RangeIndex() = default;

  /// Whether the key is there; if so its value is in `value`.
  virtual Task<Result<bool>> Get(OpContext& op, std::string_view key, std::string* value) = 0;
  /// Like Get for each key; `values` has one element a key, nullopt where absent. Where it fails, none.
  virtual Task<Status> MultiGet(OpContext& op, std::span<const std::string_view> keys,
                                std::vector<std::optional<std::string>>* values) = 0;
  /// The same for whoever needs no copies: visits the keys in their order, each once. Where it fails, those before the
  /// one that it has failed with have been visited, and no others.
  virtual Task<Status> VisitValues(OpContext& op, std::span<const std::string_view> keys,
                                   ValueVisitor& visitor);
  /// Atomic: reads the key, lets `modify` decide, does it. All other writes are instances of it.
  virtual Task<Result<ModifyResult>> Modify(OpContext& op, std::string_view key,
                                            const ModifyFunction& modify, CurrentValue current) = 0;
  // Without waiting, and without a coroutine: for whoever has many operations at hand, on memory that is near. An index that
  // would have to wait does nothing.
  /// VisitValues of some keys, from the first on. Returns how many.
  virtual size_t VisitAtOnce(OpContext& /*op*/, std::span<const std::string_view> /*keys*/,
                             ValueVisitor& /*visitor*/) {
    return 0;
  }
  /// Modify of some keys, from the first on, in their order. Returns how many are done. The next one may have been
  /// decided, and is not done.
  virtual size_t ModifyAtOnce(OpContext& /*op*/, std::span<const std::string_view> /*keys*/,
                              CurrentValue /*use*/, KeyChanges& /*changes*/) {
    return 0;
  }
  /// Modify of some keys, from the first on, in their order: nobody sees one of these changes without those before it. What has to be waited for so that
  /// they survive is waited for once, behind all of them. Returns how many are done, or may be: nothing was done for the next one, which may have been
  /// decided; why that is, Modify of it says. 0 also where an index does not do that.
  virtual Task<size_t> ModifyTogether(OpContext& op, std::span<const std::string_view> keys,
                                      CurrentValue use, KeyChanges& changes);
  /// An operation on the key is about to run: what it will look at may be fetched meanwhile.
  virtual void Expect(OpContext& /*op*/, std::string_view /*key*/) {}

  /// Replaces what is in `rows` by the range's content.
  virtual Task<Status> Scan(OpContext& op, ScanRange range, std::vector<KeyValue>* rows) = 0;
  /// Deletes all keys in [start, end) at once, whether they can be read or not. Unimplemented: the index cannot do that.
  virtual Task<Status> DeleteRange(OpContext& op, std::string_view start, std::string_view end);
  /// What there is to be done for the index beside operations: others may be waiting for it, also when
  /// nothing is asked of this process. To be called on each worker that runs operations, about once a
  /// second, and behind the last operation until it is Ok, for as long as one cares to wait. Costs nothing
  /// where there is nothing to do; is an operation like any other, and may run beside others.
  /// Ok: nothing is left that this worker could do. Unavailable: something is (a memory server does not
  /// answer, or it is not its turn): again later. Fenced: it is for others to do.
  virtual Task<Status> Upkeep(OpContext& op) = 0;

  Task<Result<ModifyResult>> ReadModifyWrite(OpContext& op, std::string_view key,
                                             const ModifyFunction& modify) {
    return Modify(op, key, modify, CurrentValue::kRead);
  }
  /// Stores if the key is absent; returns whether it did.
  Task<Result<bool>> Insert(OpContext& op, std::string_view key, std::string_view value);
  /// Stores in any case; returns whether the key is new.
  Task<Result<bool>> Put(OpContext& op, std::string_view key, std::string_view value);
  /// Stores if the key is there; returns whether it did.
  Task<Result<bool>> Update(OpContext& op, std::string_view key, std::string_view value);
  /// Stores in any case, without telling what was there: an index that would have to look for it does not. Linearizable as
  /// Put, and in doubt as Put is.
  virtual Task<Status> BlindPut(OpContext& op, std::string_view key, std::string_view value);
  /// Returns whether the key was there.
  Task<Result<bool>> Delete(OpContext& op, std::string_view key);
  /// Deletes if the key's value equals `expected`.
  Task<Result<DeleteIfResult>> DeleteIf(OpContext& op, std::string_view key,
                                        std::string_view expected);
};

}  // namespace farleaf::index
