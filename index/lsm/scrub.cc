#include "index/lsm/scrub.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "index/lsm/filter.h"
#include "index/lsm/named_segments.h"

namespace farleaf::index::lsm {

using storage::kBlockBytes;
using storage::kSegmentBytes;

uint64_t NamedValues::HashOf(const ValuePointer& pointer, std::string_view key) {
  const uint64_t lengths = uint64_t{pointer.bytes} << 32 | pointer.value_bytes;
  return Mix64(HashKey(key) ^ Mix64(lengths)) >> (64 - kHashBits);
}

std::vector<NamedValues::Value> NamedValues::Take(SegmentId segment) {
  const auto at = named_.find(segment);
  if (at == named_.end()) return {};
  std::vector<uint64_t> packed = std::move(at->second);
  named_.erase(at);
  std::ranges::sort(packed);
  std::vector<Value> values;
  values.reserve(packed.size());
  for (const uint64_t each : packed) {
    values.push_back(
        {static_cast<uint32_t>(each >> kHashBits), each & ((uint64_t{1} << kHashBits) - 1)});
  }
  return values;
}

void ScrubContext::Fault(std::string file, uint64_t offset, std::string what) {
  ++report.faults;
  if (observer.fault) observer.fault({std::move(file), offset, std::move(what)});
}

void ScrubContext::Note(std::string file, uint64_t offset, std::string what) {
  ++report.notes;
  if (observer.note) observer.note({std::move(file), offset, std::move(what)});
}

void ScrubContext::Name(const ValuePointer& pointer, std::string_view key) {
  if (store.IsCollected(pointer.segment)) {
    names_collected = true;
    return;
  }
  named.Add(pointer, key);
  ++report.values_named;
}

dsm::Task<bool> ScrubContext::Load(SegmentId segment) {
  const std::string file = store.files().NameOf(segment);
  storage::Io whole{storage::IoKind::kRead, segment, 0, bytes.span()};
  Status read = co_await store.files().Run(worker, {&whole, 1});
  report.bytes_read += kSegmentBytes;
  if (read.code() == StatusCode::kNotFound) {
    Fault(file, 0, "the file is missing");
    std::ranges::fill(bytes.span(), std::byte{0});
  } else if (!read.ok()) {
    // Block by block: what can be read is looked at. One fault for blocks side by side.
    bool in_fault = false;
    for (uint32_t offset = 0; offset < kSegmentBytes; offset += kBlockBytes) {
      const auto block = bytes.span().subspan(offset, kBlockBytes);
      storage::Io part{storage::IoKind::kRead, segment, offset, block};
      Status status = co_await store.files().Run(worker, {&part, 1});
      if (status.ok()) {
        in_fault = false;
        continue;
      }
      std::ranges::fill(block, std::byte{0});
      if (!std::exchange(in_fault, true)) Fault(file, offset, std::string(status.message()));
    }
  }
  if (observer.progress) observer.progress(report);
  co_return read.ok();
}

namespace {

uint64_t BytesToRead(const ClosedStore& store, const std::vector<SegmentId>& existing) {
  uint64_t segments = 0;
  const auto count = [&](SegmentId id) { segments += std::ranges::binary_search(existing, id); };
  for (const auto& [place, run] : store.state().runs()) {
    for (const auto& each : run->tables) std::ranges::for_each(each.table.segments, count);
  }
  std::ranges::for_each(store.state().recovery_log, count);
  for (const auto& [id, garbage] : store.state().value_log) count(id);
  return segments * kSegmentBytes;
}

dsm::Task<void> ScrubValueLog(ScrubContext& context) {
  const StoreState& state = context.store.state();
  const std::vector<SegmentId> torn = PerhapsTorn(state);
  const std::set<SegmentId> perhaps_torn(torn.begin(), torn.end());
  for (const auto& [id, garbage] : state.value_log) {
    if (context.store.files().Has(id)) {
      const bool may_be_torn = perhaps_torn.contains(id) || state.torn.contains(id);
      co_await ScrubValues(context, id, may_be_torn);
      continue;
    }
    // Without any it was granted, and never made.
    const size_t lost = context.named.Take(id).size();
    if (lost == 0) continue;
    context.Fault(context.store.files().NameOf(id), 0,
                  fmt::format("the file is missing, and with it {} values that are named", lost));
  }
}

/// Values of collected segments may be named by versions that are shadowed, and by no others.
dsm::Task<void> ScrubNewestVersions(ScrubContext& context) {
  const std::unique_ptr<StoreIterator> iterator = context.store.Iterate({});
  for (;;) {
    const CursorStep step = iterator->Next();
    if (step == CursorStep::kEnd) co_return;
    if (step == CursorStep::kMissing) {
      Status fetched = co_await iterator->Fetch(context.worker, 4);
      if (fetched.ok()) continue;
      context.Fault(context.store.files().directory().path(), 0, std::string(fetched.message()));
      co_return;
    }
    const Entry& entry = iterator->entry();
    if (entry.kind != EntryKind::kPointer || !context.store.IsCollected(entry.pointer.segment)) {
      continue;
    }
    context.Fault(context.store.files().NameOf(entry.pointer.segment), entry.pointer.offset,
                  "a key's newest version names a value there, but the segment was collected");
  }
}

}  // namespace

dsm::Task<Result<ScrubReport>> Scrub(dsm::Worker& worker, ClosedStore& store,
                                     ScrubObserver observer) {
  ScrubContext context{.worker = worker, .store = store, .observer = std::move(observer)};
  context.report.bytes_to_read = BytesToRead(store, store.files().segments());
  const Manifest::OpenedFile& manifest = store.manifest().opened_file();
  if (manifest.unfinished_bytes > 0) {
    context.Note(store.files().directory().FilePath(manifest.name),
                 manifest.bytes - manifest.unfinished_bytes,
                 "an edit that was not finished; a crash leaves that");
  }
  const auto runs = store.state().runs();
  for (const auto& each : runs) {
    for (const auto& table : each.second->tables) co_await ScrubTable(context, table);
  }
  const uint64_t table_faults = context.report.faults;
  co_await ScrubRecoveryLog(context);
  const bool recovered = context.report.faults == table_faults;
  co_await ScrubValueLog(context);
  if (context.names_collected && table_faults == 0 && recovered) {
    co_await ScrubNewestVersions(context);
  } else if (context.names_collected) {
    context.Note(
        store.files().directory().path(), 0,
        "whether newest versions name collected segments was not looked at, for the faults "
        "in tables or the recovery log");
  }
  co_return context.report;
}

}  // namespace farleaf::index::lsm
