#include "index/storage/segment_files.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

#include "dsm/base/log.h"

namespace farleaf::index::storage {

namespace {
constexpr std::chrono::microseconds kTurn{50};  // for whoever waits for a mutex to get it
}  // namespace

OpenSegment::~OpenSegment() {
  fd_.Reset();
  if (removed_) files_->Retire(id_);
}

SegmentFiles::SegmentFiles(const DataDirectory* directory, const FileStorageOptions& options,
                           IoThreads* threads)
    : directory_(directory), options_(options), threads_(threads) {}

int SegmentFiles::OpenFlags(WriteBack write_back) const {
  const bool direct = direct_ && write_back == WriteBack::kAtOnce;
  return O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0);
}

// ---- Making files

Status SegmentFiles::Create(SegmentId id, Making making) {
  makers_.fetch_add(1);
  std::lock_guard making_lock(making_mutex_);
  makers_.fetch_sub(1);
  if (!reserves_) making.write_back = WriteBack::kAtOnce;
  SettleNext();  // its file may serve; all of them would be seconds where a level was merged
  const std::string path = directory_->SegmentPath(id);
  {
    std::lock_guard lock(mutex_);
    if (segments_.Contains(id)) return Status::AlreadyExists("the segment " + path + " exists");
  }
  if (!making.from) {
    const Status filled = FillUpReserve();
    if (!filled.ok()) return filled.WithContext("making " + path + ": the reserve comes first");
  }
  Result<dsm::UniqueFd> fd = MakeFile(id, making);
  if (!fd.ok()) return fd.status();
  std::vector<Handle> evicted;
  std::lock_guard lock(mutex_);
  segments_.Insert(id);
  if (making.write_back == WriteBack::kLazily) lazy_.insert(id);
  folders_[DataDirectory::FolderOf(id)].created.push_back(id);
  Keep(std::make_shared<OpenSegment>(this, id, std::move(*fd)), &evicted);
  return Status::Ok();
}

bool SegmentFiles::BelowLimit() const {
  const uint64_t files = segments_.size() + reserve_.held() + 1;
  return options_.bytes_max == 0 || files * kSegmentBytes <= options_.bytes_max;
}

Status SegmentFiles::LimitReached(const std::string& path) const {
  return Status::ResourceExhausted("making " + path + ": the limit of " +
                                   std::to_string(options_.bytes_max) +
                                   " bytes (bytes_max) is reached: raise it");
}

Result<dsm::UniqueFd> SegmentFiles::MakeFileBesideReserve(const std::string& path,
                                                          WriteBack write_back) {
  {
    std::lock_guard lock(mutex_);
    if (!BelowLimit()) return LimitReached(path);
  }
  dsm::UniqueFd fd;
  if (write_back == WriteBack::kAtOnce) fd = TakeFreeFile(path, write_back);
  if (fd.valid()) return fd;
  Result<dsm::UniqueFd> made = NewFile(path, write_back);
  if (made.ok() || made.status().code() != StatusCode::kResourceExhausted) return made;
  std::vector<Handle> evicted;
  {
    std::lock_guard lock(mutex_);
    Evict(open_.size() / 2, &evicted);
  }
  evicted.clear();
  while (SettleNext()) {  // what was removed meanwhile is room, too
  }
  fd = TakeFreeFile(path, write_back);
  if (fd.valid()) return fd;
  return NewFile(path, write_back);
}

Result<dsm::UniqueFd> SegmentFiles::MakeFile(SegmentId id, Making making) {
  Status added = AddToFolder(id);
  if (added.code() == StatusCode::kResourceExhausted && making.from) {
    // A folder takes room, too: that of one of the reserve's files.
    size_t keep;
    {
      std::lock_guard lock(mutex_);
      if (!reserve_.Take(*making.from)) return added;
      short_of_room_ = true;
      keep = reserve_.held();
    }
    KeepFree(keep);
    added = AddToFolder(id);
  }
  FARLEAF_RETURN_IF_ERROR(added);
  const std::string path = directory_->SegmentPath(id);
  Result<dsm::UniqueFd> made = MakeFileBesideReserve(path, making.write_back);
  while (!made.ok() && made.status().code() == StatusCode::kResourceExhausted && making.from) {
    {
      std::lock_guard lock(mutex_);
      if (!reserve_.Take(*making.from)) break;
      short_of_room_ = true;
    }
    dsm::UniqueFd fd = TakeFreeFile(path, making.write_back);
    if (fd.valid()) made = std::move(fd);  // else it was spoilt, and the next one serves
  }
  if (!made.ok()) DropFromFolder(id);
  return made;
}

