#include "dsm/cut_off_queue.h"

#include <string>
#include <utility>

namespace farleaf::dsm {

CutOffQueue::CutOffQueue(CutOff cut_off) : cut_off_(std::move(cut_off)) {
  thread_ = std::thread([this] { Run(); });
}

CutOffQueue::~CutOffQueue() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
  for (Request& request : waiting_) {
    request.answer(Status::Unavailable("memory server " + std::to_string(request.hello.server) +
                                       " is shutting down"));
  }
}

void CutOffQueue::Submit(const Hello& hello, Answer answer) {
  {
    std::lock_guard lock(mutex_);
    if (waiting_.size() < kWaitingMax) {
      waiting_.push_back({hello, std::move(answer)});
      changed_.notify_one();
      return;
    }
  }
  answer(Status::ResourceExhausted("memory server " + std::to_string(hello.server) + " has " +
                                   std::to_string(kWaitingMax) +
                                   " compute servers to cut off already; ask again"));
}

void CutOffQueue::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    Request request = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    request.answer(cut_off_(request.hello));
    lock.lock();
  }
}

}  // namespace farleaf::dsm
