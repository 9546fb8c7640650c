// CollectionStore: keys that have members: hashes, and what sorted sets stand on. A collection is a head (a record of
// its key) and an entry for each member, under keys of their own that begin with the collection's key and its
// generation. README.md has the invariants, and what is atomic.
//
// Thread rule: thread-safe; a coroutine runs on the worker of its OpContext, and what it is given outlives it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "index/range_index.h"
#include "server/records/record_store.h"

namespace farleaf::server {

/// Where the members of collections are.
/// Of a sorted set's member: a double as a number that sorts as it does.
inline constexpr size_t kScoreBytes = 8;
inline constexpr char kMemberSpace = SpaceByte(0, SpaceKind::kMembers);

/// What a member's entry is. In the pool: never renumber.
enum class EntryKind : uint8_t { kField = 'f', kMember = 'm', kScore = 's' };

/// What the head of a collection says, as a record's data.
struct Head {
  uint64_t generation = 0;  ///< drawn at random: never the same again for a key
  uint64_t holds = 0;       ///< at least as many as there are members and insertions under way
};
/// Corruption if the record is no collection's.
Result<Head> ParseHead(const Record& record);

/// A member's key in the tree, taken apart; views it.
struct MemberKey {
  std::string collection;  ///< the key that users name
  uint64_t generation = 0;
  EntryKind kind = EntryKind::kField;
  std::string_view rest;    ///< a field, a member, or a score and a member
  size_t prefix_bytes = 0;  ///< of the tree's key, up to and with the generation
};
std::optional<MemberKey> ParseMemberKey(std::string_view tree_key);
/// What the keys of all entries of one kind begin with.
std::string MemberPrefix(std::string_view key, uint64_t generation, EntryKind kind);
/// Whether a member fits the tree's keys, also behind a score.
bool MemberFits(std::string_view key, std::string_view member);

enum class Presence : uint8_t { kAbsent, kHere, kOther };
struct Opened {
  Presence presence = Presence::kAbsent;  ///< kOther: the key is of another type
  uint64_t generation = 0;                ///< kHere
};

struct MemberUpdate {
  Presence presence = Presence::kHere;  ///< kOther: nothing was done, the key is of another type
  bool existed = false;
  index::ModifyAction action = index::ModifyAction::kKeep;
};

/// Of a member: pure; called more than once.
using MemberFunction = index::ModifyFunction;

class CollectionStore {
 public:
  explicit CollectionStore(const RecordStore* records) : records_(records) {}

  const RecordStore& records() const { return *records_; }
  index::RangeIndex& tree() const { return records_->tree(); }

  /// One read of the head.
  dsm::Task<Result<Opened>> Open(dsm::OpContext& op, std::string_view key, RecordType type) const;
  /// Like RangeIndex::Modify of a member. The collection comes with its first member, and ends behind its last.
  dsm::Task<Result<MemberUpdate>> Update(dsm::OpContext& op, std::string_view key, RecordType type,
                                         std::string_view field, const MemberFunction& modify,
                                         index::CurrentValue current) const;

  /// Counts one that is about to be inserted; creates the collection if it is absent.
  dsm::Task<Result<Opened>> Hold(dsm::OpContext& op, std::string_view key, RecordType type) const;
  /// What held does not any more: a member was deleted, or has not been inserted. The last one ends the collection.
  dsm::Task<Status> Release(dsm::OpContext& op, std::string_view key, uint64_t generation) const;

 private:
  const RecordStore* const records_;
};

constexpr EntryKind MainKind(RecordType type) {
  return type == RecordType::kHash ? EntryKind::kField : EntryKind::kMember;
}

}  // namespace farleaf::server
