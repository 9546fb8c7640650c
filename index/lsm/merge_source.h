// What a merge reads from: entries in order, with a pause wherever something has to be fetched first.
//
// Thread rule: one worker.
#pragma once

#include <string>

#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/memtable.h"
#include "index/lsm/types.h"

namespace farleaf::index::lsm {

class MergeSource {
 public:
  virtual ~MergeSource() = default;
  /// That it stands at; null: at the end. Good until Advance.
  virtual const Entry* entry() const = 0;
  /// Goes on by one. False: what comes next is to be fetched; it stands there after Fetch.
  virtual bool Advance() = 0;
  virtual dsm::Task<Status> Fetch(dsm::Worker& worker) = 0;
};

/// Of a memtable to which nothing is added any more.
class MemtableSource final : public MergeSource {
 public:
  explicit MemtableSource(const Memtable* memtable) : cursor_(memtable) {
    cursor_.SeekFirst();
    Take();
  }
  const Entry* entry() const override { return cursor_.valid() ? &entry_ : nullptr; }
  bool Advance() override {
    cursor_.Next();
    Take();
    return true;
  }
  dsm::Task<Status> Fetch(dsm::Worker&) override { co_return Status::Ok(); }
  /// Keys and values of all entries that it has stood at.
  uint64_t content_bytes() const { return content_bytes_; }

 private:
  void Take() {
    if (!cursor_.valid()) return;
    entry_ = cursor_.entry();
    content_bytes_ += entry_.key.size() + entry_.value.size() + entry_.pointer.value_bytes;
  }
  uint64_t content_bytes_ = 0;
  Memtable::Cursor cursor_;
  Entry entry_;
};

}  // namespace farleaf::index::lsm
