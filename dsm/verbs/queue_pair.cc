#include "dsm/verbs/queue_pair.h"

#include <algorithm>
#include <cstring>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"

namespace farleaf::dsm {

namespace {

/// Makes the queue pair with as much inline room as the device has, which only trying tells; returns
/// that.
Result<uint32_t> MakeQueue(rdma_cm_id* id, const VerbsDevice& device, ibv_cq* completions,
                           const VerbsOptions& options) {
  ibv_qp_init_attr wanted{};
  wanted.qp_type = IBV_QPT_RC;
  wanted.send_cq = wanted.recv_cq = completions;
  wanted.cap.max_send_wr = options.queue_depth;
  wanted.cap.max_recv_wr = 1;
  wanted.cap.max_send_sge = 1;
  wanted.cap.max_recv_sge = 1;
  wanted.cap.max_inline_data = options.inline_bytes;
  while (true) {
    ibv_qp_init_attr attempt = wanted;
    if (rdma_create_qp(id, device.protection_domain(), &attempt) == 0) {
      return std::min(attempt.cap.max_inline_data, options.inline_bytes);
    }
    if (wanted.cap.max_inline_data == 0) {
      return VerbsError("cannot make a queue pair on device " + device.name());
    }
    wanted.cap.max_inline_data /= 2;
  }
}

}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::Create(rdma_cm_id* id,
                                                     std::shared_ptr<VerbsDevice> device,
                                                     ibv_cq* completions, uint64_t tag,
                                                     const VerbsOptions& options) {
  ibv_port_attr port;
  if (ibv_query_port(device->context(), id->port_num, &port) != 0) {
    return VerbsError("cannot query port " + std::to_string(id->port_num) + " of device " +
                      device->name());
  }
  auto ring = LandingRing::Create(*device, options.landing_bytes);
  if (!ring.ok()) return ring.status();
  auto inline_bytes = MakeQueue(id, *device, completions, options);
  if (!inline_bytes.ok()) return inline_bytes.status();
  return std::unique_ptr<QueuePair>(new QueuePair(id, std::move(device), std::move(*ring), tag,
                                                  options.queue_depth, *inline_bytes,
                                                  port.max_msg_sz));
}

QueuePair::QueuePair(rdma_cm_id* id, std::shared_ptr<VerbsDevice> device,
                     std::unique_ptr<LandingRing> ring, uint64_t tag, uint32_t depth,
                     uint32_t inline_bytes, uint32_t message_bytes_max)
    : id_(id),
      device_(std::move(device)),
      ring_(std::move(ring)),
      tag_(tag),
      depth_(depth),
      piece_requests_max_(std::max(depth / 4, 1u)),
      piece_bytes_max_(ring_->bytes() / 4),
      inline_bytes_(inline_bytes),
      message_bytes_max_(message_bytes_max),
      writes_words_atomically_(device_->writes_words_atomically()),
      landings_(depth),
      pieces_(depth),
      requests_(piece_requests_max_),
      segments_(piece_requests_max_) {
  constexpr int kReadsMax = UINT8_MAX;
  reads_in_flight_ =
      static_cast<uint8_t>(std::clamp(device_->limits().max_qp_init_rd_atom, 1, kReadsMax));
}

QueuePair::~QueuePair() { rdma_destroy_qp(id_); }

bool QueuePair::Post(Batch& batch) {
  Cursor cursor{&batch};
  if (waiting_.empty()) [[likely]] {
    Posted posted = PostPiece(cursor);
    while (posted == Posted::kPart) posted = PostPiece(cursor);
    if (posted == Posted::kAll) [[likely]]
      return true;
    waiting_.push_back(cursor);
    return posted != Posted::kBroken;
  }
  waiting_.push_back(cursor);
  return true;
}

size_t QueuePair::Advance(uint16_t number, bool* broken) {
  if (pieces_.empty() || pieces_.front().number != number) [[unlikely]] {
    *broken = true;
    return 0;
  }
  const Piece piece = pieces_.front();
  pieces_.pop_front();
  for (uint32_t i = 0; i < piece.work_requests; ++i) {
    const Landing& landed = landings_[Behind(oldest_landing_, i)];
    if (landed.bytes > 0) std::memcpy(landed.to, landed.from, landed.bytes);
  }
  oldest_landing_ = Behind(oldest_landing_, piece.work_requests);
  posted_ -= piece.work_requests;
  ring_->Release(piece.ring_mark);
  if (pieces_.empty()) ring_->Rewind();
  // Posted before the completion is told, which may end in anything.
  while (!waiting_.empty()) {
    const Posted posted = PostPiece(waiting_.front());
    if (posted == Posted::kAll) waiting_.pop_front();
    *broken |= posted == Posted::kBroken;
    if (posted == Posted::kNoRoom || posted == Posted::kBroken) break;
  }
  if (!piece.ends_batch) return 0;
  piece.batch->CompleteWith(Status::Ok());
  return 1;
}

std::deque<Batch*> QueuePair::TakeAll() {
  std::deque<Batch*> batches;
  // A batch in pieces is in both queues.
  auto add = [&batches](Batch* batch) {
    if (batches.empty() || batches.back() != batch) batches.push_back(batch);
  };
  for (const Piece& piece : pieces_) add(piece.batch);
  for (const Cursor& cursor : waiting_) add(cursor.batch);
  pieces_.clear();
  waiting_.clear();
  return batches;
}

QueuePair::Posted QueuePair::PostPiece(Cursor& cursor) {
  const auto verbs = cursor.batch->verbs();
  FARLEAF_DCHECK(cursor.verb < verbs.size());
  Cursor next = cursor;
  // Not in dribs and drabs: what finds no room waits until a piece of full size does.
  const uint64_t requests_left = verbs.size() - cursor.verb;
  if (depth_ - posted_ < std::min<uint64_t>(requests_left, piece_requests_max_)) {
    return Posted::kNoRoom;
  }
  uint32_t count = 0;
  uint64_t bytes = 0;
  while (next.verb < verbs.size() && count < piece_requests_max_ && posted_ + count < depth_) {
    const Verb& verb = verbs[next.verb];
    const uint64_t rest = verb.length - next.done;
    const auto part =
        static_cast<uint32_t>(std::min({rest, piece_bytes_max_, uint64_t{message_bytes_max_}}));
    if (count > 0 && bytes + part > piece_bytes_max_) break;
    if (!AddRequest(verb, next.done, part, count)) break;
    // What was a WRITE for the caller orders what is behind it.
    if (next.verb > 0 && GoesAsSwap(verbs[next.verb - 1])) [[unlikely]] {
      requests_[count].send_flags |= IBV_SEND_FENCE;
    }
    bytes += part;
    ++count;
    next.done += part;
    if (next.done == verb.length) next = {next.batch, next.verb + 1, 0};
  }
  if (count == 0) return Posted::kNoRoom;
  for (uint32_t i = 0; i + 1 < count; ++i) requests_[i].next = &requests_[i + 1];
  requests_[count - 1].next = nullptr;
  requests_[count - 1].send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(id_->qp, requests_.data(), &refused);
  const bool all = next.verb == verbs.size();
  posted_ += count;
  pieces_.push_back({cursor.batch, all, next_piece_++, count, ring_->mark()});
  cursor = next;
  ++counts_.doorbells;
  ++counts_.signalled;
  counts_.work_requests += count;
  if (error != 0) [[unlikely]]
    return Posted::kBroken;
  return all ? Posted::kAll : Posted::kPart;
}

/// Makes request `index` of a piece, for `bytes` of the verb from `done` on. False: no room in the
/// ring.
bool QueuePair::AddRequest(const Verb& verb, uint64_t done, uint32_t bytes, uint32_t index) {
  ibv_send_wr& request = requests_[index];
  ibv_sge& segment = segments_[index];
  Landing& landing = landings_[Behind(oldest_landing_, posted_ + index)];
  std::byte* const local = verb.local + done;
  const bool is_write = verb.kind == VerbKind::kWrite;
  const bool swaps = GoesAsSwap(verb);
  const bool is_inline = is_write && !swaps && bytes <= inline_bytes_;
  std::byte* space = local;
  if (!is_inline) {
    space = ring_->Take(bytes);
    if (space == nullptr) return false;
    if (is_write && !swaps) std::memcpy(space, local, bytes);
  }
  landing = is_write ? Landing{} : Landing{local, space, bytes};
  segment = {reinterpret_cast<uint64_t>(space), bytes, ring_->key()};
  request.wr_id = tag_ | uint64_t{next_piece_} << 32;
  request.sg_list = &segment;
  request.num_sge = 1;
  request.send_flags = is_inline ? unsigned{IBV_SEND_INLINE} : 0u;
  const uint64_t address = remote_.address + verb.offset + done;
  const auto atomic = [&](ibv_wr_opcode opcode, uint64_t operand, uint64_t desired) {
    request.opcode = opcode;
    request.wr.atomic.remote_addr = address;
    request.wr.atomic.rkey = remote_.key;
    request.wr.atomic.compare_add = operand;
    request.wr.atomic.swap = desired;
  };
  switch (verb.kind) {
    case VerbKind::kRead:
    case VerbKind::kWrite:
      if (swaps) {
        atomic(IBV_WR_ATOMIC_CMP_AND_SWP, verb.operand, LoadLittle<uint64_t>(local));
        break;
      }
      request.opcode = is_write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
      request.wr.rdma.remote_addr = address;
      request.wr.rdma.rkey = remote_.key;
      break;
    case VerbKind::kCompareAndSwap:
      atomic(IBV_WR_ATOMIC_CMP_AND_SWP, verb.operand, verb.desired);
      break;
    case VerbKind::kFetchAdd:
      atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, verb.operand, 0);
      break;
  }
  return true;
}

}  // namespace farleaf::dsm