Status SegmentFiles::FillReserve() {
  std::lock_guard making(making_mutex_);
  const Status filled = FillUpReserve();
  size_t keep;
  {
    std::lock_guard lock(mutex_);
    keep = reserve_.held() + options_.free_files_max;
  }
  KeepFree(keep);
  return filled;
}

Status SegmentFiles::FillUpReserve() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (reserve_.whole()) {
        short_of_room_ = false;
        return Status::Ok();
      }
    }
    Status added = AddToReserve();
    // What was removed meanwhile goes to the reserve first.
    if (added.code() == StatusCode::kResourceExhausted && SettleNext()) continue;
    if (!added.ok()) {
      std::lock_guard lock(mutex_);
      short_of_room_ = true;
      return added;
    }
  }
}

Status SegmentFiles::AddToReserve() {
  const std::string path = directory_->FreeFilePath(next_free_);
  {
    std::lock_guard lock(mutex_);
    if (!BelowLimit()) return LimitReached(path);
    if (free_count_ > reserve_.held()) {
      reserve_.Add();
      return Status::Ok();
    }
  }
  const Result<dsm::UniqueFd> made = NewFile(path, WriteBack::kAtOnce);
  if (!made.ok()) return made.status();
  free_.push_back(next_free_++);
  std::lock_guard lock(mutex_);
  free_count_ = free_.size();
  reserve_.Add();
  return Status::Ok();
}

Result<dsm::UniqueFd> SegmentFiles::NewFile(const std::string& path, WriteBack write_back) {
  dsm::UniqueFd fd(::open(path.c_str(), OpenFlags(write_back) | O_CREAT | O_EXCL, 0644));
  if (!fd.valid()) {
    if (errno == EEXIST) return Status::AlreadyExists("the file " + path + " exists");
    return FileError("making " + path, errno);
  }
  // Some file systems cannot reserve room: there a write, too, may find the device full.
  if (::fallocate(fd.get(), 0, 0, kSegmentBytes) == 0 ||
      (errno == EOPNOTSUPP && ::ftruncate(fd.get(), kSegmentBytes) == 0)) {
    return fd;
  }
  const int error = errno;
  ::unlink(path.c_str());
  return FileError("making " + path, error);
}

