#include "server/replication/channel_port.h"

#include <utility>

namespace farleaf::server::replication {

struct [[nodiscard]] ChannelPort::Waiting {
  ChannelPort* port;
  Job* job;
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> handle) {
    job->handle = handle;
    return port->Enqueue(job);
  }
  void await_resume() const noexcept {}
};

ChannelPort::~ChannelPort() { FARLEAF_CHECK(jobs_.empty() && running_ == 0, "calls run"); }

bool ChannelPort::Enqueue(Job* job) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return false;
    jobs_.push_back(job);
  }
  work_.Notify();
  return true;
}

dsm::Task<Result<Reply>> ChannelPort::Call(dsm::Worker& worker, Message message) {
  Job job{.message = message, .worker = &worker};
  Waiting waiting{this, &job};
  co_await waiting;
  if (!job.reply) co_return Status::Unavailable("the channel to a backup was closed");
  co_return std::move(*job.reply);
}

dsm::Task<void> ChannelPort::Execute(dsm::Worker& worker, Job* job) {
  dsm::FabricCounts counts;
  job->reply = co_await channel_->Call(worker, job->message, counts);
  {
    std::lock_guard lock(mutex_);
    counts_ += counts;
    --running_;
  }
  work_.Notify();
  job->worker->ResumeSoon(job->handle);  // it may be gone after this
}

dsm::Task<void> ChannelPort::Run(dsm::Worker& worker, std::shared_ptr<ChannelPort> port) {
  for (;;) {
    const uint64_t seen = port->work_.count();
    std::deque<Job*> jobs;
    bool ends = false;
    {
      std::lock_guard lock(port->mutex_);
      jobs.swap(port->jobs_);
      port->running_ += jobs.size();
      ends = port->stopped_ && port->running_ == 0;
    }
    for (Job* job : jobs) worker.Spawn(port->Execute(worker, job));
    if (ends) co_return;
    co_await port->work_.After(worker, seen);
  }
}

void ChannelPort::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  work_.Notify();
}

void ChannelPort::Abandon() {
  work_.Abandon();
  std::lock_guard lock(mutex_);
  jobs_.clear();
  running_ = 0;
}

}  // namespace farleaf::server::replication
