// Bringing the search-layer cache up to date by re-reading only what changed, in large READs:
//   WarmCache      the whole search layer. Three round trips: chunk tables and root word, the change
//                  counters of the tree's search chunks, the nodes whose counter differs from the cached
//                  version, neighbours in one READ
//   RefreshCache   of the chunks that the cache knows, without the chunk tables, which are as large as
//                  the pool; two round trips. Who meets a node of another chunk knows that chunk, too
// With a budget, as many of the nodes that are not cached come in as there is room for.
#include <algorithm>

#include "dsm/base/bytes.h"
#include "index/blink/tree.h"

namespace farleaf::index {

/// Consecutive pages to read.
struct BlinkTree::PageRun {
  GlobalAddress first;
  uint64_t pages = 0;
};

namespace {

constexpr uint64_t kReadBytesMax = uint64_t{1} << 20;    // one READ
constexpr uint64_t kRoundBytesMax = uint64_t{16} << 20;  // one round trip

}  // namespace

Task<Status> BlinkTree::WarmCache(OpContext& op) {
  Status status = co_await BringCacheUpToDate(op, RefreshOf::kPool);
  co_return status;
}

Task<Status> BlinkTree::RefreshCache(OpContext& op) {
  Status status = co_await BringCacheUpToDate(op, RefreshOf::kKnownChunks);
  co_return status;
}

Task<Status> BlinkTree::BringCacheUpToDate(OpContext& op, RefreshOf what) {
  if (!caching() || refreshing_.exchange(true)) co_return Status::Ok();
  stats_.cache_refreshes.fetch_add(1, std::memory_order_relaxed);
  const uint64_t read_before = op.counts.bytes_read;
  std::vector<GlobalAddress> chunks;
  Status status;
  if (what == RefreshOf::kPool) {
    status = co_await ReadSearchChunks(op, &chunks);
  } else {
    chunks = cache_.Chunks();
  }
  if (status.ok()) status = co_await RefreshChangedNodes(op, std::move(chunks));
  stats_.cache_refresh_bytes.fetch_add(op.counts.bytes_read - read_before,
                                       std::memory_order_relaxed);
  refreshing_.store(false);
  co_return status;
}

Task<Status> BlinkTree::ReadSearchChunks(OpContext& op, std::vector<GlobalAddress>* chunks) {
  const auto layouts = pool_->layouts();
  std::vector<std::vector<std::byte>> tables;
  std::vector<Batch> batches;
  for (const dsm::RegionLayout& layout : layouts) tables.emplace_back(layout.chunk_count * 8);
  for (size_t i = 0; i < layouts.size(); ++i) {
    dsm::BatchFor(batches, layouts[i].server).Read(dsm::kChunkTableOffset, tables[i]);
  }
  Status status = co_await op.worker.RoundTrip(batches, op.counts);
  if (!status.ok()) co_return status;
  for (size_t i = 0; i < layouts.size(); ++i) {
    for (uint64_t c = 0; c < layouts[i].chunk_count; ++c) {
      const auto word = dsm::ChunkWord::Decode(LoadLittle<uint64_t>(tables[i].data() + c * 8));
      if (word.kind == dsm::ChunkKind::kSearch && word.tree == info_.id) {
        chunks->emplace_back(layouts[i].server, layouts[i].ChunkOffset(c));
      }
    }
  }
  co_return Status::Ok();
}

Task<Status> BlinkTree::RefreshChangedNodes(OpContext& op, std::vector<GlobalAddress> chunks) {
  const auto layouts = pool_->layouts();
  const dsm::PageClass page_class = PageClassOf(1);
  const uint32_t page_bytes = info_.geometry.node_bytes;

  // Change counters and root word.
  const uint64_t pages = PagesPerChunk(page_class, layouts[0].chunk_bytes);
  std::vector<std::byte> counters(chunks.size() * pages * 8);
  std::vector<Batch> batches;
  uint64_t root_word = 0;
  dsm::BatchFor(batches, dsm::kCatalogServer).ReadWord(info_.root_word_offset(), &root_word);
  for (size_t i = 0; i < chunks.size(); ++i) {
    dsm::BatchFor(batches, chunks[i].server())
        .Read(chunks[i].offset(), std::span(counters).subspan(i * pages * 8, pages * 8));
  }
  Status status = co_await op.worker.RoundTrip(batches, op.counts);
  if (!status.ok()) co_return status;
  cache_.set_root(RootWord::Decode(root_word));
  std::vector<PageRun> runs;
  const uint64_t run_pages_max = kReadBytesMax / page_bytes;
  uint64_t room_bytes = cache_.RoomBytes();
  for (size_t i = 0; i < chunks.size(); ++i) {
    uint64_t run_end = UINT64_MAX;
    for (uint64_t page = 0; page < pages; ++page) {
      const auto counter = LoadLittle<uint64_t>(counters.data() + (i * pages + page) * 8);
      const GlobalAddress address =
          chunks[i] + PageOffsetInChunk(page_class, layouts[0].chunk_bytes, page);
      const uint64_t cached_version = cache_.VersionOf(address);
      if (counter == 0 || counter <= cached_version) continue;
      if (cached_version == 0) {
        // What is not cached comes in only as far as the budget goes: what a search then lacks, above
        // all if it is an upper node, it reads.
        if (room_bytes < 2 * page_bytes) continue;
        room_bytes -= page_bytes;
      }
      if (page == run_end && runs.back().pages < run_pages_max) {
        ++runs.back().pages;
      } else {
        runs.push_back({address, 1});
      }
      run_end = page + 1;
    }
  }

  status = co_await ReadPageRuns(op, std::move(runs));
  co_return status;
}

Task<Status> BlinkTree::ReadPageRuns(OpContext& op, std::vector<PageRun> runs) {
  const uint32_t page_bytes = info_.geometry.node_bytes;
  std::vector<Batch> batches;
  for (size_t first = 0; first < runs.size();) {
    size_t last = first;
    uint64_t bytes = 0;
    while (last < runs.size() && bytes + runs[last].pages * page_bytes <= kRoundBytesMax) {
      bytes += runs[last++].pages * page_bytes;
    }
    std::vector<std::byte> images(bytes);
    batches.clear();
    uint64_t at = 0;
    for (size_t i = first; i < last; at += runs[i++].pages * page_bytes) {
      dsm::BatchFor(batches, runs[i].first.server())
          .Read(runs[i].first.offset(), std::span(images).subspan(at, runs[i].pages * page_bytes));
    }
    Status status = co_await op.worker.RoundTrip(batches, op.counts);
    if (!status.ok()) co_return status;
    at = 0;
    for (size_t i = first; i < last; ++i) {
      for (uint64_t page = 0; page < runs[i].pages; ++page, at += page_bytes) {
        // A torn node stays as it was cached; the next refresh will read it.
        const auto image = std::span(images).subspan(at, info_.geometry.image_bytes(1));
        if (ConstNode::Open(info_.geometry, image) == OpenOutcome::kValid) {
          cache_.Install(runs[i].first + page * page_bytes, image);
        }
      }
    }
    first = last;
  }
  co_return Status::Ok();
}

}  // namespace farleaf::index
