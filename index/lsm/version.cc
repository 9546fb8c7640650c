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
  if (!run({level, RunKind::kSinking}).empty()) return false;
  for (size_t below = level + 1; below < kLevelsMax; ++below) {
    for (const Run& run : levels[below]) {
      if (!run.empty()) return false;
    }
  }
  return true;
}

std::shared_ptr<const Version> Version::Of(const StoreState& state, const Version* before,
                                           storage::Storage* storage,
                                           const std::shared_ptr<SegmentRemover>& remover) {
  std::unordered_map<uint64_t, std::shared_ptr<const TableFile>> files;
  if (before) {
    for (const auto& level : before->levels) {
      for (const Run& run : level) {
        for (const TableRef& ref : run.tables) {
          files.emplace(storage::Number(ref.file->info().id()), ref.file);
        }
      }
    }
  }
  auto version = std::make_shared<Version>();
  for (size_t level = 0; level < kLevelsMax; ++level) {
    for (size_t kind = 0; kind < 2; ++kind) {
      const StoreState::RunState& from = state.levels[level][kind];
      Run& run = version->levels[level][kind];
      run.range_deletes = from.range_deletes;
      for (const auto& [info, cut] : from.tables) {
        auto& known = files[storage::Number(info.id())];
        run.bytes += info.segments.size() * uint64_t{storage::kSegmentBytes};
        run.tables.push_back(
            {known ? std::move(known) : std::make_shared<TableFile>(storage, remover, info), cut});
        known = nullptr;
      }
    }
  }
  for (const auto& [id, file] : files) {
    if (file) file->SetObsolete();
  }
  return version;
}

}  // namespace farleaf::index::lsm
