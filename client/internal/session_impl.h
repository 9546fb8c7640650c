// The member functions of Session: connecting, the operations' way out and back, deadlines.
#pragma once

#include "client/session.h"

namespace farleaf::client {

// ---- Connecting ----

inline void Session::StartConnecting(uint64_t now_ns) {
  if (addresses_.empty()) {
    Status unresolved;
    for (size_t i = 0; i < endpoints_.size(); ++i) {
      auto resolved = internal::Resolve(endpoints_[i]);
      if (!resolved.ok()) {
        unresolved = resolved.status();
        continue;
      }
      for (const auto& address : *resolved) addresses_.push_back({address, i});
    }
    if (addresses_.empty()) return ConnectingFailed(unresolved);
    std::reverse(addresses_.begin(), addresses_.end());  // taken from the back
  }
  const Address next = addresses_.back();
  addresses_.pop_back();
  const Endpoint& endpoint = endpoints_[next.endpoint];
  if (endpoints_.size() > 1) name_ = endpoint.ToString();
  connection_.set_transport(options_.transport, endpoint.host);
  trees_opening_ = 0;
  handshake_end_ns_ = now_ns + options_.connect_timeout_ms * kNsPerMs;
  const uint32_t ring_bytes = endpoint.ring ? options_.ring_bytes : 0;
  const Status opened = connection_.Open(next.address, view_, {ring_bytes, ring_bytes});
  if (!opened.ok()) ConnectingFailed(opened);
}

inline void Session::ConnectingFailed(const Status& why) {
  connection_.Close();
  last_error_ = why;
  if (!addresses_.empty()) {
    retry_at_ns_ = 0;  // the host's next address, at once
    return;
  }
  const uint64_t longest =
      std::min(options_.backoff_ms_max, options_.backoff_ms_min << std::min(failed_rounds_, 20u));
  ++failed_rounds_;
  retry_at_ns_ =
      clock_->NowNs() + (longest * kNsPerMs / 2) + random_.Below(longest * kNsPerMs / 2 + 1);
}

inline void Session::HelloDone() {
  server_view_ = connection_.hello().view;
  if (!options_.routed_by_caller) view_ = server_view_;
  for (uint32_t handle = 0; handle < trees_.size(); ++handle) {
    if (trees_[handle].state != KnownTree::State::kUnknown) OpenHere(handle);
  }
  if (trees_opening_ == 0) TreesAreOpen();
}

/// Until the answer is there nothing is sent, so that operations stay in their order.
inline void Session::OpenHere(uint32_t handle) {
  protocol::Request request;
  request.opcode = protocol::Opcode::kOpenTree;
  request.id = kReopenIds | handle;
  request.name = handles_->tree(handle).name;
  SendUnrouted(request);
  if (handle >= trees_.size()) trees_.resize(handle + 1);
  trees_[handle].state = KnownTree::State::kOpening;
  ++trees_opening_;
}

/// The operations may go.
inline void Session::TreesAreOpen() {
  if (ready_) return;
  ready_ = true;
  ready_since_ns_ = clock_->NowNs();
  // They would be refused. It is told now, since some of them would not be if the server came to have their view
  // between two batches.
  if (options_.routed_by_caller && view_ != server_view_) GiveBackQueued(Which::kRouted);
}

inline void Session::TreeReopened(const protocol::Response& response) {
  const uint64_t handle = response.id & ~kReopenIds;
  if (response.opcode != protocol::Opcode::kOpenTree || handle >= trees_.size() ||
      trees_[handle].state != KnownTree::State::kOpening) {
    return Disconnect(Status::Corruption("an answer to no request"));
  }
  KnownTree& tree = trees_[handle];
  if (response.code == StatusCode::kOk) {
    tree.state = KnownTree::State::kOpen;
    tree.server_id = response.trees.front().id;
  } else if (response.code == StatusCode::kNotFound || ready_) {
    tree.state = KnownTree::State::kFailed;
    tree.status = Status(response.code, name_ + ": " + std::string(response.message));
    tree.retry_at_ns = clock_->NowNs() + kTreeRetryMs * kNsPerMs;
  } else {
    return Disconnect(Status(response.code, std::string(response.message)));
  }
  if (--trees_opening_ == 0) TreesAreOpen();
}

/// Ends the writes whose outcome is unknown, and keeps all else for the next connection.
inline void Session::Disconnect(const Status& why) {
  const bool was_ready = ready_;
  const uint64_t sent = connection_.stream_sent();
  connection_.Close();
  ready_ = false;
  sent_batches_.clear();
  sent_slots_.clear();
  EndHold();
  if (!was_ready) return ConnectingFailed(why);
  addresses_.clear();
  // Connections that are lost as soon as they are made back off like those that are never made.
  if (clock_->NowNs() - ready_since_ns_ > options_.backoff_ms_max * kNsPerMs) failed_rounds_ = 0;
  ConnectingFailed(why);
  std::vector<uint32_t> to_finish, again;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.state != SlotState::kSent) continue;
    const bool read = slot.operation.idempotent();
    // A server runs a request only when it has all of its batch.
    const bool may_have_run = slot.batch_end <= sent;
    const bool give_up = may_have_run && (!read || ++slot.reissues > options_.reissues_max);
    (give_up ? to_finish : again).push_back(i);
  }
  RequeueInFront(std::move(again));
  for (uint32_t i : to_finish) Finish(i, LossOf(slots_[i], why.message()));
}

