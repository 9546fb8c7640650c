// A scan on its way.
//
// Thread rule: lives in Scan's frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "index/blink/tree.h"

namespace farleaf::index {

struct BlinkTree::ScanLeaf : CachedLeaf {
  PartMask window = 0;                     ///< the parts to read; none: the whole page
  Placement assumed = Placement::kHashed;  ///< when the window was chosen
};

struct BlinkTree::ScanState {
  ScanRange range;
  std::vector<KeyValue>* rows;
  std::string position;    ///< forward: the next key to cover; reverse: keys below it are next
  bool from_last = false;  ///< reverse: `position` is not set yet, begin at the very end
  bool done = false;
  bool find_one_leaf = false;  ///< the cache's chain broke
  bool stalled = false;        ///< the last round trip brought no parts that suffice
  std::vector<CachedLeaf> cached;
  std::vector<ScanLeaf> leaves;
  std::unique_ptr<std::byte[]> images;                      ///< a leaf's each
  size_t images_max = 0;                                    ///< that there is room for
  std::vector<std::pair<size_t, OutOfLineValue>> to_fetch;  ///< row, where its value is

  bool forward() const { return range.direction == ScanDirection::kForward; }
  uint64_t bytes = 0;  ///< of keys and values in the rows
  bool full() const { return rows->size() >= range.limit || bytes >= range.bytes_max; }
};

enum class BlinkTree::ScanTaken : uint8_t {
  kLeaf,       ///< all that is wanted of it
  kSome,       ///< `position` has moved, and is in the leaf still
  kTooLittle,  ///< what was read proves nothing; what is remembered of the leaf is right now
  kNoLeaf,     ///< it is not the next leaf, or torn
};

}  // namespace farleaf::index
