// Values out of line on their way from the pool, or to it.
//
// Thread rule: value types; live in the operation's frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dsm/transport.h"
#include "index/blink/node.h"
#include "index/blink/value_hints.h"

namespace farleaf::index {

enum class ValueState : uint8_t { kTorn, kRead, kReused };
/// Whether a block that was read is the one that a leaf's entry names; `value` is then in it.
ValueState OpenBlock(std::span<const std::byte> block, const OutOfLineValue& where,
                     std::string* value);
struct ValueFetch {
  OutOfLineValue where;
  std::string* value;
  ValueState state = ValueState::kTorn;
};
struct NewValue {
  GlobalAddress address;
  std::vector<std::byte> bytes;        ///< the block
  char encoded[kOutOfLineBytes] = {};  ///< the leaf's entry
};
/// A block that is read beside the leaf that is to name it (value_hints.h).
struct GuessedValue {
  uint64_t hash = 0;  ///< of the key; 0: nothing is guessed, or noted
  std::optional<ValueHint> hint;
  std::vector<std::byte> block;
  bool read = false;

  /// REQUIRES: a hint.
  void AddRead(dsm::Batch& batch) {
    block.resize(hint->bytes);
    batch.Read(hint->block.offset(), block);
  }
};

}  // namespace farleaf::index
