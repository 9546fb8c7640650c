#include "dsm/pages/chunk_table.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/base/clock.h"

namespace farleaf::dsm {

namespace {

struct Window {
  uint64_t first = 0;
  std::vector<uint64_t> words;
};

/// Tries to turn the chunk's word from `expected` into `desired`. True: it is ours, and `mark` is
/// its carve mark. False: `expected` becomes the word that is there.
Task<Result<bool>> TryTake(OpContext& op, const RegionLayout& layout, uint64_t chunk,
                           uint64_t* expected, uint64_t desired, uint64_t* mark) {
  uint64_t old = 0;
  Batch batch(layout.server);
  batch.CompareAndSwap(layout.ChunkWordOffset(chunk), *expected, desired, &old);
  batch.ReadWord(layout.CarveMarkOffset(chunk), mark);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  if (old == *expected) co_return true;
  *expected = old;
  co_return false;
}

/// Takes the first chunk of the window, from `start` on, whose word is `expected`.
Task<Result<ChunkClaim>> ClaimInWindow(OpContext& op, const RegionLayout& layout, Window* window,
                                       uint64_t start, uint64_t expected, uint64_t desired) {
  ChunkClaim claim;
  const uint64_t count = window->words.size();
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = (start + i) % count;
    if (window->words[at] != expected) continue;
    if (op.expired()) {
      co_return Status::DeadlineExceeded("claiming a chunk of memory server " +
                                         std::to_string(layout.server));
    }
    const uint64_t chunk = window->first + at;
    uint64_t mark = 0;
    auto taken = co_await TryTake(op, layout, chunk, &window->words[at], desired, &mark);
    if (!taken.ok()) co_return taken.status();
    if (!*taken) continue;
    if (mark == kCarveMarkDirty) {
      Status cleared = co_await ClearChunk(op, layout, chunk);
      if (!cleared.ok()) co_return cleared;
      mark = kCarveMarkNone;
    }
    claim.chunk = chunk;
    claim.carved = mark;
    co_return claim;
  }
  claim.chunks_used =
      count - static_cast<uint64_t>(std::count(window->words.begin(), window->words.end(), 0u));
  co_return claim;
}

}  // namespace

Task<Status> ClearChunk(OpContext& op, const RegionLayout& layout, uint64_t chunk) {
  const std::vector<std::byte> zeros(layout.chunk_bytes);
  const uint64_t mark = kCarveMarkNone;
  Batch batch(layout.server);
  batch.Write(layout.ChunkOffset(chunk), zeros);
  batch.WriteWord(layout.CarveMarkOffset(chunk), &mark);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  co_return status;
}

Task<Result<ChunkClaim>> ClaimChunk(OpContext& op, const RegionLayout& layout, ChunkWord wanted,
                                    uint64_t start) {
  FARLEAF_CHECK(wanted.owner != 0 && !wanted.carved, wanted.owner);
  const uint64_t desired = wanted.Encode();
  ChunkWord left = wanted;
  left.owner = 0;
  left.incarnation = 0;
  const std::array<uint64_t, 2> expectations = {left.Encode(), 0};
  const uint64_t windows = (layout.chunk_count + kChunkWindow - 1) / kChunkWindow;
  start %= layout.chunk_count;
  uint64_t chunks_used = 0;
  for (uint64_t i = 0; i < windows; ++i) {
    Window window;
    window.first = (start / kChunkWindow + i) % windows * kChunkWindow;
    window.words.resize(std::min(kChunkWindow, layout.chunk_count - window.first));
    Batch batch(layout.server);
    batch.Read(layout.ChunkWordOffset(window.first),
               std::as_writable_bytes(std::span(window.words)));
    Status read = co_await op.worker.RoundTrip(batch, op.counts);
    if (!read.ok()) co_return read;
    const uint64_t from = i == 0 ? start - window.first : 0;
    for (const uint64_t expected : expectations) {
      auto claim = co_await ClaimInWindow(op, layout, &window, from, expected, desired);
      if (!claim.ok() || claim->chunk) co_return claim;
      if (expected == 0) chunks_used += claim->chunks_used;
    }
  }
  ChunkClaim none;
  none.chunks_used = chunks_used;
  co_return none;
}

namespace {
Status CheckOwned(const RegionLayout& layout, uint64_t chunk, ChunkWord expected, uint64_t old) {
  if (old == expected.Encode()) return Status::Ok();
  return Status::Corruption(
      "chunk " + std::to_string(chunk) + " of memory server " + std::to_string(layout.server) +
      " no longer belongs to compute server " + std::to_string(expected.owner));
}
}  // namespace

Task<Status> ChangeChunkWord(OpContext& op, const RegionLayout& layout, uint64_t chunk,
                             ChunkWord from, ChunkWord to) {
  uint64_t old = 0;
  Batch batch(layout.server);
  batch.CompareAndSwap(layout.ChunkWordOffset(chunk), from.Encode(), to.Encode(), &old);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  co_return CheckOwned(layout, chunk, from, old);
}

Task<Status> ReleaseChunk(OpContext& op, const RegionLayout& layout, uint64_t chunk, ChunkWord word,
                          uint64_t carved) {
  ChunkWord left = word;
  left.owner = 0;
  left.incarnation = 0;
  uint64_t old = 0;
  Batch batch(layout.server);
  batch.WriteWord(layout.CarveMarkOffset(chunk), &carved);
  batch.CompareAndSwap(layout.ChunkWordOffset(chunk), word.Encode(), left.Encode(), &old);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  co_return CheckOwned(layout, chunk, word, old);
}

}  // namespace farleaf::dsm
