// HdrHistogram's format and log, read back by a decoder of this test's own, by the one beside the
// encoder, and by HdrHistogram's own tools where they are installed.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "benchmark/ycsb/hdr_codec.h"
#include "benchmark/ycsb/hdr_log.h"
#include "dsm/base/random.h"

namespace farleaf::ycsb {
namespace {

// --- a decoder by the description of the format: value -> count ---

std::string Base64Decoded(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i + 4 <= text.size(); i += 4) {
    unsigned bits = 0;
    int padding = 0;
    for (char c : text.substr(i, 4)) {
      unsigned digit = 0;
      if (c >= 'A' && c <= 'Z') digit = static_cast<unsigned>(c - 'A');
      if (c >= 'a' && c <= 'z') digit = static_cast<unsigned>(c - 'a') + 26;
      if (c >= '0' && c <= '9') digit = static_cast<unsigned>(c - '0') + 52;
      if (c == '+') digit = 62;
      if (c == '/') digit = 63;
      if (c == '=') ++padding;
      bits = bits * 64 + digit;
    }
    for (int byte = 0; byte < 3 - padding; ++byte) {
      bytes += static_cast<char>(bits >> (16 - 8 * byte));
    }
  }
  return bytes;
}

uint64_t BigEndian(const std::string& bytes, size_t at, size_t length) {
  uint64_t value = 0;
  for (size_t i = at; i < at + length; ++i) value = value * 256 + static_cast<uint8_t>(bytes.at(i));
  return value;
}

/// The least value of each of HdrHistogram's buckets, with unit 1 and two significant digits:
/// 256 sub-buckets, of which every bucket but the first uses the upper half.
uint64_t HdrValueAt(size_t index) {
  const int bucket = static_cast<int>(index / 128) - 1;
  const size_t sub_bucket = index % 128 + 128;
  return bucket < 0 ? sub_bucket - 128 : static_cast<uint64_t>(sub_bucket) << bucket;
}

std::map<uint64_t, int64_t> Decoded(std::string_view text) {
  const std::string outer = Base64Decoded(text);
  EXPECT_EQ(BigEndian(outer, 0, 4), 0x1c849314u);
  EXPECT_EQ(BigEndian(outer, 4, 4), outer.size() - 8);
  std::string inner(100'000, '\0');
  uLongf size = inner.size();
  EXPECT_EQ(::uncompress(reinterpret_cast<Bytef*>(inner.data()), &size,
                         reinterpret_cast<const Bytef*>(outer.data()) + 8, outer.size() - 8),
            Z_OK);
  inner.resize(size);
  EXPECT_EQ(BigEndian(inner, 0, 4), 0x1c849313u);
  EXPECT_EQ(BigEndian(inner, 4, 4), inner.size() - 40);
  EXPECT_EQ(BigEndian(inner, 8, 4), 0u);
  EXPECT_EQ(BigEndian(inner, 12, 4), 2u);
  EXPECT_EQ(BigEndian(inner, 16, 8), 1u);
  const uint64_t highest = BigEndian(inner, 24, 8);
  EXPECT_EQ(BigEndian(inner, 32, 8), 0x3ff0000000000000u);  // 1.0
  std::map<uint64_t, int64_t> counts;
  size_t index = 0;
  for (size_t at = 40; at < inner.size();) {
    uint64_t zigzag = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(inner.at(at++));
      if (shift == 56) {
        zigzag += static_cast<uint64_t>(byte) << 56;
        break;
      }
      zigzag += static_cast<uint64_t>(byte % 128) << shift;
      if (byte < 128) break;
    }
    const int64_t count = zigzag % 2 == 0 ? static_cast<int64_t>(zigzag / 2)
                                          : -static_cast<int64_t>(zigzag / 2) - 1;
    if (count > 0) {
      EXPECT_LE(HdrValueAt(index), highest);
      counts[HdrValueAt(index++)] = count;
    } else {
      index += count == 0 ? 1 : static_cast<size_t>(-count);
    }
  }
  return counts;
}

// --- the codec ---

/// Values below 2^`bits`, some of them often.
Histogram RandomHistogram(uint64_t seed, uint64_t bits) {
  Random random(seed);
  Histogram histogram;
  const uint64_t values = 1 + random.Below(2000);
  for (uint64_t i = 0; i < values; ++i) {
    const uint64_t value = random.Next() >> (64 - bits + random.Below(bits));
    histogram.RecordMany(value, random.OneIn(5) ? 1 + random.Below(10'000) : 1);
  }
  return histogram;
}

TEST(HdrCodecTest, EveryBucketIsHdrHistograms) {
  for (size_t i = 0; i < Histogram::kBuckets - Histogram::kColumns; ++i) {
    ASSERT_EQ(Histogram::BucketMin(i), HdrValueAt(i)) << i;
    ASSERT_EQ(Histogram::BucketOf(HdrValueAt(i)), i);
    ASSERT_EQ(Histogram::BucketMax(i) + 1, HdrValueAt(i + 1)) << i;
  }
}

TEST(HdrCodecTest, AnotherDecoderFindsEveryCount) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    const SparseHistogram sparse = RandomHistogram(seed, 63).Sparse();
    std::map<uint64_t, int64_t> expected;
    for (const auto& bucket : sparse.buckets) {
      expected[Histogram::BucketMin(bucket.index)] = static_cast<int64_t>(bucket.count);
    }
    EXPECT_EQ(Decoded(EncodeHistogram(sparse)), expected);
  }
}

TEST(HdrCodecTest, DecodingGivesTheBucketsBack) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    const Histogram histogram = RandomHistogram(seed, 36);  // its sum is below 2^64
    const auto decoded = DecodeHistogram(EncodeHistogram(histogram.Sparse()));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->buckets, histogram.Sparse().buckets);
    EXPECT_LE(decoded->min, histogram.min());
    EXPECT_GE(decoded->max, histogram.max());
    Histogram again;
    again.Merge(*decoded);
    EXPECT_NEAR(again.mean() / histogram.mean(), 1, 1.0 / 256);
  }
}