dsm::UniqueFd SegmentFiles::TakeFreeFile(const std::string& path, WriteBack write_back) {
  for (;;) {
    std::string free_path;
    {
      std::lock_guard lock(mutex_);
      if (free_.size() <= reserve_.held()) return {};
      free_path = directory_->FreeFilePath(free_.back());
      free_.pop_back();
      free_count_ = free_.size();
    }
    struct stat found;
    if (::stat(free_path.c_str(), &found) != 0) continue;
    if (found.st_nlink == 1 && found.st_size == kSegmentBytes &&
        ::renameat2(AT_FDCWD, free_path.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) {
      dsm::UniqueFd fd(::open(path.c_str(), OpenFlags(write_back)));
      if (fd.valid()) return fd;
      ::unlink(path.c_str());
      continue;
    }
    ::unlink(free_path.c_str());
  }
}

Status SegmentFiles::AddToFolder(SegmentId id) {
  const uint64_t number = DataDirectory::FolderOf(id);
  {
    std::lock_guard lock(mutex_);
    Folder& folder = folders_[number];
    ++folder.files;
    if (folder.fd) return Status::Ok();
  }
  const std::string path = directory_->FolderPath(number);
  Status made;
  if (::mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) {
    made = SyncDirectory(directory_->SegmentsPath());  // made a moment ago, perhaps, and not synced
  } else {
    made = FileError("making the directory " + path, errno);
  }
  Result<dsm::UniqueFd> fd = made.ok() ? OpenDirectory(path) : Result<dsm::UniqueFd>(made);
  if (!fd.ok()) {
    DropFromFolder(id);
    return fd.status();
  }
  std::lock_guard lock(mutex_);
  folders_[number].fd = std::make_shared<dsm::UniqueFd>(std::move(*fd));
  return Status::Ok();
}

void SegmentFiles::DropFromFolder(SegmentId id) {
  const uint64_t number = DataDirectory::FolderOf(id);
  {
    std::lock_guard lock(mutex_);
    const auto at = folders_.find(number);
    if (at == folders_.end()) return;
    std::erase(at->second.created, id);
    if (--at->second.files > 0 || std::next(at) == folders_.end()) return;
    folders_.erase(at);
  }
  ::rmdir(directory_->FolderPath(number).c_str());  // what is left empty harms nobody
}

// ---- Removing

Status SegmentFiles::Remove(SegmentId id) {
  Handle file;  // let go of behind the lock
  {
    std::lock_guard lock(mutex_);
    if (!segments_.Erase(id)) {
      return Status::NotFound("there is no segment " + directory_->SegmentPath(id));
    }
    if (const auto at = open_.find(Number(id)); at != open_.end()) {
      file = std::move(at->second.file);
      file->removed_ = true;
      used_.erase(at->second.used);
      open_.erase(at);
    }
  }
  // Not in the table: nobody has it open (Evict). Else it is retired by whoever lets go of it last.
  if (file == nullptr) Retire(id);
  return Status::Ok();
}

void SegmentFiles::Retire(SegmentId id) {
  {
    std::lock_guard lock(mutex_);
    retired_.push_back(id);
    if (std::exchange(settling_, true)) return;
  }
  threads_->Post([this] { Settle(); });
}

// Those who make files go first: a level that was merged may have left thousands to be unlinked, some milliseconds each.
void SegmentFiles::Settle() {
  for (;;) {
    while (makers_.load() > 0) std::this_thread::sleep_for(kTurn);
    {
      std::lock_guard making(making_mutex_);
      SettleNext();
    }
    std::lock_guard lock(mutex_);
    settling_ = !retired_.empty();
    if (!settling_) return;
  }
}

bool SegmentFiles::SettleNext() {
  SegmentId next;
  {
    std::lock_guard lock(mutex_);
    if (retired_.empty()) return false;
    next = retired_.back();
    retired_.pop_back();
  }
  SettleOne(next);
  return true;
}

bool SegmentFiles::Recyclable(const std::string& path, WriteBack write_back) const {
  struct stat found;
  // Another name is a checkpoint's: what is in the file belongs to it.
  if (::stat(path.c_str(), &found) != 0 || found.st_nlink != 1 || found.st_size != kSegmentBytes) {
    return false;
  }
  if (write_back == WriteBack::kAtOnce) return true;
  // What was written lazily would be written over what the next segment has there.
  const dsm::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  return fd.valid() && ::fdatasync(fd.get()) == 0;
}

void SegmentFiles::SettleOne(SegmentId id) {
  const std::string path = directory_->SegmentPath(id);
  bool lazy, reserved, kept;
  {
    std::lock_guard lock(mutex_);
    lazy = lazy_.erase(id) > 0;
    // One that was written lazily costs the writing: only where others may have what is unlinked.
    reserved = !reserve_.whole() && BelowLimit() && (!lazy || short_of_room_);
    kept = !lazy && free_.size() < reserve_.held() + options_.free_files_max;
  }
  const WriteBack write_back = lazy ? WriteBack::kLazily : WriteBack::kAtOnce;
  if ((reserved || kept) && Recyclable(path, write_back) &&
      ::rename(path.c_str(), directory_->FreeFilePath(next_free_).c_str()) == 0) {
    free_.push_back(next_free_++);
  } else {
    reserved = false;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      FARLEAF_LOG(warn, "unlinking {}: {}; its space is not free", path, std::strerror(errno));
    }
  }
  DropFromFolder(id);
  size_t keep;
  {
    std::lock_guard lock(mutex_);
    if (reserved) reserve_.Add();
    keep = reserve_.held() + options_.free_files_max;
    free_count_ = free_.size();
  }
  if (free_.size() > keep) KeepFree(free_.size() - 1);  // the reserve has become smaller
}

void SegmentFiles::KeepFree(size_t keep) {
  while (free_.size() > keep) {
    ::unlink(directory_->FreeFilePath(free_.back()).c_str());
    free_.pop_back();
  }
  std::lock_guard lock(mutex_);
  free_count_ = free_.size();
}

bool SegmentFiles::GiveUpFree() {
  std::lock_guard making(making_mutex_);
  while (SettleNext()) {
  }
  size_t keep;
  {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return false;
    if (free_.size() == reserve_.held()) reserve_.TakeAny();
    keep = reserve_.held();
  }
  KeepFree(keep);
  return true;
}

// ---- Open files

