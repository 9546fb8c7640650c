// CutOffQueue: carries out requests to cut compute servers off, one after the other, on a thread of
// its own, so that waiting for a process to die holds up no handshake.
//
// Invariant: every request is answered once, if only by the destructor.
// Thread rule: Submit by any thread; requests run, and most answers are given, on the queue's thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "dsm/base/status.h"
#include "dsm/handshake.h"

namespace farleaf::dsm {

class CutOffQueue {
 public:
  static constexpr size_t kWaitingMax = 64;
  /// Does what a Hello of kind kCutOff asks for; may block, within bounds.
  using CutOff = std::function<Status(const Hello&)>;
  using Answer = std::function<void(Status)>;

  explicit CutOffQueue(CutOff cut_off);
  /// Waits for the request that runs; those that wait are answered with Unavailable.
  ~CutOffQueue();
  CutOffQueue(const CutOffQueue&) = delete;

  void Submit(const Hello& hello, Answer answer);

 private:
  struct Request {
    Hello hello;
    Answer answer;
  };
  void Run();

  const CutOff cut_off_;
  std::mutex mutex_;  // guards waiting_, stop_
  std::condition_variable changed_;
  std::deque<Request> waiting_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace farleaf::dsm
