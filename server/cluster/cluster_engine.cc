#include "server/cluster/cluster_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "dsm/base/log.h"
#include "dsm/null_transport.h"
#include "dsm/tcp/tcp_fabric.h"
#include "dsm/verbs/verbs_fabric.h"
#include "server/cluster/held.h"
#include "server/cluster/leaving.h"
#include "server/lsm/store_report.h"
#include "server/membership/counters.h"
#include "server/membership/region_store.h"

namespace farleaf::server {

using cluster::NodeRegions;
using cluster::RegionId;
using cluster::RegionNode;
using dsm::Task;
using dsm::Worker;

namespace {

constexpr const char* kLivesPath = "/lives";
constexpr const char* kElectionParent = "/master";
constexpr uint64_t kNodePauseNs = 20 * kNsPerMs;
/// Of RDMA: a backup that does not answer is to be taken out of the view within seconds, as over tcp.
constexpr uint64_t kConnectTimeoutMs = 2'000, kAckTimeoutMs = 64;
/// Nothing that this node serves has a backup for so long: nobody will take over.
constexpr uint64_t kNobodyNs = kNsPerSecond;
constexpr uint64_t kStampNsMin = 20 * kNsPerMs;
constexpr uint64_t kRedirectNs = 300 * kNsPerMs;
/// Beside the areas: the tables of a region of registered memory.
constexpr uint64_t kTablesBytes = uint64_t{1} << 20;
constexpr uint64_t kServerIds = 65'000;

dsm::ServerId ServerOf(uint64_t life) { return static_cast<dsm::ServerId>(1 + life % kServerIds); }

/// Of the handshakes between nodes: what the URL says behind its hosts.
std::string ClusterName(std::string_view url) {
  constexpr std::string_view kBehindScheme = "://";
  const size_t hosts = url.find(kBehindScheme);
  const size_t path = url.find('/', hosts == std::string_view::npos ? 0 : hosts + 3);
  if (path == std::string_view::npos || path + 1 == url.size()) return "farleaf";
  std::string name(url.substr(path + 1));
  for (char& c : name) {
    if (c == '/') c = '-';
  }
  return name;
}

}  // namespace

Result<std::unique_ptr<ClusterEngine>> ClusterEngine::Open(const ClusterOptions& cluster,
                                                           const LsmEngineOptions& lsm,
                                                           uint64_t seed, const Clock* clock,
                                                           Unwanted unwanted) {
  std::unique_ptr<ClusterEngine> engine(
      new ClusterEngine(cluster, lsm, seed, clock, std::move(unwanted)));
  const Status joined = engine->Join();
  if (!joined.ok()) return joined.WithContext(engine->Name() + " of " + cluster.membership);
  return engine;
}

Result<std::unique_ptr<Worker>> ClusterEngine::OpenWorker() {
  const uint64_t number = ++workers_;
  auto transport = fabric_->OpenTransport();
  if (!transport.ok()) return transport.status();
  return std::make_unique<Worker>(
      Worker::Deps{std::move(*transport), &epochs_, clock_, seed_ + number, number});
}

Status ClusterEngine::Join() {
  LsmEngineOptions lsm = lsm_;
  lsm.store.flush_memtable_ms = cluster_.copy_staleness_ms;
  auto files = cluster::RegionFiles::Open(
      {.lsm = lsm, .epochs = &epochs_, .wall = &wall_, .seed = seed_, .open_worker = [this] {
         return OpenWorker();
       }});
  if (!files.ok()) return files.status().WithContext("data_dir");
  files_ = std::move(*files);
  const membership::ZookeeperOptions options{.session_timeout_ms = cluster_.session_timeout_ms};
  auto session = membership::ZookeeperMembership::Open(cluster_.membership, options, clock_);
  if (!session.ok()) return session.status();
  session_ = std::move(*session);
  {
    // It has no fabric yet: what a worker writes could not be cut off before this process says who it is.
    Worker without_memory(
        {std::make_unique<dsm::NullTransport>(), &epochs_, clock_, seed_, ++workers_});
    FARLEAF_RETURN_IF_ERROR(without_memory.Run(BeginLife(without_memory)));
  }
  FARLEAF_RETURN_IF_ERROR(OpenMemory());
  FARLEAF_RETURN_IF_ERROR(OpenFabric());
  FARLEAF_RETURN_IF_ERROR(fabric_->Identify({static_cast<dsm::MemberId>(cluster_.node), life_}));
  peer_memories_.emplace(fabric_.get());
  for (auto* worker : {&worker_, &control_, &observer_}) {
    auto opened = OpenWorker();
    if (!opened.ok()) return opened.status();
    *worker = std::move(*opened);
  }
  MakeParts();
  FARLEAF_LOG(info, "{} of {}: life {}, memory at {}", Name(), cluster_.membership, life_,
              memory_->endpoint().endpoint);
  return Status::Ok();
}

Status ClusterEngine::OpenFabric() {
  const std::string cluster = ClusterName(cluster_.membership);
  if (cluster_.peer_fabric == PeerFabric::kTcp) {
    auto fabric = dsm::TcpFabric::Connect({}, cluster, {}, clock_);
    if (!fabric.ok()) return fabric.status();
    fabric_ = std::move(*fabric);
    return Status::Ok();
  }
  auto device = dsm::ParseDeviceChoice(cluster_.peer_rdma_device);
  if (!device.ok()) return device.status().WithContext("peer_rdma_device");
  const dsm::VerbsOptions options{.device = std::move(*device),
                                  .recovery = {.connect_timeout_ms = kConnectTimeoutMs},
                                  .ack_timeout_ms = kAckTimeoutMs};
  auto fabric = dsm::VerbsFabric::Connect({}, cluster, options, clock_);
  if (!fabric.ok()) return fabric.status().WithContext("peer_fabric verbs");
  fabric_ = std::move(*fabric);
  return Status::Ok();
}

Task<Status> ClusterEngine::BeginLife(Worker& worker) {
  membership::RegionStore regions(session_.get());
  Status status = co_await regions.Prepare(worker);
  for (const char* path : {cluster::kOffersPath, cluster::kHeldPath, kElectionParent}) {
    if (status.ok()) status = co_await membership::CreatePath(worker, *session_, path);
  }
  if (!status.ok()) co_return status;
  auto life = co_await membership::NextNumber(worker, *session_, kLivesPath);
  if (!life.ok()) co_return life.status();
  life_ = *life;
  co_return Status::Ok();
}

Status ClusterEngine::OpenMemory() {
  auto layout = replication::AreaLayout::For({.log_buffers = cluster_.log_buffers});
  if (!layout.ok()) return layout.status();
  dsm::RegisteredMemory::Options options;
  options.cluster = ClusterName(cluster_.membership);
  options.server = ServerOf(life_);
  options.bytes = RoundUp(kTablesBytes + cluster_.regions_max * layout->bytes(), kTablesBytes);
  if (cluster_.peer_fabric == PeerFabric::kVerbs) {
    auto device = dsm::ParseDeviceChoice(cluster_.peer_rdma_device);
    if (!device.ok()) return device.status().WithContext("peer_rdma_device");
    options.agent = dsm::VerbsAgent::Options{.listen = cluster_.peer_listen,
                                             .advertise = cluster_.peer_advertise,
                                             .device = std::move(*device)};
  } else {
    options.agent = dsm::TcpAgent::Options{.listen = cluster_.peer_listen,
                                           .advertise = cluster_.peer_advertise};
  }
  auto memory = dsm::RegisteredMemory::Open(options, clock_);
  if (!memory.ok()) return memory.status().WithContext("peer_listen");
  memory_ = std::move(*memory);
  areas_ = std::make_unique<dsm::AreaAllocator>(memory_->usable());
  return Status::Ok();
}

cluster::RegionDeps ClusterEngine::RegionDepsOf(RegionId region, cluster::RegionGates* gates) {
  cluster::RegionDeps deps;
  deps.session = session_.get();
  deps.clock = clock_;
  deps.region = region;
  deps.self = {static_cast<dsm::MemberId>(cluster_.node), life_};
  deps.memory.server = ServerOf(life_);
  deps.memory.layout = *replication::AreaLayout::For({.log_buffers = cluster_.log_buffers});
  deps.memory.areas = areas_.get();
  deps.memory.bytes = [this](dsm::Area area) { return memory_->Bytes(area); };
  deps.memory.cut_off = [this](const dsm::MemberIdentity& life) { return memory_->CutOff(life); };
  deps.min_in_sync = cluster_.min_in_sync;
  deps.seed = seed_ ^ life_ ^ Mix64(static_cast<uint64_t>(region));
  deps.gates = gates;
  if (cluster_.copy_staleness_ms > 0) {
    deps.reads = {.cache_bytes = cluster_.copy_cache_bytes, .wall = &wall_, .clock = clock_};
  }
  deps.checks = &check_memory_;
  deps.add_peer = [this](const dsm::MemberIdentity& life, const dsm::ServerEndpoint& memory) {
    return peer_memories_->Add(life, memory);
  };
  cluster::RegionFiles* const files = files_.get();
  deps.storage = [files, region] { return files->StorageOf(region); };
  deps.open_store = [files, region](Worker& worker, index::lsm::Mirror* mirror) {
    return files->OpenStore(worker, region, mirror);
  };
  deps.begin_background = [files, region](index::lsm::LsmStore* store) {
    return files->BeginBackground(region, store);
  };
  deps.end_background = [files, region](Worker& worker) {
    return files->EndBackground(worker, region);
  };
  deps.copy_store = [files, region](Worker& worker, RegionId to) {
    return files->CopyStore(worker, region, to);
  };
  deps.remove = [files, region] { return files->Remove(region); };
  return deps;
}

void ClusterEngine::MakeParts() {
  const auto self = static_cast<membership::NodeId>(cluster_.node);
  NodeRegions::Deps regions;
  regions.session = session_.get();
  regions.self = self;
  regions.deps_of = [this](RegionId region, cluster::RegionGates* gates) {
    return RegionDepsOf(region, gates);
  };
  regions.remove_others = [this](const membership::RegionMap& map) {
    return files_->RemoveOthers(map);
  };
  regions.session_ns = cluster_.session_timeout_ms * kNsPerMs;
  if (cluster_.copy_staleness_ms > 0) {
    regions.stamp_ns =
        std::clamp(cluster_.copy_staleness_ms * kNsPerMs / 10, kStampNsMin, kNsPerSecond);
  }
  regions_ = std::make_unique<NodeRegions>(std::move(regions));
  cluster::Master::Deps master;
  master.session = session_.get();
  master.clock = clock_;
  master.self = self;
  master.name = fmt::format("{}/{}", cluster_.node, life_);
  master.make_store = [this](Worker& on, RegionId region) { return files_->MakeStore(on, region); };
  master_ = std::make_unique<cluster::Master>(
      std::move(master), cluster::MasterOptions{.replicas = cluster_.replicas});
  cluster::ClusterTreeHost::Options hosting;
  hosting.peers.session.password = cluster_.password;
  host_ = std::make_unique<cluster::ClusterTreeHost>(
      cluster::ClusterTreeHost::Deps{.session = session_.get(),
                                     .routes = regions_.get(),
                                     .clock = clock_,
                                     .open_worker = [this] { return OpenWorker(); }},
      std::move(hosting));
}

Status ClusterEngine::Serves(const std::vector<std::string>& urls) {
  std::string url = cluster_.advertise.empty() ? "" : "farleaf://" + cluster_.advertise;
  if (url.empty() && !urls.empty()) url = urls.front();
  FARLEAF_RETURN_IF_ERROR(worker_->Run(Announce(std::move(url))));
  control_thread_ = std::thread([this] {
    control_->Spawn(master_->Run(*control_));
    control_->Spawn(RunRegions());
    control_->RunUntilIdle();
  });
  return Status::Ok();
}

// The session of this node's last life may not have expired yet: until then its entry is there.
Task<Status> ClusterEngine::Announce(std::string url) {
  membership::RegionStore regions(session_.get());
  Status status;
  membership::NodeEntry node{.id = static_cast<membership::NodeId>(cluster_.node),
                             .incarnation = life_,
                             .native_endpoints = {},
                             .fabric_endpoint = memory_->endpoint().endpoint};
  if (!url.empty()) node.native_endpoints.push_back(std::move(url));
  const uint64_t end_ns = clock_->NowNs() + 3 * uint64_t{cluster_.session_timeout_ms} * kNsPerMs;
  for (;;) {
    status = co_await regions_->LeaveOldLife(*worker_);
    if (status.ok()) status = co_await regions.Announce(*worker_, node);
    if (status.code() != StatusCode::kAlreadyExists) co_return status;
    if (clock_->NowNs() >= end_ns) {
      co_return Status::AlreadyExists(
          Name() + " is there already: give each process of a cluster a node of its own");
    }
    if (unwanted_ && unwanted_()) co_return Status::Unavailable("nobody wants it any more");
    co_await worker_->Sleep(kNodePauseNs);
  }
}

Task<void> ClusterEngine::RunRegions() {
  Status ended = co_await regions_->Run(*control_);
  master_->Stop();
  {
    std::lock_guard lock(mutex_);
    ended_ = std::move(ended);
  }
  regions_ended_.store(true);
}

Status ClusterEngine::fenced() const {
  if (!regions_ended_.load()) return Status::Ok();
  std::lock_guard lock(mutex_);
  return ended_.code() == StatusCode::kFenced
             ? ended_
             : Status::Fenced("the regions of this node have ended: " + ended_.ToString());
}

Status ClusterEngine::Health() const {
  FARLEAF_RETURN_IF_ERROR(fenced());
  if (clock_->NowNs() >= session_->lease_until_ns()) {
    return Status::Unavailable("the membership " + cluster_.membership + " does not answer");
  }
  if (regions_->Now() == nullptr) return Status::Unavailable("no map of regions is known yet");
  std::lock_guard lock(observer_mutex_);
  dsm::FabricCounts counts;
  dsm::OpContext op{*observer_, counts};
  return observer_->Run(host_->Upkeep(op));
}

std::string ClusterEngine::Describe() const {
  return fmt::format("{} of the cluster {}, its regions in {}", Name(), cluster_.membership,
                     lsm_.files.directory);
}

void ClusterEngine::AppendMetrics(MetricsText* out) const {
  struct Served {
    std::string region;
    size_t backups;
    replication::ReplicaSet::Counts counts;
    replication::BackupLink::Counts sent;
    MetricLabels labels() const { return {{"region", region}}; }
  };
  std::vector<Served> served;
  uint64_t copies = 0;
  regions_->ForEach([&](const RegionNode& node) {
    copies += node.role() == cluster::Role::kBackup;
    node.WithPrimary([&](const cluster::RegionPrimary& primary) {
      const replication::ReplicaSet& replicas = primary.replicas();
      served.push_back({std::to_string(static_cast<uint32_t>(node.region())),
                        replicas.members().size(), replicas.counts(), replicas.sent()});
    });
  });
  out->Gauge("farleaf_cluster_primaries", "Regions that this node serves.", {}, served.size());
  out->Gauge("farleaf_cluster_backups", "Regions that it keeps a copy of.", {}, copies);
  out->Gauge("farleaf_cluster_master", "Whether this node is the master.", {},
             master_->IsMaster() ? 1 : 0);
  const auto table = regions_->Now();
  const auto routes = table ? table->routes : std::vector<cluster::Route>();
  std::lock_guard observing(observer_mutex_);
  for (const cluster::Route& route : routes) {
    const cluster::StoreUse use = regions_->Use(route.region);
    if (use.served() == nullptr) continue;
    const std::string region = std::to_string(static_cast<uint32_t>(route.region));
    StoreReport::Look(*use.served()->store, *use.served()->storage, *observer_)
        .AppendMetrics({{"region", region}}, out);
  }
  AppendCheckMetrics(out);
  AppendCopyMetrics(routes, out);
  for (const Served& each : served) {
    out->Gauge("farleaf_replication_backups", "Backups that hold all that is acknowledged.",
               each.labels(), each.backups);
  }
  for (const Served& each : served) {
    out->Counter("farleaf_replication_appends_total",
                 "Round trips that brought log bytes to them, since this node serves the region.",
                 each.labels(), each.counts.appends);
  }
  for (const Served& each : served) {
    out->Counter("farleaf_replication_log_bytes_total", "WRITTEN to their memory for these.",
                 each.labels(), each.counts.verbs.bytes_written);
  }
  constexpr std::string_view kTables = "Of tables, sent to backups as they were made.";
  for (const Served& each : served) {
    out->Counter("farleaf_replication_table_bytes_total", kTables, each.labels(),
                 each.sent.table_bytes);
  }
  for (const Served& each : served) {
    out->Counter("farleaf_replication_fill_bytes_total",
                 "Of what was there before, sent to backups that were filled.", each.labels(),
                 each.sent.fill_bytes);
  }
  for (const Served& each : served) {
    out->Counter("farleaf_replication_messages_total", "To backups, with their replies.",
                 each.labels(), each.sent.messages);
  }
  for (const Served& each : served) {
    out->Counter("farleaf_replication_excluded_total", "Backups that were lost.", each.labels(),
                 each.counts.excluded);
  }
}

void ClusterEngine::AppendCheckMetrics(MetricsText* out) const {
  const index::lsm::CheckMemory::Counts checks = check_memory_.counts();
  out->Gauge("farleaf_copy_check_buffers_free",
             "Of 2 MiB, for segments of tables that were sent here; at 0 these are read back.", {},
             check_memory_.left());
  out->Counter("farleaf_copy_checked_bytes_total", "Of tables that were sent here, and checked.",
               {}, checks.checked_bytes);
  out->Counter("farleaf_copy_read_back_bytes_total", "Of them, read from the disk for that.", {},
               checks.read_back_bytes);
  out->Counter("farleaf_copy_checking_seconds_total", "Time that the checks took.", {},
               static_cast<double>(checks.checking_ns) / 1e9);
}

void ClusterEngine::AppendCopyMetrics(const std::vector<cluster::Route>& routes,
                                      MetricsText* out) const {
  struct Copy {
    std::string region;
    std::optional<uint64_t> staleness_ns;
    index::lsm::CopyReader::Counts counts;
    MetricLabels labels() const { return {{"region", region}}; }
  };
  std::vector<Copy> copies;
  for (const cluster::Route& route : routes) {
    const cluster::CopyUse use = regions_->UseCopy(route.region);
    if (use.served() == nullptr) continue;
    copies.push_back({std::to_string(static_cast<uint32_t>(route.region)),
                      use.served()->staleness_ns(), use.served()->reader->counts()});
  }
  for (const Copy& copy : copies) {
    if (!copy.staleness_ns) continue;
    out->Gauge("farleaf_copy_staleness_seconds",
               "How old what is read of the copy here may be; not there: it cannot be read.",
               copy.labels(), static_cast<double>(*copy.staleness_ns) / 1e9);
  }
  for (const Copy& copy : copies) {
    out->Counter("farleaf_copy_reads_total", "Reads that may be stale, done in the copy here.",
                 copy.labels(), copy.counts.reads);
  }
  for (const Copy& copy : copies) {
    out->Counter("farleaf_copy_reads_begun_again_total",
                 "Of them, as what they looked at had been merged meanwhile.", copy.labels(),
                 copy.counts.begun_again);
  }
}

void ClusterEngine::Leave(const Hurried& hurried) {
  // Of a process that was not announced the cluster knows nothing; another one may be that node.
  if (cluster_.leave_ms == 0 || !control_thread_.joinable() || !fenced().ok()) return;
  const auto self = static_cast<membership::NodeId>(cluster_.node);
  const uint64_t until_ns = clock_->NowNs() + cluster_.leave_ms * kNsPerMs;
  const Status told = worker_->Run(cluster::AnnounceLeaving(*worker_, *session_, self));
  if (!told.ok()) {
    FARLEAF_LOG(warn, "{} leaves without having said so: {}", Name(), told.ToString());
    return;
  }
  while (HandOver(until_ns, hurried) && !StayWhileMissed(until_ns, hurried)) {
  }
}

// Each region goes to a node that holds all of it, if there is one: so nobody has to wait for the end of this one's session.
bool ClusterEngine::HandOver(uint64_t until_ns, const Hurried& hurried) {
  const uint64_t begun_ns = clock_->NowNs();
  const size_t served = regions_->primaries();
  if (served == 0) return true;
  uint64_t taken_ns = begun_ns;  // when somebody could take over last
  while (regions_->primaries() > 0 && fenced().ok() && !hurried()) {
    const uint64_t now_ns = clock_->NowNs();
    if (regions_->has_backups()) taken_ns = now_ns;
    if (now_ns >= taken_ns + kNobodyNs || now_ns >= until_ns) break;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kNodePauseNs));
  }
  const size_t left = regions_->primaries();
  FARLEAF_LOG(info, "{} leaves: {} of {} regions were handed over within {} ms", Name(),
              served - std::min(served, left), served, (clock_->NowNs() - begun_ns) / kNsPerMs);
  // Clients that have sent something here meanwhile are told where to go.
  if (left < served && !hurried()) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(kRedirectNs));
  }
  return left == 0;
}

