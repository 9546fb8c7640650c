// BatchExecutor: the memory server's side of one connection, without the socket. Request bytes go
// in as they arrive, reply bytes come out as there is room for them.
//
// Invariants:
//   - batches run in the order of their arrival, verbs in the order of their batch;
//   - nothing of a batch runs before all of its verbs were validated;
//   - whatever the bytes, nothing outside the region is touched and at most 64 KiB are held here.
// Thread rule: one thread. Several executors may work on one region (dsm/shm/mapped_verbs.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/tcp/byte_queue.h"
#include "dsm/tcp/frame.h"

namespace farleaf::dsm {

class BatchExecutor {
 public:
  /// Input that must fit into the buffer in front of an executor for it to proceed for certain.
  static constexpr size_t kContiguousBytesMax = Batch::kVerbsMax * kFrameVerbBytes;
  /// Room in the output below which an executor waits.
  static constexpr size_t kOutputRoomMin = 4096;

  /// `name`: "memory server 3", for messages.
  BatchExecutor(std::span<std::byte> region, std::string name)
      : region_(region), name_(std::move(name)) {}

  /// Consumes from the front of `in` until it needs more bytes or `out` has less than
  /// kOutputRoomMin of room; returns the number of bytes consumed. Corruption: the stream cannot be
  /// followed any further; the reason is in `out` and the connection ends when that is sent.
  Result<size_t> Consume(std::span<const std::byte> in, ByteQueue* out);

 private:
  enum class State : uint8_t { kHeader, kVerbs, kRun, kSkip };
  /// Each takes from the front of *in; false: it waits for input or for room.
  bool TakeHeader(std::span<const std::byte>* in);
  bool TakeVerbs(std::span<const std::byte>* in, ByteQueue* out);
  bool Skip(std::span<const std::byte>* in);
  bool RunVerb(std::span<const std::byte>* in, ByteQueue* out);
  bool RunWrite(const FrameVerb& verb, std::span<const std::byte>* in);
  bool RunRead(const FrameVerb& verb, ByteQueue* out);
  bool RunAtomic(const FrameVerb& verb, std::span<const std::byte>* in, ByteQueue* out);
  void BeginReply(ByteQueue* out);

  std::span<std::byte> region_;
  std::string name_;
  State state_ = State::kHeader;
  Status broken_;
  RequestHeader header_;
  std::vector<FrameVerb> verbs_;
  size_t next_verb_ = 0;
  uint32_t verb_done_bytes_ = 0;  ///< of a READ or WRITE in progress
  bool reply_begun_ = false;
  uint64_t result_bytes_ = 0;
  uint64_t skip_bytes_ = 0;
};

}  // namespace farleaf::dsm
