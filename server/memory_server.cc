#include "server/memory_server.h"

#include <unistd.h>

#include <atomic>

#include "dsm/handshake.h"
#include "dsm/region_layout.h"
#include "dsm/shm/shm_agent.h"
#include "dsm/socket.h"
#include "dsm/tcp/tcp_agent.h"
#include "dsm/verbs/verbs_agent.h"
#include "server/chunk_metrics.h"
#include "server/listen_check.h"

namespace farleaf::server {

namespace {

Status CheckMemory(const MemoryServerOptions& options) {
  if (!options.file.empty()) return Status::Ok();
  const uint64_t machine_bytes = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                                 static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (options.region_bytes <= machine_bytes) return Status::Ok();
  return Status::InvalidArgument("size " + FormatByteSize(options.region_bytes) +
                                 " is more than this machine's memory of " +
                                 std::to_string(machine_bytes >> 20) + "MiB");
}

/// What may be listened on: the memory layer has no authentication.
Status CheckListen(const MemoryServerOptions& options) {
  auto address = dsm::ResolveTcp(options.listen);
  if (!address.ok()) return address.status().WithContext("listen");
  if (!address->is_loopback() && !options.insecure) {
    return Status::InvalidArgument(
        "listen " + options.listen +
        " is not a loopback address: whoever reaches it can read and write the whole pool, because "
        "the memory layer has no authentication; on a network that you trust, allow it with "
        "--insecure");
  }
  const bool device_tells = options.fabric == FabricChoice::kVerbs && !options.rdma_device.empty();
  if (address->is_unspecified() && options.advertise.empty() && !device_tells) {
    return Status::InvalidArgument("listen " + options.listen +
                                   " names no address that clients could connect to; give one with "
                                   "--advertise HOST:PORT");
  }
  if (!options.advertise.empty()) {
    auto advertised = dsm::ResolveTcp(options.advertise);
    if (!advertised.ok()) return advertised.status().WithContext("advertise");
  }
  return Status::Ok();
}

}  // namespace

void DeclareOptions(ConfigSchema& schema, MemoryServerOptions* options) {
  constexpr uint64_t kRegionBytesMin = 1 << 20, kRegionBytesMax = uint64_t{1} << 46;
  schema.AddString("bootstrap", "directory: memcached://HOST:PORT/CLUSTER or file:PATH",
                   &options->bootstrap);
  schema.Required();
  schema.AddInteger("id", "id of this memory server in the pool, from 0 without gaps", &options->id,
                    0, dsm::kMemoryServersMax - 1);
  schema.AddString("cluster", "if given, refuse a directory of another cluster", &options->cluster);
  schema.AddBytes("size", "memory to expose", &options->region_bytes, kRegionBytesMin,
                  kRegionBytesMax);
  schema.AddBytes("chunk_size", "unit in which compute servers take memory, a power of two",
                  &options->chunk_bytes, dsm::kChunkBytesMin, dsm::kChunkBytesMax);
  schema.AddEnum("hugepages", "use hugepages", &options->hugepages,
                 {{"never", dsm::Hugepages::kNever},
                  {"auto", dsm::Hugepages::kIfAvailable},
                  {"require", dsm::Hugepages::kRequire}});
  schema.AddString("file", "expose this file (a DAX device, say) instead of anonymous memory",
                   &options->file);
  schema.AddBool("prefault", "touch all memory before serving", &options->prefault);
  schema.AddEnum(
      "fabric", "how clients reach the memory", &options->fabric,
      {{"shm", FabricChoice::kShm}, {"tcp", FabricChoice::kTcp}, {"verbs", FabricChoice::kVerbs}});
  schema.AddString("socket", "shm: Unix socket; if empty /tmp/farleaf-CLUSTER-ID.sock",
                   &options->socket);
  schema.AddString("listen", "tcp, verbs: HOST:PORT; port 0 lets the system choose",
                   &options->listen);
  schema.AddString("advertise", "tcp, verbs: HOST:PORT for clients, if not the one listened on",
                   &options->advertise);
  schema.AddBool("insecure", "allow addresses other than loopback (no authentication!)",
                 &options->insecure);
  schema.AddBool(
      "metrics_insecure",
      "allow a metrics_listen beyond loopback: whoever reaches it sees metrics and health",
      &options->metrics_insecure);
  schema.AddString("rdma_device",
                   "verbs: DEVICE[:PORT[:GID INDEX]]; if empty the device that listen belongs to",
                   &options->rdma_device);
  schema.AddInteger("agent_threads", "tcp: threads that execute clients' verbs",
                    &options->agent_threads, 1, 256);
  schema.AddInteger("lease_ms",
                    "cut off a compute server that is silent for so long (100 at least); 0: none",
                    &options->lease_ms, 0, dsm::kLeaseMsMax);
  schema.AddString("metrics_listen",
                   "HOST:PORT for /metrics (Prometheus) and /health over HTTP; none if empty",
                   &options->metrics_listen);
  AddLogOptions(schema, &options->log);
}

Result<std::unique_ptr<MemoryServer>> MemoryServer::Start(const MemoryServerOptions& options,
                                                          Deps deps) {
  FARLEAF_CHECK(deps.directory && deps.clock && deps.incarnation != 0);
  const std::string& cluster = deps.directory->cluster();
  if (!options.cluster.empty() && options.cluster != cluster) {
    return Status::InvalidArgument("the directory is of cluster '" + cluster + "', not '" +
                                   options.cluster + "'");
  }
  FARLEAF_RETURN_IF_ERROR(CheckMemory(options));
  if (options.lease_ms != 0 && options.lease_ms < dsm::kLeaseMsMin) {
    return Status::InvalidArgument("lease_ms " + std::to_string(options.lease_ms) +
                                   " is too short to be renewed in time; allowed are 0 and " +
                                   std::to_string(dsm::kLeaseMsMin) + " to " +
                                   std::to_string(dsm::kLeaseMsMax));
  }
  if (options.fabric != FabricChoice::kShm) FARLEAF_RETURN_IF_ERROR(CheckListen(options));
  if (!options.metrics_listen.empty() && !options.metrics_insecure) {
    FARLEAF_RETURN_IF_ERROR(
        CheckLoopback({options.metrics_listen}, kWatchedByAll).WithContext("metrics_listen"));
  }
  std::unique_ptr<MemoryServer> server(new MemoryServer(std::move(deps)));
  server->endpoint_ = {options.id, "", options.region_bytes, server->deps_.incarnation};
  FARLEAF_RETURN_IF_ERROR(server->MakeRegion(options));
  FARLEAF_RETURN_IF_ERROR(server->StartAgent(options));
  server->StartEnforcer(options);
  server->StartHugeChunks(options);
  FARLEAF_RETURN_IF_ERROR(server->Renew());
  return server;
}

MemoryServer::~MemoryServer() {
  if (agent_) (void)Stop();
}

Status MemoryServer::Stop() {
  Status withdrawn = deps_.directory->Withdraw(endpoint_);
  huge_chunks_.reset();
  enforcer_.reset();
  agent_.reset();
  return withdrawn;
}

Status MemoryServer::MakeRegion(const MemoryServerOptions& options) {
  auto layout = dsm::RegionLayout::For(options.id, options.region_bytes, options.chunk_bytes);
  if (!layout.ok()) return layout.status();
  layout->incarnation = deps_.incarnation;
  layout->lease_ms = options.lease_ms;
  auto region = dsm::MemoryRegion::Create({options.region_bytes, options.hugepages, options.file});
  if (!region.ok()) return region.status();
  region_ = std::make_unique<dsm::MemoryRegion>(std::move(*region));
  if (options.prefault) FARLEAF_RETURN_IF_ERROR(Prefault());
  dsm::FormatRegion(*layout, region_->bytes());
  layout_ = *layout;
  return Status::Ok();
}

Status MemoryServer::Prefault() {
  constexpr size_t kPageBytes = 4096;
  const std::span<std::byte> bytes = region_->bytes();
  int told_percent = -1;
  for (size_t offset = 0; offset < bytes.size(); offset += kPageBytes) {
    // A store, because a load would map the zero page; nobody else can see the region yet.
    *static_cast<volatile std::byte*>(&bytes[offset]) = std::byte{0};
    const int percent = static_cast<int>(offset * 100 / bytes.size());
    if (percent == told_percent || !deps_.prefault_progress) continue;
    told_percent = percent;
    if (!deps_.prefault_progress(percent)) return Status::Unavailable("stopped while prefaulting");
  }
  return Status::Ok();
}

Status MemoryServer::StartAgent(const MemoryServerOptions& options) {
  const std::string& cluster = deps_.directory->cluster();
  const dsm::ServerIdentity identity{cluster,
                                     {options.id, options.region_bytes, deps_.incarnation}};
  if (options.fabric == FabricChoice::kShm) {
    const std::string path = options.socket.empty() ? "/tmp/farleaf-" + cluster + "-" +
                                                          std::to_string(options.id) + ".sock"
                                                    : options.socket;
    auto agent = dsm::ShmAgent::Start({.socket_path = path}, identity, *region_, deps_.clock);
    if (!agent.ok()) return agent.status();
    agent_ = std::move(*agent);
  } else if (options.fabric == FabricChoice::kVerbs) {
    dsm::VerbsAgent::Options agent_options;
    agent_options.listen = options.listen;
    agent_options.advertise = options.advertise;
    auto device = dsm::ParseDeviceChoice(options.rdma_device);
    if (!device.ok()) return device.status().WithContext("rdma_device");
    agent_options.device = std::move(*device);
    auto agent = dsm::VerbsAgent::Start(agent_options, identity, region_->bytes());
    if (!agent.ok()) return agent.status();
    agent_ = std::move(*agent);
  } else {
    dsm::TcpAgent::Options agent_options;
    agent_options.listen = options.listen;
    agent_options.advertise = options.advertise;
    agent_options.threads = options.agent_threads;
    auto agent = dsm::TcpAgent::Start(agent_options, identity, region_->bytes(), deps_.clock);
    if (!agent.ok()) return agent.status();
    agent_ = std::move(*agent);
  }
  endpoint_.endpoint = agent_->endpoint();
  return Status::Ok();
}

void MemoryServer::AppendMetrics(MetricsText* out) const {
  const auto load = [&](uint64_t offset) {
    const auto* const word = reinterpret_cast<const uint64_t*>(&region_->bytes()[offset]);
    return std::atomic_ref(*const_cast<uint64_t*>(word)).load(std::memory_order_relaxed);
  };
  ChunkCounts chunks{};
  for (uint64_t chunk = 0; chunk < layout_.chunk_count; ++chunk) {
    const uint64_t word = load(layout_.ChunkWordOffset(chunk));
    CountChunks({&word, 1}, &chunks);
  }
  AppendChunkMetrics(layout_, chunks, out);
  uint64_t watched = 0, cut_off = 0;
  for (uint32_t id = 1; id < dsm::kMembersMax; ++id) {
    watched += load(dsm::LeaseWordOffset(static_cast<dsm::MemberId>(id))) != 0;
    cut_off += load(dsm::FenceWordOffset(static_cast<dsm::MemberId>(id))) != 0;
  }
  constexpr std::string_view kName = "farleaf_memory_server_members";
  constexpr std::string_view kHelp = "Compute servers with a lease here, and ids cut off here.";
  const std::string server = std::to_string(layout_.server);
  out->Gauge(kName, kHelp, {{"memory_server", server}, {"state", "leased"}},
             static_cast<double>(watched));
  out->Gauge(kName, kHelp, {{"memory_server", server}, {"state", "cut_off"}},
             static_cast<double>(cut_off));
  out->Gauge("farleaf_connections", "Connections of compute servers that are open.", {},
             static_cast<double>(connections()));
}

void MemoryServer::StartEnforcer(const MemoryServerOptions& options) {
  if (options.lease_ms == 0) return;
  enforcer_ = std::make_unique<dsm::LeaseEnforcer>(dsm::LeaseEnforcer::Deps{
      .server = options.id,
      .region = region_->bytes(),
      .lease_ms = options.lease_ms,
      .clock = deps_.clock,
      .cut_off = [this](const dsm::MemberIdentity& member) { return agent_->CutOff(member); },
      .take_ended = [this] { return agent_->TakeEnded(); }});
  enforcer_->Start();
}

void MemoryServer::StartHugeChunks(const MemoryServerOptions& options) {
  // Memory that a NIC knows cannot be moved, and a file's pages are what they are.
  if (options.hugepages == dsm::Hugepages::kNever || region_->uses_hugepages() ||
      !options.file.empty() || options.fabric == FabricChoice::kVerbs) {
    return;
  }
  huge_chunks_ = std::make_unique<HugeChunks>(HugeChunks::Deps{
      .layout = layout_,
      .region = region_->bytes(),
      .clock = deps_.clock,
      .back = [this](uint64_t offset) { return region_->BackByHugepage(offset); }});
  huge_chunks_->Start();
}

}  // namespace farleaf::server
