// Task<T>: a lazy coroutine with one owner that never changes thread.
//
// Awaiting a Task runs it at once on the awaiter's stack. If it ends without suspending (as on the
// shm fabric), the awaiter goes on without a suspension; otherwise its end resumes the awaiter. The
// stack therefore never grows with the number of tasks awaited one after another, with or without
// tail calls (the alternative, symmetric transfer, overflows it in builds that do not make them).
//
// What was done at once needs no coroutine: Task(Done{}, value) has a value and no frame.
//
// A Task that is destroyed before its end destroys its frame and all that lives in it. The frame's memory
// is of the pool (dsm/frame_pool.h) of the worker that is found among the coroutine's parameters, as one
// that has a frame_pool(): a Worker, or an OpContext.
// Thread rule: created, run and destroyed on one thread.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "dsm/base/check.h"
#include "dsm/frame_pool.h"

namespace farleaf::dsm {

template <typename T>
class Task;

/// Of a Task that has ended before anybody awaits it.
struct Done {};

namespace internal {

template <typename Parameter>
FramePool* FramePoolOf(const Parameter& parameter) {
  if constexpr (requires { parameter.frame_pool(); }) {
    return parameter.frame_pool();
  } else {
    return nullptr;
  }
}

struct TaskPromiseBase {
  std::coroutine_handle<> awaiter;
  bool awaiter_on_stack = false;  ///< the awaiter itself is running us and will look at done()

  struct FinalAwaiter {
    bool await_ready() const noexcept { return false; }
    template <typename Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      const TaskPromiseBase& promise = self.promise();
      if (promise.awaiter_on_stack || !promise.awaiter) return std::noop_coroutine();
      return promise.awaiter;
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
  void unhandled_exception() const noexcept { std::terminate(); }  // we do not throw

  /// The coroutine's parameters, and in front of them the object whose member it is.
  template <typename... Parameters>
  static void* operator new(size_t bytes, const Parameters&... parameters) {
    FramePool* pool = nullptr;
    if constexpr (kFramesArePooled) {
      ((pool = pool != nullptr ? pool : FramePoolOf(parameters)), ...);
    }
    return FramePool::Allocate(bytes, pool);
  }
  static void operator delete(void* frame) { FramePool::Free(frame); }
};

template <typename T>
struct TaskPromise : TaskPromiseBase {
  std::optional<T> value;
  Task<T> get_return_object();
  template <typename U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
};

template <>
struct TaskPromise<void> : TaskPromiseBase {
  Task<void> get_return_object();
  void return_void() const noexcept {}
};

}  // namespace internal

template <typename T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = internal::TaskPromise<T>;
  using Handle = std::coroutine_handle<promise_type>;
  using Value = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

  explicit Task(Handle handle) : handle_(handle) {}
  /// One that has ended, with this value.
  Task(Done, Value value) : value_(std::move(value)) {}
  Task(Task&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), value_(std::move(other.value_)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return !handle_; }
  bool await_suspend(std::coroutine_handle<> awaiter) {
    auto& promise = handle_.promise();
    promise.awaiter = awaiter;
    promise.awaiter_on_stack = true;
    handle_.resume();
    if (handle_.done()) return false;
    promise.awaiter_on_stack = false;
    return true;
  }
  T await_resume() {
    if constexpr (!std::is_void_v<T>) {
      return handle_ ? std::move(*handle_.promise().value) : std::move(*value_);
    }
  }

  // For the worker, which runs root tasks:
  void Start() {
    if (handle_) handle_.resume();
  }
  bool done() const { return !handle_ || handle_.done(); }
  T TakeResult() {
    FARLEAF_CHECK(done());
    return await_resume();
  }

 private:
  Handle handle_;               ///< null: done at once
  std::optional<Value> value_;  ///< of what was done at once
};

namespace internal {
template <typename T>
Task<T> TaskPromise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<TaskPromise>::from_promise(*this));
}
inline Task<void> TaskPromise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<TaskPromise>::from_promise(*this));
}
}  // namespace internal

}  // namespace farleaf::dsm
