#include "index/lsm/block_fetch.h"

#include <fmt/format.h>

#include <deque>

#include "index/lsm/background_io.h"

namespace farleaf::index::lsm {

bool FetchTable::Lead(const BlockCache::Key& key, Follower* follower) {
  std::lock_guard lock(mutex_);
  const auto [at, leads] = flights_.try_emplace(key);
  if (!leads) {
    at->second.push_back(follower);
    follower->joined = this;
    follower->key = key;
  }
  return leads;
}

void FetchTable::Complete(const BlockCache::Key& key, const Result<BlockCache::Handle>& result) {
  std::vector<std::pair<dsm::Worker*, std::coroutine_handle<>>> resumed;
  {
    std::lock_guard lock(mutex_);
    const auto at = flights_.find(key);
    FARLEAF_CHECK(at != flights_.end());
    for (Follower* const follower : at->second) {
      // From here on it may be gone, unless it is suspended.
      if (follower->handle) resumed.emplace_back(follower->worker, follower->handle);
      follower->result = result;
    }
    flights_.erase(at);
  }
  for (const auto& [worker, handle] : resumed) worker->ResumeSoon(handle);
}

void FetchTable::Drop(const BlockCache::Key& key) {
  std::lock_guard lock(mutex_);
  flights_.erase(key);
}

void FetchTable::Forget(Follower* follower) {
  std::lock_guard lock(mutex_);
  const auto at = flights_.find(follower->key);
  if (at != flights_.end()) std::erase(at->second, follower);
}

namespace {

/// The blocks of storage that hold a stored block, and where it begins in them.
struct Extent {
  explicit Extent(const BlockRequest& request)
      : skip(request.key.offset % storage::kBlockBytes),
        begin(request.key.offset - skip),
        memory(skip + request.bytes) {}
  uint32_t skip;
  uint32_t begin;
  IoBuffer memory;

  storage::Io Read(SegmentId segment) {
    return {.kind = storage::IoKind::kRead,
            .segment = segment,
            .offset = begin,
            .bytes = memory.span()};
  }
};

/// Whoever has a block's place has it of something that names only segments that exist: one that is missing is lost.
Status FailureOf(const storage::Storage& storage, const BlockRequest& request, const Status& read) {
  if (read.code() != StatusCode::kNotFound) return read;
  return Status::Corruption(fmt::format("{} at offset {}: the file is missing",
                                        storage.NameOf(request.key.segment), request.key.offset));
}

Result<BlockCache::Handle> Admit(BlockCache& cache, const BlockRequest& request,
                                 const Extent& extent) {
  auto memory = request.unpacker->Unpack({extent.memory.data() + extent.skip, request.bytes});
  if (!memory.ok()) return memory.status();
  return cache.Insert(request.key, request.kind, std::move(*memory), request.use);
}

}  // namespace

dsm::Task<Result<BlockCache::Handle>> FetchBlock(dsm::Worker& worker, storage::Storage& storage,
                                                 BlockCache& cache, BlockRequest request) {
  FetchTable& fetches = cache.fetches();
  FetchTable::Follower follower(&worker);
  if (!fetches.Lead(request.key, &follower)) {
    Result<BlockCache::Handle> others = co_await fetches.Wait(follower);
    co_return others;
  }
  FetchTable::Leader leader(&fetches, request.key);
  // It may have come since the caller has looked.
  Result<BlockCache::Handle> result = cache.Peek(request.key);
  if (!*result) {
    Extent extent(request);
    storage::Io io = extent.Read(request.key.segment);
    Status status = co_await storage.Run(worker, std::span(&io, 1));
    if (status.ok()) {
      result = Admit(cache, request, extent);
    } else {
      result = FailureOf(storage, request, status);
    }
  }
  leader.Complete(result);
  co_return result;
}

dsm::Task<Status> FetchBlocks(dsm::Worker& worker, storage::Storage& storage, BlockCache& cache,
                              std::span<const BlockRequest> requests,
                              std::vector<BlockCache::Handle>& pins) {
  FetchTable& fetches = cache.fetches();
  std::deque<FetchTable::Follower> followers;  // of all; they do not move
  std::deque<FetchTable::Leader> leaders;      // of `led`
  std::vector<std::optional<Result<BlockCache::Handle>>> results(requests.size());
  std::vector<size_t> led;
  std::vector<Extent> extents;
  std::vector<storage::Io> ios;
  for (size_t i = 0; i < requests.size(); ++i) {
    const BlockRequest& request = requests[i];
    if (!fetches.Lead(request.key, &followers.emplace_back(&worker))) continue;
    leaders.emplace_back(&fetches, request.key);
    if (BlockCache::Handle there = cache.Peek(request.key)) {
      results[i] = std::move(there);
      leaders.back().Complete(*results[i]);
      leaders.pop_back();
      continue;
    }
    led.push_back(i);
    extents.emplace_back(request);
    ios.push_back(extents.back().Read(request.key.segment));
  }
  if (!led.empty()) {
    Status first = co_await storage.Run(worker, ios);
    (void)first;  // each has its own
  }
  for (size_t k = 0; k < led.size(); ++k) {
    auto& result = results[led[k]];
    if (ios[k].status.ok()) {
      result = Admit(cache, requests[led[k]], extents[k]);
    } else {
      result = FailureOf(storage, requests[led[k]], ios[k].status);
    }
    leaders[k].Complete(*result);
  }
  Status status;
  std::vector<BlockCache::Handle> handles;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!results[i]) {
      Result<BlockCache::Handle> others = co_await fetches.Wait(followers[i]);
      results[i] = std::move(others);
    }
    if (!results[i]->ok()) {
      if (status.ok()) status = results[i]->status();
    } else {
      handles.push_back(**results[i]);
    }
  }
  if (!status.ok()) co_return status;
  pins.insert(pins.end(), handles.begin(), handles.end());
  co_return Status::Ok();
}

}  // namespace farleaf::index::lsm
