// ScanGuess: blocks of values that a scan reads beside the leaves that are to name them (value_lists.h).
//
// For which leaf a block was guessed does not matter when it is taken: an entry that names it, by address,
// unique id and length, has the value that was read, wherever that entry stands by now. So blocks are kept
// until others are guessed.
//
// Thread rule: lives in a scan's frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <unordered_map>
#include <vector>

#include "dsm/transport.h"
#include "index/blink/block_name.h"
#include "index/blink/node.h"

namespace farleaf::index {

class ScanGuess {
 public:
  /// Of one round trip.
  static constexpr size_t kBlocksMax = 1024;

  /// Forgets all blocks. What is returned is to be filled with those to be read next, in the order in which the
  /// scan will want them.
  std::vector<ValueHint>& Begin();
  /// READs of those that Begin was told, behind what is in `batches` already.
  void AddReads(std::pmr::vector<dsm::Batch>& batches);
  /// They were not read.
  void Fail() { Begin(); }
  /// Whether the block that an entry names is among those that were read; `value` is then in it.
  bool Take(const OutOfLineValue& where, std::string* value);

 private:
  /// nullptr: no such block.
  const std::byte* Find(dsm::GlobalAddress block, size_t bytes);

  std::vector<ValueHint> blocks_;
  std::vector<size_t> offsets_;  ///< in bytes_
  std::unique_ptr<std::byte[]> bytes_;
  size_t next_ = 0;                                  ///< behind the last one found
  bool unread_ = false;                              ///< they were chosen, and AddReads is to come
  std::unordered_map<uint64_t, size_t> by_address_;  ///< made where they do not come in order
};

}  // namespace farleaf::index