Result<std::shared_ptr<OpenSegment>> SegmentFiles::Find(SegmentId id, Opening opening) {
  WriteBack write_back;
  {
    std::lock_guard lock(mutex_);
    if (const auto at = open_.find(Number(id)); at != open_.end()) {
      used_.splice(used_.begin(), used_, at->second.used);
      return at->second.file;
    }
    if (!segments_.Contains(id)) {
      return Status::NotFound("there is no segment " + directory_->SegmentPath(id));
    }
    write_back = lazy_.contains(id) ? WriteBack::kLazily : WriteBack::kAtOnce;
  }
  Result<dsm::UniqueFd> fd = OpenFile(id, opening, write_back);
  std::vector<Handle> evicted;
  std::lock_guard lock(mutex_);
  if (!segments_.Contains(id)) {
    return Status::NotFound("there is no segment " + directory_->SegmentPath(id));
  }
  if (const auto at = open_.find(Number(id)); at != open_.end()) return at->second.file;
  if (!fd.ok()) return fd.status();
  if (!fd->valid()) return Handle();
  Handle file = std::make_shared<OpenSegment>(this, id, std::move(*fd));
  Keep(file, &evicted);
  return file;
}

Result<dsm::UniqueFd> SegmentFiles::OpenFile(SegmentId id, Opening opening, WriteBack write_back) {
  const std::string path = directory_->SegmentPath(id);
  if (opening == Opening::kIfCached) {
    open_how how{};
    how.flags = static_cast<uint64_t>(OpenFlags(write_back));
    how.resolve = RESOLVE_CACHED;
    // Whatever goes wrong, goes wrong again where it may block.
    return dsm::UniqueFd(
        static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof how)));
  }
  dsm::UniqueFd fd(::open(path.c_str(), OpenFlags(write_back)));
  if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) {
    std::vector<Handle> evicted;
    {
      std::lock_guard lock(mutex_);
      Evict(open_.size() / 2, &evicted);
    }
    evicted.clear();
    fd = dsm::UniqueFd(::open(path.c_str(), OpenFlags(write_back)));
  }
  if (!fd.valid()) return FileError("opening " + path, errno);
  return fd;
}

void SegmentFiles::Keep(const Handle& file, std::vector<Handle>* evicted) {
  used_.push_front(file->id());
  open_[Number(file->id())] = {file, used_.begin()};
  if (open_.size() > open_max_) Evict(open_max_, evicted);
}

void SegmentFiles::Evict(size_t keep, std::vector<Handle>* evicted) {
  // A file in use stays: the table must know every open file, or Remove would take it for closed. And one that is written lazily: while it is
  // open, the operating system remembers for its next Sync that what was written is lost.
  for (auto at = used_.end(); at != used_.begin() && open_.size() > keep;) {
    --at;
    const auto cached = open_.find(Number(*at));
    if (cached->second.file.use_count() > 1 || lazy_.contains(*at)) continue;
    evicted->push_back(std::move(cached->second.file));
    open_.erase(cached);
    at = used_.erase(at);
  }
}

// ---- Folders that are not synced

FolderSync SegmentFiles::NeedsFolderSync(SegmentId id) {
  std::lock_guard lock(mutex_);
  const auto at = folders_.find(DataDirectory::FolderOf(id));
  if (at == folders_.end() ||
      std::ranges::find(at->second.created, id) == at->second.created.end()) {
    return {};
  }
  return {at->second.fd, at->second.created};
}

void SegmentFiles::FolderSynced(const FolderSync& synced) {
  if (synced.created.empty()) return;
  std::lock_guard lock(mutex_);
  const auto at = folders_.find(DataDirectory::FolderOf(synced.created.front()));
  if (at == folders_.end()) return;
  std::erase_if(at->second.created, [&](SegmentId id) {
    return std::ranges::find(synced.created, id) != synced.created.end();
  });
}

std::vector<SegmentId> SegmentFiles::List() const {
  std::lock_guard lock(mutex_);
  return segments_.All();
}

size_t SegmentFiles::size() const {
  std::lock_guard lock(mutex_);
  return segments_.size();
}

size_t SegmentFiles::open_files() const {
  std::lock_guard lock(mutex_);
  return open_.size();
}

size_t SegmentFiles::free_files() const {
  std::lock_guard lock(mutex_);
  return free_count_ - reserve_.held();
}

void SegmentFiles::SetReserve(const ReserveSizes& segments) {
  std::lock_guard lock(mutex_);
  reserve_.Want(segments);
}

ReserveAccount SegmentFiles::reserve() const {
  std::lock_guard lock(mutex_);
  return reserve_;
}

}  // namespace farleaf::index::storage