inline Status Session::LossOf(const Slot& slot, std::string_view why) const {
  const std::string what =
      name_ + ": " + std::string(OpcodeName(slot.operation.opcode)) + ": " + std::string(why);
  if (slot.state == SlotState::kSent && !slot.operation.idempotent()) {
    return Status::Unknown(what + "; it may or may not have taken effect");
  }
  return Status::Unavailable(what);
}

// ---- Operations ----

inline void Session::Submit(Operation&& operation, CallOptions call) {
  if (closing_) {
    operation.Fail(Status::Unavailable(name_ + ": the session is being closed"));
    return;
  }
  if (pending() >= options_.pending_max) {
    operation.Fail(Status::ResourceExhausted(name_ + ": " + std::to_string(pending()) +
                                             " operations are pending, the limit of this " +
                                             "session; poll until some have ended"));
    return;
  }
  if (operation.deadline_ns == 0) {
    const uint64_t ms = call.deadline_ms ? call.deadline_ms : options_.deadline_ms;
    const uint64_t now_ns = clock_->NowNs();
    operation.deadline_ns =
        ms > (UINT64_MAX - now_ns) / kNsPerMs ? UINT64_MAX - 1 : now_ns + ms * kNsPerMs;
  }
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const uint32_t index = free_slots_.back();
  free_slots_.pop_back();
  earliest_deadline_ns_ = std::min(earliest_deadline_ns_, operation.deadline_ns);
  slots_[index].operation = std::move(operation);
  slots_[index].reissues = 0;
  Requeue(index);
}

/// Encodes queued operations behind what the kernel has not yet taken, up to a bound: what is not
/// encoded is known not to have been sent.
inline void Session::FillOut() {
  if (queue_.empty() || holding_) return;
  const uint64_t now_ns = clock_->NowNs();
  const size_t wanted = connection_.ring() ? kRingOutBytesWanted : kOutBytesWanted;
  while (!queue_.empty() && trees_opening_ == 0 && connection_.unsent_bytes() < wanted) {
    SendBatch(now_ns);
  }
}

