#include "index/storage/sim_image.h"

#include <algorithm>
#include <cstring>

#include "dsm/base/check.h"

namespace farleaf::index::storage {

SimSegment::Block SimSegment::FillerBlock(uint32_t block) const {
  Block bytes{};
  Random random(Mix64(filler_ + block));
  if (random.OneIn(2)) return bytes;  // a fresh file's zeros
  for (size_t at = 0; at < kBlockBytes; at += 8) {
    const uint64_t word = random.Next();
    std::memcpy(bytes.data() + at, &word, 8);
  }
  return bytes;
}

void SimSegment::Fill(uint32_t block, std::span<std::byte> into) const {
  const auto at = blocks_.find(block);
  const Block bytes = at == blocks_.end() ? FillerBlock(block) : *at->second.back().bytes;
  std::ranges::copy(bytes, into.begin());
}

void SimSegment::Read(uint32_t offset, std::span<std::byte> into) const {
  for (uint32_t at = 0; at < into.size(); at += kBlockBytes) {
    Fill((offset + at) / kBlockBytes, into.subspan(at, kBlockBytes));
  }
}

void SimSegment::Write(uint64_t change, uint32_t offset, std::span<const std::byte> from,
                       Random& random) {
  for (uint32_t at = 0; at < from.size(); at += kBlockBytes) {
    auto bytes = std::make_shared<Block>();
    std::ranges::copy(from.subspan(at, kBlockBytes), bytes->begin());
    std::vector<Version>& versions = blocks_[(offset + at) / kBlockBytes];
    versions.push_back({change, std::move(bytes)});
    if (versions.size() > kVersionsMax) {
      // One in the middle is forgotten. The next one takes its number: a Sync under way that covers what is forgotten
      // must not leave something older.
      const auto forgotten =
          versions.begin() + 1 + static_cast<ptrdiff_t>(random.Below(kVersionsMax - 1));
      std::next(forgotten)->change = forgotten->change;
      versions.erase(forgotten);
    }
  }
}

void SimSegment::Synced(uint64_t change) {
  created_durably_ = true;
  for (auto& [block, versions] : blocks_) {
    auto last = versions.end();  // that survives from now on, in front of all that came before it
    for (auto at = versions.begin(); at != versions.end() && at->change <= change; ++at) {
      if (at->change > given_up_) last = at;
    }
    if (last == versions.end()) continue;
    last->change = 0;
    versions.erase(versions.begin(), last);
  }
}

void SimSegment::FlipBit(uint32_t offset, uint32_t bit) {
  const uint32_t block = offset / kBlockBytes;
  auto bytes = std::make_shared<Block>();
  Fill(block, *bytes);
  (*bytes)[offset % kBlockBytes] ^= std::byte{static_cast<uint8_t>(1u << (bit % 8))};
  blocks_[block] = {{0, std::move(bytes)}};
}

SimSegment SimSegment::AfterCrash(Random& random) const {
  SimSegment after(filler_);
  after.created_durably_ = true;
  for (const auto& [block, versions] : blocks_) {
    std::vector<std::shared_ptr<const Block>> options;
    if (versions.front().change > 0) {
      options.push_back(std::make_shared<const Block>(FillerBlock(block)));
    }
    for (const Version& version : versions) options.push_back(version.bytes);
    std::shared_ptr<const Block> left = options[random.Below(options.size())];
    if (options.size() > 1 && random.OneIn(4)) {
      auto torn = std::make_shared<Block>();
      for (size_t at = 0; at < kBlockBytes; at += kSectorBytes) {
        std::memcpy(torn->data() + at, options[random.Below(options.size())]->data() + at,
                    kSectorBytes);
      }
      left = std::move(torn);
    }
    after.blocks_[block] = {{0, std::move(left)}};
  }
  return after;
}

SimSegment SimSegment::Recycled() const {
  SimSegment after(filler_);
  for (const auto& [block, versions] : blocks_) {
    after.blocks_[block] = {{0, versions.back().bytes}};
  }
  return after;
}

}  // namespace farleaf::index::storage
