// MemoryStorage: a Storage in memory that completes at once, unless told to take its time, loses nothing, and fails where a test wants it.
//
// Thread rule: thread-safe; `fail` is set while nothing runs, and called under a lock.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "index/storage/storage.h"

namespace farleaf::test {

class MemoryStorage final : public index::storage::Storage {
 public:
  using Io = index::storage::Io;
  using IoKind = index::storage::IoKind;
  using SegmentId = index::storage::SegmentId;

  /// Each Create and each Run takes so long; 0: they do not suspend. Set while nothing runs.
  uint64_t delay_ns = 0;
  /// What becomes of an I/O that would succeed.
  std::function<Status(const Io&)> fail;

  /// The segment's bytes, to look at and to damage; nothing runs meanwhile.
  std::vector<std::byte>& bytes(SegmentId id) { return segments_.at(id); }

  dsm::Task<Status> Create(dsm::Worker& worker, SegmentId id) override {
    if (delay_ns > 0) co_await worker.Sleep(delay_ns);
    std::lock_guard lock(mutex_);
    const bool created =
        segments_.emplace(id, std::vector<std::byte>(index::storage::kSegmentBytes)).second;
    co_return created ? Status::Ok() : Status::AlreadyExists(NameOf(id));
  }
  Status Remove(SegmentId id) override {
    std::lock_guard lock(mutex_);
    return segments_.erase(id) > 0 ? Status::Ok() : Status::NotFound(NameOf(id));
  }
  Result<std::vector<SegmentId>> List() override {
    std::lock_guard lock(mutex_);
    std::vector<SegmentId> ids;
    for (const auto& [id, bytes] : segments_) ids.push_back(id);
    return ids;
  }
  dsm::Task<Status> Run(dsm::Worker& worker, std::span<Io> ios) override {
    if (delay_ns > 0) co_await worker.Sleep(delay_ns);
    std::lock_guard lock(mutex_);
    Status first;
    const uint64_t syncs = counts_.syncs;
    for (Io& io : ios) {
      io.status = One(io);
      if (first.ok()) first = io.status;
    }
    syncs_of_a_run_max_ = std::max(syncs_of_a_run_max_, counts_.syncs - syncs);
    co_return first;
  }

  dsm::Task<Result<std::string>> ReadFile(dsm::Worker&, std::string name) override {
    std::lock_guard lock(mutex_);
    const auto found = files_.find(name);
    if (found == files_.end()) co_return Status::NotFound(name);
    co_return found->second;
  }
  dsm::Task<Status> ReplaceFile(dsm::Worker&, std::string name, std::string bytes) override {
    std::lock_guard lock(mutex_);
    files_[name] = std::move(bytes);
    co_return Status::Ok();
  }
  dsm::Task<Status> AppendFile(dsm::Worker&, std::string name, std::string bytes) override {
    std::lock_guard lock(mutex_);
    files_[name] += bytes;
    co_return Status::Ok();
  }
  Status RemoveFile(std::string_view name) override {
    std::lock_guard lock(mutex_);
    return files_.erase(std::string(name)) > 0 ? Status::Ok() : Status::NotFound(std::string(name));
  }
  Result<std::vector<std::string>> ListFiles() override {
    std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, bytes] : files_) names.push_back(name);
    return names;
  }

  index::storage::StorageCounts counts() const override {
    std::lock_guard lock(mutex_);
    return counts_;
  }
  /// The most syncs that one Run had.
  uint64_t syncs_of_a_run_max() const {
    std::lock_guard lock(mutex_);
    return syncs_of_a_run_max_;
  }
  Result<index::storage::StorageSpace> Space() override {
    std::lock_guard lock(mutex_);
    return index::storage::StorageSpace{segments_.size(), uint64_t{1} << 40};
  }
  std::string NameOf(SegmentId id) const override {
    return "segment " + std::to_string(index::storage::Number(id));
  }

 private:
  Status One(const Io& io) {
    const auto found = segments_.find(io.segment);
    if (found == segments_.end()) return Status::NotFound(NameOf(io.segment));
    if (fail) FARLEAF_RETURN_IF_ERROR(fail(io));
    std::byte* const at = found->second.data() + io.offset;
    FARLEAF_CHECK(io.offset + io.bytes.size() <= found->second.size());
    FARLEAF_CHECK(io.offset % index::storage::kBlockBytes == 0 &&
                  io.bytes.size() % index::storage::kBlockBytes == 0);
    switch (io.kind) {
      case IoKind::kRead:
        std::memcpy(io.bytes.data(), at, io.bytes.size());
        ++counts_.reads;
        counts_.bytes_read += io.bytes.size();
        break;
      case IoKind::kWrite:
        std::memcpy(at, io.bytes.data(), io.bytes.size());
        ++counts_.writes;
        counts_.bytes_written += io.bytes.size();
        break;
      case IoKind::kSync:
        ++counts_.syncs;
        break;
    }
    return Status::Ok();
  }

  mutable std::mutex mutex_;  // guards all below
  std::map<SegmentId, std::vector<std::byte>> segments_;
  std::map<std::string, std::string> files_;
  index::storage::StorageCounts counts_;
  uint64_t syncs_of_a_run_max_ = 0;
};

}  // namespace farleaf::test
