#include "dsm/verbs/verbs_agent.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dsm/base/log.h"

namespace farleaf::dsm {

namespace {

constexpr int kBacklog = 256;

std::string Name(const ServerIdentity& identity) {
  return "memory server " + std::to_string(identity.region.server);
}

struct DevicesDeleter {
  void operator()(ibv_context** list) const { rdma_free_devices(list); }
};

void Reject(rdma_cm_id* id, ServerId server, const Status& why) {
  const std::string data = EncodeRejectData(server, why);
  rdma_reject(id, data.data(), static_cast<uint8_t>(data.size()));
}

}  // namespace

Result<std::unique_ptr<VerbsAgent>> VerbsAgent::Start(const Options& options,
                                                      const ServerIdentity& identity,
                                                      std::span<std::byte> region) {
  std::unique_ptr<VerbsAgent> agent(new VerbsAgent(options, identity, region));
  auto address = agent->ListenAddress();
  if (!address.ok()) return address.status();
  auto events = OpenEventChannel();
  if (!events.ok()) return events.status();
  agent->events_ = std::move(*events);
  FARLEAF_RETURN_IF_ERROR(agent->Bind(*address));
  agent->wake_fd_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!agent->wake_fd_.valid()) return OsError("cannot watch RDMA connections");
  agent->thread_ = std::thread([raw = agent.get()] { raw->Run(); });
  return agent;
}

Result<SocketAddress> VerbsAgent::ListenAddress() const {
  auto address = ResolveTcp(options_.listen);
  if (!address.ok()) return address.status();
  auto chosen = SourceAddress(options_.device, address->storage.ss_family);
  if (!chosen.ok()) return chosen.status();
  if (!chosen->has_value()) return address;
  const auto& raw = reinterpret_cast<const sockaddr&>((*chosen)->storage);
  SocketAddress of_device = NumericAddress(raw, address->port());
  const auto& asked = reinterpret_cast<const sockaddr&>(address->storage);
  if (address->is_unspecified() || NumericAddress(asked).text == of_device.text) return of_device;
  return Status::InvalidArgument("the RDMA device, port and GID chosen have address " +
                                 of_device.text + ", not that of listen " + options_.listen);
}

Status VerbsAgent::Bind(const SocketAddress& address) {
  rdma_cm_id* raw = nullptr;
  if (rdma_create_id(events_.get(), &raw, nullptr, RDMA_PS_TCP) != 0) {
    return VerbsError("cannot listen over RDMA");
  }
  listening_.reset(raw);
  auto* bound = reinterpret_cast<sockaddr*>(const_cast<sockaddr_storage*>(&address.storage));
  if (rdma_bind_addr(raw, bound) != 0) {
    if (errno == EADDRINUSE) {
      return Status::AlreadyExists("somebody else listens on " + address.text + " over RDMA");
    }
    return Status::InvalidArgument("cannot listen on " + address.text +
                                   " over RDMA: " + std::strerror(errno) +
                                   "; give an address of an RDMA device (`rdma link` lists them)");
  }
  // Now rather than when the first client waits for it, if it is clear which device that will be.
  int devices = 0;
  const std::unique_ptr<ibv_context*, DevicesDeleter> all(rdma_get_devices(&devices));
  ibv_context* const device = raw->verbs ? raw->verbs : devices == 1 ? *all.get() : nullptr;
  if (device != nullptr) {
    auto registration = RegistrationFor(device);
    if (!registration.ok()) return registration.status();
  }
  if (rdma_listen(raw, kBacklog) != 0) return VerbsError("cannot listen on " + address.text);
  endpoint_ =
      "verbs:" + (options_.advertise.empty() ? NumericAddress(*rdma_get_local_addr(raw)).text
                                             : options_.advertise);
  return Status::Ok();
}

VerbsAgent::~VerbsAgent() {
  if (thread_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    Wake();
    thread_.join();
  }
  // Before nobody listens any more, which tells clients that nothing of them can land.
  connections_.clear();
  listening_.reset();
  for (const Registration& registration : registrations_) {
    ibv_destroy_cq(registration.completions);
    ibv_dereg_mr(registration.region);
  }
}

void VerbsAgent::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_.get(), &one, sizeof one);
}

Result<const VerbsAgent::Registration*> VerbsAgent::RegistrationFor(ibv_context* context) {
  for (const Registration& registration : registrations_) {
    if (registration.device->context() == context) return &registration;
  }
  auto device = devices_.For(context);
  if (!device.ok()) return device.status();
  if (!registrations_.empty() &&
      ((*device)->limits().atomic_cap != IBV_ATOMIC_GLOB ||
       registrations_.front().device->limits().atomic_cap != IBV_ATOMIC_GLOB)) {
    return Status::InvalidArgument(
        "clients come by RDMA devices " + registrations_.front().device->name() + " and " +
        (*device)->name() + ", whose atomics are not atomic with each other: choose one for the " +
        "memory server to listen on, with rdma_device");
  }
  // Without relaxed ordering: rule 2 of dsm/transport.h counts on the order of a NIC's writes.
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                          IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  ibv_mr* region =
      ibv_reg_mr((*device)->protection_domain(), region_.data(), region_.size(), kAccess);
  if (region == nullptr) {
    return VerbsError("cannot register the region of " + std::to_string(region_.size()) +
                      " bytes with RDMA device " + (*device)->name());
  }
  ibv_cq* completions = ibv_create_cq(context, 1, nullptr, nullptr, 0);
  if (completions == nullptr) {
    Status failed = VerbsError("no completion queue on RDMA device " + (*device)->name());
    ibv_dereg_mr(region);
    return failed;
  }
  registrations_.push_back({std::move(*device), region, completions});
  return &registrations_.back();
}

