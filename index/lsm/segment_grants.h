// SegmentGrants: numbers for new segments. Those of the logs are granted in the manifest before they are used, several at a
// time; those of tables are named there when the table is.
//
// Thread rule: thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "index/lsm/log.h"
#include "index/lsm/manifest.h"

namespace farleaf::index::lsm {

class SegmentGrants final : public SegmentSource {
 public:
  /// Of a log at a time.
  static constexpr size_t kGrant = 8;

  /// `next`: no segment with this number or a higher one was ever made. The manifest outlives it.
  SegmentGrants(Manifest* manifest, uint64_t next) : manifest_(manifest), next_(next) {}

  /// For a table.
  SegmentId New() { return SegmentId{next_.fetch_add(1)}; }
  /// For StateEdit::segments_end.
  uint64_t end() const { return next_.load(); }

  dsm::Task<Result<SegmentId>> Take(dsm::Worker& worker, LogKind log) override;
  void GiveUp(LogKind log, SegmentId id) override {
    std::lock_guard lock(mutex_);
    given_up_[log == LogKind::kValues ? 1 : 0].push_back(id);
  }
  /// For an edit that drops them.
  std::vector<SegmentId> TakeGivenUp(LogKind log) {
    std::lock_guard lock(mutex_);
    return std::exchange(given_up_[log == LogKind::kValues ? 1 : 0], {});
  }
  /// That were granted and are not used; nobody takes them any more.
  std::vector<SegmentId> GiveBack(LogKind log) {
    auto& granted = GrantedTo(log);
    std::vector<SegmentId> unused = TakeGivenUp(log);
    unused.insert(unused.end(), granted.begin(), granted.end());
    granted.clear();
    return unused;
  }

 private:
  std::deque<SegmentId>& GrantedTo(LogKind log) {
    return granted_[log == LogKind::kValues ? 1 : 0];
  }

  Manifest* const manifest_;
  std::atomic<uint64_t> next_;
  std::array<std::deque<SegmentId>, 2> granted_;  // each log's: one call at a time
  std::mutex mutex_;                              // guards given_up_
  std::array<std::vector<SegmentId>, 2> given_up_;
};

}  // namespace farleaf::index::lsm
