// Peers that say and do whatever a test wants on the verbs fabric: a client that posts any request with
// any key, and a memory server that gives any answer.
//
// Thread rule: one thread each; a RawVerbsServer has a thread of its own.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/verbs/device.h"
#include "dsm/verbs/landing_ring.h"
#include "dsm/verbs/private_data.h"

namespace farleaf::dsm {

inline sockaddr* RawAddress(const SocketAddress& address) {
  return reinterpret_cast<sockaddr*>(const_cast<sockaddr_storage*>(&address.storage));
}

struct RawIdDeleter {
  void operator()(rdma_cm_id* id) const {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }
};
using RawId = std::unique_ptr<rdma_cm_id, RawIdDeleter>;

/// A queue pair on `id`, with one completion queue of its own.
inline ibv_cq* MakeRawQueue(rdma_cm_id* id, const VerbsDevice& device) {
  ibv_cq* completions = ibv_create_cq(id->verbs, 64, nullptr, nullptr, 0);
  FARLEAF_CHECK(completions != nullptr, errno);
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = attributes.recv_cq = completions;
  attributes.cap = {.max_send_wr = 32,
                    .max_recv_wr = 1,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};
  FARLEAF_CHECK(rdma_create_qp(id, device.protection_domain(), &attributes) == 0, errno);
  return completions;
}

class RawVerbsClient {
 public:
  static constexpr int kWaitMs = 60'000;

