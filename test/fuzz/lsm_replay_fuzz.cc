// Whatever the segments of a store's logs hold: a replay shows commits in the order of their sequences without a gap, and all that were
// durable, or says that something is damaged. A value that a commit names is read, or said to be damaged.
//
// An input: what was durable, 1 byte; three segments of the recovery log and one of values, each u16 length and bytes.
#include <algorithm>
#include <span>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/null_transport.h"
#include "index/lsm/commit_record.h"
#include "index/lsm/log_reader.h"
#include "index/lsm/log_record.h"
#include "index/lsm/log_replay.h"
#include "test/fuzz/fuzz_target.h"
#include "test/support/memory_storage.h"

namespace {

using namespace farleaf;
using namespace farleaf::index::lsm;

constexpr uint64_t kEpoch = 3;
constexpr auto kValues = static_cast<SegmentId>(9);
const std::vector<SegmentId> kLog = {SegmentId{1}, SegmentId{4}, SegmentId{5}};

void Append(std::string* segment, SegmentId id, LogRecordKind kind, std::string_view payload) {
  const auto offset = static_cast<uint32_t>(segment->size());
  segment->append(kLogHeaderBytes, '\0');
  segment->append(payload);
  SealLogRecord(SegmentSeed(kEpoch, id), offset, kind,
                reinterpret_cast<std::byte*>(segment->data() + offset),
                static_cast<uint32_t>(payload.size()));
}

std::string Begun(LogKind log, SegmentId id, Sequence first, Sequence durable) {
  std::string head(kLogHeadBytes - kLogHeaderBytes, '\0'), segment;
  EncodeLogHead({log, first, durable}, reinterpret_cast<std::byte*>(head.data()));
  Append(&segment, id, LogRecordKind::kHead, head);
  return segment;
}

void AppendCommit(std::string* segment, SegmentId id, Sequence first,
                  const std::vector<Change>& changes) {
  CommitWriter writer;
  for (const Change& change : changes) writer.Add(change);
  std::vector<std::byte> payload(writer.payload().begin(), writer.payload().end());
  StoreLittle(payload.data(), first);
  Append(segment, id, LogRecordKind::kCommit, AsChars(payload));
}

/// Sets the CRCs of what has a plausible header right.
void Mend(SegmentId id, std::span<std::byte> segment) {
  const uint32_t seed = SegmentSeed(kEpoch, id);
  for (uint32_t at = 0; at + kLogHeaderBytes <= segment.size();) {
    const uint32_t bytes = LoadLittle<uint32_t>(segment.data() + at + 4) & 0xffffff;
    if (bytes > segment.size() - at - kLogHeaderBytes) break;
    StoreLittle(segment.data() + at, LogRecordCrc(seed, at, segment.data() + at, bytes));
    at += kLogHeaderBytes + bytes;
  }
}

struct Reader {
  MonotonicClock clock;
  dsm::EpochDomain epochs;
  dsm::Worker worker{{std::make_unique<dsm::NullTransport>(), &epochs, &clock, 1, 1}};
  test::MemoryStorage storage;

  void Put(SegmentId id, std::span<const std::byte> bytes, bool mended) {
    const Status created = worker.Run(storage.Create(worker, id, index::storage::Making{}));
    FARLEAF_CHECK(created.ok(), created);
    std::ranges::copy(bytes, storage.bytes(id).begin());
    if (mended) Mend(id, std::span(storage.bytes(id)).first(bytes.size()));
  }
};

void CheckReplay(Reader& reader, Sequence durable) {
  Sequence last = 0;
  const std::function<Status(CommitReader)> look = [&](CommitReader commit) {
    FARLEAF_CHECK(commit.first() == last + 1, commit.first(), last);
    last = commit.last();
    Change change;
    while (commit.Next(&change)) {
      if (change.kind != ChangeKind::kPutPointer) continue;
      const auto value = reader.worker.Run(
          ReadValue(reader.worker, reader.storage, kEpoch, change.pointer, change.key));
      FARLEAF_CHECK(value.ok() || value.status().code() == StatusCode::kCorruption ||
                        value.status().code() == StatusCode::kNotFound,
                    value.status());
    }
    return Status::Ok();
  };
  const auto report = reader.worker.Run(
      Replay(reader.worker, reader.storage, {kEpoch, kLog, 0, {}, durable}, look));
  if (!report.ok()) {
    FARLEAF_CHECK(report.status().code() == StatusCode::kCorruption, report.status());
    return;
  }
  FARLEAF_CHECK(report->last == last && last >= durable, last, durable);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::string values = Begun(LogKind::kValues, kValues, 0, 0);
  const auto offset = static_cast<uint32_t>(values.size());
  Append(&values, kValues, LogRecordKind::kValue, std::string("\x03\x00keyvalue", 10));
  const ValuePointer pointer{kValues, offset, ValueRecordBytes(3, 5), 5};
  std::vector<std::string> logs;
  const Sequence firsts[] = {1, 4, 6};
  for (size_t i = 0; i < kLog.size(); ++i) {
    std::string log = Begun(LogKind::kRecovery, kLog[i], firsts[i], firsts[i] - 1);
    AppendCommit(&log, kLog[i], firsts[i],
                 {{.kind = ChangeKind::kPut, .key = "a", .value = "1"},
                  {.kind = ChangeKind::kDeleteRange, .key = "b", .end = "c"}});
    if (i == 0) {
      AppendCommit(&log, kLog[i], 3,
                   {{.kind = ChangeKind::kPutPointer, .key = "key", .pointer = pointer}});
    }
    logs.push_back(std::move(log));
  }
  logs.push_back(values);
  std::vector<std::string> seeds;
  for (const char durable : {'\0', '\3', '\7'}) {
    std::string& seed = seeds.emplace_back(1, durable);
    ByteWriter out(&seed);
    for (const std::string& segment : logs) {
      out.Write(static_cast<uint16_t>(segment.size()));
      out.WriteBytes(segment);
    }
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  for (const bool mended : {false, true}) {
    auto rest = std::as_bytes(std::span(data + 1, size - 1));
    Reader reader;
    std::vector<SegmentId> segments = kLog;
    segments.push_back(kValues);
    for (const SegmentId id : segments) {
      if (rest.size() < 2) break;
      const size_t length = std::min<size_t>(LoadLittle<uint16_t>(rest.data()), rest.size() - 2);
      reader.Put(id, rest.subspan(2, length), mended);
      rest = rest.subspan(2 + length);
    }
    CheckReplay(reader, data[0]);
  }
  return 0;
}
