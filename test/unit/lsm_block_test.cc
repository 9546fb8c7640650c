// Blocks: the bytes of format.md's example, and the sizes that the builder plans with.
#include "index/lsm/block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dsm/base/random.h"
#include "index/lsm/block_encoder.h"

namespace farleaf::index::lsm {
namespace {

TEST(LsmBlockTest, TheExampleOfTheFormatsPage) {
  BlockEncoder encoder;
  char* const tail = encoder.TailRoom(1);
  *tail = 7;
  encoder.Add("ab", 0, static_cast<uint8_t>(EntryKind::kDeleted) | internal::kTagSequence,
              tail + 1);
  char* const value = encoder.TailRoom(1);
  *value = 'v';
  encoder.Add("abcdefg", 2, 0, value + 1);
  std::vector<char> room(4096);
  const std::span<std::byte> block = encoder.Encode({}, room.data());
  StoreLittle(block.data(), BlockChecksum(0, 0, block));
  const std::vector<uint8_t> expected = {
      0x0c, 0x3c, 0x3d, 0x5b, 0x31, 0, 0,    0, 0x31, 0,    0, 0, 0,    0,    0,   0,    2,
      0,    0,    0,    2,    0,    0, 0,    0, 0,    0,    0, 0, 0,    0,    0,   0x66, 0x65,
      0x64, 0x63, 0x2c, 0,    0x2e, 0, 0x31, 0, 0x61, 0x62, 6, 7, 0x50, 0x67, 0x76};
  std::vector<uint8_t> bytes;
  for (const std::byte byte : block) bytes.push_back(static_cast<uint8_t>(byte));
  EXPECT_EQ(bytes, expected);
  EXPECT_EQ(CheckStored(0, 0, block), nullptr);
  EXPECT_EQ(Block::Check(block, {}), nullptr);
  EXPECT_NE(CheckStored(0, 16, block), nullptr);
  EXPECT_NE(CheckStored(1, 0, block), nullptr);
}

TEST(LsmBlockTest, SizesAreKnownBeforeItIsEncoded) {
  const uint64_t seed = 5;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  for (int round = 0; round < 300; ++round) {
    const bool one_length = random.OneIn(2);
    const size_t key_bytes_max = 1 + random.Below(60), count = 1 + random.Below(300);
    std::vector<std::string> keys;
    for (size_t i = 0; i < count; ++i) {
      std::string key(one_length ? key_bytes_max + 8 : 1 + random.Below(key_bytes_max), '\0');
      for (char& letter : key) letter = static_cast<char>(random.Next());
      keys.push_back(std::move(key));
    }
    std::sort(keys.begin(), keys.end());
    BlockEncoder encoder;
    std::string last;
    for (const std::string& key : keys) {
      const auto shared = static_cast<size_t>(
          std::mismatch(key.begin(), key.end(), last.begin(), last.end()).first - key.begin());
      const size_t value_bytes = random.Below(400);
      const size_t planned = encoder.BytesWith(key.size(), shared, value_bytes);
      char* const tail = encoder.TailRoom(value_bytes);
      encoder.Add(key, shared, 0, std::fill_n(tail, value_bytes, 'v'));
      ASSERT_EQ(encoder.Bytes(), planned);
      last = key;
    }
    const size_t planned = encoder.Bytes(), most = encoder.EncodedBytesMax(0);
    std::vector<char> room(most + CharArena::kSlack);
    const size_t bytes = encoder.Encode({}, room.data()).size();
    EXPECT_LE(bytes, most);
    if (planned <= UINT16_MAX) {
      EXPECT_LE(bytes, planned);
    }
    if (one_length && planned <= UINT16_MAX) {
      EXPECT_EQ(bytes, planned);
    }
  }
}

}  // namespace
}  // namespace farleaf::index::lsm
