// The only seam to a fabric: verbs in ordered batches, and their completions.
//
// What a user of a Transport may rely on, on every fabric (test/contract/transport_contract.h):
//   1. An aligned 8-byte access is atomic; CAS and FETCH-ADD are atomic with each other, and with
//      Batch::ReplaceWord.
//   2. In one batch and on one transport to one server, a later verb takes effect after an earlier
//      WRITE, and a READ after an earlier atomic. Nothing orders a WRITE or an atomic behind a
//      READ, nor a WRITE behind an atomic: await the completion. A Batch refuses (checks) a WRITE
//      behind a READ or an atomic. Between transports only an awaited completion orders.
//   3. Inside one WRITE of more than 8 bytes any order is possible. An unlock word, or a flag that
//      announces data, is its own 8-byte WRITE at the end of the batch (a release; a successful CAS
//      acquires).
//   4. A READ of more than 8 bytes may be torn, cache lines in any order: check a checksum.
//   5. The effect of a failed batch is unknown: some prefix of it ran, possibly half a WRITE. When
//      the failure is reported, nothing of the batch can land any more, unless it is Unknown: then the
//      memory server did not answer in time, and nothing is known. Failed with Fenced: the same,
//      and the memory server has cut this compute server off (Fabric::CutOff): what was posted before
//      the cut may have run in part, what was posted after it did not, and every later batch to that
//      memory server fails with Fenced too.
// Offsets and lengths of READs and WRITEs are multiples of 8, lengths are not 0.
//
// Thread rule: a Transport and its batches belong to one thread. A Fabric is thread-safe.
#pragma once

#include <boost/container/small_vector.hpp>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dsm/address.h"
#include "dsm/base/result.h"
#include "dsm/base/status.h"
#include "dsm/fabric_counts.h"
#include "dsm/member.h"

namespace farleaf::dsm {

enum class VerbKind : uint8_t { kRead = 1, kWrite = 2, kCompareAndSwap = 3, kFetchAdd = 4 };

/// One verb. READ: `length` bytes from `offset` to `local`. WRITE: the other way; `operand`, if not 0, is the word that
/// stands there until then (Batch::ReplaceWord). CAS: if the word at `offset` equals `operand`, `desired` replaces it. FETCH-ADD: adds `operand`. Both put the old
/// word into the 8 bytes at `local`.
struct Verb {
  VerbKind kind;
  uint32_t length;
  uint64_t offset;
  std::byte* local;  ///< WRITE only reads it
  uint64_t operand;
  uint64_t desired;
};

/// Counts down the batches of one round trip; the fabric calls BatchDone once per posted batch.
class RoundTripState {
 public:
  void AddBatch() { ++outstanding_; }
  bool done() const { return outstanding_ == 0; }
  /// At the last completion `waiter` is appended to `ready`.
  void SetWaiter(std::coroutine_handle<> waiter, std::vector<std::coroutine_handle<>>* ready) {
    waiter_ = waiter;
    ready_ = ready;
  }
  void BatchDone() {
    FARLEAF_DCHECK(outstanding_ > 0);
    if (--outstanding_ == 0 && waiter_) ready_->push_back(waiter_);
  }

 private:
  uint32_t outstanding_ = 0;
  std::coroutine_handle<> waiter_;
  std::vector<std::coroutine_handle<>>* ready_ = nullptr;
};

/// Verbs for one memory server, behind one doorbell, with one completion. The memory that the verbs
/// name, and the batch itself, must stay until the completion.
class Batch {
 public:
  static constexpr uint32_t kVerbBytesMax = uint32_t{1} << 26;  ///< 64 MiB in one READ or WRITE
  static constexpr size_t kVerbsMax = 4096;
  static constexpr uint64_t kPayloadBytesMax = uint64_t{1} << 27;  ///< 128 MiB in all

