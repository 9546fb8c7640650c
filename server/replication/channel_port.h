// ChannelPort: calls on a channel from any worker. The channel belongs to one worker's thread; Run, there, makes the calls for all, in the
// order in which they came.
//
// Thread rule: Call and Stop are thread-safe; Run is the channel's worker's.
#pragma once

#include <coroutine>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "dsm/fabric_counts.h"
#include "index/lsm/event.h"
#include "server/replication/channel.h"

namespace farleaf::server::replication {

class ChannelPort {
 public:
  explicit ChannelPort(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}
  ~ChannelPort();
  ChannelPort(const ChannelPort&) = delete;

  /// As Channel::Call; Unavailable behind Stop.
  dsm::Task<Result<Reply>> Call(dsm::Worker& worker, Message message);
  /// Until Stop, and the end of the calls that run then. REQUIRES: `port` has the channel of this worker.
  static dsm::Task<void> Run(dsm::Worker& worker, std::shared_ptr<ChannelPort> port);
  void Stop();
  /// Who calls is gone, with his worker.
  void Abandon();

  const AreaLayout& layout() const { return channel_->layout(); }
  const ChannelAddress& address() const { return channel_->address(); }
  /// Of the calls that have ended.
  dsm::FabricCounts counts() const {
    std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  struct Job {
    Message message;
    dsm::Worker* worker = nullptr;
    std::coroutine_handle<> handle = nullptr;
    std::optional<Result<Reply>> reply = std::nullopt;
  };
  struct Waiting;
  /// False: stopped.
  bool Enqueue(Job* job);
  dsm::Task<void> Execute(dsm::Worker& worker, Job* job);

  const std::unique_ptr<Channel> channel_;
  index::lsm::Event work_;
  mutable std::mutex mutex_;  // guards all below
  std::deque<Job*> jobs_;
  size_t running_ = 0;
  bool stopped_ = false;
  dsm::FabricCounts counts_;
};

}  // namespace farleaf::server::replication
