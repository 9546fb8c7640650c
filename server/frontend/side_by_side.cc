#include "server/frontend/side_by_side.h"

#include <algorithm>
#include <coroutine>
#include <utility>

namespace farleaf::server {

using dsm::Task;

namespace {

struct Lanes {
  dsm::OpContext& op;
  const NumberedStep& step;
  const size_t count;
  size_t next = 0, running = 0;
  Status failure;
  std::coroutine_handle<> waiting = nullptr;

  dsm::FramePool* frame_pool() const { return op.frame_pool(); }
};

constexpr size_t kStepsOfATurn = 64;

Task<void> RunLane(Lanes& lanes) {
  for (size_t steps = 1; lanes.next < lanes.count && lanes.failure.ok(); ++steps) {
    Status done = co_await lanes.step(lanes.next++);
    if (!done.ok() && lanes.failure.ok()) lanes.failure = std::move(done);
    if (steps % kStepsOfATurn == 0) {
      co_await lanes.op.worker.Sleep(0);  // others' turn, where no verb suspends
    }
  }
  --lanes.running;
  // Not at once: the worker has to see this coroutine end.
  if (lanes.running == 0 && lanes.waiting) lanes.op.worker.ResumeSoon(lanes.waiting);
}

struct [[nodiscard]] AllEnded {
  Lanes* lanes;
  bool await_ready() const { return lanes->running == 0; }
  void await_suspend(std::coroutine_handle<> h) { lanes->waiting = h; }
  void await_resume() const noexcept {}
};

}  // namespace

Task<Status> RunSideBySide(dsm::OpContext& op, size_t count, size_t lanes,
                           const NumberedStep& step) {
  Lanes all{op, step, count};
  for (size_t i = 0; i < std::min(count, lanes); ++i) {
    ++all.running;
    op.worker.Spawn(RunLane(all));
  }
  co_await AllEnded{&all};
  co_return all.failure;
}

}  // namespace farleaf::server
