#include "test/support/memory_storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dsm/base/check.h"

namespace farleaf::test {

std::optional<std::byte> MemoryStorage::ByteAt(SegmentId id, size_t offset) const {
  std::lock_guard lock(mutex_);
  const auto found = segments_.find(id);
  return found == segments_.end() ? std::nullopt : std::optional(found->second.at(offset));
}

dsm::Task<Status> MemoryStorage::Create(dsm::Worker& worker, SegmentId id, index::storage::Making) {
  if (delay_ns > 0) co_await worker.Sleep(delay_ns);
  std::lock_guard lock(mutex_);
  const bool created =
      segments_.emplace(id, std::vector<std::byte>(index::storage::kSegmentBytes)).second;
  co_return created ? Status::Ok() : Status::AlreadyExists(NameOf(id));
}

Status MemoryStorage::Remove(SegmentId id) {
  std::lock_guard lock(mutex_);
  return segments_.erase(id) > 0 ? Status::Ok() : Status::NotFound(NameOf(id));
}

Result<std::vector<MemoryStorage::SegmentId>> MemoryStorage::List() {
  std::lock_guard lock(mutex_);
  std::vector<SegmentId> ids;
  for (const auto& [id, bytes] : segments_) ids.push_back(id);
  return ids;
}

dsm::Task<Status> MemoryStorage::Run(dsm::Worker& worker, std::span<Io> ios) {
  {
    std::lock_guard lock(mutex_);
    runs_at_once_max_ = std::max(runs_at_once_max_, ++runs_);
  }
  if (delay_ns > 0) co_await worker.Sleep(delay_ns);
  std::lock_guard lock(mutex_);
  --runs_;
  Status first;
  const uint64_t syncs = counts_.syncs;
  for (Io& io : ios) {
    io.status = One(io);
    if (first.ok()) first = io.status;
  }
  syncs_of_a_run_max_ = std::max(syncs_of_a_run_max_, counts_.syncs - syncs);
  co_return first;
}

dsm::Task<Result<std::string>> MemoryStorage::ReadFile(dsm::Worker&, std::string name) {
  std::lock_guard lock(mutex_);
  const auto found = files_.find(name);
  if (found == files_.end()) co_return Status::NotFound(name);
  co_return found->second;
}

dsm::Task<Status> MemoryStorage::ReplaceFile(dsm::Worker&, std::string name, std::string bytes) {
  std::lock_guard lock(mutex_);
  files_[name] = std::move(bytes);
  co_return Status::Ok();
}

dsm::Task<Status> MemoryStorage::AppendFile(dsm::Worker&, std::string name, std::string bytes) {
  std::lock_guard lock(mutex_);
  files_[name] += bytes;
  co_return Status::Ok();
}

Status MemoryStorage::RemoveFile(std::string_view name) {
  std::lock_guard lock(mutex_);
  return files_.erase(std::string(name)) > 0 ? Status::Ok() : Status::NotFound(std::string(name));
}

Result<std::vector<std::string>> MemoryStorage::ListFiles() {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : files_) names.push_back(name);
  return names;
}

index::storage::StorageCounts MemoryStorage::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

uint64_t MemoryStorage::syncs_of_a_run_max() const {
  std::lock_guard lock(mutex_);
  return syncs_of_a_run_max_;
}

uint64_t MemoryStorage::runs_at_once_max() const {
  std::lock_guard lock(mutex_);
  return runs_at_once_max_;
}

Result<index::storage::StorageSpace> MemoryStorage::Space() {
  std::lock_guard lock(mutex_);
  return index::storage::StorageSpace{segments_.size(), uint64_t{1} << 40};
}

std::string MemoryStorage::NameOf(SegmentId id) const {
  return "segment " + std::to_string(index::storage::Number(id));
}

Status MemoryStorage::One(const Io& io) {
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

}  // namespace farleaf::test