TEST(HdrCodecTest, CountsOfEveryLengthAreTold) {
  SparseHistogram sparse;
  for (uint64_t bits = 0; bits < 48; ++bits) {
    sparse.buckets.push_back({10 * bits, (uint64_t{1} << bits) + bits});
  }
  sparse.max = Histogram::BucketMax(470);
  std::map<uint64_t, int64_t> expected;
  for (const auto& bucket : sparse.buckets) {
    expected[Histogram::BucketMin(bucket.index)] = static_cast<int64_t>(bucket.count);
  }
  EXPECT_EQ(Decoded(EncodeHistogram(sparse)), expected);
  const auto decoded = DecodeHistogram(EncodeHistogram(sparse));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->buckets, sparse.buckets);
}

TEST(HdrCodecTest, EmptyAndEndlessAreTold) {
  EXPECT_TRUE(Decoded(EncodeHistogram({})).empty());
  const auto empty = DecodeHistogram(EncodeHistogram({}));
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->count(), 0u);
  Histogram endless;
  endless.Record(UINT64_MAX);
  endless.Record(INT64_MAX);
  // HdrHistogram's values end at 2^63-1.
  EXPECT_EQ(Decoded(EncodeHistogram(endless.Sparse())),
            (std::map<uint64_t, int64_t>{{uint64_t{255} << 55, 2}}));
}

// What HdrHistogram 2.1.11 (Histogram(1, 3600000000000, 2), HistogramLogWriter) writes.
constexpr const char* kOfHdrHistogram =
    "HISTFAAAADl42pNpmSzMwMAgxgABTFCakYGB2c1gxwIG+w8QARamn4xsE5h/MzIxfWR+cJTjviLTXlkmAP9zC3g=";

