#include "dsm/redo_area.h"

#include <algorithm>
#include <vector>

namespace farleaf::dsm {

namespace {
constexpr uint64_t kWindowChunks = 8192;
}  // namespace

Task<Result<std::optional<uint64_t>>> FindRedoArea(OpContext& op, const RegionLayout& layout,
                                                   MemberId owner, uint16_t short_incarnation) {
  const ChunkWord wanted{.kind = ChunkKind::kRedo,
                         .page_units = kRedoSlotBytes / 64,
                         .owner = owner,
                         .incarnation = short_incarnation};
  for (uint64_t first = 0; first < layout.chunk_count; first += kWindowChunks) {
    std::vector<uint64_t> words(std::min(kWindowChunks, layout.chunk_count - first));
    Batch batch(layout.server);
    batch.Read(layout.ChunkWordOffset(first), std::as_writable_bytes(std::span(words)));
    Status status = co_await op.worker.RoundTrip(batch, op.counts);
    if (!status.ok()) co_return status;
    const auto found = std::find(words.begin(), words.end(), wanted.Encode());
    if (found == words.end()) continue;
    const uint64_t chunk = first + static_cast<uint64_t>(found - words.begin());
    co_return std::optional(layout.ChunkOffset(chunk));
  }
  co_return std::optional<uint64_t>();
}

}  // namespace farleaf::dsm
