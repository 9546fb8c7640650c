// The allocator's whole chunks: redo areas and extents.
#include <algorithm>
#include <string>
#include <vector>

#include "dsm/allocator.h"
#include "dsm/base/check.h"
#include "dsm/pages/allocator_state.h"
#include "dsm/pages/chunk_table.h"

namespace farleaf::dsm {

namespace {

constexpr uint64_t kSwapsPerBatch = 64;

/// CAS of `count` chunk words from `from` to `to`. Bit i of the answer: word i was changed.
Task<Result<std::vector<bool>>> SwapChunkWords(OpContext& op, const RegionLayout& region,
                                               uint64_t first, uint64_t count, ChunkWord from,
                                               ChunkWord to) {
  std::vector<uint64_t> old(count);
  for (uint64_t done = 0; done < count; done += kSwapsPerBatch) {
    Batch batch(region.server);
    for (uint64_t i = done; i < std::min(count, done + kSwapsPerBatch); ++i) {
      batch.CompareAndSwap(region.ChunkWordOffset(first + i), from.Encode(), to.Encode(), &old[i]);
    }
    Status status = co_await op.worker.RoundTrip(batch, op.counts);
    if (!status.ok()) co_return status;
  }
  std::vector<bool> changed(count);
  for (uint64_t i = 0; i < count; ++i) changed[i] = old[i] == from.Encode();
  co_return changed;
}

/// The highest run of `count` free chunks below chunk `below`: pages are carved from chunks low and
/// high, extents keep the table's end in one piece as long as they can. nullopt: there is none.
Task<Result<std::optional<uint64_t>>> FindFreeRun(OpContext& op, const RegionLayout& region,
                                                  uint64_t below, uint64_t count) {
  std::vector<uint64_t> words;
  uint64_t run = 0;
  for (uint64_t window_end = below; window_end > 0;) {
    const uint64_t first = window_end - std::min(window_end, kChunkWindow);
    words.resize(window_end - first);
    Batch batch(region.server);
    batch.Read(region.ChunkWordOffset(first), std::as_writable_bytes(std::span(words)));
    Status status = co_await op.worker.RoundTrip(batch, op.counts);
    if (!status.ok()) co_return status;
    for (uint64_t chunk = window_end; chunk > first; --chunk) {
      run = words[chunk - 1 - first] == 0 ? run + 1 : 0;
      if (run == count) co_return std::optional(chunk - 1);
    }
    window_end = first;
  }
  co_return std::optional<uint64_t>();
}

/// How the chunk words of a run look: the first one, and the further ones.
struct RunWords {
  ChunkWord head;
  ChunkWord rest;
};

/// Takes chunks [first, first + count), all of them or, false, none. Until it has them all, they
/// say `rest`: a scan that finds such behind no head knows that their claimer died.
Task<Result<bool>> ClaimRunAt(OpContext& op, const RegionLayout& region, uint64_t first,
                              uint64_t count, RunWords words) {
  const ChunkWord free;
  auto claimed = co_await SwapChunkWords(op, region, first, count, free, words.rest);
  if (!claimed.ok()) co_return claimed.status();
  if (std::find(claimed->begin(), claimed->end(), false) == claimed->end()) {
    Status headed = co_await ChangeChunkWord(op, region, first, words.rest, words.head);
    if (!headed.ok()) co_return headed;
    co_return true;
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (!(*claimed)[i]) continue;
    Status undone = co_await ChangeChunkWord(op, region, first + i, words.rest, free);
    if (!undone.ok()) co_return undone;
  }
  co_return false;
}

/// The first chunk of a run taken; nullopt: the server has no such run.
Task<Result<std::optional<uint64_t>>> ClaimRun(OpContext& op, const RegionLayout& region,
                                               uint64_t count, RunWords words) {
  uint64_t below = region.chunk_count;
  while (below >= count) {
    if (op.expired()) {
      co_return Status::DeadlineExceeded("claiming " + std::to_string(count) +
                                         " chunks of memory server " +
                                         std::to_string(region.server));
    }
    auto run = co_await FindFreeRun(op, region, below, count);
    if (!run.ok() || !*run) co_return run;
    auto claimed = co_await ClaimRunAt(op, region, **run, count, words);
    if (!claimed.ok()) co_return claimed.status();
    if (*claimed) co_return run;
    below = **run + count - 1;
  }
  co_return std::optional<uint64_t>();
}

/// Gives a run back. The first chunk goes first: what a crash leaves behind is then seen to belong
/// to none. What the chunks held stays there until someone claims them who needs zeros.
Task<Result<bool>> ReleaseRun(OpContext& op, const RegionLayout& region, uint64_t first,
                              uint64_t count, RunWords words) {
  const std::vector<uint64_t> marks(count, kCarveMarkDirty);
  uint64_t old = 0;
  Batch release(region.server);
  release.Write(region.CarveMarkOffset(first), std::as_bytes(std::span(marks)));
  release.CompareAndSwap(region.ChunkWordOffset(first), words.head.Encode(), 0, &old);
  Status released = co_await op.worker.RoundTrip(release, op.counts);
  if (!released.ok()) co_return released;
  if (old != words.head.Encode()) co_return false;
  if (count == 1) co_return true;
  auto freed = co_await SwapChunkWords(op, region, first + 1, count - 1, words.rest, ChunkWord{});
  if (!freed.ok()) co_return freed.status();
  co_return std::find(freed->begin(), freed->end(), false) == freed->end();
}

/// An all-zero run: a redo slot must not hold what a former owner, or a value's author, put there.
Task<Status> ClearRun(OpContext& op, const RegionLayout& region, uint64_t first, uint64_t count) {
  std::vector<uint64_t> marks(count);
  Batch read(region.server);
  read.Read(region.CarveMarkOffset(first), std::as_writable_bytes(std::span(marks)));
  Status status = co_await op.worker.RoundTrip(read, op.counts);
  if (!status.ok()) co_return status;
  for (uint64_t i = 0; i < count; ++i) {
    if (marks[i] != kCarveMarkDirty) continue;
    Status cleared = co_await ClearChunk(op, region, first + i);
    if (!cleared.ok()) co_return cleared;
  }
  co_return Status::Ok();
}

RunWords ExtentWords(MemberIdentity self, uint64_t count) {
  RunWords words;
  words.rest = {
      .kind = ChunkKind::kExtentRest, .owner = self.id, .incarnation = self.short_incarnation()};
  words.head = words.rest;
  words.head.kind = ChunkKind::kExtent;
  words.head.page_units = static_cast<uint16_t>(count);
  return words;
}

/// page_units: slots' size in the first chunk's word, 0 in the others.
RunWords RedoWords(MemberIdentity self) {
  RunWords words;
  words.rest = {
      .kind = ChunkKind::kRedo, .owner = self.id, .incarnation = self.short_incarnation()};
  words.head = words.rest;
  words.head.page_units = kRedoSlotBytes / 64;
  return words;
}

Status NoExtent(GlobalAddress address, uint64_t bytes) {
  return Status::Corruption("no extent of " + std::to_string(bytes) + " bytes at " +
                            address.ToString());
}

}  // namespace

Task<Result<GlobalAddress>> Allocator::RedoArea(OpContext& op, ServerId server) {
  const RegionLayout& region = layout(server);
  if (self_.id == 0) co_return Status::InvalidArgument("an observer of a pool takes no locks");
  State::Server& state = state_->servers[server];
  uint64_t poll_ns = kFetchPollNsMin;
  for (;;) {
    bool mine;
    {
      std::lock_guard lock(state.redo_mutex);
      if (state.redo_area) co_return GlobalAddress(server, region.ChunkOffset(*state.redo_area));
      mine = !state.redo_being_claimed;
      state.redo_being_claimed = true;
    }
    if (mine) break;
    if (op.expired()) {
      co_return Status::DeadlineExceeded("waiting for a redo area on memory server " +
                                         std::to_string(server));
    }
    co_await op.worker.Sleep(poll_ns);
    poll_ns = std::min(poll_ns * 2, kFetchPollNsMax);
  }
  auto area = co_await ClaimRun(op, region, RedoAreaChunks(region), RedoWords(self_));
  Status status = area.status();
  if (status.ok() && *area) {
    status = co_await ClearRun(op, region, **area, RedoAreaChunks(region));
  }
  std::lock_guard lock(state.redo_mutex);
  state.redo_being_claimed = false;
  if (!status.ok()) {
    if (status.code() != StatusCode::kDeadlineExceeded) GiveUp();
    co_return status;
  }
  if (!*area) {
    co_return Status::ResourceExhausted(
        "memory server " + std::to_string(server) + " is full: none of its " +
        std::to_string(region.chunk_count) +
        " chunks is left for this compute server's redo records; enlarge the region");
  }
  state.redo_area = **area;
  co_return GlobalAddress(server, region.ChunkOffset(**area));
}

Task<Status> Allocator::ReleaseRedoArea(OpContext& op, ServerId server) {
  std::optional<uint64_t> area;
  {
    std::lock_guard lock(state_->servers[server].redo_mutex);
    area.swap(state_->servers[server].redo_area);
  }
  if (!area) co_return Status::Ok();
  const RegionLayout& region = layouts_[server];
  auto released = co_await ReleaseRun(op, region, *area, RedoAreaChunks(region), RedoWords(self_));
  if (released.ok() && !*released) {
    co_return Status::Corruption("redo area at chunk " + std::to_string(*area) +
                                 " of memory server " + std::to_string(server) +
                                 " no longer belongs to " + self_.ToString());
  }
  co_return released.status();
}

Task<Result<GlobalAddress>> Allocator::AllocateExtent(OpContext& op, uint64_t bytes,
                                                      ServerId preferred) {
  if (self_.id == 0) co_return Status::InvalidArgument("an observer of a pool allocates nothing");
  FARLEAF_CHECK(bytes > 0 && preferred < layouts_.size(), bytes, preferred);
  for (size_t i = 0; i < layouts_.size(); ++i) {
    const auto server = static_cast<ServerId>((preferred + i) % layouts_.size());
    const RegionLayout& region = layouts_[server];
    const uint64_t count = (bytes - 1) / region.chunk_bytes + 1;
    if (count > UINT16_MAX) continue;  // more than ChunkWord::page_units can say
    auto chunk = co_await ClaimRun(op, region, count, ExtentWords(self_, count));
    if (!chunk.ok()) {
      if (chunk.status().code() != StatusCode::kDeadlineExceeded) GiveUp();
      co_return chunk.status();
    }
    if (*chunk) co_return GlobalAddress(server, region.ChunkOffset(**chunk));
  }
  co_return Status::ResourceExhausted(
      "no memory server has " + std::to_string(bytes) +
      " bytes of free chunks in a row; add a memory server or enlarge the regions");
}

// Whoever owned the extent may have left long ago: its words are read to know the owner they name.
Task<Status> Allocator::FreeExtent(OpContext& op, GlobalAddress address, uint64_t bytes) {
  const RegionLayout& region = layout(address.server());
  const uint64_t count = bytes == 0 ? 0 : (bytes - 1) / region.chunk_bytes + 1;
  if (address.offset() < region.first_chunk || address.offset() % region.chunk_bytes != 0 ||
      count == 0 || count > UINT16_MAX ||
      region.ChunkOf(address.offset()) + count > region.chunk_count) {
    co_return NoExtent(address, bytes);
  }
  const uint64_t first = region.ChunkOf(address.offset());
  std::vector<uint64_t> words(count);
  Batch read(region.server);
  read.Read(region.ChunkWordOffset(first), std::as_writable_bytes(std::span(words)));
  Status status = co_await op.worker.RoundTrip(read, op.counts);
  if (!status.ok()) co_return status;
  const ChunkWord head = ChunkWord::Decode(words[0]);
  if (head.kind != ChunkKind::kExtent || head.page_units != count) {
    co_return NoExtent(address, bytes);
  }
  const RunWords run = ExtentWords({head.owner, head.incarnation}, count);
  for (uint64_t i = 1; i < count; ++i) {
    if (words[i] != run.rest.Encode()) co_return NoExtent(address, bytes);
  }
  auto released = co_await ReleaseRun(op, region, first, count, run);
  if (!released.ok()) {
    GiveUp();
    co_return released.status();
  }
  if (!*released) co_return NoExtent(address, bytes);
  state_->servers[region.server].full.store(false);
  co_return Status::Ok();
}

}  // namespace farleaf::dsm
