#include "benchmark/adapters/replicated_target.h"

#include <array>
#include <atomic>
#include <filesystem>
#include <future>
#include <utility>
#include <vector>

#include "benchmark/adapters/backup_node.h"
#include "benchmark/adapters/lsm_store.h"
#include "benchmark/adapters/timed_transport.h"
#include "benchmark/ycsb/process_usage.h"
#include "dsm/null_transport.h"
#include "dsm/shm/local_fabric.h"
#include "dsm/tcp/tcp_fabric.h"
#include "index/lsm/background.h"
#include "server/records/record.h"
#include "server/replication/replica_set.h"

namespace farleaf::ycsb {

namespace {

using dsm::Worker;
using index::lsm::LsmOptions;
using index::lsm::LsmStore;
using index::storage::FileStorage;
using server::replication::BackupLink;
using server::replication::Channel;
using server::replication::ChannelPort;
using server::replication::IndexMode;
using server::replication::NodeId;
using server::replication::ReplicaSet;
using Json = nlohmann::ordered_json;

/// On cores that the backups share with whoever keeps them busy, a merge may hold a message up for long.
constexpr uint64_t kPatienceMs = 300'000;
/// Of a log, beside those that wait to be written: the tail, and what is ready ahead of need.
constexpr uint32_t kBuffersAtHand = 4;

/// Whoever is lost was to be compared.
class FixedViews final : public server::replication::ViewKeeper {
 public:
  dsm::Task<Result<std::vector<NodeId>>> Exclude(Worker& /*worker*/, NodeId node) override {
    co_return Status::Fenced("backup " + std::to_string(node) + " was lost: the run ends");
  }
  dsm::Task<Status> Include(Worker& /*worker*/, NodeId /*node*/) override {
    co_return Status::Ok();
  }
};

/// The primary's thread for its channels to backups.
class Channels {
 public:
  Channels(std::unique_ptr<Worker> worker, ReplicaSet* replicas)
      : worker_(std::move(worker)), replicas_(replicas) {}
  /// Ends what runs on them.
  ~Channels() { Stop(); }
  /// Fills all backups, one after another. Called once.
  Status Join(const std::vector<std::unique_ptr<BackupNode>>& backups) {
    std::promise<Status> joined;
    auto result = joined.get_future();
    thread_ = std::thread([&, this] {
      worker_->Spawn(JoinAll(backups, &joined));
      worker_->RunUntilIdle();
    });
    return result.get();
  }
  void Stop() {
    for (const auto& link : links_) link->port().Stop();
    if (thread_.joinable()) thread_.join();
  }
  uint64_t cpu_ns() { return ThreadCpuNs(thread_); }
  struct Traffic {
    uint64_t table_bytes = 0;    ///< of tables, shipped as they were made or from the disk
    uint64_t channel_bytes = 0;  ///< all that the channels WRITE and READ
    uint64_t messages = 0;
  };
  Traffic traffic() const {
    Traffic traffic;
    for (const auto& link : links_) {
      const BackupLink::Counts counts = link->counts();
      const dsm::FabricCounts verbs = link->port().counts();
      traffic.table_bytes += counts.table_bytes + counts.fill_bytes;
      traffic.messages += counts.messages;
      traffic.channel_bytes += verbs.bytes_written + verbs.bytes_read;
    }
    return traffic;
  }

 private:
  dsm::Task<void> JoinAll(const std::vector<std::unique_ptr<BackupNode>>& backups,
                          std::promise<Status>* joined) {
    Status status;
    for (const auto& backup : backups) {
      if (status.ok()) status = co_await JoinOne(*backup);
    }
    joined->set_value(status);
  }
  dsm::Task<Status> JoinOne(const BackupNode& backup) {
    dsm::FabricCounts counts;
    const server::replication::ChannelAddress address = backup.address();
    const server::replication::ChannelOptions options{
        .backup = "backup " + std::to_string(backup.number()), .call_timeout_ms = kPatienceMs};
    auto channel = co_await Channel::Open(*worker_, address, options, counts);
    if (!channel.ok()) co_return channel.status();
    const auto port = std::make_shared<ChannelPort>(std::move(*channel));
    worker_->Spawn(ChannelPort::Run(*worker_, port));
    const auto link = std::make_shared<BackupLink>(backup.number(), port);
    links_.push_back(link);
    Status added = co_await replicas_->Add(*worker_, link);
    co_return added;
  }

