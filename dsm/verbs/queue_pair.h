// QueuePair: batches as work requests on one reliable connection.
//
// A batch becomes one linked list of work requests behind one doorbell, of which only the last is
// signalled: one completion a batch. A batch that is larger than a quarter of the send queue or of
// the landing ring is posted in pieces of that size, in order; what finds no room waits. The
// connection keeps the order of the pieces, so completions are those of the oldest piece.
//
// What orders the verbs of a batch (dsm/transport.h, rule 2): a responder executes requests in the
// order of their packet sequence numbers, WRITEs before whatever follows them, and a READ after an
// atomic. It may execute a WRITE or an atomic ahead of the response of an earlier READ: such batches
// are refused by Batch, so that no request here needs a fence.
//
// Invariants: the owner completes every batch: Advance does so for what succeeded, TakeAll hands the
// rest back. At most `depth` work requests are posted and not known to be complete. A completion names
// the piece that it is of; one that is not of the oldest piece means that completions were lost, and
// breaks the connection.
// Thread rule: one thread.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <boost/circular_buffer.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/transport.h"
#include "dsm/verbs/device.h"
#include "dsm/verbs/landing_ring.h"
#include "dsm/verbs/private_data.h"

namespace farleaf::dsm {

/// What posting cost, for tests and measurements.
struct QueuePairCounts {
  uint64_t doorbells = 0;
  uint64_t work_requests = 0;
  uint64_t signalled = 0;
};

class QueuePair {
 public:
  /// Makes the queue pair of `id`, of options.queue_depth work requests, whose completions come to
  /// `completions` with `tag` in their wr_id, beside the piece (PieceOf). `id` outlives it.
  static Result<std::unique_ptr<QueuePair>> Create(rdma_cm_id* id,
                                                   std::shared_ptr<VerbsDevice> device,
                                                   ibv_cq* completions, uint64_t tag,
                                                   const VerbsOptions& options);
  /// Afterwards nothing is sent and nothing lands any more on this side.
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;

  /// The handshake is over: this is where verbs go.
  void SetRemote(const RemoteRegion& remote) { remote_ = remote; }
  /// READs and atomics that may be on their way at once: for the connect request.
  uint8_t reads_in_flight() const { return reads_in_flight_; }

  /// Posts, or keeps until there is room. False: the device refused, the connection is broken.
  bool Post(Batch& batch);
  /// `piece` is complete. Returns the batches completed (0 or 1) and posts what waits; sets `broken` if
  /// that failed, or another piece had to come first.
  size_t Advance(uint16_t piece, bool* broken);
  /// Every batch that is not complete, oldest first.
  std::deque<Batch*> TakeAll();

  bool idle() const { return pieces_.empty() && waiting_.empty(); }
  const QueuePairCounts& counts() const { return counts_; }

  /// A wr_id: bits 0..31 and 48..63 are the tag's, 32..47 number the piece.
  static constexpr uint64_t kTagMask = 0xffff'0000'ffff'ffff;
  static uint16_t PieceOf(uint64_t wr_id) { return static_cast<uint16_t>(wr_id >> 32); }

 private:
  /// Work requests of one batch behind one doorbell.
  struct Piece {
    Batch* batch;
    bool ends_batch;
    uint16_t number;
    uint32_t work_requests;
    uint64_t ring_mark;
  };
  /// A batch not yet posted, or not all of it: the next verb, and the bytes of it that are done.
  struct Cursor {
    Batch* batch;
    size_t verb = 0;
    uint64_t done = 0;
  };
  /// What is copied out when a work request is complete.
  struct Landing {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    uint32_t bytes = 0;
  };

  QueuePair(rdma_cm_id* id, std::shared_ptr<VerbsDevice> device, std::unique_ptr<LandingRing> ring,
            uint64_t tag, uint32_t depth, uint32_t inline_bytes, uint32_t message_bytes_max);
  /// Posts the next piece of the batch at `cursor`; kNoRoom: nothing was done.
  enum class Posted : uint8_t { kPart, kAll, kNoRoom, kBroken };
  Posted PostPiece(Cursor& cursor);
  bool AddRequest(const Verb& verb, uint64_t done, uint32_t bytes, uint32_t index);
  /// Whether it is posted as CAS, so that others' swaps of the word do not undo it.
  bool GoesAsSwap(const Verb& verb) const {
    return verb.kind == VerbKind::kWrite && verb.operand != 0 && !writes_words_atomically_;
  }
  /// Of landings_: `count` places behind `place`.
  uint32_t Behind(uint32_t place, uint32_t count) const {
    const uint32_t sum = place + count;
    return sum < depth_ ? sum : sum - depth_;
  }

  rdma_cm_id* const id_;
  const std::shared_ptr<VerbsDevice> device_;
  const std::unique_ptr<LandingRing> ring_;
  const uint64_t tag_;
  const uint32_t depth_;
  const uint32_t piece_requests_max_;
  const uint64_t piece_bytes_max_;
  const uint32_t inline_bytes_;
  const uint32_t message_bytes_max_;
  const bool writes_words_atomically_;
  uint8_t reads_in_flight_ = 1;
  RemoteRegion remote_;

  uint32_t posted_ = 0;            ///< work requests not known to be complete
  uint32_t oldest_landing_ = 0;    ///< the place of the oldest of them
  std::vector<Landing> landings_;  ///< a ring of depth_ places, one a posted work request
  boost::circular_buffer<Piece> pieces_;
  uint16_t next_piece_ = 0;
  std::deque<Cursor> waiting_;
  std::vector<ibv_send_wr> requests_;  ///< of the piece being made
  std::vector<ibv_sge> segments_;
  QueuePairCounts counts_;
};

}  // namespace farleaf::dsm
