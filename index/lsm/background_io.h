// BackgroundIo: transfers of large buffers that go on while their owner does something else.
//
// Invariant: the memory of transfers in flight belongs to the coroutine that runs them, until its owner takes it back.
// Thread rule: one worker. Its owner waits for what is in flight before it goes, or the worker is abandoned.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/mirror.h"
#include "index/storage/storage.h"

namespace farleaf::index::lsm {

/// Memory for transfers: aligned, and of whole blocks.
class IoBuffer {
 public:
  IoBuffer() = default;
  explicit IoBuffer(size_t bytes) : size_(RoundUp(bytes, storage::kBlockBytes)) {
    bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(storage::kBlockBytes, size_)));
    FARLEAF_CHECK(bytes_ != nullptr, "out of memory", size_);
  }
  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> span() { return {bytes_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte[], Free> bytes_;
  size_t size_ = 0;
};

class BackgroundIo {
 public:
  struct Order {
    std::optional<storage::Reserve> from;    ///< of what is created (storage::Making)
    IoBuffer memory;                         ///< of all transfers
    std::vector<storage::SegmentId> create;  ///< first, one after another
    std::vector<storage::Io> ios;            ///< then, all at once
    std::vector<storage::Io> syncs;          ///< then, all at once
    Mirror* mirror = nullptr;                ///< that is told of what is written, meanwhile
  };

  BackgroundIo() = default;
  BackgroundIo(const BackgroundIo&) = delete;

  bool running() const { return state_ && state_->running; }
  /// REQUIRES: not running.
  void Start(dsm::Worker& worker, storage::Storage& storage, Order order);

  /// Until nothing is running. The Status of what was started last.
  struct [[nodiscard]] Waiting {
    BackgroundIo* io;
    bool await_ready() const noexcept { return !io->running(); }
    void await_suspend(std::coroutine_handle<> handle) { io->state_->waiter = handle; }
    Status await_resume() const { return io->state_ ? io->state_->status : Status::Ok(); }
  };
  Waiting Wait() { return {this}; }
  /// The order's memory. REQUIRES: not running.
  IoBuffer TakeMemory() { return state_ ? std::move(state_->order.memory) : IoBuffer(); }

 private:
  struct State {
    Order order;
    Status status;
    bool running = true;
    std::coroutine_handle<> waiter;
  };
  static dsm::Task<void> RunToEnd(dsm::Worker& worker, storage::Storage& storage,
                                  std::shared_ptr<State> state);
  static dsm::Task<Status> Carry(dsm::Worker& worker, storage::Storage& storage, Order& order);
  static dsm::Task<Status> Transfer(dsm::Worker& worker, storage::Storage& storage, Order& order);
  static dsm::Task<Status> Tell(dsm::Worker& worker, const Order& order);

  std::shared_ptr<State> state_;
};

}  // namespace farleaf::index::lsm
