// LeafReader: the entries of a leaf with whole keys, put together in a buffer of its own.
//
// Thread rule: one owner.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "index/lsm/block.h"
#include "index/lsm/table.h"

namespace farleaf::index::lsm {

class LeafReader {
 public:
  LeafReader() : key_(std::make_unique_for_overwrite<char[]>(kKeyBytesMax + 4)) {}

  /// REQUIRES: the block has passed Block::Check, and stays while it is read.
  void Enter(Block leaf) {
    leaf_ = leaf;
    const std::string_view prefix = leaf.prefix();
    std::memcpy(key_.get(), prefix.data(), prefix.size());
    prefix_bytes_ = static_cast<uint32_t>(prefix.size());
  }
  const Block& leaf() const { return leaf_; }
  /// The key's view holds until the next Read.
  void Read(const Table& table, uint32_t i, Entry* entry) {
    const PackedEntry packed = leaf_.entry(i);
    entry->key = {key_.get(), leaf_.CopySuffix(i, packed, key_.get(), prefix_bytes_)};
    table.Resolve(packed, entry);
  }

 private:
  Block leaf_;
  std::unique_ptr<char[]> key_;
  uint32_t prefix_bytes_ = 0;
};

}  // namespace farleaf::index::lsm
