#include "server/cluster/cluster_engine.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "dsm/base/log.h"
#include "dsm/null_transport.h"
#include "server/membership/counters.h"
#include "server/membership/region_store.h"

namespace farleaf::server {

using cluster::RegionNode;
using dsm::Task;
using dsm::Worker;
using index::lsm::LsmOptions;
using index::lsm::LsmStore;

namespace {

constexpr const char* kLivesPath = "/lives";
constexpr const char* kElectionParent = "/master";
/// The one region that there is.
constexpr membership::RegionId kRegion{1};
constexpr uint64_t kNodePauseNs = 20 * kNsPerMs;
/// Beside the area: the tables of a region.
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
                                                           const Unwanted& unwanted) {
  std::unique_ptr<ClusterEngine> engine(new ClusterEngine(cluster, lsm, seed, clock));
  Status joined = engine->Join();
  if (joined.ok()) joined = engine->AwaitPrimary(unwanted);
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
  FARLEAF_RETURN_IF_ERROR(CheckStoreDirectory(lsm_.files.directory));
  auto storage = index::storage::FileStorage::Open(lsm_.files);
  if (!storage.ok()) return storage.status();
  storage_ = std::move(*storage);
  const membership::ZookeeperOptions options{.session_timeout_ms = cluster_.session_timeout_ms};
  auto session = membership::ZookeeperMembership::Open(cluster_.membership, options, clock_);
  if (!session.ok()) return session.status();
  session_ = std::move(*session);
  auto fabric = dsm::TcpFabric::Connect({}, ClusterName(cluster_.membership), {}, clock_);
  if (!fabric.ok()) return fabric.status();
  fabric_ = std::move(*fabric);
  auto worker = OpenWorker();
  if (!worker.ok()) return worker.status();
  worker_ = std::move(*worker);
  FARLEAF_RETURN_IF_ERROR(worker_->Run(BeginLife()));
  FARLEAF_RETURN_IF_ERROR(OpenMemory());
  FARLEAF_RETURN_IF_ERROR(fabric_->Identify({static_cast<dsm::MemberId>(cluster_.node), life_}));
  auto control = OpenWorker();
  if (!control.ok()) return control.status();
  control_ = std::move(*control);
  region_ = std::make_unique<RegionNode>(RegionDeps());
  cluster::Master::Deps master;
  master.session = session_.get();
  master.clock = clock_;
  master.self = static_cast<membership::NodeId>(cluster_.node);
  master.name = fmt::format("{}/{}", cluster_.node, life_);
  // There is one region as long as /founding names no keys.
  master.make_store = [this](Worker& on, membership::RegionId) { return MakeStore(on); };
  master_ = std::make_unique<cluster::Master>(
      std::move(master), cluster::MasterOptions{.replicas = cluster_.replicas});
  FARLEAF_RETURN_IF_ERROR(worker_->Run(Announce()));
  control_thread_ = std::thread([this] {
    control_->Spawn(master_->Run(*control_));
    control_->Spawn(RunRegion());
    control_->RunUntilIdle();
  });
  FARLEAF_LOG(info, "{} of {}: life {}, memory at {}", Name(), cluster_.membership, life_,
              memory_->endpoint().endpoint);
  return Status::Ok();
}

Task<Status> ClusterEngine::BeginLife() {
  membership::RegionStore regions(session_.get());
  Status status = co_await regions.Prepare(*worker_);
  for (const char* path : {cluster::kOffersPath, kElectionParent}) {
    if (status.ok()) status = co_await membership::CreatePath(*worker_, *session_, path);
  }
  if (!status.ok()) co_return status;
  auto life = co_await membership::NextNumber(*worker_, *session_, kLivesPath);
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
  options.bytes = RoundUp(kTablesBytes + layout->bytes(), kTablesBytes);
  options.agent.listen = cluster_.peer_listen;
  options.agent.advertise = cluster_.peer_advertise;
  auto memory = dsm::RegisteredMemory::Open(options, clock_);
  if (!memory.ok()) return memory.status().WithContext("peer_listen");
  memory_ = std::move(*memory);
  return Status::Ok();
}

RegionNode::Deps ClusterEngine::RegionDeps() {
  const auto layout = *replication::AreaLayout::For({.log_buffers = cluster_.log_buffers});
  const dsm::Area area{memory_->usable().offset, layout.bytes()};
  RegionNode::Deps deps;
  deps.session = session_.get();
  deps.clock = clock_;
  deps.region = kRegion;
  deps.self = {static_cast<dsm::MemberId>(cluster_.node), life_};
  deps.storage = storage_.get();
  deps.server = ServerOf(life_);
  deps.area = memory_->Bytes(area);
  deps.area_offset = area.offset;
  deps.layout = layout;
  deps.cut_off = [this](const dsm::MemberIdentity& life) { return memory_->CutOff(life); };
  deps.add_peer = [this](const dsm::ServerEndpoint& peer) { return fabric_->Add(peer); };
  deps.open_store = [this](Worker& worker, index::lsm::Mirror* mirror) {
    return OpenStore(worker, mirror);
  };
  deps.serve = [this](LsmStore* store) -> Status {
    auto background = index::lsm::Background::Start(store, [this] { return OpenWorker(); });
    if (!background.ok()) return background.status();
    background_ = std::move(*background);
    return Status::Ok();
  };
  deps.seed = seed_ ^ life_;
  return deps;
}

// The session of this node's last life may not have expired yet: until then its entry is there.
Task<Status> ClusterEngine::Announce() {
  membership::RegionStore regions(session_.get());
  Status status = co_await region_->LeaveOldLife(*worker_);
  if (!status.ok()) co_return status;
  const membership::NodeEntry node{.id = static_cast<membership::NodeId>(cluster_.node),
                                   .incarnation = life_,
                                   .native_endpoints = {},
                                   .fabric_endpoint = memory_->endpoint().endpoint};
  const uint64_t end_ns = clock_->NowNs() + 3 * uint64_t{cluster_.session_timeout_ms} * kNsPerMs;
  for (;;) {
    status = co_await regions.Announce(*worker_, node);
    if (status.code() != StatusCode::kAlreadyExists) co_return status;
    if (clock_->NowNs() >= end_ns) {
      co_return Status::AlreadyExists(
          Name() + " is there already: give each process of a cluster a node of its own");
    }
    co_await worker_->Sleep(kNodePauseNs);
  }
}

Task<Status> ClusterEngine::MakeStore(Worker& worker) {
  LsmOptions options = lsm_.store;
  options.durability = index::lsm::Durability::kSynced;
  const LsmStore::Deps deps{storage_.get(), &epochs_, &wall_, seed_};
  auto made = co_await LsmStore::Open(worker, deps, options, LsmStore::IfMissing::kCreate);
  if (!made.ok()) co_return made.status();
  Status closed = co_await (*made)->Close(worker);
  co_return closed;
}

Task<Result<std::unique_ptr<LsmStore>>> ClusterEngine::OpenStore(Worker& worker,
                                                                 index::lsm::Mirror* mirror) {
  const LsmOptions options = StoreOptionsOf(lsm_);
  const LsmStore::Deps deps{storage_.get(), &epochs_, &wall_, seed_, mirror};
  auto opened = co_await LsmStore::Open(worker, deps, options, LsmStore::IfMissing::kFail);
  co_return opened;
}

Task<void> ClusterEngine::RunRegion() {
  Status ended = co_await region_->Run(*control_);
  master_->Stop();
  {
    std::lock_guard lock(mutex_);
    ended_ = ended;
  }
  region_ended_.store(true);
}

Status ClusterEngine::AwaitPrimary(const Unwanted& unwanted) {
  cluster::Role told = cluster::Role::kNothing;
  while (region_->store() == nullptr) {
    if (region_ended_.load()) {
      std::lock_guard lock(mutex_);
      return ended_.ok() ? Status::Unavailable("the region's part has ended") : ended_;
    }
    if (unwanted()) return Status::Unavailable("nobody wants it any more");
    const cluster::Role role = region_->role();
    if (role != told && role == cluster::Role::kBackup) {
      FARLEAF_LOG(info, "{} is a backup, and stands by", Name());
    }
    told = role;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kNodePauseNs));
  }
  const auto open_worker = [this] { return OpenWorker(); };
  auto host =
      LsmTreeHost::Load({region_->store(), storage_.get(), lsm_.files.directory, open_worker});
  if (!host.ok()) return host.status();
  host_ = std::move(*host);
  return Status::Ok();
}

