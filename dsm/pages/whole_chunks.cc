// The allocator's whole chunks: redo chunks and extents.
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

/// Takes chunks [first, first + count), all of them or, false, none. Until it has them all, they
/// say kExtentRest: a scan that finds some behind no kExtent word knows that their claimer died.
Task<Result<bool>> ClaimRun(OpContext& op, const RegionLayout& region, uint64_t first,
                            uint64_t count, MemberIdentity self) {
  const ChunkWord free;
  const ChunkWord rest{
      .kind = ChunkKind::kExtentRest, .owner = self.id, .incarnation = self.short_incarnation()};
  auto claimed = co_await SwapChunkWords(op, region, first, count, free, rest);
  if (!claimed.ok()) co_return claimed.status();
  if (std::find(claimed->begin(), claimed->end(), false) == claimed->end()) {
    ChunkWord head = rest;
    head.kind = ChunkKind::kExtent;
    head.page_units = static_cast<uint16_t>(count);
    Status headed = co_await ChangeChunkWord(op, region, first, rest, head);
    if (!headed.ok()) co_return headed;
    co_return true;
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (!(*claimed)[i]) continue;
    Status undone = co_await ChangeChunkWord(op, region, first + i, rest, free);
    if (!undone.ok()) co_return undone;
  }
  co_return false;
}

/// The first chunk of a new extent; nullopt: the server has no such run.
Task<Result<std::optional<uint64_t>>> ClaimExtent(OpContext& op, const RegionLayout& region,
                                                  uint64_t count, MemberIdentity self) {
  uint64_t below = region.chunk_count;
  while (below >= count) {
    if (op.expired()) {
      co_return Status::DeadlineExceeded("claiming " + std::to_string(count) +
                                         " chunks of memory server " +
                                         std::to_string(region.server));
    }
    auto run = co_await FindFreeRun(op, region, below, count);
    if (!run.ok() || !*run) co_return run;
    auto claimed = co_await ClaimRun(op, region, **run, count, self);
    if (!claimed.ok()) co_return claimed.status();
    if (*claimed) co_return run;
    below = **run + count - 1;
  }
  co_return std::optional<uint64_t>();
}

Status NoExtent(GlobalAddress address, uint64_t bytes) {
  return Status::Corruption("no extent of " + std::to_string(bytes) + " bytes at " +
                            address.ToString());
}

}  // namespace

ChunkWord Allocator::RedoWord() const {
  return {.kind = ChunkKind::kRedo,
          .page_units = kRedoSlotBytes / 64,
          .owner = self_.id,
          .incarnation = self_.short_incarnation()};
}

Task<Result<GlobalAddress>> Allocator::RedoChunk(OpContext& op, ServerId server) {
  const RegionLayout& region = layout(server);
  if (self_.id == 0) co_return Status::InvalidArgument("an observer of a pool takes no locks");
  State::Server& state = state_->servers[server];
  uint64_t poll_ns = kFetchPollNsMin;
  for (;;) {
    bool mine;
    {
      std::lock_guard lock(state.redo_mutex);
      if (state.redo_chunk) co_return GlobalAddress(server, region.ChunkOffset(*state.redo_chunk));
      mine = !state.redo_being_claimed;
      state.redo_being_claimed = true;
    }
    if (mine) break;
    if (op.expired()) {
      co_return Status::DeadlineExceeded("waiting for a redo chunk of memory server " +
                                         std::to_string(server));
    }
    co_await op.worker.Sleep(poll_ns);
    poll_ns = std::min(poll_ns * 2, kFetchPollNsMax);
  }
  auto claim = co_await ClaimChunk(op, region, RedoWord(), state.next_chunk.load());
  std::lock_guard lock(state.redo_mutex);
  state.redo_being_claimed = false;
  if (!claim.ok()) co_return claim.status();
  if (!claim->chunk) {
    state.chunks_used.store(claim->chunks_used);
    co_return Status::ResourceExhausted(
        "memory server " + std::to_string(server) + " is full: all of its " +
        std::to_string(region.chunk_count) +
        " chunks are in use, and this compute server needs one for its redo records; enlarge the "
        "region");
  }
  state.redo_chunk = claim->chunk;
  co_return GlobalAddress(server, region.ChunkOffset(*claim->chunk));
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
    auto chunk = co_await ClaimExtent(op, region, count, self_);
    if (!chunk.ok()) co_return chunk.status();
    if (*chunk) co_return GlobalAddress(server, region.ChunkOffset(**chunk));
  }
  co_return Status::ResourceExhausted(
      "no memory server has " + std::to_string(bytes) +
      " bytes of free chunks in a row; add a memory server or enlarge the regions");
}

// The first chunk goes first: what a crash leaves behind is then seen to belong to no extent.
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
  ChunkWord rest = head;
  rest.kind = ChunkKind::kExtentRest;
  rest.page_units = 0;
  for (uint64_t i = 1; i < count; ++i) {
    if (words[i] != rest.Encode()) co_return NoExtent(address, bytes);
  }
  const std::vector<uint64_t> marks(count, kCarveMarkDirty);
  uint64_t old = 0;
  Batch release(region.server);
  release.Write(region.CarveMarkOffset(first), std::as_bytes(std::span(marks)));
  release.CompareAndSwap(region.ChunkWordOffset(first), head.Encode(), 0, &old);
  Status released = co_await op.worker.RoundTrip(release, op.counts);
  if (!released.ok()) co_return released;
  if (old != head.Encode()) co_return NoExtent(address, bytes);
  if (count == 1) co_return Status::Ok();
  auto freed = co_await SwapChunkWords(op, region, first + 1, count - 1, rest, ChunkWord{});
  if (!freed.ok()) co_return freed.status();
  if (std::find(freed->begin(), freed->end(), false) != freed->end()) {
    co_return NoExtent(address, bytes);
  }
  for (State::Server& state : state_->servers) state.full.store(false);
  co_return Status::Ok();
}

}  // namespace farleaf::dsm