/// Encodes the next batch; none if no queued operation is to be sent.
inline void Session::SendBatch(uint64_t now_ns) {
  std::string& out = connection_.out();
  const bool unrouted = options_.routed_by_caller && NextIsUnrouted();
  const size_t begin = protocol::BeginBatch(next_batch_, unrouted ? 0 : view_, &out);
  batch_slots_.clear();
  // Through a ring each request has its own answer, so that none waits for those sent beside it.
  const size_t requests_max = connection_.ring() ? 1 : options_.batch_requests_max;
  while (!queue_.empty() && batch_slots_.size() < requests_max &&
         out.size() - begin < options_.batch_bytes) {
    const uint32_t index = queue_.front();
    // One that is large has a batch of its own, since a frame has a bound.
    if (!batch_slots_.empty() && slots_[index].operation.frame.size() > options_.batch_bytes) break;
    if (options_.routed_by_caller && NextIsUnrouted() != unrouted) break;
    queue_.pop_front();
    const Encoded encoded = EncodeForBatch(index, now_ns);
    if (encoded == Encoded::kDropped) continue;
    if (encoded == Encoded::kTreeIsNotOpen) {
      queue_.push_front(index);
      break;
    }
    slots_[index].batch = next_batch_;
    batch_slots_.push_back(index);
  }
  if (batch_slots_.empty()) {
    out.resize(begin);
  } else {
    EndBatch(begin);
  }
  if (tree_to_open_ != Operation::kNoTree) {
    OpenHere(std::exchange(tree_to_open_, Operation::kNoTree));
  }
}

inline void Session::EndBatch(size_t begin) {
  std::string& out = connection_.out();
  protocol::EndBatch(begin, static_cast<uint32_t>(batch_slots_.size()), &out);
  NoteSent(batch_slots_);
  for (const uint32_t index : batch_slots_) {
    slots_[index].batch_end = connection_.stream_queued();
    slots_[index].state = SlotState::kSent;
  }
}

/// Appends a queued operation's request to the batch.
inline Session::Encoded Session::EncodeForBatch(uint32_t index, uint64_t now_ns) {
  Slot& slot = slots_[index];
  if (slot.state != SlotState::kQueued) return Encoded::kDropped;
  Operation& operation = slot.operation;
  const auto refuse = [&](const Status& why) {
    Finish(index, why);
    return Encoded::kDropped;
  };
  if (operation.deadline_ns <= now_ns) {
    return refuse(Status::DeadlineExceeded(name_ + ": " +
                                           std::string(OpcodeName(operation.opcode)) +
                                           " waited until its deadline to be sent"));
  }
  const uint32_t value_bytes_max = connection_.hello().value_bytes_max;
  if (operation.frame.size() + protocol::kBatchHeaderBytes >
      protocol::FrameBytesMax(std::min(value_bytes_max, protocol::kValueBytesMax))) {
    return refuse(Status::InvalidArgument(
        name_ + ": a request of " + std::to_string(operation.frame.size()) +
        " bytes; this server takes values of " + std::to_string(value_bytes_max)));
  }
  uint32_t tree_id = 0;
  if (operation.tree != Operation::kNoTree) {
    if (operation.tree >= trees_.size()) trees_.resize(operation.tree + 1);
    const KnownTree& tree = trees_[operation.tree];
    if (tree.state != KnownTree::State::kOpen) {
      if (tree.state == KnownTree::State::kFailed && now_ns < tree.retry_at_ns) {
        return refuse(tree.status);
      }
      tree_to_open_ = operation.tree;
      return Encoded::kTreeIsNotOpen;
    }
    tree_id = tree.server_id;
  }
  // The server ends a little earlier than we do, so that its refusal, which says that nothing
  // happened, arrives before we would have to call the outcome unknown.
  const uint64_t left_ms = (operation.deadline_ns - now_ns) / kNsPerMs;
  const uint64_t server_ms = std::max<uint64_t>(1, left_ms - std::min<uint64_t>(left_ms / 8, 100));
  char* const header = operation.frame.data();
  StoreLittle<uint64_t>(header + protocol::kRequestIdAt, (uint64_t{slot.generation} << 32) | index);
  StoreLittle<uint32_t>(header + protocol::kRequestTreeAt, tree_id);
  StoreLittle<uint32_t>(header + protocol::kRequestDeadlineAt,
                        static_cast<uint32_t>(std::min<uint64_t>(server_ms, UINT32_MAX)));
  connection_.out().append(operation.frame);
  return Encoded::kYes;
}

