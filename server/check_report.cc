#include "server/check_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

namespace farleaf::server {

namespace {

using dsm::ChunkKind;
using Json = nlohmann::ordered_json;

struct NamedKind {
  ChunkKind kind;
  std::string_view name;
};
constexpr NamedKind kKinds[] = {{ChunkKind::kLeaf, "leaf"},       {ChunkKind::kSearch, "search"},
                                {ChunkKind::kValue, "value"},     {ChunkKind::kExtent, "extent"},
                                {ChunkKind::kExtentRest, "rest"}, {ChunkKind::kRedo, "redo"},
                                {ChunkKind::kUnused, "unused"}};
constexpr NamedKind kPagedKinds[] = {
    {ChunkKind::kLeaf, "leaf"}, {ChunkKind::kSearch, "search"}, {ChunkKind::kValue, "value"}};

std::string_view LeafLayoutName(index::LeafLayout layout) {
  return layout == index::LeafLayout::kSorted ? "sorted" : "parted";
}

std::string_view LayoutName(index::Layout layout) {
  return layout == index::Layout::kFixed8 ? "fixed8" : "bytes";
}

uint64_t ChunksOf(const index::ServerReport& server, ChunkKind kind) {
  return server.chunks[static_cast<size_t>(kind)];
}

void AddTrees(const index::CheckReport& report, std::string* text) {
  *text += fmt::format("{:<20} {:<7} {:>12} {:>10} {:>6} {:>6} {:>9} {:>10}\n", "tree", "layout",
                       "keys", "leaves", "height", "fill", "bytes/key", "no separ.");
  for (const index::TreeReport& tree : report.trees) {
    const double fill = tree.levels.empty() ? 0 : tree.levels[0].mean_fill();
    *text += fmt::format("{:<20} {:<7} {:>12} {:>10} {:>6} {:>5.1f}% {:>9.1f} {:>10}\n",
                         tree.info.name, LayoutName(tree.info.geometry.layout), tree.keys(),
                         tree.leaves(), tree.height(), 100 * fill, tree.pool_bytes_per_key(),
                         tree.missing_separators());
    for (size_t level = tree.levels.size(); level-- > 1;) {
      const index::LevelReport& nodes = tree.levels[level];
      *text += fmt::format("  level {:<2} {:>39} {:>13.1f}%\n", level, nodes.nodes,
                           100 * nodes.mean_fill());
    }
    if (tree.values_out_of_line > 0) {
      *text += fmt::format("  {} values out of line, in blocks of {} bytes together\n",
                           tree.values_out_of_line, tree.value_block_bytes);
    }
    if (!tree.chains_whole) {
      *text += fmt::format("  a chain of siblings breaks: {} pages in use were not judged\n",
                           tree.unjudged_pages);
    }
  }
}

void AddServers(const index::CheckReport& report, std::string* text) {
  *text += fmt::format("\n{:<16}", "memory server");
  for (const NamedKind& kind : kKinds) *text += fmt::format(" {:>8}", kind.name);
  *text += "   (chunks)\n";
  for (const index::ServerReport& server : report.servers) {
    *text += fmt::format("{:<16}", server.layout.server);
    for (const NamedKind& kind : kKinds)
      *text += fmt::format(" {:>8}", ChunksOf(server, kind.kind));
    *text += fmt::format("   of {} KiB\n", server.layout.chunk_bytes >> 10);
  }
  *text += fmt::format("\n{:<16} {:<7} {:>12} {:>12} {:>12}   (pages)\n", "memory server", "kind",
                       "in use", "free", "never used");
  for (const index::ServerReport& server : report.servers) {
    for (const NamedKind& kind : kPagedKinds) {
      const index::PageCounts& pages = server.pages[static_cast<size_t>(kind.kind)];
      *text += fmt::format("{:<16} {:<7} {:>12} {:>12} {:>12}\n", server.layout.server, kind.name,
                           pages.in_use, pages.free, pages.never_used);
    }
    if (server.chunks_of_the_gone + server.free_pages_of_the_gone > 0) {
      *text +=
          fmt::format("  {} chunks and {} free pages are held by compute servers that are gone\n",
                      server.chunks_of_the_gone, server.free_pages_of_the_gone);
    }
    if (server.unlisted_free_pages + server.skipped_pages > 0) {
      *text += fmt::format("  {} free pages are in no list, and {} carved ones were never used\n",
                           server.unlisted_free_pages, server.skipped_pages);
    }
  }
}

double PoolBytesPerKey(const index::CheckReport& report) {
  const uint64_t keys = report.keys();
  return keys == 0 ? 0 : static_cast<double>(report.chunk_bytes_taken()) / keys;
}

Json TreeJson(const index::TreeReport& tree) {
  Json levels = Json::array();
  for (const index::LevelReport& level : tree.levels) {
    levels.push_back({{"nodes", level.nodes},
                      {"entries", level.entries},
                      {"mean_fill", level.mean_fill()},
                      {"missing_separators", level.missing_separators}});
  }
  return {{"name", tree.info.name},
          {"id", tree.info.id},
          {"layout", LayoutName(tree.info.geometry.layout)},
          {"leaf_layout", LeafLayoutName(tree.info.geometry.leaf_layout)},
          {"leaf_bytes", tree.info.geometry.leaf_bytes},
          {"node_bytes", tree.info.geometry.node_bytes},
          {"keys", tree.keys()},
          {"leaves", tree.leaves()},
          {"height", tree.height()},
          {"levels", levels},
          {"missing_separators", tree.missing_separators()},
          {"values_out_of_line", tree.values_out_of_line},
          {"value_block_bytes", tree.value_block_bytes},
          {"pool_bytes", tree.pool_bytes()},
          {"pool_bytes_per_key", tree.pool_bytes_per_key()},
          {"unjudged_pages", tree.unjudged_pages}};
}

Json ServerJson(const index::ServerReport& server) {
  Json chunks, pages;
  for (const NamedKind& kind : kKinds) chunks[kind.name] = ChunksOf(server, kind.kind);
  for (const NamedKind& kind : kPagedKinds) {
    const index::PageCounts& counts = server.pages[static_cast<size_t>(kind.kind)];
    pages[kind.name] = {
        {"in_use", counts.in_use}, {"free", counts.free}, {"never_used", counts.never_used}};
  }
  return {{"id", server.layout.server},
          {"chunk_bytes", server.layout.chunk_bytes},
          {"chunks", chunks},
          {"pages", pages},
          {"listed_free_pages", server.listed_free_pages},
          {"chunks_of_the_gone", server.chunks_of_the_gone},
          {"free_pages_of_the_gone", server.free_pages_of_the_gone},
          {"unlisted_free_pages", server.unlisted_free_pages},
          {"skipped_pages", server.skipped_pages}};
}

}  // namespace

std::string CheckReportText(const index::CheckReport& report) {
  std::string text;
  AddTrees(report, &text);
  AddServers(report, &text);
  text += fmt::format("\n{} keys in {} bytes of chunks: {:.1f} bytes of pool per key\n",
                      report.keys(), report.chunk_bytes_taken(), PoolBytesPerKey(report));
  for (const index::Finding& finding : report.findings.described()) {
    text += fmt::format("{}: {}\n", FindingKindName(finding.kind), finding.text);
  }
  const uint64_t more = report.findings.count() - report.findings.described().size();
  if (more > 0) text += fmt::format("and {} more\n", more);
  text += report.ok() ? "no errors\n" : fmt::format("{} errors\n", report.findings.count());
  return text;
}

nlohmann::ordered_json CheckReportJson(const index::CheckReport& report) {
  Json trees = Json::array(), servers = Json::array(), findings = Json::array();
  for (const index::TreeReport& tree : report.trees) trees.push_back(TreeJson(tree));
  for (const index::ServerReport& server : report.servers) servers.push_back(ServerJson(server));
  for (const index::Finding& finding : report.findings.described()) {
    findings.push_back({{"kind", FindingKindName(finding.kind)},
                        {"address", finding.address.ToString()},
                        {"text", finding.text}});
  }
  return {{"ok", report.ok()},
          {"keys", report.keys()},
          {"chunk_bytes_taken", report.chunk_bytes_taken()},
          {"pool_bytes_per_key", PoolBytesPerKey(report)},
          {"trees", trees},
          {"memory_servers", servers},
          {"findings_count", report.findings.count()},
          {"findings", findings},
          {"runs", report.runs}};
}

}  // namespace farleaf::server