Status ClusterEngine::fenced() const {
  if (!region_ended_.load()) return Status::Ok();
  std::lock_guard lock(mutex_);
  return ended_.ok() ? Status::Fenced("the region's part has ended") : ended_;
}

Status ClusterEngine::Health() const {
  FARLEAF_RETURN_IF_ERROR(fenced());
  if (clock_->NowNs() >= session_->lease_until_ns()) {
    return Status::Unavailable("the membership " + cluster_.membership + " does not answer");
  }
  return host_->Health();
}

std::string ClusterEngine::Describe() const {
  return fmt::format("{} is the primary of the cluster {}, store in {}", Name(),
                     cluster_.membership, lsm_.files.directory);
}

void ClusterEngine::AppendMetrics(MetricsText* out) const {
  const replication::ReplicaSet::Counts counts = region_->replicas().counts();
  out->Gauge("farleaf_replication_backups", "Backups that hold all that is acknowledged.", {},
             region_->replicas().members().size());
  out->Counter("farleaf_replication_appends_total", "Round trips that brought log bytes to them.",
               {}, counts.appends);
  out->Counter("farleaf_replication_log_bytes_total", "WRITTEN to their memory for these.", {},
               counts.verbs.bytes_written);
  out->Counter("farleaf_replication_excluded_total", "Backups that were lost.", {},
               counts.excluded);
  out->Gauge("farleaf_cluster_master", "Whether this node is the master.", {},
             master_->IsMaster() ? 1 : 0);
}

