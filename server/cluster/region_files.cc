#include "server/cluster/region_files.h"

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "dsm/base/log.h"
#include "index/lsm/checkpoint.h"

namespace farleaf::server::cluster {

using dsm::Task;
using dsm::Worker;
using index::lsm::LsmStore;
using index::storage::FileStorage;

namespace {

constexpr std::string_view kRegionDirectory = "region-";
constexpr std::string_view kLostAndFound = "lost+found";
constexpr uint64_t kThreadPauseNs = kNsPerMs;

/// The worker goes on with other things meanwhile.
Task<void> OnThread(Worker& worker, const std::function<void()>& run) {
  std::atomic<bool> ended{false};
  std::thread thread([&] {
    run();
    ended.store(true);
  });
  while (!ended.load()) co_await worker.Sleep(kThreadPauseNs);
  thread.join();
}

Status PathError(const std::string& doing, const std::error_code& error) {
  return Status::IoError(doing + ": " + error.message());
}

std::optional<RegionId> RegionOf(std::string_view name) {
  if (!name.starts_with(kRegionDirectory)) return std::nullopt;
  name.remove_prefix(kRegionDirectory.size());
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return RegionId{number};
}

}  // namespace

Result<std::unique_ptr<RegionFiles>> RegionFiles::Open(Deps deps) {
  const std::string& directory = deps.lsm.files.directory;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return PathError("making the directory " + directory, error);
  const std::filesystem::directory_iterator entries(directory, error);
  if (error) return PathError("reading the directory " + directory, error);
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (RegionOf(name) || name == kLostAndFound) continue;
    return Status::InvalidArgument(directory + " holds " + name +
                                   ", which is no region's directory: give a node of a cluster a "
                                   "directory of its own");
  }
  return std::unique_ptr<RegionFiles>(new RegionFiles(std::move(deps)));
}

std::string RegionFiles::PathOf(RegionId region) const {
  return fmt::format("{}/{}{:010}", deps_.lsm.files.directory, kRegionDirectory,
                     static_cast<uint32_t>(region));
}

Result<index::storage::Storage*> RegionFiles::StorageOf(RegionId region) {
  std::unique_ptr<FileStorage>& storage = storages_[region];
  if (!storage) {
    index::storage::FileStorageOptions files = deps_.lsm.files;
    files.directory = PathOf(region);
    auto opened = FileStorage::Open(files);
    if (!opened.ok()) return opened.status();
    storage = std::move(*opened);
  }
  return storage.get();
}

Task<Status> RegionFiles::MakeStore(Worker& worker, RegionId region) {
  auto storage = StorageOf(region);
  if (!storage.ok()) co_return storage.status();
  index::lsm::LsmOptions options = deps_.lsm.store;
  options.durability = index::lsm::Durability::kSynced;
  const LsmStore::Deps deps{*storage, deps_.epochs, deps_.wall, deps_.seed};
  auto made = co_await LsmStore::Open(worker, deps, options, LsmStore::IfMissing::kCreate);
  if (!made.ok()) co_return made.status();
  Status closed = co_await (*made)->Close(worker);
  co_return closed;
}

Task<Result<std::unique_ptr<LsmStore>>> RegionFiles::OpenStore(Worker& worker, RegionId region,
                                                               index::lsm::Mirror* mirror) {
  auto storage = StorageOf(region);
  if (!storage.ok()) co_return storage.status();
  const index::lsm::LsmOptions options = StoreOptionsOf(deps_.lsm);
  const LsmStore::Deps deps{*storage, deps_.epochs, deps_.wall, deps_.seed, mirror};
  auto opened = co_await LsmStore::Open(worker, deps, options, LsmStore::IfMissing::kFail);
  co_return opened;
}

Status RegionFiles::BeginBackground(RegionId region, LsmStore* store) {
  auto background = index::lsm::Background::Start(store, deps_.open_worker);
  if (!background.ok()) return background.status();
  backgrounds_[region] = std::move(*background);
  return Status::Ok();
}

Task<void> RegionFiles::EndBackground(Worker& worker, RegionId region) {
  std::unique_ptr<index::lsm::Background> background = std::move(backgrounds_[region]);
  const std::function<void()> end = [&background] { background.reset(); };
  co_await OnThread(worker, end);
}

Task<Status> RegionFiles::CopyStore(Worker& worker, RegionId from, RegionId to) {
  storages_[from].reset();  // whose lock is wanted
  auto own = deps_.open_worker();
  if (!own.ok()) co_return own.status();
  Status copied;
  const std::function<void()> copy = [&] {
    auto closed = (*own)->Run(index::lsm::ClosedStore::Open(**own, PathOf(from), deps_.wall));
    copied = closed.status();
    if (!copied.ok()) return;
    auto report = (*own)->Run(
        index::lsm::CopyStore(**own, **closed, PathOf(to), index::lsm::CopyLinks::kWherePossible));
    copied = report.status();
  };
  co_await OnThread(worker, copy);
  if (!copied.ok()) {
    const Status removed = Remove(to);
    if (!removed.ok()) FARLEAF_LOG(warn, "{}", removed.ToString());
  }
  co_return copied;
}

Status RegionFiles::Remove(RegionId region) {
  storages_[region].reset();
  std::error_code error;
  std::filesystem::remove_all(PathOf(region), error);
  return error ? PathError("removing " + PathOf(region), error) : Status::Ok();
}

Status RegionFiles::RemoveOthers(const membership::RegionMap& map) {
  std::error_code error;
  std::filesystem::directory_iterator entries(deps_.lsm.files.directory, error);
  if (error) return PathError("reading the directory " + deps_.lsm.files.directory, error);
  Status status;
  for (const auto& entry : entries) {
    const auto region = RegionOf(entry.path().filename().string());
    if (!region || map.FindId(*region) != nullptr) continue;
    FARLEAF_LOG(info, "removing {}: there is no such region", entry.path().string());
    Status removed = Remove(*region);
    if (status.ok()) status = std::move(removed);
  }
  return status;
}

}  // namespace farleaf::server::cluster
