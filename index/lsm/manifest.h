// Manifest: the history of a store's state, as edits in a named file, and CURRENT, which names that file.
//
//   CURRENT           name of the manifest, a line feed, CRC32C of both in 8 hexadecimal digits, a line feed
//   MANIFEST-000017   record*
//   record            u32 length of the payload | u32 CRC32C of number of the file, offset of the record and length |
//                     u32 CRC32C of the payload | payload
//   payloads          the first: u64 magic, u64 epoch; all others: a StateEdit. The second: the whole state
//
// Invariants:
//   1. what Commit has returned Ok for is in the state after any crash;
//   2. a file is appended to only behind records that are known to be whole: opening a store begins a new file, and so
//      does the commit after one that has failed. So a record that was cut off is always the last one of its file;
//   3. the edit of a commit that failed may be in the state after a crash, until a later one has succeeded.
//      Whoever made it asks again, with the same edit, and removes nothing that it names;
//   4. numbers of files ascend. A copy that is filled in place (store_copy.h) says in INCOMPLETE behind which number CURRENT has to point for it
//      to be whole. So CURRENT alone makes it so, and nothing depends on when the removal of INCOMPLETE becomes durable.
//
// Thread rule: thread-safe; commits are made one at a time.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "dsm/base/result.h"
#include "index/lsm/event.h"
#include "index/lsm/mirror.h"
#include "index/lsm/state.h"
#include "index/storage/storage.h"

namespace farleaf::index::lsm {

/// A named file that stands where a store is being copied to (checkpoint.h, store_copy.h), as long as not all of it is there. Empty, or
/// "CURRENT is behind MANIFEST-000017 when all is there" and a line feed: then it does not count any more when that is so. Behind that, of a copy
/// that is filled in place, a line of its segments that are there and synced, if there are any: "whole: 12 13 17", and CRC32C of both lines in 8
/// hexadecimal digits, each with a line feed.
inline constexpr std::string_view kIncompleteFile = "INCOMPLETE";

class Manifest {
 public:
  /// Reads the state; NotFound: there is no store. Corruption: names the file and the offset, or the store is a copy that was not
  /// finished. No file is written.
  static dsm::Task<Result<std::unique_ptr<Manifest>>> Open(dsm::Worker& worker,
                                                           storage::Storage* storage);
  /// A new store's, with an empty state. REQUIRES: there is none.
  static std::unique_ptr<Manifest> Create(storage::Storage* storage, uint64_t epoch);

  // ---- Of a copy that is filled in place
  struct OfCopy {
    std::unique_ptr<Manifest> manifest;
    bool whole =
        false;  ///< else it was being filled: the state is that of the copy before, or an empty one
    std::set<SegmentId> filled = {};  ///< NoteFilled's, if it was being filled
  };
  /// As Open, whether it was being filled or not.
  static dsm::Task<Result<OfCopy>> OpenCopy(dsm::Worker& worker, storage::Storage* storage);
  /// From here on, and after a crash, it is no store until Install has ended. What Commit has failed with before is in the state, or is
  /// not, for good. `filled`: see NoteFilled. REQUIRES: Open or OpenCopy, or Create with any epoch.
  dsm::Task<Status> BeginFill(dsm::Worker& worker, std::set<SegmentId> filled);
  /// These segments are on the device to their last byte, and stay as they are until Install or another NoteFilled has ended: OpenCopy tells of them
  /// behind a crash. After a failure it may tell of these, or of those before. REQUIRES: behind BeginFill.
  dsm::Task<Status> NoteFilled(dsm::Worker& worker, std::set<SegmentId> filled);
  /// The state is this one, whatever it was, and it is a store. After a failure, or a crash in the middle of it, it is one or the other:
  /// all that the new state names is there before, and what the old one names still.
  dsm::Task<Status> Install(dsm::Worker& worker, StoreState state);

  /// Makes durable what Open has read, which a process that was killed may have written and not synced. REQUIRES: before Commit.
  dsm::Task<Status> SyncOpened(dsm::Worker& worker);

  /// Called with the state behind an edit before the next one is taken; empty: nothing is.
  using Applied = std::function<void(const StoreState&)>;
  /// Makes the edit durable, then part of the state, here and then in all copies. Fenced: it is here, and not in all of them, and nothing is
  /// committed any more: who serves the copies is another process.
  dsm::Task<Status> Commit(dsm::Worker& worker, const StateEdit& edit, Applied applied = {});

  /// Edits go to the mirror's copies from here on. REQUIRES: before Commit; null: to none.
  void set_mirror(Mirror* mirror) { mirror_ = mirror; }

  /// Calls `look` with the state, while no Commit is under way.
  dsm::Task<void> Look(dsm::Worker& worker, std::function<void(const StoreState&)> look);
  /// The same of what takes its time: nothing is committed until it has ended.
  using Holding = std::function<dsm::Task<Status>(const StoreState&)>;
  dsm::Task<Status> Hold(dsm::Worker& worker, const Holding& holding);
  /// Who commits is gone, with his worker.
  void Abandon() { mutex_.Abandon(); }
  /// REQUIRES: no Commit is under way.
  const StoreState& state() const { return state_; }
  uint64_t epoch() const { return state_.epoch; }
  /// The file as Open found it.
  struct OpenedFile {
    std::string name;
    uint64_t bytes = 0, records = 0;
    uint64_t unfinished_bytes = 0;  ///< at its end: of an append that a crash cut off
  };
  const OpenedFile& opened_file() const { return opened_; }

 private:
  explicit Manifest(storage::Storage* storage) : storage_(storage) {}
  static dsm::Task<Result<std::unique_ptr<Manifest>>> Read(dsm::Worker& worker,
                                                           storage::Storage* storage);
  std::string FileName() const;
  dsm::Task<Status> ReadRecords(dsm::Worker& worker, std::string name);
  dsm::Task<Status> BeginFile(dsm::Worker& worker);
  dsm::Task<Status> Append(dsm::Worker& worker, const std::string& payload);
  void RemoveOthers();
  /// `to` is the file up to there.
  void PutRecord(std::string_view payload, uint64_t offset, std::string* to) const;

  storage::Storage* storage_;
  Mirror* mirror_ = nullptr;
  CoroutineMutex mutex_;  // guards all below
  StoreState state_;
  Status mirror_failure_;  ///< for good
  OpenedFile opened_;
  uint64_t number_ = 0;       ///< of the file
  uint64_t behind_ = 0;       ///< while it is being filled: what INCOMPLETE says
  uint64_t file_bytes_ = 0;   ///< written to it
  uint64_t begun_bytes_ = 0;  ///< of them for the state with which it begins
  bool appendable_ = false;   ///< all of it is known to be whole
};

}  // namespace farleaf::index::lsm
