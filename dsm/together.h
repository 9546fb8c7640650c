// Together: tasks that run beside one another on one worker, and who waits for all of them.
//
// Thread rule: the worker's thread. Whatever the tasks refer to stays until All has ended.
#pragma once

#include <coroutine>
#include <cstddef>
#include <utility>

#include "dsm/base/status.h"
#include "dsm/task.h"
#include "dsm/worker.h"

namespace farleaf::dsm {

class Together {
 public:
  explicit Together(Worker& worker) : worker_(&worker) {}
  Together(const Together&) = delete;

  /// Runs the task up to where it first waits. `status` is its own when it ends.
  void Start(Task<Status> task, Status* status) {
    ++left_;
    worker_->Spawn(RunOne(*worker_, std::move(task), status, this));
  }

  struct [[nodiscard]] AllEnded {
    Together* together;
    bool await_ready() const noexcept { return together->left_ == 0; }
    void await_suspend(std::coroutine_handle<> handle) { together->waiter_ = handle; }
    void await_resume() const noexcept {}
  };
  /// Until all have ended. By one.
  AllEnded All() { return {this}; }

 private:
  static Task<void> RunOne(Worker& worker, Task<Status> task, Status* status, Together* together) {
    *status = co_await task;
    if (--together->left_ == 0 && together->waiter_) worker.ResumeSoon(together->waiter_);
  }

  Worker* const worker_;
  size_t left_ = 0;
  std::coroutine_handle<> waiter_ = nullptr;
};

}  // namespace farleaf::dsm
