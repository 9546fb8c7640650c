// Whatever a block of a table holds: it is refused, or can be searched and walked without leaving it; and whatever the description
// or the footer of a table holds: it is refused, or read back as it is.
//
// An input: what it is, 1 byte (0: description, 1: footer, else: block of level byte % 3); the bytes.
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/crc32c.h"
#include "dsm/base/random.h"
#include "index/lsm/block_encoder.h"
#include "index/lsm/compression.h"
#include "index/lsm/table_info.h"
#include "test/fuzz/corpus.h"
#include "test/fuzz/fuzz_target.h"

namespace {
using namespace farleaf;
using namespace farleaf::index::lsm;

constexpr uint64_t kStamp = 0x1234, kAt = 4096, kTableBytes = uint64_t{1} << 22;
constexpr size_t kDictionary = 4;

/// Exactly so many bytes: whoever reads behind them is seen.
struct Exact {
  explicit Exact(size_t bytes) : memory(std::make_unique<std::byte[]>(bytes)), size(bytes) {}
  std::span<std::byte> span() { return {memory.get(), size}; }
  std::unique_ptr<std::byte[]> memory;
  size_t size;
};

void Walk(const Block& block) {
  std::vector<char> key(kKeyBytesMax + 4);
  const std::string_view prefix = block.prefix();
  std::copy(prefix.begin(), prefix.end(), key.begin());
  for (uint32_t i = 0; i < block.count(); ++i) {
    const PackedEntry entry = block.entry(i);
    const uint32_t bytes =
        block.CopySuffix(i, entry, key.data(), static_cast<uint32_t>(prefix.size()));
    FARLEAF_CHECK(bytes <= kKeyBytesMax, bytes);
    const std::string_view whole(key.data(), bytes);
    if (block.level() > 0) {
      const BlockPlace child = block.Child(i);
      FARLEAF_CHECK(child.at + child.bytes <= kTableBytes, child.at, child.bytes);
      FARLEAF_CHECK(child.offset() + child.bytes <= index::storage::kSegmentBytes);
      FARLEAF_CHECK(block.ChildOf(whole, entry.sequence) < block.count());
      if (block.has_filter()) (void)block.MayContain(HashKey(whole));
      continue;
    }
    FARLEAF_CHECK(block.LowerBound(whole, entry.sequence).index <= block.count());
    if (entry.kind == EntryKind::kPointer) {
      const PackedPointer pointer = Block::ParsePointer(entry.value);
      FARLEAF_CHECK(pointer.dictionary_index < kDictionary &&
                    pointer.offset + pointer.bytes <= index::storage::kSegmentBytes);
    } else {
      uint32_t sum = 0;
      for (const char letter : entry.value) sum += static_cast<uint8_t>(letter);
      FARLEAF_CHECK(sum <= entry.value.size() * 255);
    }
  }
  for (const char* sought : {"", "a", "key", "zzzzzzzzzzzzzzzz"}) {
    FARLEAF_CHECK(block.LowerBound(sought, 5).index <= block.count());
  }
}

void TryBlock(uint8_t level, std::span<const std::byte> input) {
  const BlockLimits limits{level, kTableBytes, kDictionary};
  for (const bool mended : {false, true}) {
    Exact stored(input.size());
    std::copy(input.begin(), input.end(), stored.memory.get());
    if (mended && stored.size >= kBlockHeaderBytes) {
      BlockHeader header = BlockHeader::Load(stored.memory.get());
      header.stored_bytes = static_cast<uint32_t>(stored.size);
      header.level = level;
      if (header.compression() == Compression::kNone) header.raw_bytes = header.stored_bytes;
      header.Store(stored.memory.get());
      StoreLittle(stored.memory.get(), BlockChecksum(kStamp, kAt, stored.span()));
    }
    if (CheckStored(kStamp, kAt, stored.span())) continue;
    Exact raw(BlockHeader::Load(stored.memory.get()).raw_bytes);
    if (Unpack(stored.span(), raw.span()) || Block::Check(raw.span(), limits)) continue;
    Walk(Block(raw.memory.get()));
  }
}

std::string BlockSeed(uint8_t level, Compression compression) {
  BlockEncoder encoder;
  std::string last;
  for (uint32_t i = 0; i < 12; ++i) {
    std::string key = "key/" + std::string(i / 4 * 3, 'm') + std::to_string(100 + i);
    const size_t shared = static_cast<size_t>(
        std::mismatch(key.begin(), key.end(), last.begin(), last.end()).first - key.begin());
    char* tail = encoder.TailRoom(100);
    char* end = tail;
    uint8_t tag = level > 0 ? 0 : static_cast<uint8_t>(i % 3);
    if (i % 4 == 1) {
      tag |= index::lsm::internal::kTagSequence;
      end = PutVarint(end, 1000 + i);
    }
    if (level == 0 && i % 5 == 2) {
      tag |= index::lsm::internal::kTagExpiry;
      end = PutVarint(end, uint64_t{1} << 40);
    }
    if (level > 0) {
      end = PutVarint(PutVarint(end, i * 256), 4096);
    } else if (i % 3 == 1) {
      end = PutVarint(PutVarint(PutVarint(PutVarint(end, i % 4), 4096 * i), 700), 600);
    } else if (i % 3 == 0) {
      end = std::fill_n(end, 40, 'v');
    }
    encoder.Add(key, shared, tag, end);
    last = key;
  }
  const uint32_t lines = level == 1 ? 2 : 0;
  std::string room(encoder.EncodedBytesMax(lines) + 64, '\0');
  std::span<std::byte> block = encoder.Encode(
      {.level = level, .filter_lines = lines, .filter_probes = lines * 3}, room.data());
  std::vector<std::byte> stored(block.begin(), block.end());
  Compressor compressor(compression);
  if (const auto small = compressor.Compress(block.subspan(kBlockHeaderBytes), 1); !small.empty()) {
    stored.resize(kBlockHeaderBytes);
    stored.insert(stored.end(), small.begin(), small.end());
    BlockHeader header = BlockHeader::Load(stored.data());
    header.stored_bytes = static_cast<uint32_t>(stored.size());
    header.flags |= static_cast<uint8_t>(compression);
    header.Store(stored.data());
  }
  StoreLittle(stored.data(), BlockChecksum(kStamp, kAt, stored));
  return static_cast<char>(3 + level) + std::string(AsChars(stored));
}

TableInfo SomeInfo() {
  TableInfo info;
  info.segments = {SegmentId{3}, SegmentId{900}};
  info.stamp = kStamp;
  info.smallest = "a";
  info.largest = "key/z";
  info.root = {4096, 200};
  info.leaves = 1;
  info.bytes = 8192;
  info.entries = 12;
  info.dictionary = {{SegmentId{2}, 1400}, {SegmentId{77}, 600}};
  return info;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds = farleaf::test::ReadCorpus("table_block");
  TableInfo info = SomeInfo();
  seeds.push_back('\0' + info.Encode());
  seeds.push_back('\1' + EncodeFooter(&info));
  for (const uint8_t level : {0, 1, 2}) seeds.push_back(BlockSeed(level, Compression::kNone));
  for (const Compression compression : {Compression::kLz4, Compression::kZstd}) {
    seeds.push_back(BlockSeed(0, compression));
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  Exact input(size - 1);
  std::copy_n(reinterpret_cast<const std::byte*>(data) + 1, size - 1, input.memory.get());
  if (data[0] > 1) {
    TryBlock(data[0] % 3, input.span());
    return 0;
  }
  if (data[0] == 1 && input.size >= kFooterHeaderBytes) {  // with a right checksum, too
    const auto length = LoadLittle<uint32_t>(input.memory.get() + 8);
    if (length <= input.size - kFooterHeaderBytes) {
      (void)DecodeFooter(input.span());
      const auto encoded = input.span().subspan(kFooterHeaderBytes, length);
      StoreLittle(input.memory.get() + 12, Crc32c(encoded, Crc32c(input.span().first(12))));
    }
  }
  const auto info = data[0] == 0 ? TableInfo::Decode(input.span()) : DecodeFooter(input.span());
  if (info.ok()) {
    const auto again = TableInfo::Decode(AsBytes(info->Encode()));
    FARLEAF_CHECK(again.ok() && *again == *info);
  }
  return 0;
}
