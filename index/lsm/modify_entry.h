// What a read-modify-write of the LSM store sees and decides, expiry included (LsmStore::ModifyEntry).
//
// Thread rule: value types.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "index/range_index.h"

namespace farleaf::index::lsm {

/// What a key has.
struct CurrentEntry {
  std::string_view value;   ///< empty, if it was not asked for
  uint64_t expires_ms = 0;  ///< since 1970; 0: never
};

/// What it is to have.
struct NewEntry {
  std::string value;
  uint64_t expires_ms = 0;  ///< likewise. What has passed already: the key is as deleted
  bool operator==(const NewEntry&) const = default;
};

/// As a ModifyFunction. At the call `replacement` has no value, and the current expiry: who leaves that alone keeps it.
using ModifyEntryFunction =
    std::function<ModifyAction(const std::optional<CurrentEntry>& current, NewEntry* replacement)>;

}  // namespace farleaf::index::lsm
