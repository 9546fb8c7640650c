// IoRing: a worker's io_uring. I/Os are queued during a turn of the worker's loop, submitted by one system call, and
// reaped by the same loop. A worker with nothing else to do submits and waits in that one call.
//
// How the worker is woken while it waits:
//   - in SubmitAndWait: the ring itself polls the wake_fd, as one more I/O;
//   - in somebody else's wait (a server's epoll, a Transport's): the ring is registered with the wake_fd, and told
//     through the shared memory of the ring when to write to it. Both at once would feed each other, so the
//     poll is taken back before.
//
// The kernel hands completions over when it is entered (IORING_SETUP_DEFER_TASKRUN), so that it never interrupts the
// thread; a flag in shared memory says whether there are any, so that nobody enters it in vain.
//
// Thread rule: one thread at a time; another than before only while nothing is under way (the ring is opened anew).
#pragma once

#include <liburing.h>
#include <pthread.h>

#include <memory>

#include "dsm/base/result.h"
#include "dsm/completion_source.h"
#include "dsm/worker.h"
#include "index/storage/io_op.h"

namespace farleaf::index::storage {

class IoRing final : public dsm::CompletionSource {
 public:
  /// The ring of `worker`, opened at the first call. One serves all storages. IoError: the kernel has none for us.
  static Result<IoRing*> Of(dsm::Worker& worker);
  /// Whether the kernel has one for this process.
  static Status Probe();
  ~IoRing() override;
  IoRing(const IoRing&) = delete;

  /// `op` stays, with its memory, until its group is done. Fails only where the ring cannot be opened on this thread.
  Status Queue(IoOp& op);

  void Reap(std::vector<std::coroutine_handle<>>* ready) override;
  void Submit() override;
  bool busy() const override { return in_flight_ > 0 || !ended_.empty(); }
  void SubmitAndWait(int wake_fd, uint64_t timeout_ns) override;
  bool WakeThrough(int wake_fd) override;
  void StopWaking() override;

 private:
  IoRing() = default;
  Status Open();
  void Close();
  io_uring_sqe* NextEntry();
  void TakeInAll();
  void TakeIn(const io_uring_cqe& completion);
  void TakeBackPoll();

  io_uring ring_{};
  bool open_ = false;
  pthread_t owner_{};
  uint32_t in_flight_ = 0;    // queued or begun, not reaped
  bool poll_armed_ = false;   // of the wake_fd
  bool taking_back_ = false;  // the poll: a removal is under way
  int registered_fd_ = -1;  // with the ring: written to at completions, unless that is switched off
  std::vector<std::coroutine_handle<>> ended_;  // taken in, not yet reaped
};

}  // namespace farleaf::index::storage
