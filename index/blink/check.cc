#include "index/blink/check.h"

#include <algorithm>
#include <utility>

#include "dsm/base/bytes.h"
#include "dsm/page_scan.h"
#include "index/blink/page_survey.h"
#include "index/blink/tree_walk.h"

namespace farleaf::index {

namespace {

using dsm::Batch;
using dsm::ChunkKind;
using dsm::ChunkWord;

/// One run of the check.
struct CheckRun {
  CheckRun(dsm::Pool* p, const CheckOptions& o) : pool(p), options(o), findings(o.findings_max) {}
  dsm::Pool* pool;
  const CheckOptions& options;
  Findings findings;
  std::vector<TreeInfo> trees;
  std::vector<RootWord> roots;  ///< of `trees`
  std::vector<dsm::MemberWord> members;
  std::vector<std::vector<ChunkWord>> tables;  ///< by server
  std::vector<std::vector<uint64_t>> marks;    ///< carve marks, by server
};

class ListedPages final : public dsm::ListVisitor {
 public:
  explicit ListedPages(PageSurvey* survey) : survey_(survey) {}
  void OnListedPage(const dsm::ListedPage& page) override { survey_->AddListed(page.address); }

 private:
  PageSurvey* survey_;
};

Task<Status> ReadCatalog(OpContext& op, CheckRun& run) {
  auto trees = co_await ListTrees(op, *run.pool);
  if (!trees.ok()) co_return trees.status();
  run.trees = std::move(*trees);
  std::vector<uint64_t> roots(run.trees.size()), members(dsm::kMembersMax);
  uint64_t lock = 0;
  for (uint32_t look = 0; look < run.options.looks_max; ++look) {
    if (look > 0) co_await op.worker.Sleep(kNsPerMs << (look - 1));
    Batch batch(dsm::kCatalogServer);
    batch.ReadWord(dsm::kCatalogOffset, &lock);
    batch.Read(dsm::kMembersOffset, std::as_writable_bytes(std::span(members)));
    for (size_t i = 0; i < roots.size(); ++i) {
      batch.ReadWord(run.trees[i].root_word_offset(), &roots[i]);
    }
    Status status = co_await op.worker.RoundTrip(batch, op.counts);
    if (!status.ok()) co_return status;
    if (lock == dsm::kUnlockedWord) break;
  }
  if (lock != dsm::kUnlockedWord) {
    run.findings.Add(FindingKind::kLock, {}, "the catalog stays locked by " + HolderText(lock));
  }
  for (uint64_t root : roots) run.roots.push_back(RootWord::Decode(root));
  for (uint64_t member : members) run.members.push_back(dsm::MemberWord::Decode(member));
  co_return Status::Ok();
}

Task<Status> ReadChunkTables(OpContext& op, CheckRun& run) {
  std::vector<std::vector<uint64_t>> words;
  std::vector<Batch> batches;
  for (const dsm::RegionLayout& layout : run.pool->layouts()) {
    words.emplace_back(layout.chunk_count);
    run.marks.emplace_back(layout.chunk_count);
    Batch& batch = batches.emplace_back(layout.server);
    batch.Read(layout.ChunkWordOffset(0), std::as_writable_bytes(std::span(words.back())));
    batch.Read(layout.CarveMarkOffset(0), std::as_writable_bytes(std::span(run.marks.back())));
  }
  Status status = co_await op.worker.RoundTrip(batches, op.counts);
  if (!status.ok()) co_return status;
  for (const auto& table : words) {
    run.tables.emplace_back();
    for (uint64_t word : table) run.tables.back().push_back(ChunkWord::Decode(word));
  }
  co_return Status::Ok();
}

/// Counts a server's chunks; the ones to be read are appended to `places`.
void CheckChunkTable(CheckRun& run, ServerReport& server, std::vector<ChunkPlace>* places) {
  const dsm::ServerId id = server.layout.server;
  const std::vector<ChunkWord>& table = run.tables[id];
  for (uint64_t chunk = 0; chunk < table.size(); ++chunk) {
    const ChunkWord& word = table[chunk];
    const auto kind = static_cast<uint8_t>(word.kind);
    const bool paged = word.kind == ChunkKind::kLeaf || word.kind == ChunkKind::kSearch ||
                       word.kind == ChunkKind::kValue;
    if (kind > dsm::kChunkKindMax || (paged && !PageClassOf(word))) {
      run.findings.Add(FindingKind::kChunk, {id, server.layout.ChunkOffset(chunk)},
                       "the word of chunk " + std::to_string(chunk) + " of memory server " +
                           std::to_string(id) + " names no kind of chunk there is");
      continue;
    }
    ++server.chunks[kind];
    const bool extent = word.kind == ChunkKind::kExtent || word.kind == ChunkKind::kExtentRest;
    if (!extent && word.owner != 0 && !IsLive(run.members, word.owner, word.incarnation)) {
      ++server.chunks_of_the_gone;
    }
    // Whoever claimed a dirty chunk for pages has not cleared it yet: it has none.
    if (paged && run.marks[id][chunk] == dsm::kCarveMarkDirty) continue;
    if (!paged && !extent) continue;
    const uint64_t carved = word.carved ? UINT64_MAX : word.owner == 0 ? run.marks[id][chunk] : 0;
    places->push_back({id, chunk, word, carved});
  }
}

/// All servers' chunks, alternating, so that a window of them reads from all servers.
std::vector<ChunkPlace> ChunksToRead(CheckRun& run, PageSurvey& survey) {
  std::vector<std::vector<ChunkPlace>> by_server;
  size_t longest = 0;
  for (ServerReport& server : survey.servers()) {
    CheckChunkTable(run, server, &by_server.emplace_back());
    longest = std::max(longest, by_server.back().size());
  }
  std::vector<ChunkPlace> places;
  for (size_t i = 0; i < longest; ++i) {
    for (const auto& of_server : by_server) {
      if (i < of_server.size()) places.push_back(of_server[i]);
    }
  }
  return places;
}

/// Looks again at pages that may have been in the middle of a write.
Task<Status> LookAgain(OpContext& op, CheckRun& run, PageSurvey& survey) {
  for (uint32_t look = 1;; ++look) {
    const std::vector<PageSurvey::Suspect> suspects = survey.TakeSuspects();
    if (suspects.empty()) co_return Status::Ok();
    const bool last = look >= run.options.looks_max;
    co_await op.worker.Sleep(kNsPerMs << (look - 1));
    std::vector<std::vector<std::byte>> pages;
    std::vector<uint64_t> counters(suspects.size());
    std::vector<Batch> batches;
    for (size_t i = 0; i < suspects.size(); ++i) {
      const PageSurvey::Suspect& suspect = suspects[i];
      pages.emplace_back(suspect.page_class.page_bytes);
      Batch& batch = dsm::BatchFor(batches, suspect.address.server());
      batch.Read(suspect.address.offset(), pages.back());
      if (suspect.counter_offset != 0) batch.ReadWord(suspect.counter_offset, &counters[i]);
    }
    Status status = co_await op.worker.RoundTrip(batches, op.counts);
    if (!status.ok()) co_return status;
    for (size_t i = 0; i < suspects.size(); ++i) {
      survey.AddAgain(suspects[i], pages[i], counters[i],
                      last ? PageSurvey::Look::kLast : PageSurvey::Look::kFirst);
    }
  }
}

Task<Status> ReadChunks(OpContext& op, CheckRun& run, PageSurvey& survey) {
  const std::vector<ChunkPlace> places = ChunksToRead(run, survey);
  const uint64_t chunk_bytes = run.pool->layouts()[0].chunk_bytes;
  const size_t window = std::max<uint64_t>(1, run.options.window_bytes / chunk_bytes);
  std::vector<std::vector<std::byte>> buffers(std::min(window, places.size()));
  for (size_t first = 0; first < places.size(); first += window) {
    if (op.expired()) {
      co_return Status::DeadlineExceeded("the check had read " + std::to_string(first) + " of " +
                                         std::to_string(places.size()) + " chunks");
    }
    const size_t count = std::min(window, places.size() - first);
    std::vector<Batch> batches;
    for (size_t i = 0; i < count; ++i) {
      const ChunkPlace& place = places[first + i];
      const dsm::RegionLayout& layout = run.pool->layouts()[place.server];
      buffers[i].resize(layout.chunk_bytes);
      batches.emplace_back(place.server);
      batches.back().Read(layout.ChunkOffset(place.chunk), buffers[i]);
    }
    Status status = co_await op.worker.RoundTrip(batches, op.counts);
    if (!status.ok()) co_return status;
    for (size_t i = 0; i < count; ++i) {
      const ChunkPlace& place = places[first + i];
      survey.AddChunk(place, buffers[i]);
    }
    Status looked = co_await LookAgain(op, run, survey);
    if (!looked.ok()) co_return looked;
  }
  co_return Status::Ok();
}

Task<Status> ReadFreeLists(OpContext& op, CheckRun& run, PageSurvey& survey) {
  ListedPages listed(&survey);
  for (const dsm::RegionLayout& layout : run.pool->layouts()) {
    Status status = co_await dsm::ScanFreeLists(op, layout, listed);
    if (status.code() == StatusCode::kCorruption) {
      run.findings.Add(FindingKind::kFreeList, {layout.server, dsm::kFreeListsOffset},
                       std::string(status.message()));
    } else if (!status.ok()) {
      co_return status;
    }
  }
  co_return Status::Ok();
}

Task<Result<CheckReport>> CheckOnce(OpContext& op, dsm::Pool& pool, const CheckOptions& options) {
  CheckRun run(&pool, options);
  Status status = co_await ReadCatalog(op, run);
  if (status.ok()) status = co_await ReadChunkTables(op, run);
  if (!status.ok()) co_return status;
  PageSurvey survey(run.trees, pool.layouts(), &run.findings);
  status = co_await ReadChunks(op, run, survey);
  if (status.ok()) status = co_await ReadFreeLists(op, run, survey);
  if (!status.ok()) co_return status;
  survey.Finish(run.members);
  CheckReport report;
  for (TreeInfo& info : run.trees) report.trees.push_back({.info = info});
  for (size_t i = 0; i < report.trees.size(); ++i) {
    TreeWalk walk(&survey, &run.findings, &report.trees[i]);
    walk.Walk(run.roots[i]);
  }
  ReportUnreached(survey, report.trees, &run.findings);
  report.servers = std::move(survey.servers());
  report.findings = std::move(run.findings);
  co_return report;
}

}  // namespace

std::string_view FindingKindName(FindingKind kind) {
  constexpr std::string_view kNames[kFindingKinds] = {"page",      "node",  "lock",      "chain",
                                                      "separator", "value", "ownership", "leak",
                                                      "counter",   "chunk", "free list"};
  return kNames[static_cast<size_t>(kind)];
}

void Findings::Add(FindingKind kind, dsm::GlobalAddress address, std::string text) {
  ++count_;
  ++by_kind_[static_cast<size_t>(kind)];
  if (described_.size() < described_max_) described_.push_back({kind, address, std::move(text)});
}

Findings Findings::AlsoIn(const Findings& earlier) const {
  if (count_ > described_.size() || earlier.count_ > earlier.described_.size()) return *this;
  Findings both(described_max_);
  for (const Finding& finding : described_) {
    const bool found_before = std::any_of(
        earlier.described_.begin(), earlier.described_.end(), [&](const Finding& other) {
          return other.kind == finding.kind && other.address == finding.address;
        });
    if (found_before) both.Add(finding.kind, finding.address, finding.text);
  }
  return both;
}

uint64_t TreeReport::missing_separators() const {
  uint64_t missing = 0;
  for (const LevelReport& level : levels) missing += level.missing_separators;
  return missing;
}

uint64_t TreeReport::pool_bytes() const {
  uint64_t bytes = value_block_bytes;
  for (size_t level = 0; level < levels.size(); ++level) {
    bytes += levels[level].nodes * info.geometry.page_bytes(static_cast<Level>(level));
  }
  return bytes;
}

uint64_t CheckReport::keys() const {
  uint64_t keys = 0;
  for (const TreeReport& tree : trees) keys += tree.keys();
  return keys;
}

uint64_t CheckReport::chunk_bytes_taken() const {
  uint64_t bytes = 0;
  for (const ServerReport& server : servers) {
    for (size_t kind = 1; kind < server.chunks.size(); ++kind) {
      bytes += server.chunks[kind] * server.layout.chunk_bytes;
    }
  }
  return bytes;
}

Task<Result<CheckReport>> CheckPool(OpContext& op, dsm::Pool& pool, CheckOptions options) {
  Findings before(options.findings_max);
  for (uint32_t run = 1;; ++run) {
    auto report = co_await CheckOnce(op, pool, options);
    if (!report.ok()) co_return report;
    Findings found = report->findings;
    if (run > 1) report->findings = found.AlsoIn(before);
    report->runs = run;
    // The second run confirms what the first one found; a third has the last word on what it did not.
    const bool confirmed = run > 1 && report->findings.count() == found.count();
    if (report->ok() || confirmed || run >= options.runs_max) co_return report;
    before = std::move(found);
  }
}

}  // namespace farleaf::index
