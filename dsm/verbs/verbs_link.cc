#include "dsm/verbs/verbs_link.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace farleaf::dsm {

namespace {

// Reasons of a rejection (InfiniBand specification, volume 1, 12.6.7.2).
constexpr int kRejectedNobodyListens = 8;
constexpr int kRejectedByServer = 28;

/// The exponent n of 4.096 us x 2^n that is at least `ms`; 1 to 31.
uint8_t AckTimeoutExponent(uint64_t ms) {
  const uint64_t units = std::max<uint64_t>(ms * 1'000'000 / 4'096, 2);
  return static_cast<uint8_t>(std::min<int>(std::bit_width(units - 1), 31));
}

}  // namespace

VerbsLink::VerbsLink(VerbsLinkHost* host, uint16_t index, KnownServers::Server server,
                     std::optional<SocketAddress> source, Hello hello, const VerbsOptions& options,
                     const Clock* clock)
    : host_(host),
      index_(index),
      server_(std::move(server)),
      address_(server_->address()),
      source_(std::move(source)),
      hello_(std::move(hello)),
      options_(options),
      clock_(clock),
      recovery_("memory server " + std::to_string(hello_.server), options.recovery, clock) {}

VerbsLink::~VerbsLink() {
  Drop();
  host_->Freed(index_);
}

// ---- Connecting
// ----------------------------------------------------------------------------------

void VerbsLink::Connect() {
  if (state_ != State::kDown || held_back_) return;
  recovery_.AttemptStarted();
  try_failure_ = Status::Ok();
  Dial();
}

void VerbsLink::Dial() {
  constexpr uint64_t kTriesPerAttempt = 3;
  try_deadline_ns_ =
      clock_->NowNs() + options_.recovery.connect_timeout_ms * kNsPerMs / kTriesPerAttempt;
  generation_ = host_->NextGeneration();
  rdma_cm_id* raw = nullptr;
  if (rdma_create_id(host_->event_channel(), &raw, this, RDMA_PS_TCP) != 0) {
    AttemptFailed(VerbsError("cannot connect over RDMA"), Server::kMaybeThere);
    return;
  }
  id_.reset(raw);
  uint8_t ack_timeout = AckTimeoutExponent(options_.ack_timeout_ms);
  // A kernel without this option chooses for itself.
  (void)rdma_set_option(raw, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout,
                        sizeof ack_timeout);
  auto address_of = [](const SocketAddress& address) {
    return reinterpret_cast<sockaddr*>(const_cast<sockaddr_storage*>(&address.storage));
  };
  sockaddr* source = source_ ? address_of(*source_) : nullptr;
  const int timeout_ms = static_cast<int>(options_.recovery.connect_timeout_ms);
  if (rdma_resolve_addr(raw, source, address_of(address_), timeout_ms) != 0) {
    AttemptFailed(Status::Unavailable("no RDMA device leads to " + address_.text + ": " +
                                      std::strerror(errno)),
                  Server::kMaybeThere);
    return;
  }
  state_ = State::kResolving;
}

void VerbsLink::HandleEvent(const CmEvent& event) {
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (state_ == State::kResolving) Resolved();
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (state_ == State::kRouting) Routed();
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      if (state_ == State::kConnecting) Established(event);
      break;
    case RDMA_CM_EVENT_REJECTED:
      if (state_ == State::kConnecting) Rejected(event);
      break;
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
      if (connecting()) TryFailed(Status::Unavailable(event.ToString()));
      break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
      if (connecting()) {
        AttemptFailed(
            Status::Unavailable("cannot connect to " + address_.text + ": " + event.ToString()),
            Server::kMaybeThere);
      }
      break;
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      if (up()) {
        Break(event.ToString());
      } else if (connecting()) {
        TryFailed(Status::Unavailable(event.ToString()));
      }
      break;
    default:
      break;
  }
}

