// RecordStore: the records of one tree. A write is one RangeIndex::Modify whatever its conditions, so that
// it is atomic across all compute servers of the pool; a read is one Get. What has expired is absent, and is
// deleted by whoever meets it.
//
// Thread rule: thread-safe; a coroutine runs on the worker of its OpContext, and what it is given outlives it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "index/range_index.h"
#include "server/records/record.h"

namespace farleaf::server {

enum class RecordAction : uint8_t { kKeep, kWrite, kDelete };

/// What is to become of a key: pure, called under the leaf's lock, once per attempt.
class RecordRule {
 public:
  virtual ~RecordRule() = default;
  /// `current`: null where there is none. For kWrite `next` is the new record, with `tail` behind its data; both
  /// may view the current one. A `next->cas` of 0 asks for a new one; an expired `next` deletes the key.
  virtual RecordAction Decide(const Record* current, Record* next, std::string_view* tail) = 0;
  /// Whether it does the same whatever there is, so that it can be done where damage hides what there is. Then `current` is
  /// some record without data.
  virtual bool blind() const { return false; }
};

struct RecordUpdate {
  RecordAction action = RecordAction::kKeep;  ///< what the rule decided
  uint64_t cas = 0;                           ///< kWrite: of the new record
};

/// Who is told what keys have.
class RecordVisitor {
 public:
  virtual ~RecordVisitor() = default;
  /// `record`: null where there is none, or where `why` is not ok. Good until this returns.
  virtual void Visit(size_t number, const Record* record, const Status& why) = 0;
};

/// Changes of some keys, one after the other. Each is Done in its turn, of UpdateTogether behind all RuleOf.
class RecordChanges {
 public:
  /// `room`: as of index::KeyChanges.
  explicit RecordChanges(std::string* room) : room_(*room) {}
  virtual ~RecordChanges() = default;
  std::string& room() const { return room_; }
  /// Of the key of this number; good until it is Done.
  virtual RecordRule& RuleOf(size_t number) = 0;
  virtual void Done(size_t number, const Result<RecordUpdate>& update) = 0;

 private:
  std::string& room_;
};

class RecordStore {
 public:
  /// Both outlive the store. `wall` gives time since 1970.
  RecordStore(index::RangeIndex* tree, const Clock* wall) : tree_(tree), wall_(wall) {}

  uint64_t NowMs() const { return wall_->NowNs() / kNsPerMs; }
  index::RangeIndex& tree() const { return *tree_; }

  /// Whether the key is there; if so `record` views `value`, which holds it.
  dsm::Task<Result<bool>> Get(dsm::OpContext& op, std::string_view key, std::string* value,
                              Record* record) const;
  /// Visits the keys in their order, each once, up to one that fails: that one is not visited, nor what is behind it.
  dsm::Task<Status> Visit(dsm::OpContext& op, std::span<const std::string_view> keys,
                          RecordVisitor& visitor) const;
  /// The same without waiting, of some keys, from the first on. Returns how many. `expired`: to it those are appended, by
  /// their numbers, that DeleteExpired is for.
  size_t VisitAtOnce(dsm::OpContext& op, std::span<const std::string_view> keys,
                     RecordVisitor& visitor, std::vector<size_t>* expired) const;
  /// `records` has one element a key, viewing `values`; nullopt where absent.
  dsm::Task<Status> MultiGet(dsm::OpContext& op, std::span<const std::string_view> keys,
                             std::vector<std::optional<std::string>>* values,
                             std::vector<std::optional<Record>>* records) const;
  dsm::Task<Result<RecordUpdate>> Update(dsm::OpContext& op, std::string_view key,
                                         RecordRule& rule) const;
  /// The same of some keys, from the first on, without waiting. Returns how many are done (index/range_index.h).
  size_t UpdateAtOnce(dsm::OpContext& op, std::span<const std::string_view> keys,
                      RecordChanges& changes) const;
  /// The same of some keys, from the first on, in their order, waiting once for all of them. Returns how many are done, or may be: what keeps the next one
  /// from it, Update of it says.
  dsm::Task<size_t> UpdateTogether(dsm::OpContext& op, std::span<const std::string_view> keys,
                                   RecordChanges& changes) const;
  /// Deletes the record if it is there and has expired.
  dsm::Task<Status> DeleteExpired(dsm::OpContext& op, std::string_view key) const;
  /// The same for whoever has met it, and knows the answer: without waiting long, where writes have to. Whatever comes of this, the sweep comes by.
  /// False: it is not done, and the next may take as long.
  dsm::Task<bool> DeleteInPassing(dsm::OpContext& op, std::string_view key) const;

 private:
  index::RangeIndex* const tree_;
  const Clock* const wall_;
};

}  // namespace farleaf::server
