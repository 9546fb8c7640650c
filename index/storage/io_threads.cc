#include "index/storage/io_threads.h"

#include <unistd.h>

#include <cerrno>

namespace farleaf::index::storage {

namespace {

ssize_t Transfer(const IoOp& op) {
  const auto offset = static_cast<off_t>(op.offset);
  switch (op.kind) {
    case IoOp::Kind::kRead:
      return ::pread(op.fd, op.bytes, op.length, offset);
    case IoOp::Kind::kWrite:
      return ::pwrite(op.fd, op.bytes, op.length, offset);
    case IoOp::Kind::kSyncData:
      return ::fdatasync(op.fd);
    case IoOp::Kind::kSyncAll:
      return ::fsync(op.fd);
  }
  __builtin_unreachable();
}

}  // namespace

IoThreads::~IoThreads() {
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void IoThreads::Post(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  posted_.push_back(std::move(work));
  if (posted_.size() > idle_ && threads_.size() < threads_max_) {
    threads_.emplace_back([this] { Serve(); });
  } else {
    changed_.notify_one();
  }
}

void IoThreads::Queue(IoOp& op) {
  op.group->Add();
  Post([&op] {
    const ssize_t result = Transfer(op);
    op.result = result < 0 ? -errno : static_cast<int>(result);
    dsm::Worker& worker = op.group->worker();
    if (const auto waiter = op.group->Done()) worker.ResumeSoon(waiter);
  });
}

void IoThreads::Serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [this] { return !posted_.empty() || stopping_; });
    --idle_;
    if (posted_.empty()) return;
    const std::function<void()> work = std::move(posted_.front());
    posted_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace farleaf::index::storage
