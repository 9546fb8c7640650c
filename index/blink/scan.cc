// Scan: the leaves that cover the range are known from the cache and read in one parallel batch;
// fences chain them. Where the chain breaks (a stale cache, a torn read) one leaf is found by a
// descent, which also refreshes the cache, and the scan goes on behind it.
//
// Invariant of both directions: everything between the scan's beginning and `position` is in the
// rows, and the next leaf accepted is the one that covers `position`. Hence no gap, no repetition.
#include <algorithm>

#include "dsm/base/mutation.h"
#include "index/blink/scan_state.h"
#include "index/blink/tree.h"
#include "index/blink/value_block.h"

namespace farleaf::index {

std::string BlinkTree::LowestKey() const {
  return info_.geometry.layout == Layout::kFixed8 ? std::string(8, '\0') : std::string();
}

namespace {
/// Rows among which values out of line are fetched together.
constexpr size_t kFetchedTogether = 1024;
constexpr size_t kRowsReservedMax = 1024;
/// More than the limit that leaves are known to have when those behind them are not read: others delete.
constexpr uint64_t kRowsSpare = 4;

Status CheckBound(const TreeInfo& tree, std::string_view bound) {
  const Geometry& geometry = tree.geometry;
  if (bound.empty() ||
      (geometry.layout == Layout::kFixed8 ? bound.size() == 8
                                          : bound.size() <= geometry.key_bytes_max)) {
    return Status::Ok();
  }
  return Status::InvalidArgument("a scan's bound in tree '" + tree.name + "' has " +
                                 std::to_string(bound.size()) + " bytes, which no key has");
}

std::string HighestKey(const Geometry& geometry) {
  return std::string(geometry.layout == Layout::kFixed8 ? 8 : geometry.key_bytes_max, '\xff');
}
}  // namespace

Task<Status> BlinkTree::Scan(OpContext& op, ScanRange range, std::vector<KeyValue>* rows) {
  ScanState state(op, range, rows);
  FARLEAF_CO_RETURN_IF_ERROR(CheckBound(info_, range.start));
  if (range.end) {
    FARLEAF_CO_RETURN_IF_ERROR(CheckBound(info_, *range.end));
    if (*range.end <= range.start) co_return Status::Ok();
  }
  if (range.limit <= kRowsReservedMax) rows->reserve(range.limit);
  if (state.forward()) {
    state.position = range.start.empty() ? LowestKey() : std::string(range.start);
  } else {
    state.from_last = !range.end;
    state.position = range.end ? std::string(*range.end) : HighestKey(info_.geometry);
  }
  while (!state.done && !state.full()) {
    Status status;
    if (op.expired()) {
      status = Status::DeadlineExceeded("scan of tree '" + info_.name + "'");
    } else {
      status = co_await ReadScanLeaves(op, state);
    }
    if (!status.ok()) {
      state.CutUnfetched();
      co_return status;
    }
    // Those of all leaves together, if there are not too many rows since.
    if (!state.done && !state.full() && state.RowsSinceUnfetched() < kFetchedTogether) continue;
    status = co_await FetchScanValues(op, state);
    if (!status.ok()) co_return status;
  }
  co_return Status::Ok();
}

void BlinkTree::ChooseScanLeaves(OpContext& op, ScanState& state) const {
  state.leaves.clear();
  state.cached.clear();
  if (!caching() || state.find_one_leaf || cache_.root().address.is_null()) return;
  // Half of the first leaf lies before the range on average; a little more makes a second round trip
  // rare.
  const double per_leaf = std::max(entries_per_leaf_.load(std::memory_order_relaxed), 1.0);
  const auto remaining = static_cast<double>(state.range.limit - state.rows.size());
  // Leaves of byte strings are less even: half a leaf more.
  const double slack = info_.geometry.layout == Layout::kBytes ? 2.25 : 1.75;
  // Of parted leaves it is decided leaf by leaf what is read.
  const double ahead = parted() ? 1.5 * remaining / per_leaf + 3 : remaining / per_leaf + slack;
  const auto count =
      static_cast<size_t>(std::min(ahead, static_cast<double>(options_.scan_leaves_max)));
  state.cached.reserve(count);
  state.leaves.reserve(count);
  if (state.forward()) {
    cache_.LeavesFrom(state.position, state.range.end, count, &state.cached);
  } else {
    const auto from =
        state.from_last ? std::nullopt : std::optional<std::string_view>(state.position);
    cache_.LeavesBefore(from, state.range.start, count, &state.cached);
  }
  if (parted()) {
    PrefetchScan(op, state, remaining / per_leaf);
    PlanScan(state);
  } else {
    for (const CachedLeaf& leaf : state.cached) state.leaves.push_back({leaf});
    GuessScanValues(state, per_leaf);
  }
}

void BlinkTree::GuessScanValues(ScanState& state, double per_leaf) const {
  if (value_lists_.empty() || state.range.content == ScanContent::kKeys) return;
  WantedEntries wanted{.forward = state.forward()};
  if (state.forward()) {
    wanted.first = state.position;
    wanted.end = state.range.end;
  } else {
    wanted.first = state.range.start;
    if (!state.from_last) wanted.end = state.position;
  }
  uint64_t rows = state.range.limit - state.rows.size();  // that are missing, and bytes of them
  wanted.bytes = state.range.bytes_max - state.bytes;
  uint64_t spare = 0;
  bool all_known = true;
  if (!state.guess) state.guess = std::make_unique<ScanGuess>();
  std::vector<ValueHint>& blocks = state.guess->Begin();
  for (size_t i = 0; i < state.leaves.size(); ++i) {
    const size_t before = blocks.size();
    const uint64_t blocks_max = ScanGuess::kBlocksMax - before;
    wanted.rows = std::min(rows, blocks_max);
    const auto known = value_lists_.Find(state.leaves[i].address, wanted, &blocks);
    state.leaves[i].guessed = blocks.size() - before;
    all_known &= known.has_value();
    ListedEntries entries{.wanted = static_cast<size_t>(i == 0 ? per_leaf / 2 : per_leaf)};
    entries.rows = std::min<uint64_t>(entries.wanted, wanted.rows);
    if (known) entries = *known;
    rows -= entries.rows;
    wanted.bytes -= std::min(wanted.bytes, entries.bytes);
    // Of a long scan, one round trip's values are read with their leaves.
    const bool filled = entries.rows == blocks_max || blocks.size() >= ScanGuess::kBlocksMax;
    if (rows == 0 || wanted.bytes == 0) spare += entries.wanted - entries.rows;
    const bool enough = spare >= kRowsSpare;
    if ((enough && all_known) || filled) state.leaves.resize(i + 1);
    if (enough || filled) return;
  }
}

Task<Status> BlinkTree::ReadScanLeaves(OpContext& op, ScanState& state) {
  const Geometry& geometry = info_.geometry;
  ChooseScanLeaves(op, state);
  if (state.leaves.empty()) {
    PageBuffer page;
    const Side side = state.forward() || state.from_last ? Side::kAt : Side::kBefore;
    auto leaf = co_await ReadNode(op, state.position, side, 0, page);
    if (!leaf.ok()) co_return leaf.status();
    state.find_one_leaf = false;
    const ConstNode found(geometry, page.image(geometry, 0));
    if (caching()) {
      // If it has split since its parent was cached, its sibling is asked for the rest next, and not it again.
      const SearchCache::Path path = cache_.Find(state.position, side, 0);
      if (path.complete && path.node == *leaf && !path.parent.is_null()) {
        LearnSplit(path.parent, *leaf, found);
      }
    }
    const ScanLeaf unplanned{{.address = *leaf}};
    TakeAndNoteScanLeaf(state, unplanned, found);
    co_return Status::Ok();
  }
  NoteCacheHits(op, 1);
  state.images.MakeRoom(state.leaves.size(), geometry.image_bytes(0));
  std::pmr::vector<Batch> batches(&state.memory);
  batches.reserve(std::min(state.leaves.size(), pool_->layouts().size()));
  for (size_t i = 0; i < state.leaves.size(); ++i) {
    const ScanLeaf& leaf = state.leaves[i];
    const auto image = state.images[i];
    Batch& batch = dsm::BatchFor(batches, leaf.address.server());
    if (leaf.window != 0) {
      AddPartReads(leaf.address, leaf.window, image, batch);
    } else {
      batch.Read(leaf.address.offset(), image);
    }
  }
  const size_t leaf_batches = batches.size();
  if (state.guess) state.guess->AddReads(batches);
  Status status = co_await op.worker.RoundTrip(batches, op.counts);
  if (!status.ok()) {  // what is guessed fails nothing
    for (size_t i = 0; i < leaf_batches; ++i) FARLEAF_CO_RETURN_IF_ERROR(batches[i].status());
    if (state.guess) state.guess->Fail();
  }
  for (size_t i = 0; i < state.leaves.size() && !state.done && !state.full(); ++i) {
    const auto image = state.images[i];
    if (state.leaves[i].window != 0) {
      const ScanTaken taken = TakeScanParts(state, state.leaves[i], image);
      const bool stalls = i == 0 && taken == ScanTaken::kTooLittle;
      // What is remembered may be given up when several threads note it: once, no more.
      state.find_one_leaf = taken == ScanTaken::kNoLeaf || (stalls && state.stalled);
      state.stalled = stalls;
      if (taken != ScanTaken::kLeaf) break;
      continue;
    }
    if (OpenPage(geometry, 0, image) != OpenOutcome::kValid || !IsNextLeaf(state, image)) {
      state.find_one_leaf = true;
      break;
    }
    TakeAndNoteScanLeaf(state, state.leaves[i], ConstNode(geometry, image));
  }
  co_return Status::Ok();
}

bool BlinkTree::IsNextLeaf(const ScanState& state, std::span<const std::byte> image) const {
  const ConstNode leaf(info_.geometry, image);
  if (Mutated(Mutation::kScanSkipsFences)) return true;
  if (Mutated(Mutation::kReverseScanTrustsCache) && !state.forward()) return true;
  if (state.from_last) {
    return FitOf(leaf, state.position, Side::kAt, 0) == Fit::kCovers && !leaf.has_high();
  }
  return FitOf(leaf, state.position, state.forward() ? Side::kAt : Side::kBefore, 0) ==
         Fit::kCovers;
}

void BlinkTree::AddScanRow(ScanState& state, const ConstNode& leaf, size_t i) {
  KeyValue& row = *state.rows.Add(1);
  ScanRows::Clear(&row.key);
  ScanRows::Clear(&row.value);
  leaf.AppendKey(i, &row.key);
  state.bytes += row.key.size();
  if (state.range.content == ScanContent::kKeys) return;
  const StoredValue stored = leaf.Value(i);
  if (stored.out_of_line) {
    const OutOfLineValue where = DecodeOutOfLine(stored.bytes);
    state.bytes += where.length;
    if (state.guess && state.guess->Take(where, &row.value)) {
      ++state.verdict.right;
      return;
    }
    if (BlockReadBytes(where.length) <= BlockNames::kBlockBytesMax) ++state.verdict.missed;
    state.to_fetch.emplace_back(state.rows.size() - 1, where);
  } else {
    state.bytes += stored.bytes.size();
    row.value.assign(stored.bytes);
  }
}

void BlinkTree::TakeAndNoteScanLeaf(ScanState& state, const ScanLeaf& planned,
                                    const ConstNode& leaf) {
  state.verdict = {.guessed = planned.guessed};
  TakeScanLeaf(state, leaf);
  const ListVerdict& verdict = state.verdict;
  if (verdict.guessed == 0 && verdict.missed == 0) return;
  if (verdict.guessed > verdict.right) {
    stats_.stale_listed_values.fetch_add(verdict.guessed - verdict.right,
                                         std::memory_order_relaxed);
  }
  value_lists_.NoteScanned(planned.address, leaf, verdict);
}

void BlinkTree::TakeScanLeaf(ScanState& state, const ConstNode& leaf) {
  NoteLeafFill(leaf.count());
  if (state.forward()) {
    size_t i = leaf.Search(state.position).index;
    for (; i < leaf.count() && !state.full(); ++i) {
      if (state.range.end && leaf.CompareKey(i, *state.range.end) >= 0) {
        state.done = true;
        return;
      }
      AddScanRow(state, leaf, i);
    }
    if (i < leaf.count()) {  // full; goes on here if a row turns out to be gone
      state.position = leaf.Key(i);
      return;
    }
    state.done = !leaf.has_high();
    if (!state.done) {
      state.position = leaf.high();
      state.done = state.range.end && state.position >= *state.range.end;
    }
    return;
  }
  size_t i = state.from_last ? leaf.count() : leaf.Search(state.position).index;
  state.from_last = false;
  while (i > 0 && !state.full()) {
    --i;
    if (!state.range.start.empty() && leaf.CompareKey(i, state.range.start) < 0) {
      state.done = true;
      return;
    }
    AddScanRow(state, leaf, i);
  }
  if (i > 0) {
    state.position = leaf.Key(i);
    return;
  }
  state.done = !leaf.has_low();
  if (!state.done) {
    state.position = leaf.low();
    state.done = !state.range.start.empty() && state.position <= state.range.start;
  }
}

void BlinkTree::NoteLeafFill(size_t entries, double share) {
  // A running mean over about 64 leaves; lost updates between threads do no harm.
  const double mean = entries_per_leaf_.load(std::memory_order_relaxed);
  const double change = (static_cast<double>(entries) - mean * share) / 64;
  entries_per_leaf_.store(mean + change, std::memory_order_relaxed);
}

Task<Status> BlinkTree::FetchScanValues(OpContext& op, ScanState& state) {
  std::vector<size_t> gone;
  const std::vector<std::pair<size_t, OutOfLineValue>> to_fetch = std::exchange(state.to_fetch, {});
  if (to_fetch.empty()) co_return Status::Ok();
  std::vector<ValueFetch> fetches;
  fetches.reserve(to_fetch.size());
  for (const auto& [row, where] : to_fetch) fetches.push_back({where, &state.rows[row].value});
  Status status = co_await ReadValues(op, fetches);
  for (size_t i = 0; i < fetches.size(); ++i) {
    if (fetches[i].state == ValueState::kRead) continue;
    if (!status.ok()) {  // what is in hand up to here is right
      state.rows.Cut(to_fetch[i].first);
      break;
    }
    // Overwritten or deleted since the leaf was read: the key's present state serves as well.
    KeyValue& row = state.rows[to_fetch[i].first];
    auto found = co_await Get(op, row.key, &row.value);
    if (!found.ok()) {
      status = found.status();
      state.rows.Cut(to_fetch[i].first);
      break;
    }
    state.bytes -= row.key.size() + fetches[i].where.length;
    if (*found) {
      state.bytes += row.key.size() + row.value.size();
    } else {
      gone.push_back(to_fetch[i].first);
    }
  }
  for (auto row = gone.rbegin(); row != gone.rend(); ++row) state.rows.Erase(*row);
  co_return status;
}

}  // namespace farleaf::index