  const std::unique_ptr<Worker> worker_;
  ReplicaSet* const replicas_;
  std::vector<std::shared_ptr<BackupLink>> links_;
  std::thread thread_;
};

/// What adds up, of all of it.
struct Totals {
  uint64_t process_cpu_ns = 0, flushes_cpu_ns = 0, merges_cpu_ns = 0, channels_cpu_ns = 0;
  uint64_t client_fabric_cpu_ns = 0;
  BackupUse backups;  // all together
  uint64_t primary_bytes_read = 0, primary_bytes_written = 0;
  uint64_t primary_table_bytes = 0;  // that flushes and merges wrote
  uint64_t log_rounds = 0, log_bytes = 0, table_bytes = 0, channel_bytes = 0, messages = 0;
};

/// `member` of both, as the difference.
template <typename T>
uint64_t Since(uint64_t T::*member, const T& now, const T& before) {
  return now.*member - before.*member;
}

void Add(const BackupUse& more, BackupUse* sum) {
  for (const auto member :
       {&BackupUse::agent_cpu_ns, &BackupUse::thread_cpu_ns, &BackupUse::log_cpu_ns,
        &BackupUse::table_cpu_ns, &BackupUse::background_cpu_ns, &BackupUse::following_cpu_ns,
        &BackupUse::bytes_read, &BackupUse::bytes_written, &BackupUse::flushed_bytes,
        &BackupUse::merged_bytes_written}) {
    sum->*member += more.*member;
  }
}

class ReplicatedTarget final : public IndexTarget {
 public:
  ReplicatedTarget(StoreOptions store, TargetOptions options, const Clock* clock)
      : store_options_(std::move(store)), options_(std::move(options)), clock_(clock) {}

  Status Open() {
    FARLEAF_RETURN_IF_ERROR(OpenBackups());
    auto storage = FileStorage::Open(
        {.directory = store_options_.directory + "/primary", .direct = DirectIo()});
    if (!storage.ok()) return storage.status();
    storage_ = std::move(*storage);
    auto worker = OpenWorker();
    if (!worker.ok()) return worker.status();
    worker_ = std::move(*worker);
    FARLEAF_RETURN_IF_ERROR(OpenStore());
    if (replicas_) replicas_->set_store(store_.get());
    auto background = index::lsm::Background::Start(store_.get(), [this] { return OpenWorker(); });
    if (!background.ok()) return background.status();
    background_ = std::move(*background);
    if (!replicas_) return Status::Ok();
    auto channels_worker = OpenWorker();
    if (!channels_worker.ok()) return channels_worker.status();
    channels_ = std::make_unique<Channels>(std::move(*channels_worker), replicas_.get());
    Status joined = channels_->Join(backups_);
    if (!joined.ok()) return joined;
    before_ = TakeTotals();
    return Status::Ok();
  }

  std::string DataDirectory() const override { return store_options_.directory; }
  bool Quiet() override {
    worker_->GoOnline();
    bool quiet = store_->Quiet();
    worker_->GoOffline();
    for (const auto& backup : backups_) quiet = backup->Quiet() && quiet;
    return quiet;
  }
  void BeginPhase() override { before_ = TakeTotals(); }
  Json DescribeStore() const override {
    Json json;
    json["Mode"] = static_cast<uint64_t>(store_options_.mode);
    json["Backups"] = backups_.size();
    DescribeWritePath(&json);
    const Totals now = TakeTotals();
    DescribeTraffic(now, &json);
    DescribeCpu(now, &json);
    worker_->GoOnline();
    DescribeLsmStore(*store_, storage_->counts(), &json);
    worker_->GoOffline();
    return json;
  }
  Result<uint64_t> PoolBytesUsed() override { return uint64_t{0}; }
  Status Close() override {
    background_.reset();
    Status closed = worker_->Run(store_->Close(*worker_));
    if (replicas_) replicas_->Stop();
    worker_->RunUntilIdle();  // what told the backups that segments are full
    channels_.reset();
    store_.reset();
    replicas_.reset();
    worker_.reset();
    fabric_.reset();
    backups_.clear();
    memories_.reset();
    storage_.reset();
    return closed;
  }

