#include "server/chunk_metrics.h"

#include <string>

namespace farleaf::server {

void CountChunks(std::span<const uint64_t> words, ChunkCounts* counts) {
  for (const uint64_t word : words) {
    const auto kind = static_cast<size_t>(dsm::ChunkWord::Decode(word).kind);
    if (kind < counts->size()) ++(*counts)[kind];
  }
}

void AppendChunkMetrics(const dsm::RegionLayout& layout, const ChunkCounts& chunks,
                        MetricsText* out) {
  const std::string server = std::to_string(layout.server);
  out->Gauge("farleaf_memory_server_bytes", "Memory that a memory server exposes.",
             {{"memory_server", server}}, static_cast<double>(layout.region_bytes));
  out->Gauge("farleaf_memory_server_chunk_bytes", "Size of a chunk there.",
             {{"memory_server", server}}, static_cast<double>(layout.chunk_bytes));
  for (size_t kind = 0; kind < chunks.size(); ++kind) {
    out->Gauge("farleaf_memory_server_chunks", "Chunks of a memory server by what is in them.",
               {{"memory_server", server}, {"kind", kChunkKindNames[kind]}},
               static_cast<double>(chunks[kind]));
  }
}

}  // namespace farleaf::server
