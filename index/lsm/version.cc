#include "index/lsm/version.h"

#include <algorithm>
#include <unordered_map>

#include "dsm/base/log.h"

namespace farleaf::index::lsm {

void SegmentRemover::Remove(std::span<const SegmentId> segments) {
  std::lock_guard lock(mutex_);
  if (!storage_) return;
  for (const SegmentId segment : segments) {
    Status removed = storage_->Remove(segment);
    if (!removed.ok() && removed.code() != StatusCode::kNotFound) {
      FARLEAF_LOG(warn, "a segment stays: {}", removed.message());
    }
  }
}

// One after the other: a view that was held for long has many behind it, too many for the stack.
ReadView::Token::~Token() {
  std::shared_ptr<Token> at = std::move(next);
  // Whoever holds the only reference is the only one who can make another.
  while (at && at.use_count() == 1) {
    std::shared_ptr<Token>(at).reset();  // acquires what those did who let go before
    std::shared_ptr<Token> behind = std::move(at->next);
    at = std::move(behind);
  }
}

const TableRef* Run::TableOf(std::string_view key) const {
  const auto at = std::lower_bound(
      tables.begin(), tables.end(), key,
      [](const TableRef& each, std::string_view k) { return each.file->info().largest < k; });
  if (at == tables.end() || key < at->first()) return nullptr;
  return &*at;
}

bool Version::NothingBelow(uint8_t level) const {
  if (runs.empty()) return true;
  if (runs.back().kept) return false;
  const RunPlace last = runs.back().place;
  return last.kind == RunKind::kFresh || last <= RunPlace{level, RunKind::kGrowing};
}

const Run& Version::run(RunPlace place) const {
  static const Run kNone;
  const auto at = std::ranges::find(runs, place, &Run::place);
  return at == runs.end() ? kNone : *at;
}

namespace {

/// What a version and the state hold of a table: a description each, and the dictionary that they share.
uint64_t MemoryOf(const TableInfo& info) {
  return 2 * (info.description_bytes() + sizeof(TableRef)) + sizeof(TableFile) +
         info.dictionary_bytes();
}
uint64_t MemoryOf(const std::vector<RangeDelete>& deletes) {
  uint64_t bytes = 0;
  for (const RangeDelete& each : deletes) {
    bytes += 2 * (sizeof(each) + each.start.capacity() + each.end.capacity());
  }
  return bytes;
}

}  // namespace

std::shared_ptr<const Version> Version::Of(const StoreState& state, const Version* before,
                                           storage::Storage* storage,
                                           const std::shared_ptr<SegmentRemover>& remover) {
  std::unordered_map<uint64_t, std::shared_ptr<const TableFile>> files;
  if (before) {
    for (const Run& run : before->runs) {
      for (const TableRef& ref : run.tables) {
        files.emplace(storage::Number(ref.file->info().id()), ref.file);
      }
    }
  }
  auto version = std::make_shared<Version>();
  version->fresh = state.fresh.size();
  for (const auto& [place, from] : state.runs()) {
    const bool kept = !version->runs.empty() && version->runs.back().place == place;
    if (kept) std::ranges::find(version->runs, place, &Run::place)->has_kept = true;
    Run& run = version->runs.emplace_back();
    run.place = place;
    run.kept = kept;
    run.range_deletes = from->range_deletes;
    version->memory_bytes += MemoryOf(run.range_deletes);
    for (const auto& [info, cut] : from->tables) {
      auto& known = files[storage::Number(info.id())];
      run.bytes += info.bytes + info.footer_bytes;
      version->memory_bytes += MemoryOf(info);
      if (place.kind == RunKind::kFresh) {  // few, and short ones
        for (const TableInfo::LogSegment& log : info.dictionary) run.value_bytes += log.live_bytes;
      }
      run.tables.push_back(
          {known ? std::move(known) : std::make_shared<TableFile>(storage, remover, info), cut});
      known = nullptr;
    }
  }
  for (const auto& [id, file] : files) {
    if (file) file->SetObsolete();
  }
  return version;
}

}  // namespace farleaf::index::lsm
