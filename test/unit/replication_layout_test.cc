// The layout of an area, the format of what lies in it, and which of its log buffers is whose.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/replication/channel_format.h"
#include "server/replication/log_buffers.h"

namespace farleaf::server::replication {
namespace {

using index::lsm::LogKind;
using index::storage::SegmentId;

AreaLayout LayoutOf(const AreaOptions& options) {
  auto layout = AreaLayout::For(options);
  FARLEAF_CHECK(layout.ok(), layout.status());
  return *layout;
}

TEST(AreaLayoutTest, PartsAreAlignedApartAndFillTheArea) {
  for (const AreaOptions options : {AreaOptions{}, AreaOptions{1, 4'096, 0},
                                    AreaOptions{3, 8'192, 2}, AreaOptions{64, 4'096, 1}}) {
    const AreaLayout layout = LayoutOf(options);
    std::vector<std::pair<uint64_t, uint64_t>> parts{{0, sizeof(AreaHeader)}};
    for (uint32_t slot = 0; slot < layout.slots; ++slot) {
      parts.push_back({layout.ReplySlotOffset(slot), kReplySlotBytes});
      parts.push_back({layout.ReplyPayloadOffset(slot), kReplyPayloadBytesMax});
      parts.push_back({layout.MessageOffset(slot), kHeadPageBytes});
      parts.push_back({layout.PayloadOffset(slot), layout.payload_bytes});
      EXPECT_EQ(layout.ReplyPayloadOffset(slot) % kAreaAlignment, 0u);
      EXPECT_EQ(layout.PayloadOffset(slot) % kAreaAlignment, 0u);
    }
    for (uint32_t buffer = 0; buffer < layout.log_buffers; ++buffer) {
      parts.push_back({layout.LogBufferOffset(buffer), kLogBufferBytes});
      EXPECT_EQ(layout.LogBufferOffset(buffer) % kAreaAlignment, 0u);
    }
    std::sort(parts.begin(), parts.end());
    for (size_t i = 1; i < parts.size(); ++i) {
      EXPECT_GE(parts[i].first, parts[i - 1].first + parts[i - 1].second);
    }
    EXPECT_EQ(parts.back().first + parts.back().second, layout.bytes());
  }
  EXPECT_EQ(LayoutOf({}).bytes(), uint64_t{28'952} << 10);
}

TEST(AreaLayoutTest, WhatIsOutOfRangeIsRefusedWithItsRange) {
  EXPECT_EQ(AreaLayout::For({0, 4'096, 1}).status().ToString(),
            "invalid argument: an area's slots = 0 is not in 1..64");
  EXPECT_EQ(AreaLayout::For({65, 4'096, 1}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(
      AreaLayout::For({4, 5'000, 1}).status().ToString(),
      "invalid argument: an area's payload_bytes = 5000 is not in 4096..1048576 in steps of 4096");
  EXPECT_EQ(AreaLayout::For({4, 0, 1}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(AreaLayout::For({4, (1 << 20) + 4'096, 1}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(AreaLayout::For({4, 4'096, 4'097}).status().ToString(),
            "invalid argument: an area's log_buffers = 4097 is not in 0..4096");
}

TEST(AreaLayoutTest, AHeaderIsReadBackAndEveryDamagedByteIsSeen) {
  const AreaLayout layout = LayoutOf({3, 8'192, 5});
  const AreaHeader header = HeaderOf(layout, 77);
  std::array<std::byte, sizeof header> bytes;
  std::memcpy(bytes.data(), &header, sizeof header);
  auto parsed = ParseAreaHeader(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->layout, layout);
  EXPECT_EQ(parsed->token, 77u);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{0x10};
    EXPECT_FALSE(ParseAreaHeader(bytes).ok()) << "byte " << i;
    bytes[i] ^= std::byte{0x10};
  }
}

TEST(ChannelFormatTest, TheWordTellsSequencesAndTokensApart) {
  std::set<uint64_t> words;
  Random random(1);
  for (int i = 0; i < 20; ++i) {
    const uint64_t token = random.Next();
    for (uint64_t sequence = 0; sequence < 100; ++sequence) {
      words.insert(RendezvousWord(token, sequence));
    }
  }
  EXPECT_EQ(words.size(), 2'000u);
}

TEST(ChannelFormatTest, EveryDamagedByteOfAHeadIsSeen) {
  const std::string payload = "a payload";
  const ChannelPlace place{.token = 12, .sequence = 34};
  const Message message{
      .kind = 5, .arguments = {1, 2, 3, 4}, .head = "", .payload = AsBytes(payload)};
  const std::string head = "thirteen byte";
  std::string encoded = EncodeHead(HeaderOf(place, message), head);
  ASSERT_EQ(encoded.size(), 72u + 16);
  const HeadLimits limits{64, 64};
  const auto check = [&]() -> Status {
    ChannelHeader header;
    std::memcpy(&header, encoded.data(), sizeof header);
    FARLEAF_RETURN_IF_ERROR(CheckPlace(header, place, limits));
    FARLEAF_RETURN_IF_ERROR(CheckHead(header, encoded.substr(72, header.head_bytes)));
    return CheckPayload(header, AsBytes(payload));
  };
  EXPECT_TRUE(check().ok()) << check();
  for (size_t i = sizeof(uint64_t); i < 72 + head.size(); ++i) {
    encoded[i] ^= 1;
    EXPECT_EQ(check().code(), StatusCode::kCorruption) << "byte " << i;
    encoded[i] ^= 1;
  }
  ChannelHeader header;
  std::memcpy(&header, encoded.data(), sizeof header);
  EXPECT_EQ(header.word, RendezvousWord(12, 34));
  EXPECT_EQ(CheckPlace(header, {12, 35}, limits).code(), StatusCode::kCorruption);
  EXPECT_EQ(CheckPlace(header, {13, 34}, limits).code(), StatusCode::kCorruption);
  EXPECT_EQ(CheckPlace(header, place, {12, 64}).code(), StatusCode::kCorruption);
  EXPECT_EQ(CheckPlace(header, place, {13, 8}).code(), StatusCode::kCorruption);
  EXPECT_EQ(CheckPayload(header, AsBytes("a payloaD")).code(), StatusCode::kCorruption);
}

TEST(BufferPoolTest, ASegmentHasOneBufferUntilItIsReleased) {
  const AreaLayout layout = LayoutOf({1, 4'096, 2});
  std::vector<std::byte> area(layout.bytes());
  BufferPool pool(area, layout);
  const LogSegment one{LogKind::kRecovery, SegmentId{1}}, two{LogKind::kValues, SegmentId{1}},
      three{LogKind::kValues, SegmentId{3}};
  auto first = pool.Take(one), second = pool.Take(two);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, *second);
  EXPECT_EQ(pool.Take(one).status().ToString(),
            "already exists: the recovery log's segment 1 has a log buffer");
  EXPECT_EQ(pool.Take(three).status().ToString(),
            "resource exhausted: all 2 log buffers are taken; none is left for the value log's "
            "segment 3");
  EXPECT_EQ(pool.Find(two), *second);
  EXPECT_EQ(pool.Holds(*second), two);
  EXPECT_EQ(pool.taken(), 2u);
  EXPECT_EQ(pool.bytes(*second).data() - area.data(),
            static_cast<std::ptrdiff_t>(pool.offset(*second)));
  EXPECT_EQ(pool.bytes(*second).size(), size_t{2} << 20);
  pool.Release(*first);
  EXPECT_EQ(pool.Find(one), std::nullopt);
  auto again = pool.Take(three);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *first);
}

}  // namespace
}  // namespace farleaf::server::replication
