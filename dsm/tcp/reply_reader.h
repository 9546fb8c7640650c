// ReplyReader: the client's side of one connection's replies, without the socket. Knows the batches
// in flight, checks every reply against the oldest of them, and completes it.
//
// Invariant: bytes are only ever written into memory that the verbs of the oldest batch name.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "dsm/base/result.h"
#include "dsm/tcp/frame.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

class ReplyReader {
 public:
  /// `batch` was sent, as number `sequence`, behind all expected before it.
  void Expect(Batch* batch, uint64_t sequence) { expected_.push_back({batch, sequence}); }
  bool empty() const { return expected_.empty(); }
  size_t in_flight() const { return expected_.size(); }

  /// Consumes from the front of `in`, completes what is complete and adds it to *completed. Returns
  /// the number of bytes consumed. Corruption: the peer's bytes make no sense.
  Result<size_t> Consume(std::span<const std::byte> in, size_t* completed);

  /// Where the next bytes of the stream belong, if in the middle of a READ's result; else empty. A
  /// caller that holds no unconsumed bytes may receive into it directly.
  std::span<std::byte> Destination() const;
  void CommitDestination(size_t bytes, size_t* completed);

  /// Forgets everything; returns the batches that were in flight, oldest first.
  std::deque<Batch*> TakeAll();

 private:
  struct Expected {
    Batch* batch;
    uint64_t sequence;
  };
  Status TakeHeader(std::span<const std::byte> header);
  /// Goes to the next verb with a result, or completes the batch.
  void Advance(size_t* completed);

  std::deque<Expected> expected_;
  bool in_result_ = false;
  StatusCode code_ = StatusCode::kOk;
  size_t message_bytes_ = 0;  ///< of a failed batch's reply
  size_t verb_ = 0;
  size_t verb_done_bytes_ = 0;
};

}  // namespace farleaf::dsm
