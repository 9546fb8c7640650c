// RingLink: a client's end of a ring (client/ring/README.md): its mapping, and how the two sides wake each other.
//
// Thread rule: one thread.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "client/internal/socket.h"
#include "client/messages.h"
#include "client/ring/client_half.h"

namespace farleaf::client::internal {

class RingLink {
 public:
  using Half = ring::ClientHalf<ring::MappedWriter>;

  /// Maps what the server has handed over.
  static Result<std::unique_ptr<RingLink>> Map(const Fd& memory, protocol::RingBytes bytes) {
    const size_t mapped = ring::kControlBytes + size_t{bytes.request} + bytes.reply;
    struct stat info;
    if (!memory.valid() || ::fstat(memory.get(), &info) != 0 ||
        static_cast<size_t>(info.st_size) < mapped || bytes.request < ring::kAreaBytesMin ||
        bytes.reply < ring::kAreaBytesMin ||
        (bytes.request | bytes.reply) % ring::kUnitBytes != 0) {
      return Status::Corruption("a ring whose memory is not what the server says");
    }
    void* const at = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (at == MAP_FAILED) return Status::IoError("mapping a ring: " + ErrnoText(errno));
    return std::unique_ptr<RingLink>(new RingLink(static_cast<std::byte*>(at), mapped, bytes));
  }
  ~RingLink() { ::munmap(memory_, mapped_); }
  RingLink(const RingLink&) = delete;

  Half& half() { return half_; }
  /// Behind a Send or Receive that has written: whether the server is to be woken.
  bool ToWake() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    auto sleeps = ring::WordAt(memory_, ring::kServerSleepsAt);
    return sleeps.load(std::memory_order_relaxed) != 0 && sleeps.exchange(0) != 0;
  }
  /// From now on the server wakes this side by a byte on the socket; false: not now, something has come.
  bool MaySleep() {
    ring::WordAt(memory_, ring::kClientSleepsAt).store(1);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return !half_.Ready();
  }
  void Awake() { ring::WordAt(memory_, ring::kClientSleepsAt).store(0); }

 private:
  RingLink(std::byte* memory, size_t mapped, protocol::RingBytes bytes)
      : memory_(memory),
        mapped_(mapped),
        half_(ring::MappedWriter(std::span(memory + ring::kControlBytes, bytes.request)),
              bytes.request, std::span(memory + ring::kControlBytes + bytes.request, bytes.reply)) {
  }

  std::byte* const memory_;
  const size_t mapped_;
  Half half_;
};

}  // namespace farleaf::client::internal
