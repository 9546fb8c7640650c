// IoThreads: a few threads for what would block a worker: opening and making files, and, where the kernel has no
// io_uring for us, the I/Os themselves. Who waited is resumed by its own worker.
//
// Thread rule: thread-safe; Run and Queue from the thread of the worker that waits.
#pragma once

#include <condition_variable>
#include <coroutine>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "dsm/worker.h"
#include "index/storage/io_op.h"

namespace farleaf::index::storage {

class IoThreads {
 public:
  /// Threads are started when there is work for them.
  explicit IoThreads(size_t threads_max) : threads_max_(threads_max) {}
  /// Does what was posted before it returns.
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;

  /// Nobody waits for it.
  void Post(std::function<void()> work);
  /// `op` stays, with its memory, until its group is done.
  void Queue(IoOp& op);

  /// co_await threads.Run(worker, &work): suspends until `work`, which stays until then, was run.
  struct [[nodiscard]] Running {
    IoThreads* threads;
    dsm::Worker* worker;
    const std::function<void()>* work;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
      threads->Post([work = work, to = worker, handle] {
        (*work)();
        to->ResumeSoon(handle);
      });
    }
    void await_resume() const noexcept {}
  };
  Running Run(dsm::Worker& worker, const std::function<void()>* work) {
    return {this, &worker, work};
  }

 private:
  void Serve();

  const size_t threads_max_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::function<void()>> posted_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace farleaf::index::storage
