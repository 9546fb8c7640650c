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
  return FreePage{carving_.first_offset + carving_.next++ * carving_.page_bytes, 0};
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
  carving_ = carving;
}

LocalPages::Carving LocalPages::carving() const {
  std::lock_guard lock(mutex_);
  return carving_;
}

LocalPages::Carving LocalPages::TakeCarving() {
  std::lock_guard lock(mutex_);
  const Carving carving = carving_;
  carving_ = {};
  return carving;
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