/// A request of the session's own, in a batch that no view routes.
inline void Session::SendUnrouted(const protocol::Request& request) {
  protocol::AppendBatch(next_batch_, 0, request, &connection_.out());
  NoteSent({});
}

inline bool Session::ReceiveAll() {
  const auto received = connection_.Receive();
  if (!received.ok()) {
    Disconnect(received.status());
    return true;
  }
  if (!*received) return false;
  if (connection_.state() != internal::Connection::State::kOpen) return true;
  if (!ready_ && trees_opening_ == 0) HelloDone();
  while (connection_.state() == internal::Connection::State::kOpen) {
    const auto body = connection_.NextFrame();
    if (!body.ok()) {
      Disconnect(body.status());
      break;
    }
    if (!body->has_value()) break;
    protocol::Response response;
    const Status parsed = ParseResponse(**body, &response);
    if (!parsed.ok()) {
      Disconnect(parsed);
      break;
    }
    TakeResponse(response);
    // A response that made us disconnect has taken the buffer with it.
    if (connection_.state() != internal::Connection::State::kOpen) break;
    connection_.ConsumeFrame(**body);
  }
  EndHoldIfClear();
  return true;
}

inline void Session::TakeResponse(const protocol::Response& response) {
  if (response.wrong_view) return BatchRefused(response);
  if (response.goodbye) return TakeGoodbye();
  if (response.id == kRangeMapId) return TakeRangeMap(response);
  if (response.id & kReopenIds) return TreeReopened(response);
  const auto index = static_cast<uint32_t>(response.id);
  const auto generation = static_cast<uint32_t>(response.id >> 32);
  if (index >= slots_.size()) return Disconnect(Status::Corruption("an answer to no request"));
  Slot& slot = slots_[index];
  // An answer that comes after the deadline finds its slot in other use, or in none.
  if (slot.generation != generation || slot.state != SlotState::kSent) return;
  if (slot.operation.opcode != response.opcode) {
    return Disconnect(Status::Corruption("an answer of another kind than the request"));
  }
  if (response.code != StatusCode::kOk) {
    return Finish(index, Status(response.code, name_ + ": " + std::string(response.message)));
  }
  Complete(index, response);
}

inline void Session::Complete(uint32_t index, const protocol::Response& response) {
  using protocol::Opcode;
  slots_[index].operation.NoteStaleness(response);
  if (Operation::Pieces* const pieces = slots_[index].operation.pieces.get()) {
    auto done = internal::TakePiece(response, pieces);
    if (!done.ok()) return Finish(index, done.status().WithContext(name_));
    // The callback may start operations, so that slots move; what they point to stays.
    const bool stopped = pieces->on_piece && !internal::PassPiece(pieces);
    if (*done && !stopped && pieces->beyond && pieces->range.limit > 0) {
      pieces->part_done = true;
      return returns_(Free(index));
    }
    if (!*done && !stopped) {
      internal::EncodeNextPiece(&slots_[index].operation);
      LeaveBatch(slots_[index]);
      return Requeue(index);
    }
  }
  Operation operation = Release(index);
  switch (operation.opcode) {
    case Opcode::kGet:
      return operation.Succeed<Value>(response.value ? Value(*response.value) : Value());
    case Opcode::kMultiGet:
      return operation.Succeed<Values>(std::move(operation.pieces->values));
    case Opcode::kScan:
      if (operation.pieces->on_piece) {
        return operation.Succeed<uint64_t>(operation.pieces->rows_passed);
      }
      return operation.Succeed<Rows>(std::move(operation.pieces->rows));
    case Opcode::kInsert:
    case Opcode::kPut:
    case Opcode::kUpdate:
    case Opcode::kDelete:
      return operation.Succeed<bool>(response.changed);
    case Opcode::kDeleteIf:
      return operation.Succeed<ConditionOutcome>(response.outcome);
    case Opcode::kCompareAndSet: {
      CompareAndSetResult result{response.outcome, std::nullopt};
      if (result.outcome == ConditionOutcome::kDifferent) result.current = response.current;
      return operation.Succeed<CompareAndSetResult>(std::move(result));
    }
    case Opcode::kAdd:
      return operation.Succeed<int64_t>(response.number);
    case Opcode::kOpenTree:
    case Opcode::kCreateTree:
      return operation.Succeed<OpenedTree>(
          {response.trees.front(), RegisterTree(response.trees.front())});
    case Opcode::kListTrees:
      return operation.Succeed<std::vector<TreeInfo>>(response.trees);
    case Opcode::kRangeMap:
      server_view_ = response.view;
      return operation.Succeed<RangeMap>({response.view, response.ranges});
    case Opcode::kServerStats:
    case Opcode::kSlowLog:
    case Opcode::kPing:
    case Opcode::kOpenRing:
      return operation.Succeed<std::string>(std::string(response.text));
  }
}

