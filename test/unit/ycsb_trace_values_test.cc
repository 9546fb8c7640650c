// Values that a trace writes: which of them are told from damage, and from what others have
// written.
#include <gtest/gtest.h>

#include "benchmark/ycsb/trace_values.h"

namespace farleaf::ycsb {
namespace {

const RecordCodec kByteCodec(KeyLayout::kBytes, InsertOrder::kHashed, 1, 100);
const RecordCodec kFixed8Codec(KeyLayout::kFixed8, InsertOrder::kHashed, 1, 8);

ValueOrigin OriginOf(const TraceValues& values, std::string_view key, std::string_view value) {
  std::string problem;
  const ValueOrigin origin = values.Check(key, value, &problem);
  EXPECT_EQ(problem.empty(), origin == ValueOrigin::kOwn) << problem;
  return origin;
}

std::string Made(const TraceValues& values, std::string_view key, uint64_t version,
                 uint64_t bytes) {
  std::string value;
  values.Make(key, version, bytes, &value);
  EXPECT_EQ(value.size(), bytes);
  return value;
}

TEST(TraceValuesTest, EverySizeIsItsOwn) {
  const TraceValues values(&kByteCodec);
  std::vector<uint64_t> sizes = {100, 4096, 65'535, 65'560, 200'000};
  for (uint64_t bytes = 0; bytes <= 40; ++bytes) sizes.push_back(bytes);
  for (uint64_t bytes : sizes) {
    for (uint64_t version : {uint64_t{1}, uint64_t{77}, uint64_t{1} << 33}) {
      EXPECT_EQ(OriginOf(values, "some key", Made(values, "some key", version, bytes)),
                ValueOrigin::kOwn)
          << bytes << " bytes, version " << version;
    }
  }
  const TraceValues fixed8(&kFixed8Codec);
  EXPECT_EQ(OriginOf(fixed8, "12345678", Made(fixed8, "12345678", 9, 8)), ValueOrigin::kOwn);
}

TEST(TraceValuesTest, VersionsDiffer) {
  const TraceValues values(&kByteCodec);
  for (uint64_t bytes : {9, 23, 24, 100}) {
    EXPECT_NE(Made(values, "k", 1, bytes), Made(values, "k", 2, bytes)) << bytes;
  }
}

TEST(TraceValuesTest, EveryFlippedBitIsFound) {
  const TraceValues values(&kByteCodec);
  for (uint64_t bytes : {1, 8, 9, 23, 24, 60}) {
    const std::string value = Made(values, "k", 5, bytes);
    for (size_t bit = 0; bit < value.size() * 8; ++bit) {
      std::string damaged = value;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      // Whose mark is damaged, or who has none, may be anybody's.
      const bool marked = bytes >= 24 && bit >= 64;
      EXPECT_EQ(OriginOf(values, "k", damaged),
                marked ? ValueOrigin::kDamaged : ValueOrigin::kForeign)
          << bytes << " bytes, bit " << bit;
    }
  }
}

TEST(TraceValuesTest, ValueOfAnotherKeyOrCutOffIsDamage) {
  const TraceValues values(&kByteCodec);
  const std::string value = Made(values, "one", 5, 60);
  EXPECT_EQ(OriginOf(values, "two", value), ValueOrigin::kDamaged);
  EXPECT_EQ(OriginOf(values, "one", value.substr(0, 59)), ValueOrigin::kDamaged);
  EXPECT_EQ(OriginOf(values, "one", value + "x"), ValueOrigin::kDamaged);
}

TEST(TraceValuesTest, LoadedRecordsAreTheBenchmarks) {
  const TraceValues values(&kByteCodec);
  std::string key, other, value;
  kByteCodec.MakeKey(42, &key);
  kByteCodec.MakeKey(43, &other);
  kByteCodec.MakeValue(key, 42, 7, &value);
  EXPECT_EQ(OriginOf(values, key, value), ValueOrigin::kOwn);
  EXPECT_EQ(OriginOf(values, other, value), ValueOrigin::kDamaged);
  value.back() ^= 1;
  EXPECT_EQ(OriginOf(values, key, value), ValueOrigin::kDamaged);
}

TEST(TraceValuesTest, WhatOthersWroteIsForeign) {
  const TraceValues values(&kByteCodec), fixed8(&kFixed8Codec);
  for (const std::string& value : {std::string("x"), std::string(9, '\0'), std::string(24, '\0'),
                                   std::string(100, 'a'), std::string(5000, '\xff')}) {
    EXPECT_EQ(OriginOf(values, "k", value), ValueOrigin::kForeign) << value.size();
  }
  EXPECT_EQ(OriginOf(fixed8, "12345678", "87654321"), ValueOrigin::kForeign);
  EXPECT_EQ(OriginOf(fixed8, "12345678", "short"), ValueOrigin::kForeign);
}

}  // namespace
}  // namespace farleaf::ycsb
