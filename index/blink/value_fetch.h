// Values out of line on their way from the pool, or to it.
//
// Thread rule: value types; live in the operation's frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "index/blink/node.h"
#include "index/blink/value_hints.h"

namespace farleaf::index {

enum class ValueState : uint8_t { kTorn, kRead, kReused };
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
};

}  // namespace farleaf::index