/// As Free, for an operation that has ended.
inline Operation Session::Release(uint32_t index) {
  std::string& frame = slots_[index].operation.frame;
  if (frame.capacity() <= kSpareFrameBytesMax && spare_frames_.size() < kSpareFramesMax) {
    frame.clear();
    spare_frames_.push_back(std::move(frame));
  }
  return Free(index);
}

inline Operation Session::Free(uint32_t index) {
  Slot& slot = slots_[index];
  if (slot.state == SlotState::kSent) LeaveBatch(slot);
  ++ended_;
  // The top bit of an id marks the session's own requests.
  slot.generation = (slot.generation + 1) & 0x7fffffff;
  slot.state = SlotState::kFree;
  free_slots_.push_back(index);
  return std::move(slot.operation);
}

inline void Session::Finish(uint32_t index, const Status& failure) { Release(index).Fail(failure); }

inline uint32_t Session::RegisterTree(const TreeInfo& tree) {
  const uint32_t handle = handles_->HandleOf(tree);
  if (handle >= trees_.size()) trees_.resize(handle + 1);
  // One that is being opened again is answered in its turn.
  if (trees_[handle].state != KnownTree::State::kOpening) {
    trees_[handle].state = KnownTree::State::kOpen;
    trees_[handle].server_id = tree.id;
  }
  return handle;
}

inline void Session::ExpireDeadlines(uint64_t now_ns) {
  if (now_ns < earliest_deadline_ns_) return;
  std::vector<uint32_t> expired;
  earliest_deadline_ns_ = UINT64_MAX;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state == SlotState::kFree) continue;
    const uint64_t deadline_ns = slots_[i].operation.deadline_ns;
    if (deadline_ns <= now_ns) {
      expired.push_back(i);
    } else {
      earliest_deadline_ns_ = std::min(earliest_deadline_ns_, deadline_ns);
    }
  }
  for (uint32_t i : expired) {
    const Slot& slot = slots_[i];
    const std::string what = name_ + ": " + std::string(OpcodeName(slot.operation.opcode));
    if (slot.state == SlotState::kSent && !slot.operation.idempotent()) {
      Finish(i, LossOf(slot, "no answer by its deadline"));
    } else if (!ready_) {
      Finish(i, Status::Unavailable(what + ": not connected until its deadline: " +
                                    std::string(last_error_.message())));
    } else {
      Finish(i, Status::DeadlineExceeded(what + ": no answer by its deadline"));
    }
  }
}

// ---- The loop ----

inline uint64_t Session::NextDueNs() const {
  uint64_t due_ns = earliest_deadline_ns_;
  if (connection_.state() == internal::Connection::State::kClosed) {
    due_ns = std::min(due_ns, retry_at_ns_);
  } else if (!ready_) {
    due_ns = std::min(due_ns, handshake_end_ns_);
  }
  return due_ns;
}

inline size_t Session::Poll(uint64_t timeout_ms, int wake_fd) {
  if (!Advance() && timeout_ms > 0) {
    const uint64_t due_ns = NextDueNs();
    const uint64_t until_due_ns = due_ns > turn_ns_ ? due_ns - turn_ns_ : 0;
    WaitForEvents(std::min(timeout_ms * kNsPerMs, until_due_ns), wake_fd);
  }
  return ended_;
}

