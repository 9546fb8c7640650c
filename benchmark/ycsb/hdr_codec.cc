#include "benchmark/ycsb/hdr_codec.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "dsm/base/check.h"

namespace farleaf::ycsb {

namespace {

constexpr uint32_t kCompressedCookie = 0x1c849314, kCookie = 0x1c849313;
constexpr uint32_t kSignificantDigits = 2;
constexpr uint64_t kLowestValue = 1;
constexpr double kToDoubles = 1.0;
constexpr uint64_t kHourNs = 3'600'000'000'000;  // what the usual tools expect to be enough
constexpr size_t kCompressedHeaderBytes = 8, kHeaderBytes = 40;
constexpr size_t kCountBytesMax = 9;
constexpr size_t kBucketsMax = Histogram::kBuckets - Histogram::kColumns;  // up to 2^63-1
constexpr size_t kHistogramBytesMax = kHeaderBytes + kBucketsMax * kCountBytesMax;

void AppendBig(uint64_t value, int bytes, std::string* out) {
  for (int i = bytes - 1; i >= 0; --i) *out += static_cast<char>(value >> (8 * i));
}

uint64_t TakeBig(std::string_view* in, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value = value << 8 | static_cast<uint8_t>((*in)[i]);
  in->remove_prefix(bytes);
  return value;
}

// --- counts ---

void AppendCount(int64_t count, std::string* out) {
  auto left = static_cast<uint64_t>(count) << 1 ^ static_cast<uint64_t>(count >> 63);
  for (size_t bytes = 1; left >= 0x80 && bytes < kCountBytesMax; ++bytes) {
    *out += static_cast<char>(left | 0x80);
    left >>= 7;
  }
  *out += static_cast<char>(left);  // the ninth byte is whole
}

std::optional<int64_t> TakeCount(std::string_view* in) {
  uint64_t value = 0;
  for (size_t i = 0; i < kCountBytesMax; ++i) {
    if (in->empty()) return std::nullopt;
    const auto byte = static_cast<uint8_t>(in->front());
    in->remove_prefix(1);
    const bool last = i + 1 == kCountBytesMax || (byte & 0x80) == 0;
    value |= static_cast<uint64_t>(last ? byte : byte & 0x7f) << (7 * i);
    if (last) break;
  }
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

std::string CountsOf(const SparseHistogram& histogram) {
  std::string counts;
  size_t next = 0;
  uint64_t beyond = 0;  // of values that HdrHistogram does not know
  const auto append = [&](size_t index, uint64_t count) {
    const auto empty = static_cast<int64_t>(index - next);
    if (empty > 0) AppendCount(empty == 1 ? 0 : -empty, &counts);
    AppendCount(static_cast<int64_t>(count), &counts);
    next = index + 1;
  };
  for (const SparseHistogram::Bucket& bucket : histogram.buckets) {
    if (bucket.index < kBucketsMax - 1) {
      append(bucket.index, bucket.count);
    } else {
      beyond += bucket.count;
    }
  }
  if (beyond > 0) append(kBucketsMax - 1, beyond);
  return counts;
}

// --- zlib ---

std::string Compress(std::string_view bytes) {
  uLongf size = ::compressBound(bytes.size());
  std::string compressed(size, '\0');
  const int code = ::compress(reinterpret_cast<Bytef*>(compressed.data()), &size,
                              reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  FARLEAF_CHECK(code == Z_OK, code);
  compressed.resize(size);
  return compressed;
}

std::optional<std::string> Uncompress(std::string_view compressed) {
  std::string bytes(kHistogramBytesMax, '\0');
  uLongf size = bytes.size();
  if (::uncompress(reinterpret_cast<Bytef*>(bytes.data()), &size,
                   reinterpret_cast<const Bytef*>(compressed.data()), compressed.size()) != Z_OK) {
    return std::nullopt;
  }
  bytes.resize(size);
  return bytes;
}

// --- base64 ---

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string ToBase64(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t taken = std::min<size_t>(3, bytes.size() - i);
    std::array<char, 3> three{};
    bytes.copy(three.data(), taken, i);
    std::string_view left(three.data(), three.size());
    const uint64_t bits = TakeBig(&left, 3);
    for (size_t digit = 0; digit < 4; ++digit) {
      text += digit <= taken ? kDigits[bits >> (18 - 6 * digit) & 63] : '=';
    }
  }
  return text;
}

std::optional<std::string> FromBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held);
  }
  return bytes;
}

