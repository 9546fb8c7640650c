// FramePool: memory for coroutine frames, used again by the next coroutine of about the same size, so
// that an operation allocates nothing once its like has run before.
//
// Each worker has one. A Task finds it by the coroutine's parameters (dsm/task.h) and remembers it in
// front of the frame; a coroutine that has no worker among them allocates like anything else.
//
// Under the sanitizers every frame is allocated for itself, or they would not see one used that is gone.
//
// Invariants: frames that are kept for later take at most kKeptBytesMax; a pool is destroyed behind the
// last of its frames (checked).
// Thread rule: one thread, its worker's: a Task never changes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>

#include "dsm/base/check.h"

namespace farleaf::dsm {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kFramesArePooled = false;
#else
inline constexpr bool kFramesArePooled = true;
#endif

class FramePool {
 public:
  static constexpr size_t kKeptBytesMax = size_t{16} << 20;

  FramePool() = default;
  FramePool(const FramePool&) = delete;
  ~FramePool() {
    FARLEAF_CHECK(in_use_ == 0, "a coroutine outlives its worker", in_use_);
    for (Head* first : free_) {
      while (first != nullptr) {
        Head* const next = first->next;
        ::operator delete(first);
        first = next;
      }
    }
  }

  /// `pool` may be null.
  static void* Allocate(size_t bytes, FramePool* pool) {
    const size_t size_class = (bytes + sizeof(Head) + kStep - 1) / kStep;
    if (pool == nullptr || size_class >= kClasses) {
      Head* const head = static_cast<Head*>(::operator new(bytes + sizeof(Head)));
      head->pool = nullptr;
      return head + 1;
    }
    return pool->Take(size_class) + 1;
  }
  static void Free(void* frame) {
    Head* const head = static_cast<Head*>(frame) - 1;
    if (head->pool == nullptr) {
      ::operator delete(head);
    } else {
      head->pool->Keep(head);
    }
  }
  size_t kept_bytes() const { return kept_bytes_; }

 private:
  static constexpr size_t kStep = 256, kClasses = 129;  // up to 32 KiB: some frames hold pages
  struct alignas(16) Head {
    FramePool* pool;  ///< null: of none
    union {
      size_t size_class;  ///< of a frame in use
      Head* next;         ///< of one that is kept
    };
  };
  static_assert(sizeof(Head) == 16 && __STDCPP_DEFAULT_NEW_ALIGNMENT__ >= 16);

  Head* Take(size_t size_class) {
    ++in_use_;
    Head* head = free_[size_class];
    if (head != nullptr) [[likely]] {
      free_[size_class] = head->next;
      kept_bytes_ -= size_class * kStep;
    } else {
      head = static_cast<Head*>(::operator new(size_class* kStep));
      head->pool = this;
    }
    head->size_class = size_class;
    return head;
  }
  void Keep(Head* head) {
    --in_use_;
    const size_t size_class = head->size_class, bytes = size_class * kStep;
    if (kept_bytes_ + bytes > kKeptBytesMax) [[unlikely]] {
      ::operator delete(head);
      return;
    }
    kept_bytes_ += bytes;
    head->next = free_[size_class];
    free_[size_class] = head;
  }

  std::array<Head*, kClasses> free_{};
  size_t in_use_ = 0, kept_bytes_ = 0;
};

}  // namespace farleaf::dsm
