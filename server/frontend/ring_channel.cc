#include "server/frontend/ring_channel.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "dsm/base/bytes.h"

namespace farleaf::server {

namespace ring = client::ring;
using client::protocol::RingBytes;

namespace {

uint32_t Granted(uint32_t wanted, uint64_t bytes_max) {
  constexpr uint64_t kPageBytes = 4096;
  const uint64_t largest =
      std::min<uint64_t>(bytes_max, ring::kAreaBytesMax) / kPageBytes * kPageBytes;
  const uint64_t bytes = RoundUp(std::max(wanted, ring::kAreaBytesMin), kPageBytes);
  return static_cast<uint32_t>(std::min(bytes, std::max<uint64_t>(largest, ring::kAreaBytesMin)));
}

size_t MappingBytes(RingBytes bytes) {
  return ring::kControlBytes + size_t{bytes.request} + bytes.reply;
}

class MappedReplies final : public ReplyWriter {
 public:
  explicit MappedReplies(std::span<std::byte> area) : writer_(area) {}
  void Publish(uint64_t offset, const ring::HeaderBytes& header, std::span<const std::byte> payload,
               uint64_t rendezvous) override {
    writer_.Publish(offset, header, payload, rendezvous);
  }

 private:
  ring::MappedWriter writer_;
};

}  // namespace

Result<std::unique_ptr<RingChannel>> RingChannel::Create(RingBytes wanted, uint64_t bytes_max,
                                                         Fd* descriptor) {
  const RingBytes bytes{Granted(wanted.request, bytes_max), Granted(wanted.reply, bytes_max)};
  const auto failure = [](const char* what) {
    return Status::IoError(std::string("a ring's memory: ") + what + ": " +
                           client::internal::ErrnoText(errno));
  };
  Fd fd(::memfd_create("farleaf-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return failure("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(MappingBytes(bytes))) != 0)
    return failure("ftruncate");
  // A client that could cut the memory short would have this process killed at its next access.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return failure("sealing");
  }
  void* const mapped =
      ::mmap(nullptr, MappingBytes(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) return failure("mmap");
  *descriptor = std::move(fd);
  auto* const memory = static_cast<std::byte*>(mapped);
  std::byte* const requests = memory + ring::kControlBytes;
  return std::unique_ptr<RingChannel>(new RingChannel(
      memory, bytes, {requests, bytes.request},
      std::make_unique<MappedReplies>(std::span(requests + bytes.request, bytes.reply))));
}

std::unique_ptr<RingChannel> RingChannel::Over(std::span<std::byte> requests,
                                               std::unique_ptr<ReplyWriter> replies,
                                               uint32_t reply_bytes) {
  const RingBytes bytes{static_cast<uint32_t>(requests.size()), reply_bytes};
  return std::unique_ptr<RingChannel>(
      new RingChannel(nullptr, bytes, requests, std::move(replies)));
}

RingChannel::RingChannel(std::byte* memory, RingBytes bytes, std::span<std::byte> requests,
                         std::unique_ptr<ReplyWriter> replies)
    : memory_(memory), bytes_(bytes), half_(requests, Replies{std::move(replies)}, bytes.reply) {}

RingChannel::~RingChannel() {
  if (memory_ != nullptr) ::munmap(memory_, MappingBytes(bytes_));
}

Result<bool> RingChannel::TakeAside(const ring::ArrivedMessage& message, size_t frame_bytes_max) {
  const size_t before = assembly_.size();
  const size_t whole = before + message.payload_bytes;
  if (whole > frame_bytes_max || deferred_bytes_ + whole > bytes_.request + frame_bytes_max) {
    return Status::Corruption("more through a ring than it and a frame can hold");
  }
  assembly_.resize(whole);
  half_.Copy(message, 0, std::as_writable_bytes(std::span(assembly_)).subspan(before));
  half_.Take(message);
  if (message.kind == ring::Kind::kPart) {
    half_.Reply(message.reply, {});
    return ToWake();
  }
  deferred_bytes_ += whole;
  deferred_.push_back({message.reply, std::exchange(assembly_, {})});
  return false;
}

std::optional<uint32_t> RingChannel::BeginReply(uint32_t requests) {
  if (!expected_) return std::nullopt;
  if (free_replies_.empty()) {
    free_replies_.push_back(static_cast<uint32_t>(replies_.size()));
    replies_.emplace_back();
  }
  const uint32_t reply = free_replies_.back();
  free_replies_.pop_back();
  replies_[reply].slot = *expected_;
  replies_[reply].left = requests;
  expected_.reset();
  return reply;
}

bool RingChannel::Answered(uint32_t reply, uint32_t count) {
  Reply& of = replies_[reply];
  FARLEAF_CHECK(of.left >= count, of.left, count);
  of.left -= count;
  if (of.left > 0) return false;
  const size_t fits = half_.Reply(of.slot, AsBytes(of.bytes));
  if (fits < of.bytes.size()) {
    held_bytes_ += of.bytes.size() - fits;
    held_.insert_or_assign(of.slot.sequence, Held{std::exchange(of.bytes, {}), fits});
  }
  of.bytes.clear();
  if (of.bytes.capacity() > kKeptBytesMax) std::string().swap(of.bytes);
  free_replies_.push_back(reply);
  return ToWake();
}

void RingChannel::GiveBackRoom() {
  if (free_replies_.size() != replies_.size()) return;
  std::vector<Reply>().swap(replies_);
  std::vector<uint32_t>().swap(free_replies_);
}

Result<bool> RingChannel::Continue(const ring::ArrivedMessage& message) {
  std::byte payload[8] = {};
  const bool fits = message.payload_bytes == sizeof payload;
  if (fits) half_.Copy(message, 0, payload);
  half_.Take(message);
  const auto found = fits ? held_.find(LoadLittle<uint64_t>(payload)) : held_.end();
  if (found == held_.end()) return Status::Corruption("a ring's message that continues no answer");
  Held& held = found->second;
  const size_t sent = half_.Reply(message.reply, AsBytes(held.bytes).subspan(held.sent));
  held.sent += sent;
  held_bytes_ -= sent;
  if (held.sent == held.bytes.size()) held_.erase(found);
  return ToWake();
}

// Who goes to sleep says so and then looks once more; who has written looks whether the other sleeps. Both
// with a full barrier between: at least one of them sees what the other has done.
bool RingChannel::MaySleep() {
  if (memory_ == nullptr) return false;
  SleepWord(ring::kServerSleepsAt).store(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return !half_.Ready();
}

bool RingChannel::ToWake() {
  if (memory_ == nullptr) return false;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  auto sleeps = SleepWord(ring::kClientSleepsAt);
  return sleeps.load(std::memory_order_relaxed) != 0 && sleeps.exchange(0) != 0;
}

}  // namespace farleaf::server