  explicit Batch(ServerId server) : server_(server) {}
  Batch(Batch&&) = default;
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void Read(uint64_t offset, std::span<std::byte> into) {
    FARLEAF_CHECK(
        offset % 8 == 0 && into.size() % 8 == 0 && !into.empty() && into.size() <= kVerbBytesMax,
        offset, into.size());
    write_refused_ = true;
    CountPayload(into.size());
    verbs_.push_back(
        {VerbKind::kRead, static_cast<uint32_t>(into.size()), offset, into.data(), 0, 0});
  }
  /// REQUIRES: no READ or atomic stands before it in this batch (nothing would order it behind).
  void Write(uint64_t offset, std::span<const std::byte> from) {
    FARLEAF_CHECK(!write_refused_,
                  "a WRITE behind a READ or an atomic is not ordered: await first");
    FARLEAF_CHECK(
        offset % 8 == 0 && from.size() % 8 == 0 && !from.empty() && from.size() <= kVerbBytesMax,
        offset, from.size());
    CountPayload(from.size());
    verbs_.push_back({VerbKind::kWrite, static_cast<uint32_t>(from.size()), offset,
                      const_cast<std::byte*>(from.data()), 0, 0});
  }
  /// `word` must live until the completion.
  void WriteWord(uint64_t offset, const uint64_t* word) {
    Write(offset, std::as_bytes(std::span(word, 1)));
  }
  /// A WRITE of a word that others try to swap meanwhile, by whoever alone may change it just now, as a lock's holder:
  /// `held`, not 0, stands there. A WRITE alone might be undone by such an attempt though it fails: RDMA makes atomics
  /// atomic with each other only, and soft RoCE's CAS writes back what it has read. `word` must live until the completion.
  void ReplaceWord(uint64_t offset, uint64_t held, const uint64_t* word) {
    FARLEAF_CHECK(held != 0, offset);
    WriteWord(offset, word);
    verbs_.back().operand = held;
  }
  void ReadWord(uint64_t offset, uint64_t* word) {
    Read(offset, std::as_writable_bytes(std::span(word, 1)));
  }
  void CompareAndSwap(uint64_t offset, uint64_t expected, uint64_t desired, uint64_t* old) {
    AddAtomic(VerbKind::kCompareAndSwap, offset, expected, desired, old);
  }
  void FetchAdd(uint64_t offset, uint64_t add, uint64_t* old) {
    AddAtomic(VerbKind::kFetchAdd, offset, add, 0, old);
  }

  ServerId server() const { return server_; }
  std::span<const Verb> verbs() const { return {verbs_.data(), verbs_.size()}; }
  bool empty() const { return verbs_.empty(); }
  /// How it ended. REQUIRES: completed.
  const Status& status() const { return status_; }
  void AddTo(FabricCounts* counts) const {
    // Added up apart: each sum in `counts` would be stored, and loaded again, for every verb.
    uint64_t reads = 0, writes = 0, bytes_read = 0, bytes_written = 0;
    for (const Verb& verb : verbs_) {
      const bool is_read = verb.kind == VerbKind::kRead, is_write = verb.kind == VerbKind::kWrite;
      reads += is_read;
      writes += is_write;
      bytes_read += is_write ? 0 : verb.length;
      bytes_written += is_read ? 0 : verb.length;
    }
    counts->reads += reads;
    counts->writes += writes;
    counts->atomics += verbs_.size() - reads - writes;
    counts->bytes_read += bytes_read;
    counts->bytes_written += bytes_written;
  }
  /// Forgets the verbs, so that the batch can be filled and posted again.
  void Clear() {
    verbs_.clear();
    payload_bytes_ = 0;
    write_refused_ = false;
    status_ = Status::Ok();
  }

  // For transports: exactly one CompleteWith follows each Post.
  RoundTripState* round_trip() const { return round_trip_; }
  void set_round_trip(RoundTripState* state) { round_trip_ = state; }
  void CompleteWith(Status status) {
    if (!status.ok() || !status_.ok()) [[unlikely]]
      status_ = std::move(status);
    std::exchange(round_trip_, nullptr)->BatchDone();
  }
  bool in_flight() const { return round_trip_ != nullptr; }

 private:
  void CountPayload(size_t bytes) {
    payload_bytes_ += bytes;
    FARLEAF_CHECK(verbs_.size() < kVerbsMax && payload_bytes_ <= kPayloadBytesMax, verbs_.size(),
                  payload_bytes_);
  }
  void AddAtomic(VerbKind kind, uint64_t offset, uint64_t operand, uint64_t desired,
                 uint64_t* old) {
    FARLEAF_CHECK(offset % 8 == 0, offset);
    write_refused_ = true;
    CountPayload(8);
    verbs_.push_back({kind, 8, offset, reinterpret_cast<std::byte*>(old), operand, desired});
  }

