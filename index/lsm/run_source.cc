#include "index/lsm/run_source.h"

namespace farleaf::index::lsm {

dsm::Task<Status> RunSource::Fetch(dsm::Worker& worker) {
  for (;;) {
    const CursorStep step = stream_ ? stream_->Next() : CursorStep::kEnd;
    if (Stand(step)) co_return Status::Ok();
    if (step == CursorStep::kMissing) {
      Status read = co_await stream_->Read(worker, *cache_);
      failed_ = !read.ok();
      if (failed_) co_return read;
      continue;
    }
    stream_ = nullptr;
    if (next_table_ > 0) run_.tables[next_table_ - 1].file = nullptr;
    if (next_table_ == run_.tables.size()) co_return Status::Ok();
    const TableRef& ref = run_.tables[next_table_++];
    stream_ = std::make_unique<TableStream>(&ref.file->table(), ref.from, extent_bytes_);
  }
}

dsm::Task<void> RunSource::Close(dsm::Worker& worker) {
  if (stream_) co_await stream_->Close(worker);
  stream_ = nullptr;
  entry_ = nullptr;
}

}  // namespace farleaf::index::lsm
