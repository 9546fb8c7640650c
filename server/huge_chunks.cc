#include "server/huge_chunks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "dsm/base/check.h"
#include "dsm/base/log.h"
#include "dsm/shm/memory_region.h"

namespace farleaf::server {

namespace {

constexpr uint64_t kPausesPerWork = 19;  // of time: a twentieth of it is spent
constexpr uint64_t kPauseNsMin = 10 * kNsPerMs;
constexpr uint64_t kLookNs = kNsPerSecond;
constexpr uint64_t kAgainNs = 60 * kNsPerSecond;  // when the system has no hugepages left

uint64_t LoadWord(std::span<const std::byte> region, uint64_t offset) {
  auto* const word = reinterpret_cast<uint64_t*>(const_cast<std::byte*>(region.data() + offset));
  return std::atomic_ref(*word).load(std::memory_order_relaxed);
}

}  // namespace

HugeChunks::HugeChunks(Deps deps)
    : deps_(std::move(deps)), backed_(deps_.region.size() / dsm::kHugepageBytes) {
  FARLEAF_CHECK(deps_.clock && deps_.back && deps_.layout.chunk_count > 0);
}

HugeChunks::~HugeChunks() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void HugeChunks::Start() {
  FARLEAF_CHECK(!thread_.joinable());
  if (!backed_.empty()) thread_ = std::thread([this] { Run(); });
}

bool HugeChunks::Taken(size_t range) const {
  const dsm::RegionLayout& layout = deps_.layout;
  const uint64_t begin = range * dsm::kHugepageBytes, end = begin + dsm::kHugepageBytes;
  if (end <= layout.first_chunk) return true;  // tables
  for (uint64_t chunk = layout.ChunkOf(std::max(begin, layout.first_chunk));
       chunk < layout.chunk_count && layout.ChunkOffset(chunk) < end; ++chunk) {
    const uint64_t word = LoadWord(deps_.region, layout.ChunkWordOffset(chunk));
    if (dsm::ChunkWord::Decode(word).kind == dsm::ChunkKind::kUnused) return false;
  }
  return true;
}

HugeChunks::Outcome HugeChunks::BackNext() {
  for (size_t looked = 0; looked < backed_.size(); ++looked) {
    const size_t range = std::exchange(next_, (next_ + 1) % backed_.size());
    if (backed_[range] || !Taken(range)) continue;
    const Status status = deps_.back(range * dsm::kHugepageBytes);
    if (status.ok()) {
      backed_[range] = true;
      return Outcome::kBacked;
    }
    if (status.code() == StatusCode::kUnavailable) return Outcome::kBusy;
    if (!std::exchange(told_, true)) {
      FARLEAF_LOG(info, "memory server {} goes on with small pages: {}", deps_.layout.server,
                  status.ToString());
    }
    const bool impossible = status.code() == StatusCode::kUnimplemented;
    return impossible ? Outcome::kImpossible : Outcome::kNoneLeft;
  }
  return Outcome::kNothingToDo;
}

void HugeChunks::Run() {
  uint64_t pause_ns = kLookNs;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::nanoseconds(pause_ns), [this] { return stop_; })) {
    lock.unlock();
    const uint64_t begin_ns = deps_.clock->NowNs();
    switch (BackNext()) {
      case Outcome::kBacked:
      case Outcome::kBusy:
        pause_ns = std::max(kPausesPerWork * (deps_.clock->NowNs() - begin_ns), kPauseNsMin);
        break;
      case Outcome::kNothingToDo:
        pause_ns = kLookNs;
        break;
      case Outcome::kNoneLeft:
        pause_ns = kAgainNs;
        break;
      case Outcome::kImpossible:
        return;
    }
    lock.lock();
  }
}

}  // namespace farleaf::server
