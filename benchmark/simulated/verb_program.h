// VerbProgram: another index's operations as data: which verbs each kind of operation sends in which
// round trips, which of them lock what, and what they cost its compute server. It lets designs be compared
// on one cost model without being built. Read from a TOML file (benchmark/models/programs).
//
// Thread rule: a value type.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "benchmark/ycsb/workload.h"
#include "dsm/base/result.h"

namespace farleaf::ycsb {

struct ProgramVerb {
  enum class Kind : uint8_t {
    kRead,     ///< READ PLACE BYTES
    kWrite,    ///< WRITE PLACE BYTES
    kLock,     ///< LOCK: CAS on the leaf's lock word; the round trip is repeated until it succeeds
    kUnlock,   ///< UNLOCK: 8-byte WRITE of it
    kShare,    ///< SHARE: FETCH-ADD on it
    kUnshare,  ///< UNSHARE: FETCH-ADD on it
    kSwap,     ///< SWAP: CAS on the key's slot in the leaf; repeated until it finds what it expects
    kAdd,      ///< ADD: FETCH-ADD on a word of some other page
  };
  enum class Place : uint8_t {
    kLeaf,    ///< of the key
    kLeaves,  ///< all that a scan covers, in one round trip
    kRoot,    ///< one page of the pool
    kOther,   ///< some other page of the pool
  };
  Kind kind;
  Place place = Place::kLeaf;
  uint32_t bytes = 8;        ///< a multiple of 8
  uint32_t asked_bytes = 8;  ///< as the file has it
};

/// One round trip.
struct ProgramStep {
  std::vector<ProgramVerb> verbs;
  double chance = 1;         ///< that an operation takes it
  double chance_skewed = 1;  ///< likewise, where the keys asked for are skewed
  bool otherwise = false;    ///< instead of the round trip before it, where that is not taken
  uint32_t times = 1;        ///< one after another
  bool per_leaf = false;     ///< one after another, for each leaf that a scan covers

  bool Has(ProgramVerb::Kind kind) const;
};

struct VerbProgram {
  std::string name;
  uint32_t leaf_bytes = 0;
  uint32_t leaf_entries = 0;  ///< on average
  double split_every = 0;     ///< inserts; 0: never

  bool lock_in_device = false;  ///< lock words lie in the NIC's memory, else behind the leaf
  bool lock_owned =
      false;  ///< nobody else has the leaf: LOCK is a latch of the compute server's own
  bool lock_queue =
      false;  ///< threads of one compute server queue before they lock, or share and swap
  uint32_t lock_handovers_max = 0;  ///< and hand the lock over so many times
  double lock_retry_ns = 0;         ///< between attempts

  std::array<double, kOpKinds> cpu_ns{};  ///< of an operation, checks of what was read included
  std::array<std::vector<ProgramStep>, kOpKinds> steps;  ///< by OpKind
  std::vector<ProgramStep> split;  ///< ahead of the last step of an insert that splits
};

/// NotFound if there is no such file; InvalidArgument names file, line, key, value and what is wrong.
Result<VerbProgram> LoadProgramFile(const std::string& path);
Result<VerbProgram> ParseProgram(std::string_view text, const std::string& source);

}  // namespace farleaf::ycsb