void ClusterEngine::EndControl() {
  if (region_) region_->Stop();
  if (master_) master_->Stop();
  if (control_thread_.joinable()) control_thread_.join();
}

ClusterEngine::~ClusterEngine() {
  host_.reset();
  background_.reset();
  EndControl();
  if (region_) region_->Abandon();
  region_.reset();
}

Status ClusterEngine::Close(const Hurried& hurried) {
  host_.reset();
  const uint64_t begun_ns = clock_->NowNs();
  LsmStore* const store = region_->store();
  region_->FillNobody();
  if (lsm_.close_flush_ms > 0) {
    worker_->Run(FlushMemtables(*store, *worker_, lsm_.close_flush_ms, hurried));
  }
  background_.reset();
  // While the backups are there: what is acknowledged is on their disks, too, behind this.
  const Status closed = worker_->Run(store->Close(*worker_));
  EndControl();
  const Status told = worker_->Run(session_->Close(*worker_));
  if (!told.ok()) FARLEAF_LOG(warn, "{}: {}", Name(), told.ToString());
  region_.reset();
  const uint64_t took_ms = (clock_->NowNs() - begun_ns) / kNsPerMs;
  if (closed.ok()) {
    FARLEAF_LOG(info, "{} has left the cluster after {} ms", Name(), took_ms);
    return closed;
  }
  FARLEAF_LOG(error, "{} has not left in good order: {}", Name(), closed.ToString());
  return closed.WithContext("the store in " + lsm_.files.directory +
                            " was not closed in good order");
}

}  // namespace farleaf::server
