#include "dsm/verbs/device.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

namespace farleaf::dsm {

namespace {

struct InterfacesDeleter {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};
struct IdDeleter {
  void operator()(rdma_cm_id* id) const { rdma_destroy_id(id); }
};

bool IsLinkLocal(const sockaddr& address) {
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

/// The GID that a RoCE port has for an address: IPv4 mapped into IPv6.
ibv_gid GidOf(const sockaddr& address) {
  ibv_gid gid{};
  if (address.sa_family == AF_INET6) {
    std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 16);
  } else {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  }
  return gid;
}

bool Suits(rdma_cm_id* bound, const sockaddr& address, const VerbsDeviceChoice& choice) {
  if (!choice.device.empty() && choice.device != ibv_get_device_name(bound->verbs->device)) {
    return false;
  }
  if (choice.port != 0 && choice.port != bound->port_num) return false;
  if (choice.gid_index == VerbsDeviceChoice::kAnyGid) return true;
  const ibv_gid wanted = GidOf(address);
  ibv_gid gid;
  return ibv_query_gid(bound->verbs, bound->port_num, choice.gid_index, &gid) == 0 &&
         std::memcmp(gid.raw, wanted.raw, sizeof gid.raw) == 0;
}

/// "rxe0 port 1 at 10.77.0.1", for messages.
std::string Describe(rdma_cm_id* bound, const sockaddr& address) {
  const std::string text = NumericAddress(address).text;
  return std::string(ibv_get_device_name(bound->verbs->device)) + " port " +
         std::to_string(bound->port_num) + " at " + text.substr(0, text.rfind(':'));
}

}  // namespace

Status VerbsError(const std::string& what) {
  const int error = errno;
  std::string text = what + ": " + std::strerror(error);
  if (error == ENOMEM || error == EAGAIN) {
    text += " (RDMA pins memory: raise the limit with `ulimit -l unlimited`)";
  }
  if (error == ENODEV || error == ENOENT) {
    text += " (`ibv_devices` lists the RDMA devices of this machine; without one use tcp)";
  }
  return Status::IoError(std::move(text));
}

Result<EventChannel> OpenEventChannel() {
  EventChannel channel(rdma_create_event_channel());
  if (!channel && (errno == ENODEV || errno == ENOENT)) {
    return Status::Unimplemented(
        "this machine has no RDMA device: `ibv_devices` lists them; "
        "without one use the tcp fabric");
  }
  if (!channel) return OsError("cannot use RDMA");
  const int flags = ::fcntl(channel->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return OsError("cannot watch RDMA connections");
  }
  return channel;
}

std::string CmEvent::ToString() const {
  return std::string(rdma_event_str(type)) +
         (status == 0 ? "" : " (status " + std::to_string(status) + ")");
}

std::optional<CmEvent> TakeEvent(rdma_event_channel* channel) {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel, &event) != 0) return std::nullopt;
  CmEvent copy{event->event, event->id, event->status, event->param.conn, {}};
  if (const auto& connection = event->param.conn; connection.private_data != nullptr) {
    copy.private_data.assign(static_cast<const char*>(connection.private_data),
                             connection.private_data_len);
  }
  copy.parameters.private_data = nullptr;
  rdma_ack_cm_event(event);
  return copy;
}

// An address belongs to a device if librdmacm binds it there, be it RoCE or IP over InfiniBand.
Result<std::optional<SocketAddress>> SourceAddress(const VerbsDeviceChoice& choice, int family) {
  if (choice.any()) return std::optional<SocketAddress>();
  auto events = OpenEventChannel();
  if (!events.ok()) return events.status();
  ifaddrs* raw_list = nullptr;
  if (::getifaddrs(&raw_list) != 0) return OsError("cannot list this machine's addresses");
  const std::unique_ptr<ifaddrs, InterfacesDeleter> list(raw_list);
  std::string known;
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
    if (IsLinkLocal(*one->ifa_addr)) continue;
    rdma_cm_id* raw_id = nullptr;
    if (rdma_create_id(events->get(), &raw_id, nullptr, RDMA_PS_TCP) != 0) continue;
    const std::unique_ptr<rdma_cm_id, IdDeleter> id(raw_id);
    SocketAddress address = NumericAddress(*one->ifa_addr, uint16_t{0});
    auto* bound = reinterpret_cast<sockaddr*>(&address.storage);
    if (rdma_bind_addr(id.get(), bound) != 0 || id->verbs == nullptr) continue;
    if (Suits(id.get(), *one->ifa_addr, choice)) return std::optional(std::move(address));
    known += (known.empty() ? "" : ", ") + Describe(id.get(), *one->ifa_addr);
  }
  const bool any_gid = choice.gid_index == VerbsDeviceChoice::kAnyGid;
  return Status::NotFound("no address of " + std::string(family == AF_INET6 ? "IPv6" : "IPv4") +
                          " belongs to RDMA device " +
                          (choice.device.empty() ? "any" : choice.device) + ", port " +
                          (choice.port == 0 ? "any" : std::to_string(choice.port)) +
                          ", GID index " + (any_gid ? "any" : std::to_string(choice.gid_index)) +
                          "; there are: " + (known.empty() ? "none" : known));
}

Result<std::shared_ptr<VerbsDevice>> VerbsDevice::Open(ibv_context* context) {
  const std::string name = ibv_get_device_name(context->device);
  ibv_device_attr limits;
  if (ibv_query_device(context, &limits) != 0) return VerbsError("cannot query device " + name);
  if (limits.atomic_cap == IBV_ATOMIC_NONE) {
    return Status::Unimplemented("RDMA device " + name +
                                 " has no 8-byte atomics, which every tree needs");
  }
  ibv_context** all = rdma_get_devices(nullptr);
  if (all == nullptr) return VerbsError("cannot hold device " + name + " open");
  ibv_pd* pd = ibv_alloc_pd(context);
  if (pd == nullptr) {
    Status failed = VerbsError("no protection domain on device " + name);
    rdma_free_devices(all);
    return failed;
  }
  return std::shared_ptr<VerbsDevice>(new VerbsDevice(all, context, limits, pd));
}

bool VerbsDevice::writes_words_atomically() const {
  // A CAS that fails writes nothing, and one that swaps locks the word: locks are let go by WRITEs on these
  // (Sherman, SIGMOD 2022, section 4.3).
  constexpr uint32_t kNvidiaVendorId = 0x02c9;
  return limits_.vendor_id == kNvidiaVendorId;
}

VerbsDevice::~VerbsDevice() {
  ibv_dealloc_pd(pd_);
  rdma_free_devices(all_);
}

Result<std::shared_ptr<VerbsDevice>> VerbsDevices::For(ibv_context* context) {
  std::lock_guard lock(mutex_);
  for (const auto& device : devices_) {
    if (device->context() == context) return device;
  }
  auto opened = VerbsDevice::Open(context);
  if (opened.ok()) devices_.push_back(*opened);
  return opened;
}

}  // namespace farleaf::dsm
