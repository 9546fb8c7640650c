// TableCursor: walks a table in the order of its entries, or against it, by way of the cache.
//
// Like a lookup it never suspends: a step that lacks a block says so, and its driver fetches the block, keeps it pinned, and calls
// the same function again, which goes on from where it was.
//
// Thread rule: one owner. The table and the cache outlive it; the blocks it stands on are pinned.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "index/lsm/leaf_reader.h"
#include "index/lsm/table.h"

namespace farleaf::index::lsm {

enum class CursorStep : uint8_t {
  kEntry,    ///< stands on entry()
  kEnd,      ///< there is none; only a Seek leads on
  kMissing,  ///< missing() is to be fetched; then the same call again
};

class TableCursor {
 public:
  TableCursor(const Table* table, BlockCache* cache, BlockUse use = BlockUse::kOnce);

  CursorStep SeekToFirst() { return Begin(Turn::kFirst); }
  CursorStep SeekToLast() { return Begin(Turn::kLast); }
  /// The first entry that does not come before (key, sequence): the newest version of the key that is not newer than `sequence`,
  /// or else the next key's newest of all.
  CursorStep Seek(std::string_view key, Sequence sequence = kSequenceMax);
  /// The last entry that does not come behind (key, sequence): with 0, the key's oldest version, or else that of the key before it.
  CursorStep SeekForPrev(std::string_view key, Sequence sequence = 0);
  /// REQUIRES of both: the last step was kEntry, or this function's kMissing.
  CursorStep Next();
  CursorStep Prev();

  enum class Direction : uint8_t { kForward, kBackward };
  /// The first entry behind all that is below the missing block, or in front of it. REQUIRES: the last step was kMissing. Next, or Prev,
  /// leads on.
  CursorStep PassMissing(Direction direction);

  /// Its views hold until the next step. REQUIRES: the last step was kEntry.
  const Entry& entry() const { return entry_; }
  const MissingBlock& missing() const { return missing_; }

  /// Names up to `count` of the leaves that come next, which the cache lacks, in `missing`; no further than the level-1 node that the
  /// cursor stands in. For Table::FetchAll. REQUIRES: the last step was kEntry, or kMissing of a leaf.
  void Upcoming(Direction direction, size_t count, std::vector<MissingBlock>* missing) const;

 private:
  enum class Turn : uint8_t { kFirst, kLast, kKey, kKeyForPrev };
  struct Node {
    BlockCache::Handle handle;
    Block block;
    uint32_t index = 0, count = 0;
  };

  CursorStep Begin(Turn turn);
  CursorStep Descend();
  /// `level`: of the lowest node that may go on.
  bool StepAside(Direction direction, size_t level = 1);
  CursorStep Stand();
  CursorStep SetEntry();

  const Table* table_;
  BlockCache* cache_;
  BlockUse use_;
  std::vector<Node> path_;  // by level
  Turn turn_ = Turn::kFirst;
  int pending_ = -1;  // the level that is to be loaded next; -1: none
  std::string target_;
  Sequence target_sequence_ = 0;
  MissingBlock missing_;
  Entry entry_;
  LeafReader reader_;
};

}  // namespace farleaf::index::lsm