Status Refuse(std::string_view what) {
  return Status::InvalidArgument("no HdrHistogram of version 2: " + std::string(what));
}

/// `histogram`'s buckets from `counts`, and what follows from them.
Status TakeCounts(std::string_view counts, SparseHistogram* histogram) {
  for (size_t index = 0; !counts.empty();) {
    const std::optional<int64_t> count = TakeCount(&counts);
    if (!count) return Refuse("its counts are cut short");
    if (*count <= 0) {
      const uint64_t empty = *count == 0 ? 1 : -static_cast<uint64_t>(*count);
      if (empty > kBucketsMax - index) return Refuse("it has too many buckets");
      index += empty;
      continue;
    }
    if (index >= kBucketsMax) return Refuse("it has too many buckets");
    if (*count >> 48 != 0) return Refuse("a count is beyond 2^48");
    const auto times = static_cast<uint64_t>(*count);
    const uint64_t low = Histogram::BucketMin(index), high = Histogram::BucketMax(index);
    if (histogram->buckets.empty()) histogram->min = low;
    histogram->max = high;
    histogram->sum += (low + (high - low) / 2) * times;
    histogram->buckets.push_back({index++, times});
  }
  return Status::Ok();
}

}  // namespace

std::string EncodeHistogram(const SparseHistogram& histogram) {
  const std::string counts = CountsOf(histogram);
  // The last value of the highest bucket, at least an hour: the readers make room for it.
  const uint64_t top = Histogram::BucketMax(Histogram::BucketOf(histogram.max));
  std::string bytes;
  AppendBig(kCookie, 4, &bytes);
  AppendBig(counts.size(), 4, &bytes);
  AppendBig(0, 4, &bytes);
  AppendBig(kSignificantDigits, 4, &bytes);
  AppendBig(kLowestValue, 8, &bytes);
  AppendBig(std::min<uint64_t>(std::max(top, kHourNs), INT64_MAX), 8, &bytes);
  AppendBig(std::bit_cast<uint64_t>(kToDoubles), 8, &bytes);
  bytes += counts;
  const std::string compressed = Compress(bytes);
  std::string all;
  AppendBig(kCompressedCookie, 4, &all);
  AppendBig(compressed.size(), 4, &all);
  return ToBase64(all + compressed);
}

Result<SparseHistogram> DecodeHistogram(std::string_view text) {
  const auto all = FromBase64(text);
  if (!all) return Refuse("it is not in base64");
  std::string_view compressed = *all;
  if (compressed.size() < kCompressedHeaderBytes) return Refuse("it is cut short");
  if (TakeBig(&compressed, 4) != kCompressedCookie) return Refuse("it begins with another cookie");
  if (TakeBig(&compressed, 4) != compressed.size()) return Refuse("it is of another length");
  const auto bytes = Uncompress(compressed);
  if (!bytes || bytes->size() < kHeaderBytes) return Refuse("it does not decompress");
  std::string_view left = *bytes;
  if (TakeBig(&left, 4) != kCookie) return Refuse("another cookie is inside");
  const uint64_t counts_bytes = TakeBig(&left, 4), offset = TakeBig(&left, 4);
  const uint64_t digits = TakeBig(&left, 4), lowest = TakeBig(&left, 8);
  TakeBig(&left, 8);  // the highest trackable value says nothing of what is there
  const auto ratio = std::bit_cast<double>(TakeBig(&left, 8));
  if (digits != kSignificantDigits || lowest != kLowestValue || offset != 0 ||
      ratio != kToDoubles) {
    return Refuse("it is not of two significant digits from 1 on");
  }
  if (counts_bytes != left.size()) return Refuse("its counts are of another length");
  SparseHistogram histogram;
  FARLEAF_RETURN_IF_ERROR(TakeCounts(left, &histogram));
  return histogram;
}

}  // namespace farleaf::ycsb
