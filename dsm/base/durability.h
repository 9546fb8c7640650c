// What a write is to survive before it is answered, if whoever asks for it wants more than its store promises anyway.
//
// Thread rule: plain values.
#pragma once

#include <cstdint>

namespace farleaf {

/// On the wire as it stands (client/format.md).
enum class WriteDurability : uint8_t {
  kOfStore = 0,  ///< no more than that
  kReplicated =
      1,  ///< the end of the process that answers: it is in another one's memory as well, or on this one's disk
  kSynced = 2,  ///< a power loss: it is on the disk of each that has it
};
inline constexpr uint8_t kWriteDurabilityMax = 2;

}  // namespace farleaf