void VerbsAgent::Run() {
  pollfd waited[] = {{wake_fd_.get(), POLLIN, 0}, {events_->fd, POLLIN, 0}};
  while (true) {
    ::poll(waited, 2, -1);
    if (waited[0].revents != 0) {
      uint64_t count;
      [[maybe_unused]] const ssize_t drained = ::read(wake_fd_.get(), &count, sizeof count);
      TakeCuts();
      std::lock_guard lock(mutex_);
      if (stop_) return;
    }
    while (auto event = TakeEvent(events_.get())) Handle(*event);
  }
}

void VerbsAgent::Handle(const CmEvent& event) {
  switch (event.type) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      Decide(Id(event.id), event);
      break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      if (event.id == listening_.get()) {
        FARLEAF_LOG(error,
                    "{}: its RDMA device was removed; nobody can connect until it is started again",
                    Name(identity_));
        listening_.reset();
      }
      [[fallthrough]];
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DISCONNECTED:
      connections_.erase(event.id);
      connections_count_ = connections_.size();
      break;
    default:
      break;
  }
}

template <typename Condition>
void VerbsAgent::Remove(Condition condition) {
  for (auto i = connections_.begin(); i != connections_.end();) {
    if (!condition(i->second)) {
      ++i;
      continue;
    }
    // The client hears of it at once, not only when its requests time out.
    rdma_disconnect(i->second.id.get());
    i = connections_.erase(i);
  }
  connections_count_ = connections_.size();
}

void VerbsAgent::Decide(Id id, const CmEvent& request) {
  auto hello = ParseConnectData(request.private_data, identity_.cluster);
  Status decision = hello.ok() ? CheckHello(*hello, identity_) : hello.status();
  if (decision.ok()) {
    // First of all: whatever the answer is, it confirms that the old connection is no more.
    Remove([&hello](const Connection& old) { return old.nonce == hello->nonce; });
    decision = fenced_.Admit(hello->member);
  }
  if (decision.ok() && hello->kind == HelloKind::kCutOff) {
    Cut(hello->target);
    Reject(id.get(), identity_.region.server, Status::Ok());
    return;
  }
  if (decision.ok()) decision = Accept(id, *hello, request);
  if (!decision.ok()) Reject(id.get(), identity_.region.server, decision);
}

Status VerbsAgent::Accept(Id& id, const Hello& hello, const CmEvent& request) {
  if (connections_.size() >= options_.connections_max) {
    return Status::ResourceExhausted(Name(identity_) + " has all of its " +
                                     std::to_string(options_.connections_max) +
                                     " connections in use");
  }
  // What the system lacks now it may have later: the client tries again.
  auto lacking = [this](const Status& status) {
    return status.code() == StatusCode::kIoError
               ? Status::ResourceExhausted(Name(identity_) + ": " + std::string(status.message()))
               : status;
  };
  auto registration = RegistrationFor(id->verbs);
  if (!registration.ok()) return lacking(registration.status());
  const VerbsDevice& device = *(*registration)->device;
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = attributes.recv_cq = (*registration)->completions;
  attributes.cap = {.max_send_wr = 1,
                    .max_recv_wr = 1,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};
  if (rdma_create_qp(id.get(), device.protection_domain(), &attributes) != 0) {
    return lacking(VerbsError("no queue pair for another client"));
  }
  const ibv_mr& region = *(*registration)->region;
  const std::string data =
      EncodeAcceptData({identity_.region, reinterpret_cast<uint64_t>(region_.data()), region.rkey});
  rdma_conn_param parameters{};
  parameters.private_data = data.data();
  parameters.private_data_len = static_cast<uint8_t>(data.size());
  const int resources = std::clamp(device.limits().max_qp_rd_atom, 1, int{UINT8_MAX});
  parameters.responder_resources =
      std::min(request.parameters.responder_resources, static_cast<uint8_t>(resources));
  parameters.initiator_depth = 0;
  parameters.rnr_retry_count = 7;
  if (rdma_accept(id.get(), &parameters) != 0) {
    return lacking(VerbsError("cannot accept a connection"));
  }
  rdma_cm_id* raw = id.get();
  connections_.emplace(raw, Connection{hello.nonce, hello.member, std::move(id)});
  connections_count_ = connections_.size();
  return Status::Ok();
}

void VerbsAgent::Cut(const MemberIdentity& member) {
  Status cut = fenced_.CutOff(member, [&] {
    Remove([&member](const Connection& one) { return IsCutOffBy(one.member, member); });
    return Status::Ok();
  });
  FARLEAF_CHECK(cut.ok(), cut);
}

void VerbsAgent::TakeCuts() {
  std::vector<CutRequest> cuts;
  {
    std::lock_guard lock(mutex_);
    cuts.swap(cuts_);
  }
  for (CutRequest& request : cuts) {
    Cut(request.member);
    request.done.set_value();
  }
}

Status VerbsAgent::CutOff(const MemberIdentity& member) {
  std::future<void> done;
  {
    std::lock_guard lock(mutex_);
    done = cuts_.emplace_back(CutRequest{member, {}}).done.get_future();
  }
  Wake();
  done.wait();
  return Status::Ok();
}

}  // namespace farleaf::dsm