 protected:
  index::RangeIndex& index() override { return *store_; }
  bool blind_writes() const override { return store_options_.blind; }
  Result<std::unique_ptr<Worker>> OpenWorker() override {
    std::unique_ptr<dsm::Transport> transport = std::make_unique<dsm::NullTransport>();
    if (dsm::Fabric* const fabric = Fabric()) {
      auto opened = fabric->OpenTransport();
      if (!opened.ok()) return opened.status();
      transport = std::move(*opened);
      // Those that are opened behind Open are the clients'.
      if (channels_) {
        transport = std::make_unique<TimedTransport>(std::move(transport), &client_fabric_cpu_ns_);
      }
    }
    return std::make_unique<Worker>(
        Worker::Deps{std::move(transport), &epochs_, clock_, options_.seed, ++workers_});
  }

 private:
  index::storage::DirectIo DirectIo() const {
    return store_options_.direct ? index::storage::DirectIo::kAuto : index::storage::DirectIo::kOff;
  }
  /// Null: there are no backups.
  dsm::Fabric* Fabric() const {
    if (memories_) return memories_.get();
    return fabric_.get();
  }
  bool Replicates() const { return store_options_.mode != ReplicationMode::kNone; }
  IndexMode Mode() const {
    return store_options_.mode == ReplicationMode::kBuild ? IndexMode::kBuild : IndexMode::kSend;
  }

  /// Of the primary, and of stores that backups build.
  LsmOptions StoreOptionsOf() const {
    LsmOptions options = LsmOptionsOf(store_options_);
    options.collect_values = store_options_.collect;
    if (store_options_.durability == StoreDurability::kSynced) {
      options.durability = index::lsm::Durability::kSynced;
    } else if (store_options_.durability == StoreDurability::kReplicated && Replicates()) {
      options.durability = index::lsm::Durability::kReplicated;
    }
    if (store_options_.mode == ReplicationMode::kBuild) {
      options.collect_values = false;
      // As many memtables share what one has else.
      options.memtable_bytes = std::max<uint64_t>(
          options.memtable_bytes / (1 + store_options_.backups), uint64_t{1} << 20);
    }
    return options;
  }

  Status OpenBackups() {
    if (!Replicates()) return Status::Ok();
    const LsmOptions store = StoreOptionsOf();
    auto layout = server::replication::AreaLayout::For(
        {.log_buffers = store.log_buffers_max + 2 * kBuffersAtHand});
    if (!layout.ok()) return layout.status();
    const bool mapped = store_options_.fabric == ReplicationFabric::kShm;
    if (mapped) {
      auto memories =
          dsm::LocalFabric::Create({.servers = static_cast<uint32_t>(store_options_.backups),
                                    .region_bytes = BackupNode::RegionBytes(*layout),
                                    .chunk_bytes = BackupNode::kChunkBytes});
      if (!memories.ok()) return memories.status();
      memories_ = std::move(*memories);
    }
    for (uint64_t i = 1; i <= store_options_.backups; ++i) {
      const auto server = static_cast<dsm::ServerId>(i - 1);
      auto node = BackupNode::Start(
          {.number = static_cast<uint16_t>(i),
           .directory = store_options_.directory + "/backup" + std::to_string(i),
           .region = mapped ? memories_->region_bytes(server) : std::span<std::byte>(),
           .direct = DirectIo(),
           .layout = *layout,
           .mode = Mode(),
           .store = store},
          clock_, &wall_);
      if (!node.ok()) return node.status();
      backups_.push_back(std::move(*node));
    }
    if (!mapped) FARLEAF_RETURN_IF_ERROR(ConnectBackups());
    replicas_ = std::make_unique<ReplicaSet>(&views_, Mode());
    return Status::Ok();
  }