  boost::container::small_vector<Verb, 6> verbs_;
  RoundTripState* round_trip_ = nullptr;
  uint64_t payload_bytes_ = 0;
  Status status_;
  ServerId server_;
  bool write_refused_ = false;
};

/// The batch for `server` among the batches of one round trip, added if there is none. The reference
/// is good until the next call.
template <typename Batches>
Batch& BatchFor(Batches& batches, ServerId server) {
  for (Batch& batch : batches) {
    if (batch.server() == server) return batch;
  }
  return batches.emplace_back(server);
}

/// One thread's way to all memory servers of a pool.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Starts `batch`; it may be complete on return (shm), else a later Poll completes it. A server
  /// that is lost or unknown completes it with Unavailable, naming the server.
  virtual void Post(Batch& batch) = 0;
  /// Completes what has arrived, without blocking. Returns the number of batches completed.
  virtual size_t Poll() = 0;
  /// Blocks until a completion may have arrived, `wake_fd` is readable, or `timeout_ns` is over.
  virtual void Wait(int wake_fd, uint64_t timeout_ns) = 0;
  /// A READ or WRITE of these bytes is about to be posted. A fabric whose memory is a cache miss away
  /// may begin to fetch them; nothing may be relied on, and any address may be given.
  virtual void Prefetch(GlobalAddress /*from*/, uint32_t /*bytes*/) {}
  /// `bytes` at `from`, if this process can load from them and Post completes every batch at once; else null. An
  /// aligned 8-byte load that acquires is then a READ of 8 bytes, awaited before the next; whoever loads says so in
  /// its FabricCounts. Also null where a READ would fail. Good until the coroutine is next suspended.
  virtual const std::byte* Mapped(GlobalAddress /*from*/, uint32_t /*bytes*/) { return nullptr; }
  /// How many fruitless turns of its loop a worker should poll before it calls Wait. Polling a
  /// socket takes a system call, and may keep the peer from the processor.
  virtual uint32_t idle_turns_before_wait() const { return 2'000; }
  /// Whether every batch is complete when Post returns, so that nothing is ever missed by not polling.
  virtual bool completes_at_once() const { return false; }
};

struct ServerEndpoint;  // dsm/directory.h

/// What the handshake with a memory server told. All of it is fixed for the server's life.
struct RegionInfo {
  ServerId server = 0;
  uint64_t region_bytes = 0;
  uint64_t incarnation = 0;  ///< drawn at random when the memory server starts
};

/// A process's attachment to the memory servers of one pool.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual std::string_view name() const = 0;                ///< "shm", "tcp", …
  /// Of the memory servers that it was made with, ascending server id; Add and Remove change nothing here.
  virtual std::span<const RegionInfo> regions() const = 0;
  virtual Result<std::unique_ptr<Transport>> OpenTransport() = 0;
  /// This process is compute server `self` from now on: memory servers are told so, and transports
  /// opened later belong to it. Transports opened before stay anonymous, and are to be closed: no cut
  /// would reach them. Fenced: a memory server has cut `self` off. Blocks like OpenTransport.
  /// REQUIRES: called once at most, and self.id is not 0.
  virtual Status Identify(const MemberIdentity& self) = 0;
  /// Has a memory server cut `member`, and its older incarnations, off for good: their connections
  /// are destroyed (shm: the process is killed), new ones are refused with Fenced. Ok: confirmed,
  /// nothing from them can land at that memory server any more. Any failure: they may be cut off or
  /// not, so ask again; it does no harm twice. Fenced: this process is itself cut off there. Blocks,
  /// bounded by the connect timeout.
  virtual Status CutOff(ServerId server, const MemberIdentity& member) = 0;

  // ---- Memory servers that come and go (tcp, sim), while transports run on other threads
  /// A memory server is known from now on, to transports that are open too: a batch posted behind this connects, and
  /// waits for that no longer than the link's connect timeout; no Post, Poll or OpenTransport does. The server need
  /// not be reachable. Does not block, unless the endpoint has a host's name, which is resolved.
  /// An id that is known with the same address and incarnation (or none is given): Ok, nothing changes. With the same
  /// address and another incarnation: the server has begun another life, and this is Remove and Add in one. With
  /// another address: AlreadyExists. An endpoint without incarnation means the life that answers first; all links of
  /// the process hold to that one. InvalidArgument: not an endpoint of this fabric. Unimplemented: the fabric's
  /// memory servers are those that it was made with.
  virtual Status Add(const ServerEndpoint& endpoint);
  /// The memory server is not known any more: batches posted behind this fail with Unavailable, those that wait for
  /// a connection too. Those in flight fail as if the connection had broken: reported when nothing of them can land
  /// any more, or as Unknown after the connect timeout; until then, batches to a server that was added again under
  /// this id wait. A transport learns of it by its next Post or Poll, and then closes its connection. An id that is
  /// not known, and a fabric that has no Add: no effect.
  virtual void Remove(ServerId server);
};

}  // namespace farleaf::dsm
