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
  RunSource(Run run, BlockCache* cache, uint32_t extent_bytes = TableStream::kExtentBytes)
      : run_(std::move(run)), cache_(cache), extent_bytes_(extent_bytes) {}

  const Entry* entry() const override { return entry_; }
  bool Advance() override { return Stand(stream_->Next()); }
  dsm::Task<Status> Fetch(dsm::Worker& worker) override;
  dsm::Task<void> Close(dsm::Worker& worker);
  /// Whose read has failed; null: none has.
  const TableRef* failed() const { return failed_ ? &run_.tables[next_table_ - 1] : nullptr; }

 private:
  bool Stand(CursorStep step) {
    entry_ = step == CursorStep::kEntry ? &stream_->entry() : nullptr;
    return step == CursorStep::kEntry;
  }
  Run run_;
  BlockCache* const cache_;
  const uint32_t extent_bytes_;
  size_t next_table_ = 0;
  bool failed_ = false;
  std::unique_ptr<TableStream> stream_;  // null: none was begun, or it has ended
  const Entry* entry_ = nullptr;
};

}  // namespace farleaf::index::lsm