TEST(HdrCodecTest, ReadsWhatHdrHistogramWrites) {
  const auto decoded = DecodeHistogram(kOfHdrHistogram);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  Histogram expected;
  expected.RecordMany(0, 2);
  expected.Record(1);
  expected.RecordMany(127, 3);
  expected.RecordMany(128, 200);
  expected.Record(255);
  expected.Record(256);
  expected.RecordMany(1000, 70'000);
  expected.Record(123'456'789);
  expected.Record(3'500'000'000'000);
  EXPECT_EQ(decoded->buckets, expected.Sparse().buckets);
}

TEST(HdrCodecTest, WhatIsNoHistogramIsRefused) {
  const std::string good = EncodeHistogram(RandomHistogram(7, 40).Sparse());
  ASSERT_TRUE(DecodeHistogram(good).ok());
  EXPECT_FALSE(DecodeHistogram("").ok());
  EXPECT_FALSE(DecodeHistogram("HIST").ok());
  EXPECT_FALSE(DecodeHistogram("not base64!!").ok());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(DecodeHistogram(good.substr(0, length)).ok()) << length;
  }
  // Damage is found by zlib's checksum; what it does not cover, by what stands there.
  for (size_t at = 0; at + 2 < good.size(); ++at) {
    std::string damaged = good;
    damaged[at] = damaged[at] == 'A' ? 'B' : 'A';
    const auto decoded = DecodeHistogram(damaged);
    // A compressed stream can say the same in another way, but nothing else.
    if (decoded.ok()) {
      EXPECT_TRUE(decoded->buckets == DecodeHistogram(good)->buckets) << at;
    }
  }
}

// --- the log ---

PhaseResult PhaseOf(Phase phase, uint64_t start_unix_ns, uint64_t seed) {
  PhaseResult result;
  result.phase = phase;
  result.start_unix_ns = start_unix_ns;
  result.elapsed_ns = 2'500'000'000;
  const auto kind = static_cast<size_t>(phase == Phase::kLoad ? OpKind::kInsert : OpKind::kRead);
  TimeSeries series{.interval_ns = kNsPerSecond, .elapsed_ns = result.elapsed_ns, .intervals = {}};
  series.intervals.resize(3);
  Random random(seed);
  for (const size_t interval : {0, 2}) {  // nothing ended in the second
    Histogram latency_ns;
    for (int i = 0; i < 5000; ++i) latency_ns.Record(200 + random.Next() % (1 << random.Below(30)));
    series.intervals[interval][kind].latency_ns = latency_ns.Sparse();
    result.kinds[kind].latency_ns.Merge(latency_ns);
  }
  result.kinds[kind].returns[0] = result.kinds[kind].latency_ns.count();
  result.series = std::move(series);
  return result;
}