  /// `address`: HOST:PORT. Gets as far as having a queue pair.
  explicit RawVerbsClient(const std::string& address) {
    auto events = OpenEventChannel();
    FARLEAF_CHECK(events.ok(), events.status());
    events_ = std::move(*events);
    auto target = ResolveTcp(address);
    FARLEAF_CHECK(target.ok(), target.status());
    rdma_cm_id* raw = nullptr;
    FARLEAF_CHECK(rdma_create_id(events_.get(), &raw, nullptr, RDMA_PS_TCP) == 0, errno);
    id_.reset(raw);
    uint8_t ack_timeout = 15;  // 134 ms; eight times that, and the connection is broken
    FARLEAF_CHECK(rdma_set_option(raw, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout,
                                  sizeof ack_timeout) == 0,
                  errno);
    FARLEAF_CHECK(rdma_resolve_addr(raw, nullptr, RawAddress(*target), 10'000) == 0, errno);
    Expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    auto device = VerbsDevice::Open(raw->verbs);
    FARLEAF_CHECK(device.ok(), device.status());
    device_ = std::move(*device);
    auto memory = LandingRing::Create(*device_, 1 << 16);
    FARLEAF_CHECK(memory.ok(), memory.status());
    memory_ = std::move(*memory);
    local_ = memory_->Take(kLocalBytes);
    completions_ = MakeRawQueue(raw, *device_);
    FARLEAF_CHECK(rdma_resolve_route(raw, 10'000) == 0, errno);
    Expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  ~RawVerbsClient() {
    id_.reset();
    ibv_destroy_cq(completions_);
  }
  RawVerbsClient(const RawVerbsClient&) = delete;

  void StartConnect(std::string_view private_data) {
    rdma_conn_param parameters{};
    parameters.private_data = private_data.data();
    parameters.private_data_len = static_cast<uint8_t>(private_data.size());
    parameters.initiator_depth = 16;
    parameters.retry_count = 3;
    parameters.rnr_retry_count = 1;
    FARLEAF_CHECK(rdma_connect(id_.get(), &parameters) == 0, errno);
  }
  /// The answer to a connect request.
  CmEvent Connect(std::string_view private_data) {
    StartConnect(private_data);
    return NextEvent();
  }
  /// Connects as a well-behaved client does.
  RemoteRegion Join(const Hello& hello) {
    const CmEvent answer = Connect(EncodeConnectData(hello));
    FARLEAF_CHECK(answer.type == RDMA_CM_EVENT_ESTABLISHED, answer.ToString());
    auto region = ParseAcceptData(answer.private_data);
    FARLEAF_CHECK(region.ok(), region.status());
    return *region;
  }
  /// Why the request was rejected.
  Status Refusal(std::string_view private_data) {
    const CmEvent answer = Connect(private_data);
    EXPECT_EQ(answer.type, RDMA_CM_EVENT_REJECTED) << answer.ToString();
    Welcome refusal;
    Status parsed = ParseRejectData(answer.private_data, &refusal);
    EXPECT_TRUE(parsed.ok()) << parsed;
    return refusal.refusal;
  }
  CmEvent NextEvent() {
    pollfd waited{events_->fd, POLLIN, 0};
    const int ready = ::poll(&waited, 1, kWaitMs);
    FARLEAF_CHECK(ready == 1, "no event of the connection manager came");
    auto event = TakeEvent(events_.get());
    FARLEAF_CHECK(event.has_value());
    return *event;
  }

  /// One work request; its local side are the first bytes of local(). False: the device refused.
  bool Post(ibv_wr_opcode opcode, uint64_t address, uint32_t key, uint32_t bytes = 8,
            uint64_t operand = 0, uint64_t swap = 0) {
    ibv_sge segment{reinterpret_cast<uint64_t>(local_), bytes, memory_->key()};
    ibv_send_wr request{};
    request.sg_list = &segment;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.wr.atomic = {address, operand, swap, key};
    } else {
      request.wr.rdma = {address, key};
    }
    ibv_send_wr* refused = nullptr;
    return ibv_post_send(id_->qp, &request, &refused) == 0;
  }
  /// How the oldest request ended; nullopt: not within `wait_ms`.
  std::optional<ibv_wc_status> Completion(int wait_ms = kWaitMs) {
    const MonotonicClock clock;
    const uint64_t deadline_ns = clock.NowNs() + static_cast<uint64_t>(wait_ms) * kNsPerMs;
    ibv_wc completion;
    while (true) {
      const int count = ibv_poll_cq(completions_, 1, &completion);
      FARLEAF_CHECK(count >= 0, count);
      if (count == 1) return completion.status;
      if (clock.NowNs() >= deadline_ns) return std::nullopt;
      std::this_thread::yield();
    }
  }
  /// Posts, and tells how it ended, in words.
  std::string Run(ibv_wr_opcode opcode, uint64_t address, uint32_t key, uint32_t bytes = 8,
                  int wait_ms = kWaitMs) {
    if (!Post(opcode, address, key, bytes)) return "refused by the device";
    const auto status = Completion(wait_ms);
    return status ? ibv_wc_status_str(*status) : "no completion";
  }
  std::span<std::byte> local() { return {local_, kLocalBytes}; }

 private:
  static constexpr size_t kLocalBytes = 4096;
  void Expect(rdma_cm_event_type type) {
    const CmEvent event = NextEvent();
    FARLEAF_CHECK(event.type == type, event.ToString());
  }

  EventChannel events_;
  std::shared_ptr<VerbsDevice> device_;
  std::unique_ptr<LandingRing> memory_;
  std::byte* local_ = nullptr;
  ibv_cq* completions_ = nullptr;
  RawId id_;
};

class RawVerbsServer {
 public:
  /// kFallSilent: accept, and answer no request, nor say that the connection is over.
  enum class Deed : uint8_t { kAccept, kReject, kIgnore, kFallSilent };
  struct Answer {
    Deed deed;
    std::string private_data;
  };
  /// `answer` is asked for each connect request, on the server's thread.
  RawVerbsServer(const std::string& listen_host, std::function<Answer()> answer)
      : answer_(std::move(answer)), stop_fd_(::eventfd(0, EFD_NONBLOCK)) {
    auto events = OpenEventChannel();
    FARLEAF_CHECK(events.ok(), events.status());
    events_ = std::move(*events);
    auto address = ResolveTcp(listen_host + ":0");
    FARLEAF_CHECK(address.ok(), address.status());
    rdma_cm_id* raw = nullptr;
    FARLEAF_CHECK(rdma_create_id(events_.get(), &raw, nullptr, RDMA_PS_TCP) == 0, errno);
    listening_.reset(raw);
    FARLEAF_CHECK(rdma_bind_addr(raw, RawAddress(*address)) == 0, errno);
    FARLEAF_CHECK(rdma_listen(raw, 16) == 0, errno);
    endpoint_ = "verbs:" + NumericAddress(*rdma_get_local_addr(raw)).text;
    thread_ = std::thread([this] { Run(); });
  }
  ~RawVerbsServer() {
    const uint64_t one = 1;
    FARLEAF_CHECK(::write(stop_fd_.get(), &one, sizeof one) == sizeof one, errno);
    thread_.join();
    ids_.clear();
    for (ibv_cq* queue : queues_) ibv_destroy_cq(queue);
  }
  RawVerbsServer(const RawVerbsServer&) = delete;
  const std::string& endpoint() const { return endpoint_; }
  /// Connections that answer no more.
  int fallen_silent() const { return fallen_silent_; }

 private:
  void Run() {
    pollfd waited[] = {{stop_fd_.get(), POLLIN, 0}, {events_->fd, POLLIN, 0}};
    while (true) {
      ::poll(waited, 2, -1);
      if (waited[0].revents != 0) return;
      while (auto event = TakeEvent(events_.get())) {
        if (event->type == RDMA_CM_EVENT_CONNECT_REQUEST) Give(answer_(), RawId(event->id));
        if (event->type == RDMA_CM_EVENT_ESTABLISHED && silent_.contains(event->id)) {
          rdma_destroy_qp(event->id);
          ++fallen_silent_;
        }
      }
    }
  }
  void Give(const Answer& answer, RawId id) {
    const void* data = answer.private_data.data();
    const auto bytes = static_cast<uint8_t>(answer.private_data.size());
    if (answer.deed == Deed::kReject) {
      (void)rdma_reject(id.get(), data, bytes);  // it fails if the client has given up
    } else if (answer.deed == Deed::kAccept || answer.deed == Deed::kFallSilent) {
      if (answer.deed == Deed::kFallSilent) silent_.insert(id.get());
      auto device = VerbsDevice::Open(id->verbs);
      FARLEAF_CHECK(device.ok(), device.status());
      devices_.push_back(std::move(*device));
      queues_.push_back(MakeRawQueue(id.get(), *devices_.back()));
      rdma_conn_param parameters{};
      parameters.private_data = data;
      parameters.private_data_len = bytes;
      parameters.responder_resources = 1;
      (void)rdma_accept(id.get(), &parameters);
      ids_.push_back(std::move(id));
    } else {
      ids_.push_back(std::move(id));
    }
  }

  const std::function<Answer()> answer_;
  UniqueFd stop_fd_;
  EventChannel events_;
  RawId listening_;
  std::string endpoint_;
  std::vector<std::shared_ptr<VerbsDevice>> devices_;
  std::vector<ibv_cq*> queues_;
  std::vector<RawId> ids_;
  std::set<const rdma_cm_id*> silent_;
  std::atomic<int> fallen_silent_{0};
  std::thread thread_;
};

}  // namespace farleaf::dsm