  Status ConnectBackups() {
    std::vector<dsm::ServerEndpoint> endpoints;
    for (const auto& backup : backups_) endpoints.push_back(backup->endpoint());
    const dsm::TcpLinkOptions patient{.recovery = {.connect_timeout_ms = 20'000},
                                      .stall_timeout_ms = kPatienceMs};
    auto fabric =
        dsm::TcpFabric::Connect(endpoints, std::string(BackupNode::kCluster), patient, clock_);
    if (!fabric.ok()) return fabric.status();
    fabric_ = std::move(*fabric);
    return Status::Ok();
  }

  Status OpenStore() {
    const LsmStore::Deps deps{storage_.get(), &epochs_, &wall_, DrawStoreSeed(), replicas_.get()};
    const LsmOptions lsm = StoreOptionsOf();
    auto there = worker_->Run(LsmStore::Open(*worker_, deps, lsm, LsmStore::IfMissing::kFail));
    if (options_.create_tree) {
      if (there.ok()) {
        return Status::AlreadyExists("directory '" + store_options_.directory +
                                     "' holds a store: load into an empty one");
      }
      if (there.status().code() != StatusCode::kNotFound) return there.status();
      there = worker_->Run(LsmStore::Open(*worker_, deps, lsm, LsmStore::IfMissing::kCreate));
    }
    if (there.status().code() == StatusCode::kNotFound) {
      return Status::NotFound("directory '" + store_options_.directory +
                              "' holds no store: load one first (--phase load)");
    }
    if (!there.ok()) return there.status();
    store_ = std::move(*there);
    return Status::Ok();
  }

  Totals TakeTotals() const {
    Totals now;
    now.process_cpu_ns = ProcessCpuNs();
    const std::vector<uint64_t> background = background_->CpuNs();
    now.flushes_cpu_ns = background.front();
    for (size_t i = 1; i < background.size(); ++i) now.merges_cpu_ns += background[i];
    for (const auto& backup : backups_) Add(backup->Use(), &now.backups);
    const index::storage::StorageCounts device = storage_->counts();
    now.primary_bytes_read = device.bytes_read;
    now.primary_bytes_written = device.bytes_written;
    const index::lsm::StoreMetrics made = store_->metrics();
    now.primary_table_bytes = made.flushed_bytes + made.merged_bytes_written;
    if (!channels_) return now;
    now.channels_cpu_ns = channels_->cpu_ns();
    now.client_fabric_cpu_ns = client_fabric_cpu_ns_.load(std::memory_order_relaxed);
    const Channels::Traffic traffic = channels_->traffic();
    now.table_bytes = traffic.table_bytes;
    now.channel_bytes = traffic.channel_bytes;
    now.messages = traffic.messages;
    const ReplicaSet::Counts appended = replicas_->counts();
    now.log_rounds = appended.appends;
    now.log_bytes = appended.verbs.bytes_written;
    return now;
  }

  void DescribeWritePath(Json* json) const {
    const LsmOptions options = StoreOptionsOf();
    const uint64_t stores =
        store_options_.mode == ReplicationMode::kBuild ? 1 + backups_.size() : 1;
    uint64_t areas = 0;
    for (const auto& backup : backups_) areas += backup->area_bytes();
    const uint64_t memtables = stores * 2 * options.memtable_bytes;
    const uint64_t logs =
        (options.log_buffers_max + 2 * kBuffersAtHand) * index::storage::kSegmentBytes;
    (*json)["WritePathMemtableBytes"] = memtables;
    (*json)["WritePathLogBytes"] = logs;
    (*json)["WritePathAreaBytes"] = areas;
    (*json)["WritePathBytes"] = memtables + logs + areas;
  }

  void DescribeTraffic(const Totals& now, Json* json) const {
    const auto since = [&](uint64_t Totals::*member) { return Since(member, now, before_); };
    const auto of_backups = [&](uint64_t BackupUse::*member) {
      return Since(member, now.backups, before_.backups);
    };
    (*json)["PrimaryBytesRead"] = since(&Totals::primary_bytes_read);
    (*json)["PrimaryBytesWritten"] = since(&Totals::primary_bytes_written);
    (*json)["BackupBytesRead"] = of_backups(&BackupUse::bytes_read);
    (*json)["BackupBytesWritten"] = of_backups(&BackupUse::bytes_written);
    (*json)["BackupFlushedBytes"] = of_backups(&BackupUse::flushed_bytes);
    (*json)["BackupMergedBytesWritten"] = of_backups(&BackupUse::merged_bytes_written);
    const uint64_t logs = since(&Totals::log_bytes), tables = since(&Totals::table_bytes);
    const uint64_t channels = since(&Totals::channel_bytes);
    (*json)["LogReplicationRounds"] = since(&Totals::log_rounds);
    (*json)["LogReplicationBytes"] = logs;
    (*json)["TableShippingBytes"] = tables;
    (*json)["MessageBytes"] = channels - std::min(channels, tables);
    (*json)["Messages"] = since(&Totals::messages);
    (*json)["NetworkBytes"] = logs + std::max(channels, tables);
    // Each table that the primary makes goes to each backup that builds none, once; and nothing but logs besides.
    const uint64_t sent_to = Mode() == IndexMode::kSend ? backups_.size() : 0;
    (*json)["PredictedNetworkBytes"] = logs + sent_to * since(&Totals::primary_table_bytes);
  }

  void DescribeCpu(const Totals& now, Json* json) const {
    const auto since = [&](uint64_t Totals::*member) { return Since(member, now, before_); };
    const auto of_backups = [&](uint64_t BackupUse::*member) {
      return Since(member, now.backups, before_.backups);
    };
    const auto put = [json](const char* name, uint64_t ns) { (*json)[name] = ns / kNsPerUs; };
    const uint64_t flushes = since(&Totals::flushes_cpu_ns), merges = since(&Totals::merges_cpu_ns);
    const uint64_t channels = since(&Totals::channels_cpu_ns);
    const uint64_t agents = of_backups(&BackupUse::agent_cpu_ns);
    const uint64_t threads = of_backups(&BackupUse::thread_cpu_ns);
    const uint64_t logs = of_backups(&BackupUse::log_cpu_ns);
    const uint64_t tables = of_backups(&BackupUse::table_cpu_ns);
    const uint64_t background = of_backups(&BackupUse::background_cpu_ns);
    const uint64_t following = of_backups(&BackupUse::following_cpu_ns);
    const uint64_t others = flushes + merges + channels + agents + threads + background;
    const uint64_t process = since(&Totals::process_cpu_ns);
    const uint64_t clients = process - std::min(process, others);
    const uint64_t fabric = std::min(clients, since(&Totals::client_fabric_cpu_ns));
    put("CpuClients(us)", clients);
    put("CpuClientWrites(us)", fabric);
    put("CpuPrimaryFlushes(us)", flushes);
    put("CpuPrimaryMerges(us)", merges);
    put("CpuPrimaryChannels(us)", channels);
    put("CpuBackupAgents(us)", agents);
    put("CpuBackupThreads(us)", threads);
    put("CpuBackupLogs(us)", logs);
    put("CpuBackupTables(us)", tables);
    put("CpuBackupFollowing(us)", following);
    put("CpuBackupMerges(us)", background);
    // Talos' figure 8.
    put("CpuStorage(us)", clients - fabric + flushes + merges);
    put("CpuNetwork(us)", channels + agents + threads - std::min(threads, logs + tables));
    put("CpuLogReplication(us)", fabric + logs - std::min(logs, following));
    put("CpuIndexReplication(us)", tables + following + background);
  }

  const StoreOptions store_options_;
  const TargetOptions options_;
  const Clock* const clock_;
  const server::WallClock wall_;
  std::atomic<uint64_t> workers_{0}, client_fabric_cpu_ns_{0};
  FixedViews views_;
  // In this order: each stands on those before it.
  dsm::EpochDomain epochs_;
  std::unique_ptr<dsm::LocalFabric> memories_;  // of the backups, where they are mapped
  std::vector<std::unique_ptr<BackupNode>> backups_;
  std::unique_ptr<dsm::TcpFabric> fabric_;
  std::unique_ptr<ReplicaSet> replicas_;
  std::unique_ptr<FileStorage> storage_;
  std::unique_ptr<Worker> worker_;  // of the thread that opens and closes the target
  std::unique_ptr<LsmStore> store_;
  std::unique_ptr<Channels> channels_;
  std::unique_ptr<index::lsm::Background> background_;  // calls end by way of the channels
  Totals before_;                                       // at the phase's begin
};

}  // namespace

Result<std::unique_ptr<Target>> OpenReplicatedTarget(const StoreOptions& store,
                                                     const TargetOptions& options,
                                                     const Clock* clock) {
  std::error_code error;
  std::filesystem::create_directories(store.directory, error);
  if (error) return Status::IoError("directory '" + store.directory + "': " + error.message());
  auto target = std::make_unique<ReplicatedTarget>(store, options, clock);
  Status opened = target->Open();
  if (!opened.ok()) return opened;
  return std::unique_ptr<Target>(std::move(target));
}

}  // namespace farleaf::ycsb
