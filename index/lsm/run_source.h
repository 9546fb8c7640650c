// RunSource: the entries of a run, for a merge.
//
// Thread rule: one worker. Before it goes, Close has ended.
#pragma once

#include <memory>
#include <utility>

#include "index/lsm/merge_source.h"
#include "index/lsm/table_stream.h"
#include "index/lsm/version.h"

namespace farleaf::index::lsm {

class RunSource final : public MergeSource {
 public:
  /// Stands nowhere before the first Fetch. Lets go of each table when it has been read. The cache outlives it.
  RunSource(Run run, BlockCache* cache) : run_(std::move(run)), cache_(cache) {}

  const Entry* entry() const override { return entry_; }
  bool Advance() override {
    consumed_ += entry_->key.size() + entry_->value.size();
    return Stand(stream_->Next());
  }
  dsm::Task<Status> Fetch(dsm::Worker& worker) override;
  dsm::Task<void> Close(dsm::Worker& worker);
  uint64_t consumed() const override { return consumed_; }

 private:
  bool Stand(CursorStep step) {
    entry_ = step == CursorStep::kEntry ? &stream_->entry() : nullptr;
    return step == CursorStep::kEntry;
  }
  Run run_;
  BlockCache* const cache_;
  size_t next_table_ = 0;
  std::unique_ptr<TableStream> stream_;  // null: none was begun, or it has ended
  const Entry* entry_ = nullptr;
  uint64_t consumed_ = 0;
};

}  // namespace farleaf::index::lsm
