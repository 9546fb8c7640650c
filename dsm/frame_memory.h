// FrameMemory: a worker's frame pool (dsm/frame_pool.h) as memory for lists that an operation needs while
// it runs, so that it allocates nothing once its like has run before.
//
// What is larger than a frame may be (32 KiB) is allocated like anything else.
//
// Thread rule: one thread, its worker's; outlived by the pool, and by nothing that it has given.
#pragma once

#include <cstddef>
#include <memory_resource>

#include "dsm/base/check.h"
#include "dsm/frame_pool.h"

namespace farleaf::dsm {

class FrameMemory final : public std::pmr::memory_resource {
 public:
  explicit FrameMemory(FramePool* pool) : pool_(kFramesArePooled ? pool : nullptr) {}

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    FARLEAF_CHECK(alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__, alignment);
    return FramePool::Allocate(bytes, pool_);
  }
  void do_deallocate(void* memory, size_t /*bytes*/, size_t /*alignment*/) override {
    FramePool::Free(memory);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  FramePool* const pool_;
};

}  // namespace farleaf::dsm
