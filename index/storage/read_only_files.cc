#include "index/storage/read_only_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

namespace farleaf::index::storage {

namespace {

/// Open at a time.
constexpr size_t kOpenMax = 256;

Status ReadOnly() { return Status::Unimplemented("the directory is open to be read only"); }

/// Of a directory that need not be there.
Result<std::vector<std::string>> NamesIfThere(const std::string& path) {
  Result<std::vector<std::string>> names = NamesIn(path);
  if (names.status().code() == StatusCode::kNotFound) return std::vector<std::string>();
  return names;
}

}  // namespace

Result<std::unique_ptr<ReadOnlyFiles>> ReadOnlyFiles::Open(std::string directory) {
  Result<DataDirectory> opened = DataDirectory::OpenToRead(std::move(directory));
  if (!opened.ok()) return opened.status();
  std::unique_ptr<ReadOnlyFiles> files(new ReadOnlyFiles(std::move(*opened)));
  FARLEAF_RETURN_IF_ERROR(files->Scan());
  return files;
}

Status ReadOnlyFiles::Scan() {
  const auto folders = NamesIfThere(directory_.SegmentsPath());
  if (!folders.ok()) return folders.status();
  for (const std::string& folder : *folders) {
    const std::string path = directory_.SegmentsPath() + "/" + folder;
    const auto names = NamesIfThere(path);
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      const SegmentId id{DataDirectory::SegmentNumber(name)};
      if (id != SegmentId::kNone && directory_.SegmentPath(id) == path + "/" + name) {
        segments_.push_back(id);
      }
    }
  }
  std::ranges::sort(segments_);
  const auto free = NamesIfThere(directory_.FreePath());
  if (!free.ok()) return free.status();
  free_files_ = static_cast<uint64_t>(std::ranges::count_if(
      *free, [](const std::string& name) { return DataDirectory::SegmentNumber(name) != 0; }));
  return Status::Ok();
}

bool ReadOnlyFiles::Has(SegmentId id) const { return std::ranges::binary_search(segments_, id); }

Result<int> ReadOnlyFiles::Descriptor(SegmentId id) {
  if (const auto at = open_.find(id); at != open_.end()) return at->second.get();
  const std::string path = NameOf(id);
  if (!Has(id)) return Status::NotFound("there is no segment " + path);
  constexpr int kFlags = O_RDONLY | O_CLOEXEC;
  dsm::UniqueFd fd(::open(path.c_str(), kFlags | (direct_ ? O_DIRECT : 0)));
  if (!fd.valid() && direct_ && errno == EINVAL) {
    direct_ = false;
    fd = dsm::UniqueFd(::open(path.c_str(), kFlags));
  }
  if (!fd.valid()) return FileError("opening " + path, errno);
  if (open_.size() == kOpenMax) open_.clear();
  return open_.emplace(id, std::move(fd)).first->second.get();
}

Status ReadOnlyFiles::Read(const Io& io) {
  const Result<int> fd = Descriptor(io.segment);
  if (!fd.ok()) return fd.status();
  ++counts_.reads;
  size_t done = 0;
  while (done < io.bytes.size()) {
    const ssize_t count =
        ::pread(*fd, io.bytes.data() + done, io.bytes.size() - done, io.offset + done);
    if (count < 0 && errno == EINTR) continue;
    const uint64_t at = io.offset + done;
    if (count < 0) return FileError(fmt::format("reading {} at {}", NameOf(io.segment), at), errno);
    done += static_cast<size_t>(count);
    counts_.bytes_read += static_cast<uint64_t>(count);
    // Where a file ends between blocks, a read past the page cache can not go on.
    if (count == 0 || done % kBlockBytes != 0) {
      return Status::Corruption(fmt::format("{} ends at offset {}, and not at {}",
                                            NameOf(io.segment), io.offset + done, kSegmentBytes));
    }
  }
  return Status::Ok();
}

dsm::Task<Status> ReadOnlyFiles::Run(dsm::Worker&, std::span<Io> ios) {
  Status first;
  for (Io& io : ios) {
    if (io.kind == IoKind::kWrite) {
      io.status = ReadOnly();
    } else {
      io.status = io.kind == IoKind::kRead ? Read(io) : Status::Ok();
    }
    if (first.ok()) first = io.status;
  }
  co_return first;
}

dsm::Task<Result<std::string>> ReadOnlyFiles::ReadFile(dsm::Worker&, std::string name) {
  Result<std::string> bytes = files_.Read(name);
  if (bytes.ok()) {
    ++counts_.reads;
    counts_.bytes_read += bytes->size();
  }
  co_return bytes;
}

dsm::Task<Status> ReadOnlyFiles::Create(dsm::Worker&, SegmentId, Making) { co_return ReadOnly(); }
dsm::Task<Status> ReadOnlyFiles::FillReserve(dsm::Worker&) { co_return ReadOnly(); }
Status ReadOnlyFiles::Remove(SegmentId) { return ReadOnly(); }
dsm::Task<Status> ReadOnlyFiles::ReplaceFile(dsm::Worker&, std::string, std::string) {
  co_return ReadOnly();
}
dsm::Task<Status> ReadOnlyFiles::AppendFile(dsm::Worker&, std::string, std::string) {
  co_return ReadOnly();
}
Status ReadOnlyFiles::RemoveFile(std::string_view) { return ReadOnly(); }

}  // namespace farleaf::index::storage
