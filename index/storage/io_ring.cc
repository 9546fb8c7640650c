#include "index/storage/io_ring.h"

#include <poll.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "dsm/base/check.h"
#include "dsm/base/clock.h"

namespace farleaf::index::storage {

namespace {

constexpr unsigned kSubmissionsMax = 256;  // of one system call
constexpr unsigned kCompletionsMax = 4096;
constexpr uint64_t kPollTag = 1, kTakeBackTag = 2;  // no addresses of an IoOp
const char kName = 0;

Status RingError(const char* call, int error) {
  return Status::IoError(std::string(call) + ": " + std::strerror(error));
}

}  // namespace

Result<IoRing*> IoRing::Of(dsm::Worker& worker) {
  if (auto* const found = static_cast<IoRing*>(worker.FindSource(&kName))) return found;
  std::unique_ptr<IoRing> ring(new IoRing);
  const Status opened = ring->Open();
  if (!opened.ok()) return opened;
  IoRing* const raw = ring.get();
  worker.AddSource(&kName, std::move(ring));
  return raw;
}

Status IoRing::Probe() {
  IoRing ring;
  return ring.Open();
}

Status IoRing::Open() {
  constexpr unsigned kOneThread =
      IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
  int error = 0;
  // Kernels before 6.1 do not know these flags.
  for (const unsigned flags : {kOneThread, 0u}) {
    io_uring_params params{};
    params.flags = flags | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
    params.cq_entries = kCompletionsMax;
    error = -::io_uring_queue_init_params(kSubmissionsMax, &ring_, &params);
    if (error == 0 && !(params.features & IORING_FEAT_EXT_ARG)) {
      ::io_uring_queue_exit(&ring_);
      return RingError("io_uring without timeouts of a wait", ENOSYS);
    }
    if (error != EINVAL) break;
  }
  if (error != 0) return RingError("io_uring_setup", error);
  // The ring's descriptor is not registered: that is per thread, and the ring may be closed by another than its own.
  open_ = true;
  owner_ = ::pthread_self();
  return Status::Ok();
}

void IoRing::Close() {
  if (open_) ::io_uring_queue_exit(&ring_);
  open_ = false;
  poll_armed_ = false;
  registered_fd_ = -1;
}

IoRing::~IoRing() {
  FARLEAF_CHECK(in_flight_ == 0, in_flight_);
  Close();
}

Status IoRing::Queue(IoOp& op) {
  // The kernel binds the ring to the thread that opened it.
  if (!open_ || !::pthread_equal(owner_, ::pthread_self())) {
    FARLEAF_CHECK(in_flight_ == 0, in_flight_);
    Close();
    FARLEAF_RETURN_IF_ERROR(Open());
  }
  io_uring_sqe* const entry = NextEntry();
  switch (op.kind) {
    case IoOp::Kind::kRead:
      ::io_uring_prep_read(entry, op.fd, op.bytes, op.length, op.offset);
      break;
    case IoOp::Kind::kWrite:
      ::io_uring_prep_write(entry, op.fd, op.bytes, op.length, op.offset);
      break;
    case IoOp::Kind::kSyncData:
      ::io_uring_prep_fsync(entry, op.fd, IORING_FSYNC_DATASYNC);
      break;
    case IoOp::Kind::kSyncAll:
      ::io_uring_prep_fsync(entry, op.fd, 0);
      break;
  }
  ::io_uring_sqe_set_data(entry, &op);
  op.group->Add();
  ++in_flight_;
  return Status::Ok();
}

io_uring_sqe* IoRing::NextEntry() {
  io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
  while (entry == nullptr) {
    Submit();
    TakeInAll();  // makes room where the kernel wants some before it takes more
    entry = ::io_uring_get_sqe(&ring_);
  }
  return entry;
}

void IoRing::Submit() {
  if (!open_ || ::io_uring_sq_ready(&ring_) == 0) return;
  const int submitted = ::io_uring_submit(&ring_);
  // Short of memory, or of room for completions: what was not taken stays queued for the next turn.
  FARLEAF_CHECK(submitted >= 0 || submitted == -EAGAIN || submitted == -EBUSY ||
                    submitted == -EINTR || submitted == -ENOMEM,
                submitted);
}

void IoRing::TakeIn(const io_uring_cqe& completion) {
  if (completion.user_data == kPollTag) {
    if (!(completion.flags & IORING_CQE_F_MORE)) poll_armed_ = false;
    return;
  }
  if (completion.user_data == kTakeBackTag) {
    taking_back_ = false;
    return;
  }
  --in_flight_;
  IoOp& op = *reinterpret_cast<IoOp*>(completion.user_data);
  op.result = completion.res;
  if (const auto waiter = op.group->Done()) ended_.push_back(waiter);
}

void IoRing::TakeInAll() {
  // Enters the kernel only if it has flagged something that it has to hand over.
  io_uring_cqe* next = nullptr;
  [[maybe_unused]] const int none = ::io_uring_peek_cqe(&ring_, &next);
  unsigned head, taken = 0;
  io_uring_cqe* completion;
  io_uring_for_each_cqe(&ring_, head, completion) {
    TakeIn(*completion);
    ++taken;
  }
  ::io_uring_cq_advance(&ring_, taken);
}

void IoRing::Reap(std::vector<std::coroutine_handle<>>* ready) {
  if (in_flight_ > 0) TakeInAll();
  if (ended_.empty()) return;
  ready->insert(ready->end(), ended_.begin(), ended_.end());
  ended_.clear();
}

void IoRing::SubmitAndWait(int wake_fd, uint64_t timeout_ns) {
  if (!poll_armed_) {
    io_uring_sqe* const entry = NextEntry();
    ::io_uring_prep_poll_multishot(entry, wake_fd, POLLIN);
    ::io_uring_sqe_set_data64(entry, kPollTag);
    poll_armed_ = true;
  }
  __kernel_timespec timeout{static_cast<int64_t>(timeout_ns / kNsPerSecond),
                            static_cast<long long>(timeout_ns % kNsPerSecond)};
  io_uring_cqe* first = nullptr;
  const int ended = ::io_uring_submit_and_wait_timeout(&ring_, &first, 1, &timeout, nullptr);
  FARLEAF_CHECK(ended >= 0 || ended == -ETIME || ended == -EINTR || ended == -EAGAIN ||
                    ended == -EBUSY || ended == -ENOMEM,
                ended);
}

bool IoRing::WakeThrough(int wake_fd) {
  if (poll_armed_) TakeBackPoll();
  if (registered_fd_ != wake_fd) {
    if (registered_fd_ >= 0) ::io_uring_unregister_eventfd(&ring_);
    const int error = ::io_uring_register_eventfd(&ring_, wake_fd);
    FARLEAF_CHECK(error == 0, error);
    registered_fd_ = wake_fd;
  }
  Submit();
  [[maybe_unused]] const int on = ::io_uring_cq_eventfd_toggle(&ring_, true);
  // Either the kernel sees that it is to write, or we see what it has: it flags first and looks then, we do the
  // opposite. The read-modify-write, which changes nothing, is the full barrier between our two, as its own is.
  const unsigned flags = std::atomic_ref(*ring_.sq.kflags).fetch_or(0);
  const bool has_work = (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
  return ended_.empty() && !has_work && ::io_uring_cq_ready(&ring_) == 0;
}

void IoRing::StopWaking() {
  if (registered_fd_ >= 0) {
    [[maybe_unused]] const int off = ::io_uring_cq_eventfd_toggle(&ring_, false);
  }
}

void IoRing::TakeBackPoll() {
  // Each removal ends at once. One that comes while the poll is firing changes nothing, and is repeated; the one
  // behind the one that worked finds no poll any more.
  while (poll_armed_) {
    io_uring_sqe* const entry = NextEntry();
    ::io_uring_prep_poll_remove(entry, kPollTag);
    ::io_uring_sqe_set_data64(entry, kTakeBackTag);
    taking_back_ = true;
    while (taking_back_) {
      [[maybe_unused]] const int submitted = ::io_uring_submit_and_wait(&ring_, 1);
      TakeInAll();
    }
  }
}

}  // namespace farleaf::index::storage
