// Filling a new copy of the store, while it is served.
//
// What is on disk goes in passes, each of what the manifest names by then and the copy lacks, since edits go on meanwhile; the last
// pass, of what little is left, and what the logs have in memory while no edit is committed and nothing is mirrored: so the copy is complete at one moment, and the
// mirror's next call is the first that it has to hear of.
#include <algorithm>
#include <utility>

#include "index/lsm/store.h"

namespace farleaf::index::lsm {

using storage::kSegmentBytes;

namespace {

/// What one read brings, and one call of the sink takes.
constexpr uint32_t kPieceBytes = uint32_t{1} << 20;
/// A pass that sends no more than this is the last but one.
constexpr size_t kFewSegments = 4;
constexpr int kFillPassesMax = 8;

/// Segments of a table, each with what is used of it.
void AddSegmentsOf(const TableInfo& table, std::vector<SegmentPart>* parts) {
  uint64_t left = table.bytes + table.footer_bytes;
  for (const SegmentId segment : table.segments) {
    const uint64_t used = std::min<uint64_t>(left, kSegmentBytes);
    parts->push_back({segment, static_cast<uint32_t>(RoundUp(used, storage::kBlockBytes))});
    left -= used;
  }
}

}  // namespace

std::vector<SegmentPart> SegmentsOf(const TableInfo& table) {
  std::vector<SegmentPart> parts;
  AddSegmentsOf(table, &parts);
  return parts;
}

struct LsmStore::Filling {
  CopySink* sink;
  std::set<SegmentId> there;  ///< at the copy
  size_t sent = 0;            ///< segments, by the last pass
};

Task<Status> LsmStore::SendSegment(dsm::Worker& worker, CopySink& sink, SegmentPart part) {
  AlignedBytes memory(std::min(part.bytes, kPieceBytes));
  for (uint32_t offset = 0; offset < part.bytes;) {
    const uint32_t bytes = std::min(part.bytes - offset, kPieceBytes);
    storage::Io read{storage::IoKind::kRead, part.segment, offset, memory.span().first(bytes)};
    Status status = co_await deps_.storage->Run(worker, {&read, 1});
    if (!status.ok()) co_return status;
    offset += bytes;
    status =
        co_await sink.Write(worker, part.segment, offset - bytes, read.bytes, offset == part.bytes);
    if (!status.ok()) co_return status.WithContext("filling a copy");
  }
  co_return Status::Ok();
}

// A segment that is named and not there was granted to a log in an earlier life and never made; or, before the last pass, an edit has dropped it since.
Task<Status> LsmStore::SendMissing(dsm::Worker& worker, const StoreState& state,
                                   const LogGroup::Memory& memory, Filling& filling) {
  std::vector<SegmentPart> parts;
  for (const auto& [place, run] : state.runs()) {
    for (const TableState& each : run->tables) AddSegmentsOf(each.table, &parts);
  }
  const auto add_log = [&](SegmentId id, SegmentId tail) {
    // Without a tail there is what was recovered.
    const SegmentId end = tail == SegmentId::kNone ? first_segment_ : tail;
    if (id < end && !memory.segments.contains(id)) parts.push_back({id, kSegmentBytes});
  };
  for (const SegmentId id : state.recovery_log) add_log(id, memory.tails[0]);
  for (const auto& [id, garbage] : state.value_log) add_log(id, memory.tails[1]);
  filling.sent = 0;
  for (const SegmentPart& part : parts) {
    if (filling.there.contains(part.segment)) continue;
    Status sent = co_await SendSegment(worker, *filling.sink, part);
    if (sent.code() == StatusCode::kNotFound) continue;
    if (!sent.ok()) co_return sent;
    filling.there.insert(part.segment);
    ++filling.sent;
    if (stopping_) co_return Status::Unavailable("the store is being closed");
  }
  co_return Status::Ok();
}

Task<Status> LsmStore::FillCopy(dsm::Worker& worker, CopySink& sink) {
  Filling filling{.sink = &sink, .there = {}};
  auto inventory = co_await sink.Inventory(worker);
  if (!inventory.ok()) co_return inventory.status();
  filling.there = std::move(*inventory);
  // An earlier life of this store may have sent commits that it has lost with a crash, and gone on with their sequences in a later segment.
  // (Of values, what nothing names is garbage.)
  const StoreState found = co_await State(worker);
  for (const SegmentId id : found.recovery_log) filling.there.erase(id);
  for (int pass = 0; pass < kFillPassesMax; ++pass) {
    const std::shared_ptr<const ReadView> pinned = PinView();
    const LogGroup::Memory memory = co_await logs_->InMemory(worker);
    const StoreState state = co_await State(worker);
    Status sent = co_await SendMissing(worker, state, memory, filling);
    if (!sent.ok()) co_return sent;
    if (filling.sent <= kFewSegments) break;
  }
  const Manifest::Holding last = [&](const StoreState& state) -> Task<Status> {
    const LogMirror::Install rest = [&]() -> Task<Status> {
      Status installed = co_await sink.Install(worker, state);
      co_return installed;
    };
    const LogGroup::OnDisk on_disk = [&](const LogGroup::Memory& memory) -> Task<Status> {
      Status sent = co_await SendMissing(worker, state, memory, filling);
      co_return sent;
    };
    Status filled = co_await logs_->FillCopy(worker, sink, on_disk, rest);
    co_return filled;
  };
  Status filled = co_await manifest_->Hold(worker, last);
  co_return filled;
}

}  // namespace farleaf::index::lsm
