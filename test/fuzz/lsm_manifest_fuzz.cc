// Whatever a store's manifest holds: it is refused as damaged, or is a state; and a state is written again as one that reads the same.
// What Check lets pass can be applied.
//
// An input: what it is, 1 byte (0: CURRENT; 1: a manifest; else: edits, each u16 length and bytes, that are applied one behind the other);
// the bytes.
#include <span>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/crc32c.h"
#include "dsm/null_transport.h"
#include "index/lsm/manifest.h"
#include "index/lsm/named_segments.h"
#include "index/lsm/state.h"
#include "test/fuzz/fuzz_target.h"
#include "test/support/memory_storage.h"

namespace {

using namespace farleaf;
using namespace farleaf::index::lsm;

constexpr const char* kName = "MANIFEST-000001";
constexpr size_t kRecordHeaderBytes = 12;

struct Reader {
  MonotonicClock clock;
  dsm::EpochDomain epochs;
  dsm::Worker worker{{std::make_unique<dsm::NullTransport>(), &epochs, &clock, 1, 1}};
  test::MemoryStorage storage;

  void Put(const char* name, std::string bytes) {
    const Status put = worker.Run(storage.ReplaceFile(worker, name, std::move(bytes)));
    FARLEAF_CHECK(put.ok(), put);
  }
  Result<std::unique_ptr<Manifest>> Open() { return worker.Run(Manifest::Open(worker, &storage)); }
};

std::string Current(std::string_view name) {
  const std::string line = std::string(name) + "\n";
  char crc[16];
  std::snprintf(crc, sizeof crc, "%08x\n", Crc32c(AsBytes(line)));
  return line + crc;
}

TableInfo Table(uint64_t id, std::string smallest, std::string largest) {
  TableInfo info;
  info.segments = {SegmentId{id}, SegmentId{id + 1}};
  info.smallest = std::move(smallest);
  info.largest = std::move(largest);
  info.root = {4096, 200};
  info.leaves = 1;
  info.bytes = 8192;
  info.entries = 12;
  info.dictionary = {{SegmentId{2}, 1400}, {SegmentId{77}, 600}};
  if (id % 4 == 0) {
    info.expiring = 2;
    info.expiry.Add(1'700'000'000'000, 700);
    info.expiry.Add(1'700'000'000'001, 600);
  }
  return info;
}

std::vector<StateEdit> Edits() {
  const RunPlace growing{0, RunKind::kGrowing}, sinking{0, RunKind::kSinking};
  StateEdit granted, flushed, fresh, sunk, merged;
  granted.recovery_granted = {SegmentId{3}, SegmentId{4}};
  granted.values_granted = {SegmentId{2}, SegmentId{77}};
  granted.segments_end = 80;
  flushed.added = {{growing, Table(10, "a", "c"), ""}, {growing, Table(12, "d", "f"), "e"}};
  flushed.range_deletes = {{growing, {{"a", "c", 2}, {"c", "d", 1}}}};
  flushed.garbage = {{SegmentId{2}, 100}};
  flushed.flushed_through = 40;
  flushed.durable_through = 44;
  flushed.recovery_dropped = {SegmentId{3}};
  fresh.added = {{FreshPlace(50), Table(20, "b", "e"), ""}};
  fresh.range_deletes = {{FreshPlace(50), {{"b", "c", 0}}}};
  fresh.flushed_through = 50;
  fresh.flush_bytes = 9000;
  fresh.written = {.user = 900, .values = 800, .recovery = 1 << 21, .flushed = 9000, .merged = 0};
  sunk.sunk = {0};
  sunk.values_torn = {SegmentId{77}};
  merged.dropped = {{sinking, SegmentId{10}}};
  merged.cut = {{sinking, SegmentId{12}, "ee"}};
  merged.range_deletes = {{FreshPlace(50), {}}};
  merged.added = {{{1, RunKind::kGrowing}, Table(14, "a", "ed"), ""}};
  merged.values_dropped = {SegmentId{2}};
  return {granted, flushed, fresh, sunk, merged};
}

/// Sets checksums of what has the form of records right, so that what stands behind them is reached.
void Mend(std::span<std::byte> file) {
  for (uint64_t at = 0; at + kRecordHeaderBytes <= file.size();) {
    const auto length = LoadLittle<uint32_t>(file.data() + at);
    if (length > file.size() - at - kRecordHeaderBytes) break;
    std::string header;
    ByteWriter out(&header);
    out.Write(uint64_t{1});
    out.Write(at);
    out.Write(length);
    StoreLittle(file.data() + at + 4, Crc32c(AsBytes(header)));
    StoreLittle(file.data() + at + 8, Crc32c(file.subspan(at + kRecordHeaderBytes, length)));
    at += kRecordHeaderBytes + length;
  }
}

void CheckState(const StoreState& state) {
  const StateEdit edit = state.AsEdit();
  const std::string bytes = edit.Encode();
  auto decoded = StateEdit::Decode(AsBytes(bytes));
  FARLEAF_CHECK(decoded.ok(), decoded.status());
  StoreState again;
  const Status applied = again.Apply(*decoded);
  FARLEAF_CHECK(applied.ok(), applied);
  FARLEAF_CHECK(again.AsEdit().Encode() == bytes);
  (void)GarbageUntold(state, {});
  (void)PerhapsTorn(state);
}

void TryManifest(std::span<const std::byte> bytes) {
  for (const bool mended : {false, true}) {
    std::string file(AsChars(bytes));
    if (mended) Mend(std::as_writable_bytes(std::span(file)));
    Reader reader;
    reader.Put("CURRENT", Current(kName));
    reader.Put(kName, std::move(file));
    auto manifest = reader.Open();
    if (manifest.ok()) {
      CheckState((*manifest)->state());
    } else {
      // kInvalidArgument: of another format.
      const StatusCode code = manifest.status().code();
      FARLEAF_CHECK(code == StatusCode::kCorruption || code == StatusCode::kInvalidArgument,
                    manifest.status());
    }
  }
}

void TryEdits(std::span<const std::byte> bytes) {
  StoreState state;
  while (bytes.size() >= 2) {
    const size_t length = std::min<size_t>(LoadLittle<uint16_t>(bytes.data()), bytes.size() - 2);
    const auto edit = StateEdit::Decode(bytes.subspan(2, length));
    bytes = bytes.subspan(2 + length);
    if (!edit.ok()) continue;
    const auto again = StateEdit::Decode(AsBytes(edit->Encode()));
    FARLEAF_CHECK(again.ok() && again->Encode() == edit->Encode());
    const Status fits = state.Check(*edit);
    StoreState changed = state;
    const Status applied = changed.Apply(*edit);
    FARLEAF_CHECK(!fits.ok() || applied.ok(), applied);
    if (!applied.ok()) continue;
    state = std::move(changed);
    CheckState(state);
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::string edits(1, '\2');
  std::string whole(1, '\1');
  Reader reader;
  const auto made = Manifest::Create(&reader.storage, 7);
  for (const StateEdit& edit : Edits()) {
    const std::string bytes = edit.Encode();
    ByteWriter out(&edits);
    out.Write(static_cast<uint16_t>(bytes.size()));
    out.WriteBytes(bytes);
    const Status committed = reader.worker.Run(made->Commit(reader.worker, edit));
    FARLEAF_CHECK(committed.ok(), committed);
  }
  auto file = reader.worker.Run(reader.storage.ReadFile(reader.worker, kName));
  FARLEAF_CHECK(file.ok(), file.status());
  whole += *file;
  std::string state(1, '\2');
  const std::string bytes = made->state().AsEdit().Encode();
  ByteWriter out(&state);
  out.Write(static_cast<uint16_t>(bytes.size()));
  out.WriteBytes(bytes);
  return {'\0' + Current(kName), whole, edits, state};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const auto input = std::as_bytes(std::span(data + 1, size - 1));
  if (data[0] == 0) {
    Reader reader;
    reader.Put("CURRENT", std::string(AsChars(input)));
    const auto manifest = reader.Open();
    FARLEAF_CHECK(!manifest.ok());
  } else if (data[0] == 1) {
    TryManifest(input);
  } else {
    TryEdits(input);
  }
  return 0;
}
