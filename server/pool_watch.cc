#include "server/pool_watch.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace farleaf::server {

PoolWatch::PoolWatch(dsm::Pool* pool, std::unique_ptr<dsm::Worker> worker)
    : pool_(pool), worker_(std::move(worker)), readings_(pool->layouts().size()) {
  for (const dsm::RegionLayout& layout : pool->layouts()) servers_.push_back({layout, {}, {}});
}

Result<std::unique_ptr<PoolWatch>> PoolWatch::Start(dsm::Pool* pool) {
  auto worker = pool->OpenWorker();
  if (!worker.ok()) return worker.status();
  std::unique_ptr<PoolWatch> watch(new PoolWatch(pool, std::move(*worker)));
  watch->thread_ = std::thread([self = watch.get()] { self->Run(); });
  return watch;
}

PoolWatch::~PoolWatch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PoolWatch::Run() {
  for (;;) {
    Look();
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(kLookMs), [this] { return stop_; });
    if (stop_) return;
  }
}

void PoolWatch::Look() {
  for (size_t i = 0; i < readings_.size(); ++i) worker_->Spawn(LookAt(i));
  worker_->RunUntilIdle();
}

dsm::Task<void> PoolWatch::LookAt(size_t number) {
  const dsm::RegionLayout& layout = pool_->layouts()[number];
  Reading& reading = readings_[number];
  const uint64_t count =
      std::min(layout.chunk_count - reading.next_chunk, kTableBytesMax / sizeof(uint64_t));
  std::vector<uint64_t> words(count);
  dsm::Batch batch(layout.server);
  batch.Read(layout.ChunkWordOffset(reading.next_chunk), std::as_writable_bytes(std::span(words)));
  Status status = co_await worker_->RoundTrip(batch, counts_);
  std::lock_guard lock(mutex_);
  MemoryServer& server = servers_[number];
  server.status = std::move(status);
  if (!server.status.ok()) co_return;
  CountChunks(words, &reading.so_far);
  reading.next_chunk += count;
  if (reading.next_chunk < layout.chunk_count) co_return;
  server.chunks = reading.so_far;
  reading = {};
}

std::vector<PoolWatch::MemoryServer> PoolWatch::MemoryServers() const {
  std::lock_guard lock(mutex_);
  return servers_;
}

Status PoolWatch::CheckMemoryServers() const {
  for (const MemoryServer& server : MemoryServers()) {
    if (server.status.ok()) continue;
    const std::string name = "memory server " + std::to_string(server.layout.server);
    const std::string why(server.status.message());
    if (server.status.code() == StatusCode::kFenced) {
      return Status::Fenced("fenced by " + name + ": " + why);
    }
    return Status::Unavailable(name + " does not answer: " + why);
  }
  return Status::Ok();
}

void PoolWatch::AppendMetrics(MetricsText* out) const {
  for (const MemoryServer& server : MemoryServers()) {
    const std::string name = std::to_string(server.layout.server);
    out->Gauge("farleaf_memory_server_up", "Whether a memory server answered the last look at it.",
               {{"memory_server", name}}, server.status.ok() ? 1 : 0);
    AppendChunkMetrics(server.layout, server.chunks, out);
  }
}

}  // namespace farleaf::server