inline bool Session::Talks() const {
  using State = internal::Connection::State;
  return connection_.state() == State::kHello || connection_.state() == State::kRing ||
         connection_.state() == State::kOpen;
}

inline bool Session::Advance() {
  using State = internal::Connection::State;
  ended_ = 0;
  const uint64_t now_ns = turn_ns_ = clock_->NowNs();
  // What is answered has not missed its deadline, however long this process stood still.
  if (now_ns >= earliest_deadline_ns_ && Talks()) ReceiveAll();
  ExpireDeadlines(now_ns);
  if (connection_.state() == State::kClosed && now_ns >= retry_at_ns_) StartConnecting(now_ns);
  if (!ready_ && connection_.state() != State::kClosed && now_ns >= handshake_end_ns_) {
    ConnectingFailed(Status::Unavailable("no answer to the hello within " +
                                         std::to_string(options_.connect_timeout_ms) + " ms"));
  }
  EndHoldIfClear();
  Flush();
  const bool received = Talks() && ReceiveAll();
  return received || ended_ > 0;
}

/// Looks for an answer for a while; returns whether one has come. The processor is left to others soon: they may
/// be what the server waits for.
inline bool Session::PollRing() {
  constexpr uint32_t kLooksBeforeYield = 400, kLooksPerClock = 64;
  if (pending() == 0) return false;
  const uint64_t end_ns = clock_->NowNs() + options_.ring_poll_us * 1'000;
  for (uint32_t looks = 1;; ++looks) {
    if (connection_.ring()->half().Ready()) return true;
    if (looks > kLooksBeforeYield) ::sched_yield();
    if (looks % kLooksPerClock == 0 && clock_->NowNs() >= end_ns) return false;
    internal::Pause();
  }
}

inline void Session::WaitForEvents(uint64_t timeout_ns, int wake_fd) {
  if (connection_.ring() && PollRing()) {
    ReceiveAll();
    return;
  }
  pollfd fds[2] = {{}, {wake_fd, POLLIN, 0}};
  if (!BeginWait(&fds[0])) return;
  const uint64_t timeout_ms = std::min<uint64_t>((timeout_ns + kNsPerMs - 1) / kNsPerMs, 60'000);
  if (::poll(fds, 2, static_cast<int>(timeout_ms)) <= 0) fds[0].revents = 0;
  EndWait(fds[0]);
}

inline bool Session::BeginWait(pollfd* waited) {
  internal::RingLink* const ring = connection_.ring();
  if (ring && !ring->MaySleep()) {
    ring->Awake();
    ReceiveAll();
    return false;
  }
  // A closed connection's descriptor is negative, which poll ignores.
  *waited = {connection_.fd(), POLLIN, 0};
  if (connection_.state() == internal::Connection::State::kDialling) {
    waited->events = POLLOUT;
  } else if (connection_.wants_write()) {
    waited->events = POLLIN | POLLOUT;
  }
  return true;
}

inline void Session::EndWait(const pollfd& waited) {
  if (internal::RingLink* const ring = connection_.ring()) {
    ring->Awake();
    const Status woken = waited.revents != 0 ? connection_.DrainWakeUps() : Status::Ok();
    // The server may have answered and ended.
    ReceiveAll();
    if (!woken.ok() && connection_.state() == internal::Connection::State::kOpen) Disconnect(woken);
    return;
  }
  if (waited.revents == 0) return;
  if (connection_.state() == internal::Connection::State::kDialling) {
    const Status dialled = connection_.FinishDialling();
    if (!dialled.ok()) ConnectingFailed(dialled);
    return;
  }
  if (waited.revents & POLLOUT) connection_.Send();
  if (waited.revents & (POLLIN | POLLHUP | POLLERR)) ReceiveAll();
}

}  // namespace farleaf::client
