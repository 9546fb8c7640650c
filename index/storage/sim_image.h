// What is on a simulated disk: of every block the versions that a crash may leave, and named files.
//
// A block's versions are in the order of the writes; the last is what a READ sees. Those up to the segment's
// last good Sync have become one. Blocks that were never written have a filler of the segment's own.
//
// Thread rule: value types, one owner; a segment is shared with the I/Os under way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dsm/base/random.h"
#include "index/storage/storage.h"

namespace farleaf::index::storage {

class SimSegment {
 public:
  static constexpr uint32_t kSectorBytes = 512;
  static constexpr size_t kVersionsMax = 4;
  using Block = std::array<std::byte, kBlockBytes>;

  explicit SimSegment(uint64_t filler) : filler_(filler) {}

  void Read(uint32_t offset, std::span<std::byte> into) const;
  /// A write completes, as change number `change`. Given to each block, a new version.
  void Write(uint64_t change, uint32_t offset, std::span<const std::byte> from, Random& random);
  /// Changes up to `change` survive.
  void Synced(uint64_t change);
  /// A Sync has failed: changes up to `change` that were not synced may be given up by now, whatever later ones say.
  void SyncFailed(uint64_t change) { given_up_ = change; }
  bool created_durably() const { return created_durably_; }
  void FlipBit(uint32_t offset, uint32_t bit);
  /// What a crash leaves of it.
  SimSegment AfterCrash(Random& random) const;
  /// A new segment over the bytes that this one left behind.
  SimSegment Recycled() const;

 private:
  struct Version {
    uint64_t change;  ///< 0: it survives
    std::shared_ptr<const Block> bytes;
  };
  void Fill(uint32_t block, std::span<std::byte> into) const;
  Block FillerBlock(uint32_t block) const;

  std::map<uint32_t, std::vector<Version>> blocks_;  // by number; none empty
  uint64_t filler_;
  uint64_t given_up_ = 0;  // changes up to it survive only if they were synced before
  bool created_durably_ = false;
};

struct SimImage {
  uint64_t spare = 0;  ///< segments' worth of room that the device has given already: of a reserve
  std::map<SegmentId, std::shared_ptr<SimSegment>> segments;
  std::map<std::string, std::string, std::less<>> files;
};

}  // namespace farleaf::index::storage
