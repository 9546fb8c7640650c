// Whatever a log segment holds: records one behind the other, each of which was sealed for its place.
#include <span>
#include <vector>

#include "dsm/base/bytes.h"
#include "index/lsm/log_reader.h"
#include "index/lsm/log_record.h"
#include "test/fuzz/fuzz_target.h"

namespace {

using namespace farleaf;
using namespace farleaf::index::lsm;

constexpr uint64_t kEpoch = 3;
constexpr auto kSegment = static_cast<SegmentId>(5);

void Append(std::string* segment, LogRecordKind kind, std::string_view payload) {
  const auto offset = static_cast<uint32_t>(segment->size());
  segment->append(kLogHeaderBytes, '\0');
  segment->append(payload);
  SealLogRecord(SegmentSeed(kEpoch, kSegment), offset, kind,
                reinterpret_cast<std::byte*>(segment->data() + offset),
                static_cast<uint32_t>(payload.size()));
}

std::string Begun(LogKind log) {
  std::string head(kLogHeadBytes - kLogHeaderBytes, '\0'), segment;
  EncodeLogHead({log, 17, 12}, reinterpret_cast<std::byte*>(head.data()));
  Append(&segment, LogRecordKind::kHead, head);
  return segment;
}

/// Sets the CRCs of what has a plausible header right, so that what stands behind them is reached.
void Mend(std::span<std::byte> segment) {
  const uint32_t seed = SegmentSeed(kEpoch, kSegment);
  for (uint32_t at = 0; at + kLogHeaderBytes <= segment.size();) {
    const uint32_t bytes = LoadLittle<uint32_t>(segment.data() + at + 4) & 0xffffff;
    if (bytes > segment.size() - at - kLogHeaderBytes) break;
    StoreLittle(segment.data() + at, LogRecordCrc(seed, at, segment.data() + at, bytes));
    at += kLogHeaderBytes + bytes;
  }
}

void Walk(std::span<const std::byte> segment) {
  const uint32_t seed = SegmentSeed(kEpoch, kSegment);
  for (uint32_t at = 0;;) {
    const auto record = ParseLogRecord(seed, at, segment.subspan(at));
    if (!record) break;
    FARLEAF_CHECK(record->bytes() <= segment.size() - at && record->offset == at);
    FARLEAF_CHECK(!ParseLogRecord(seed, at + 1, segment.subspan(at)), "a record anywhere else");
    if (const auto head = ParseLogHead(*record)) FARLEAF_CHECK(at == 0);
    if (const auto value = ParseValueRecord(*record)) {
      const ValuePointer pointer{kSegment, at, record->bytes(),
                                 static_cast<uint32_t>(value->value.size())};
      FARLEAF_CHECK(ParseValueAt(segment.subspan(at), kEpoch, pointer, value->key) == value->value);
      FARLEAF_CHECK(!ParseValueAt(segment.subspan(at), kEpoch + 1, pointer, value->key));
    }
    at += record->bytes();
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::string values = Begun(LogKind::kValues), commits = Begun(LogKind::kRecovery);
  Append(&values, LogRecordKind::kValue, std::string("\x03\x00keyvalue", 10));
  Append(&values, LogRecordKind::kValue, std::string("\x00\x00", 2));
  Append(&values, LogRecordKind::kValue, std::string("\x01\x00k", 3) + std::string(600, 'v'));
  Append(&commits, LogRecordKind::kCommit, std::string(20, '\x01'));
  return {values, commits, commits + values};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  std::vector<std::byte> segment(input.begin(), input.end());
  Walk(segment);
  Mend(segment);
  Walk(segment);
  return 0;
}