void VerbsLink::Resolved() {
  auto device = host_->DeviceFor(id_->verbs);
  if (!device.ok()) {
    AttemptFailed(device.status(), Server::kMaybeThere);
    return;
  }
  auto completions = host_->CompletionsOf(*device);
  if (!completions.ok()) {
    AttemptFailed(completions.status(), Server::kMaybeThere);
    return;
  }
  VerbsOptions options = options_;
  options.queue_depth = completions->queue_depth;
  auto queue_pair =
      QueuePair::Create(id_.get(), std::move(*device), completions->queue, tag(), options);
  if (!queue_pair.ok()) {
    AttemptFailed(queue_pair.status(), Server::kMaybeThere);
    return;
  }
  queue_pair_ = std::move(*queue_pair);
  const int timeout_ms = static_cast<int>(options_.recovery.connect_timeout_ms);
  if (rdma_resolve_route(id_.get(), timeout_ms) != 0) {
    AttemptFailed(VerbsError("no RDMA route to " + address_.text), Server::kMaybeThere);
    return;
  }
  state_ = State::kRouting;
}

void VerbsLink::Routed() {
  const std::string request = EncodeConnectData(hello_);
  rdma_conn_param parameters{};
  parameters.private_data = request.data();
  parameters.private_data_len = static_cast<uint8_t>(request.size());
  parameters.initiator_depth = queue_pair_->reads_in_flight();
  parameters.responder_resources = 0;
  parameters.retry_count = std::min(options_.retries, VerbsOptions::kRetriesMax);
  parameters.rnr_retry_count = 7;
  if (rdma_connect(id_.get(), &parameters) != 0) {
    AttemptFailed(VerbsError("cannot connect to " + address_.text), Server::kMaybeThere);
    return;
  }
  state_ = State::kConnecting;
}

void VerbsLink::Established(const CmEvent& event) {
  auto remote = ParseAcceptData(event.private_data);
  if (!remote.ok()) {
    AttemptFailed(remote.status().WithContext(address_.text), Server::kMaybeThere);
    return;
  }
  Welcome welcome;
  welcome.region = remote->info;
  Status status = CheckWelcome(welcome, hello_, server_->incarnation());
  if (status.ok() && !server_->Settle(welcome.region.incarnation)) {
    status = CheckWelcome(welcome, hello_, server_->incarnation());  // another link was first
  }
  if (!status.ok()) {
    LoseForGood(std::move(status));
    return;
  }
  region_ = remote->info;
  queue_pair_->SetRemote(*remote);
  state_ = State::kUp;
  for (Batch* batch : recovery_.Restored()) Post(*batch);
  EndIfRetired();
}

void VerbsLink::Rejected(const CmEvent& event) {
  if (event.status == kRejectedNobodyListens) {
    AttemptFailed(Status::Unavailable("nobody listens on " + address_.text), Server::kGone);
    return;
  }
  Welcome answer;
  answer.region.server = hello_.server;
  if (event.status != kRejectedByServer || !ParseRejectData(event.private_data, &answer).ok()) {
    TryFailed(Status::Unavailable("rejected: " + event.ToString()));
    return;
  }
  Status why;
  if (!answer.refusal.ok()) {
    why = CheckWelcome(answer, hello_, server_->incarnation());
  } else if (hello_.kind == HelloKind::kAttach) {
    why = Status::Corruption(address_.text + " rejects the connection without a reason");
  }
  // A server that has no room now may have some later; all else stays as it is.
  if (why.code() == StatusCode::kResourceExhausted) {
    AttemptFailed(std::move(why), Server::kMaybeThere);
  } else {
    LoseForGood(std::move(why));
  }
}

// ---- Failing
// -------------------------------------------------------------------------------------

void VerbsLink::Drop() {
  queue_pair_.reset();
  id_.reset();
  state_ = State::kDown;
}

void VerbsLink::TryFailed(Status why) {
  constexpr uint64_t kPauseNs = 10 * kNsPerMs;
  Drop();
  state_ = State::kPausing;
  try_failure_ = std::move(why);
  try_deadline_ns_ = clock_->NowNs() + kPauseNs;
}