bool ClusterEngine::StayWhileMissed(uint64_t until_ns, const Hurried& hurried) {
  const auto self = static_cast<membership::NodeId>(cluster_.node);
  const uint64_t begun_ns = clock_->NowNs();
  size_t missing = 0;
  bool stayed = false;
  while (fenced().ok() && !hurried() && clock_->NowNs() < until_ns) {
    if (regions_->primaries() > 0) return false;
    auto counted =
        worker_->Run(cluster::CountMissing(*worker_, *session_, self, cluster_.min_in_sync));
    if (!counted.ok()) {
      FARLEAF_LOG(warn, "{} does not know who would miss it: {}", Name(),
                  counted.status().ToString());
      return true;
    }
    missing = *counted;
    if (missing == 0) break;
    stayed = true;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kNodePauseNs));
  }
  const uint64_t took_ms = (clock_->NowNs() - begun_ns) / kNsPerMs;
  if (missing > 0) {
    FARLEAF_LOG(warn,
                "{} leaves after {} ms though of {} regions too few are in sync without it: writes "
                "there wait until another one is filled",
                Name(), took_ms, missing);
  } else if (stayed) {
    FARLEAF_LOG(info, "{} has stayed {} ms more, until others were in sync", Name(), took_ms);
  }
  return true;
}

void ClusterEngine::EndControl() {
  regions_->Stop();
  master_->Stop();
  if (control_thread_.joinable()) control_thread_.join();
}

ClusterEngine::~ClusterEngine() {
  if (regions_) EndControl();
  host_.reset();
}

Status ClusterEngine::Close(const Hurried&) {
  const uint64_t begun_ns = clock_->NowNs();
  EndControl();
  Status closed;
  {
    std::lock_guard lock(mutex_);
    closed = ended_;
  }
  host_.reset();
  const Status told = worker_->Run(session_->Close(*worker_));
  if (!told.ok()) FARLEAF_LOG(warn, "{}: {}", Name(), told.ToString());
  const uint64_t took_ms = (clock_->NowNs() - begun_ns) / kNsPerMs;
  if (closed.ok()) {
    FARLEAF_LOG(info, "{} has left the cluster after {} ms", Name(), took_ms);
    return closed;
  }
  FARLEAF_LOG(error, "{} has not left in good order: {}", Name(), closed.ToString());
  return closed.WithContext("the regions in " + lsm_.files.directory +
                            " were not closed in good order");
}

}  // namespace farleaf::server
