// PieceScan: a range of a tree, read a bounded piece at a time, so that a walk over everything takes neither much
// memory nor long at once.
//
// Thread rule: one owner; a coroutine runs on the worker of its OpContext.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "index/range_index.h"

namespace farleaf::server {

/// Of every tree that holds records.
inline constexpr size_t kTreeKeyBytesMax = 1024;

/// The smallest key above it that fits the tree. REQUIRES: its first byte, the space, is not 255.
std::string KeyBehind(const std::string& key);
/// The smallest key above all that begin with `prefix`. REQUIRES: likewise.
std::string EndOfPrefix(std::string_view prefix);

class PieceScan {
 public:
  static constexpr uint64_t kRows = 512;
  static constexpr uint64_t kBytes = 256 << 10;
  struct Range {
    std::string start, end;  ///< exclusive
    index::ScanDirection direction = index::ScanDirection::kForward;
    uint64_t rows_of_piece = kRows;
    uint64_t bytes_of_piece = kBytes;
    index::ScanContent content = index::ScanContent::kRows;
    index::ScanDamage damage = index::ScanDamage::kFail;
  };

  PieceScan(index::RangeIndex* tree, Range range) : tree_(tree), range_(std::move(range)) {}

  /// The next rows; done() if these were the last. REQUIRES: not done. After a failure it may be tried again.
  dsm::Task<Status> Next(dsm::OpContext& op);
  /// From now on rows that damage hides are left out (index::ScanDamage).
  void PassOverDamage() { range_.damage = index::ScanDamage::kPassOver; }
  const std::vector<index::KeyValue>& rows() const { return rows_; }
  bool done() const { return done_; }
  /// Where the next piece of a forward scan begins. REQUIRES: not done.
  const std::string& position() const { return range_.start; }

 private:
  index::RangeIndex* const tree_;
  Range range_;
  std::vector<index::KeyValue> rows_;
  bool done_ = false;
};

}  // namespace farleaf::server