void VerbsLink::Break(const std::string& reason) {
  std::deque<Batch*> batches = queue_pair_->TakeAll();
  Drop();
  for (Batch* batch : batches) recovery_.Doom(batch);
  recovery_.Broke(reason);
  Connect();
}

void VerbsLink::AttemptFailed(const Status& why, Server server) {
  Drop();
  // What this machine or the server lacks now it may have later, whatever the system calls it.
  const bool local = why.code() == StatusCode::kIoError;
  recovery_.AttemptFailed(local ? Status::Unavailable(std::string(why.message())) : why, server);
  EndIfRetired();
}

void VerbsLink::LoseForGood(Status why) {
  Drop();
  state_ = State::kLost;
  recovery_.LoseForGood(std::move(why));
}

// ---- Coming and going
// ------------------------------------------------------------------------------

void VerbsLink::Retire() {
  retired_ = true;
  held_back_ = false;
  recovery_.FailWaiting(KnownServers::Removed(hello_.server));
  if (up() && !queue_pair_->idle()) {
    Break("it was removed");
  } else {
    EndIfRetired();
  }
}

void VerbsLink::EndIfRetired() {
  if (!retired_ || recovery_.holds_batches()) return;
  Drop();
  state_ = State::kLost;
}

void VerbsLink::Release() {
  held_back_ = false;
  if (recovery_.holds_batches()) Connect();
}

// ---- Batches
// -------------------------------------------------------------------------------------

void VerbsLink::Post(Batch& batch) {
  if (up()) [[likely]] {
    if (batch.empty()) [[unlikely]] {
      Refuse(batch, Status::Ok());
      return;
    }
    for (const Verb& verb : batch.verbs()) {
      if (verb.offset <= region_.region_bytes && verb.length <= region_.region_bytes - verb.offset)
          [[likely]]
        continue;
      // The memory server's NIC would refuse it too, and break the connection.
      Refuse(batch,
             Status::InvalidArgument("memory server " + std::to_string(hello_.server) +
                                     ": verb on [" + std::to_string(verb.offset) + ", +" +
                                     std::to_string(verb.length) + ") is outside the region of " +
                                     std::to_string(region_.region_bytes) + " bytes"));
      return;
    }
    if (!queue_pair_->Post(batch)) Break("the device refuses a work request");
    return;
  }
  if (recovery_.Wait(batch, connecting() || held_back_)) Connect();
}

void VerbsLink::Refuse(Batch& batch, Status why) {
  ++refused_;
  batch.CompleteWith(std::move(why));
}

size_t VerbsLink::HandleCompletion(const ibv_wc& completion) {
  if (!up() || (completion.wr_id & QueuePair::kTagMask) != tag()) return 0;
  if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
    Break(ibv_wc_status_str(completion.status));
    return 0;
  }
  bool broken = false;
  const size_t completed = queue_pair_->Advance(QueuePair::PieceOf(completion.wr_id), &broken);
  if (broken) [[unlikely]]
    Break("the device lost a completion or refuses a work request");
  return completed;
}

void VerbsLink::HandleQueueFailure() {
  if (up()) {
    Break("the completion queue failed");
  } else if (connecting()) {
    AttemptFailed(Status::Unavailable("the completion queue failed"), Server::kMaybeThere);
  }
}

size_t VerbsLink::Poll() {
  if (connecting() && recovery_.attempt_overdue()) {
    AttemptFailed(Status::Unavailable(address_.text + " does not answer within " +
                                      std::to_string(options_.recovery.connect_timeout_ms) + " ms"),
                  Server::kMaybeThere);
  } else if (connecting() && clock_->NowNs() >= try_deadline_ns_) {
    Drop();
    Dial();
  }
  if (state_ == State::kDown && recovery_.retry_due()) Connect();
  return recovery_.TakeCompleted() + std::exchange(refused_, 0);
}

uint64_t VerbsLink::due_ns() const {
  if (connecting()) return std::min(recovery_.attempt_deadline_ns(), try_deadline_ns_);
  return state_ == State::kDown ? recovery_.retry_due_ns() : UINT64_MAX;
}

}  // namespace farleaf::dsm
