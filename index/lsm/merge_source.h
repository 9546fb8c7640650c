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
  /// Bytes that were consumed, about.
  virtual uint64_t consumed() const = 0;
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
    consumed_ += entry_.key.size() + entry_.value.size();
    cursor_.Next();
    Take();
    return true;
  }
  dsm::Task<Status> Fetch(dsm::Worker&) override { co_return Status::Ok(); }
  uint64_t consumed() const override { return consumed_; }

 private:
  void Take() {
    if (cursor_.valid()) entry_ = cursor_.entry();
  }
  Memtable::Cursor cursor_;
  Entry entry_;
  uint64_t consumed_ = 0;
};

}  // namespace farleaf::index::lsm
