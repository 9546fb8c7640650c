#include "index/lsm/memtable_ranges.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

namespace farleaf::index::lsm {

void MemtableRanges::Insert(std::string_view start, std::string_view end, Sequence sequence) {
  const auto keep = [this](std::string_view key) {
    if (key.empty()) return std::string_view();
    char* const copy = static_cast<char*>(arena_->Allocate(key.size()));
    std::memcpy(copy, key.data(), key.size());
    return std::string_view(copy, key.size());
  };
  std::lock_guard lock(mutex_);
  const Node* const older = newest_.load(std::memory_order_relaxed);
  newest_.store(new (arena_->Allocate(sizeof(Node))) Node{keep(start), keep(end), sequence, older},
                std::memory_order_release);
  bytes_.fetch_add(RoundUp(start.size(), 8) + RoundUp(end.size(), 8) + sizeof(Node),
                   std::memory_order_relaxed);
  const uint32_t count = count_.load(std::memory_order_relaxed) + 1;
  count_.store(count, std::memory_order_relaxed);
  if (count - indexed_ >= std::max(kUnindexedMin, indexed_ / 8)) BuildIndex();
}

void MemtableRanges::BuildIndex() {
  auto index = std::make_unique<Index>();
  index->newest = newest_.load(std::memory_order_relaxed);
  index->fragments = Fragments(All(), {});
  index_.store(index.get(), std::memory_order_release);
  indexes_.push_back(std::move(index));
  indexed_ = count_.load(std::memory_order_relaxed);
}

Sequence MemtableRanges::NewestOf(const Node* from, const Node* to, std::string_view key,
                                  Sequence max) {
  Sequence newest = 0;
  for (; from != to; from = from->older) {
    if (from->sequence > max || from->sequence <= newest) continue;
    if (from->start <= key && key < from->end) newest = from->sequence;
  }
  return newest;
}

Sequence MemtableRanges::CoveredAt(std::string_view key, Sequence max) const {
  // In this order: all that is in the index is in the list.
  const Index* const index = index_.load(std::memory_order_acquire);
  const Node* const newest = newest_.load(std::memory_order_acquire);
  const Node* const indexed = index ? index->newest : nullptr;
  const Sequence since = NewestOf(newest, indexed, key, max);
  if (!index) return since;
  const RangeDelete* const before = NewestCovering(index->fragments, key, kSequenceMax);
  if (!before) return since;
  if (before->sequence <= max) return std::max(since, before->sequence);
  return std::max(since, NewestOf(indexed, nullptr, key, max));
}

std::vector<RangeDelete> MemtableRanges::All() const {
  std::vector<RangeDelete> all;
  for (const Node* at = newest_.load(std::memory_order_acquire); at; at = at->older) {
    all.push_back({std::string(at->start), std::string(at->end), at->sequence});
  }
  return all;
}

}  // namespace farleaf::index::lsm
