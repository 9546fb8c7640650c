// Arena: memory that is given back all at once, taken by several threads at a time.
//
// One addition takes memory; a lock is taken once a chunk. What is wasted at the end of a chunk is counted, too: bytes() is
// what the arena holds of the process's memory, and a budget can be kept by it.
//
// Thread rule: Allocate and bytes are thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"

namespace farleaf::index::lsm {

class Arena {
 public:
  static constexpr size_t kChunkBytes = size_t{256} << 10;
  static constexpr size_t kAlign = 64;

  Arena() { current_.store(NewChunk(kChunkBytes), std::memory_order_release); }
  Arena(const Arena&) = delete;
  ~Arena() {
    while (chunks_ != nullptr) {
      Chunk* const next = chunks_->next;
      ::operator delete(chunks_, std::align_val_t{kAlign});
      chunks_ = next;
    }
  }

  /// Aligned to 8.
  void* Allocate(size_t bytes) {
    bytes = RoundUp(bytes, 8);
    if (bytes > kChunkBytes / 8) return AllocateAlone(bytes);
    for (;;) {
      Chunk* const chunk = current_.load(std::memory_order_acquire);
      const size_t at = chunk->used.fetch_add(bytes, std::memory_order_relaxed);
      if (at + bytes <= chunk->capacity) return chunk->bytes() + at;
      std::lock_guard lock(mutex_);
      if (current_.load(std::memory_order_relaxed) == chunk) {
        current_.store(NewChunk(kChunkBytes), std::memory_order_release);
      }
    }
  }
  /// Aligned to a cache line.
  void* AllocateLines(size_t bytes) {
    void* const raw = Allocate(bytes + kAlign - 8);
    return reinterpret_cast<void*>(RoundUp(reinterpret_cast<uintptr_t>(raw), kAlign));
  }

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct alignas(kAlign) Chunk {
    Chunk* next;
    size_t capacity;
    alignas(kAlign) std::atomic<size_t> used;
    std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
  };

  /// REQUIRES: mutex_ held, or construction.
  Chunk* NewChunk(size_t bytes) {
    void* const memory = ::operator new(bytes, std::align_val_t{kAlign});
    Chunk* const chunk = new (memory) Chunk{chunks_, bytes - sizeof(Chunk), 0};
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    chunks_ = chunk;
    return chunk;
  }
  void* AllocateAlone(size_t bytes) {
    std::lock_guard lock(mutex_);
    Chunk* const chunk = NewChunk(bytes + sizeof(Chunk));
    chunk->used.store(bytes, std::memory_order_relaxed);
    return chunk->bytes();
  }

  std::atomic<Chunk*> current_{nullptr};
  std::atomic<uint64_t> bytes_{0};
  std::mutex mutex_;         // guards chunks_, and who replaces current_
  Chunk* chunks_ = nullptr;  // newest first
};

}  // namespace farleaf::index::lsm