std::vector<std::string> LinesOf(std::span<const PhaseResult> phases) {
  std::ostringstream log;
  WriteHdrLog(phases, log);
  std::istringstream text(log.str());
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(HdrLogTest, HeadIsHistogramLogWriters) {
  const PhaseResult phase = PhaseOf(Phase::kRun, 1'441'812'279'474'000'000, 1);
  const auto lines = LinesOf({&phase, 1});
  EXPECT_EQ(lines.at(0), "#[Histogram log format version 1.3]");
  EXPECT_EQ(lines.at(1),
            "#[StartTime: 1441812279.474 (seconds since epoch), Wed Sep 09 15:24:39 UTC 2015]");
  EXPECT_EQ(lines.at(2),
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\","
            "\"Interval_Compressed_Histogram\"");
}

TEST(HdrLogTest, LineForEachIntervalOfEachPhase) {
  const uint64_t start_ns = 1'441'812'279'474'000'000;
  const std::vector<PhaseResult> phases = {
      PhaseOf(Phase::kLoad, start_ns, 1),
      PhaseOf(Phase::kRun, start_ns + 4'000'000'000, 2)};
  const auto lines = LinesOf(phases);
  ASSERT_EQ(lines.size(), 3u + 3 + 3);
  const std::vector<std::string> heads = {
      "Tag=LOAD-INSERT,0.000,1.000,", "Tag=LOAD-INSERT,1.000,1.000,0.000,",
      "Tag=LOAD-INSERT,2.000,0.500,", "Tag=READ,4.000,1.000,",
      "Tag=READ,5.000,1.000,0.000,",  "Tag=READ,6.000,0.500,"};
  for (size_t i = 0; i < heads.size(); ++i) {
    EXPECT_TRUE(lines[3 + i].starts_with(heads[i])) << lines[3 + i];
  }
  const auto& first = phases[0].series->intervals[0][static_cast<size_t>(OpKind::kInsert)];
  const std::string& line = lines[3];
  const size_t histogram = line.rfind(',') + 1, max = line.rfind(',', histogram - 2) + 1;
  EXPECT_NEAR(std::stod(line.substr(max)), static_cast<double>(first.latency_ns.max) * 1e-6, 6e-4);
  int64_t count = 0;
  for (const auto& [value, times] : Decoded(line.substr(histogram))) count += times;
  EXPECT_EQ(count, 5000);
}

TEST(HdrLogTest, WithoutIntervalsALineForEachPhase) {
  std::vector<PhaseResult> phases = {PhaseOf(Phase::kLoad, 0, 1), PhaseOf(Phase::kRun, 0, 2)};
  for (PhaseResult& phase : phases) phase.series.reset();
  const auto lines = LinesOf(phases);
  ASSERT_EQ(lines.size(), 3u + 2);
  EXPECT_EQ(lines[1], "#[StartTime: 0.000 (seconds since epoch), Thu Jan 01 00:00:00 UTC 1970]");
  EXPECT_TRUE(lines[3].starts_with("Tag=LOAD-INSERT,0.000,2.500,"));
  EXPECT_TRUE(lines[4].starts_with("Tag=READ,2.500,2.500,"));  // behind the load
}

/// What a shell command prints; nullopt if it fails.
std::optional<std::string> OutputOf(const std::string& command) {
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return std::nullopt;
  std::string output;
  char block[4096];
  for (size_t n; (n = std::fread(block, 1, sizeof block, pipe)) > 0;) output.append(block, n);
  return ::pclose(pipe) == 0 ? std::optional(output) : std::nullopt;
}

TEST(HdrLogTest, HdrHistogramsOwnToolFindsTheSamePercentiles) {
  const std::string jar = "/usr/share/java/hdrhistogram.jar";
  if (!std::filesystem::exists(jar) || !OutputOf("java -version")) {
    GTEST_SKIP() << "libhdrhistogram-java or java is not installed";
  }
  const PhaseResult phase = PhaseOf(Phase::kRun, 1'441'812'279'474'000'000, 3);
  const std::string path =
      ::testing::TempDir() + "farleaf_hdr_log_" + std::to_string(::getpid()) + ".hlog";
  {
    std::ofstream file(path);
    WriteHdrLog({&phase, 1}, file);
  }
  // Values in ns; the heap is small, as many tests run at a time.
  const auto output = OutputOf("java -Xmx64m -cp " + jar +
                               " org.HdrHistogram.HistogramLogProcessor -tag READ -csv"
                               " -outputValueUnitRatio 1 -i " + path);
  std::filesystem::remove(path);
  ASSERT_TRUE(output) << "the tool failed";
  const Histogram& latency_ns = phase.kinds[static_cast<size_t>(OpKind::kRead)].latency_ns;
  const SparseHistogram sparse = latency_ns.Sparse();
  // "Value","Percentile","TotalCount","1/(1-Percentile)"
  const std::regex row("([0-9.]+),([0-9.]+),([0-9]+),.*");
  std::istringstream text(*output);
  int rows = 0;
  uint64_t last_count = 0;
  for (std::string line; std::getline(text, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, row)) continue;
    ++rows;
    const auto value = static_cast<uint64_t>(std::llround(std::stod(match[1])));
    uint64_t up_to_it = 0;
    for (const auto& bucket : sparse.buckets) {
      if (Histogram::BucketMin(bucket.index) <= value) up_to_it += bucket.count;
    }
    EXPECT_EQ(Histogram::BucketMax(Histogram::BucketOf(value)), value) << line;
    last_count = std::stoull(match[3]);
    EXPECT_EQ(last_count, up_to_it) << line;
    const double percentile = std::stod(match[2]);
    // Ours rounds the rank down, theirs up: at a bucket's edge they may differ by one operation.
    const double one = 1.0 / static_cast<double>(latency_ns.count());
    EXPECT_LE(latency_ns.Quantile(std::max(percentile - one, 0.0)), value) << line;
    const uint64_t next_ns = latency_ns.Quantile(percentile + one);
    EXPECT_GE(Histogram::BucketMax(Histogram::BucketOf(next_ns)), value) << line;
  }
  EXPECT_GT(rows, 20) << *output;
  EXPECT_EQ(last_count, latency_ns.count());
}

}  // namespace
}  // namespace farleaf::ycsb
