#include "dsm/pages/local_pages.h"

#include "dsm/base/check.h"

namespace farleaf::dsm {

std::optional<FreePage> LocalPages::TakeFreeLocked(const Clock& clock) {
  if (!free_.empty()) {
    const FreePage page = free_.back();
    free_.pop_back();
    return page;
  }
  if (!limbo_.empty() && limbo_.front().due_ns <= clock.NowNs()) {
    const FreePage page = limbo_.front().page;
    limbo_.pop_front();
    return page;
  }
  return std::nullopt;
}

std::optional<FreePage> LocalPages::TakeLocked(const Clock& clock) {
  if (auto page = TakeFreeLocked(clock)) return page;
  if (carving_.used_up()) return std::nullopt;
  const uint64_t offset = carving_.first_offset + carving_.next++ * carving_.page_bytes;
  unwritten_.insert(offset);
  return FreePage{offset, 0};
}

LocalPages::Refill LocalPages::TakeOrBeginRefill(const Clock& clock, AskFull ask_full,
                                                 FreePage* page) {
  std::lock_guard lock(mutex_);
  if (auto taken = TakeLocked(clock)) {
    *page = *taken;
    return Refill::kNotNeeded;
  }
  if (refilling_) return Refill::kBusy;
  if (ask_full == AskFull::kNo && full_until_ns_ != 0 && clock.NowNs() < full_until_ns_) {
    return Refill::kFull;
  }
  refilling_ = true;
  return Refill::kMine;
}

void LocalPages::EndRefill(uint64_t full_until_ns) {
  std::lock_guard lock(mutex_);
  FARLEAF_CHECK(refilling_);
  refilling_ = false;
  full_until_ns_ = full_until_ns;
}

void LocalPages::AddFree(std::span<const FreePage> pages) {
  std::lock_guard lock(mutex_);
  free_.insert(free_.end(), pages.begin(), pages.end());
}

void LocalPages::SetCarving(const Carving& carving) {
  std::lock_guard lock(mutex_);
  FARLEAF_CHECK(refilling_ && carving_.used_up(), carving_.chunk, carving_.next, carving_.count);
  if (!carving_.is_none()) carved_up_.push_back(carving_);
  carving_ = carving;
}

std::optional<LocalPages::Carving> LocalPages::TakeCarvedUp() {
  std::lock_guard lock(mutex_);
  for (auto chunk = carved_up_.begin(); chunk != carved_up_.end(); ++chunk) {
    const auto unwritten = unwritten_.lower_bound(chunk->first_offset);
    const uint64_t end = chunk->first_offset + chunk->count * chunk->page_bytes;
    if (unwritten != unwritten_.end() && *unwritten < end) continue;
    const Carving taken = *chunk;
    carved_up_.erase(chunk);
    return taken;
  }
  return std::nullopt;
}

bool LocalPages::has_unwritten() const {
  std::lock_guard lock(mutex_);
  return !unwritten_.empty();
}

LocalPages::Carving LocalPages::TakeCarving() {
  std::lock_guard lock(mutex_);
  const Carving carving = carving_;
  carving_ = {};
  if (carving.is_none() || !carving.used_up()) return carving;
  carved_up_.push_back(carving);
  return {};
}

std::vector<FreePage> LocalPages::TakeSurplus(const Clock& clock, size_t keep, size_t count_max) {
  std::lock_guard lock(mutex_);
  std::vector<FreePage> pages;
  while (pages.size() < count_max && free_.size() + limbo_.size() > keep) {
    auto page = TakeFreeLocked(clock);
    if (!page) break;
    pages.push_back(*page);
  }
  return pages;
}

size_t LocalPages::size() const {
  std::lock_guard lock(mutex_);
  return free_.size() + limbo_.size();
}

std::optional<uint64_t> LocalPages::last_due_ns() const {
  std::lock_guard lock(mutex_);
  if (limbo_.empty()) return std::nullopt;
  return limbo_.back().due_ns;
}

std::optional<uint64_t> LocalPages::first_due_ns() const {
  std::lock_guard lock(mutex_);
  if (limbo_.empty()) return std::nullopt;
  return limbo_.front().due_ns;
}

FreeListHead LocalPages::known_head() const {
  std::lock_guard lock(mutex_);
  return known_head_;
}

void LocalPages::set_known_head(FreeListHead head) {
  std::lock_guard lock(mutex_);
  known_head_ = head;
}

}  // namespace farleaf::dsm
