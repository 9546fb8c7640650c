#include "benchmark/adapters/backup_node.h"

#include <random>
#include <utility>

#include "dsm/base/check.h"
#include "dsm/null_transport.h"
#include "dsm/region_layout.h"

namespace farleaf::ycsb {

namespace {

using server::replication::BackupRegion;
using server::replication::MessageKind;

/// Behind what every region has at its beginning.
constexpr uint64_t kArea = BackupNode::kChunkBytes;

uint64_t DrawToken() {
  std::random_device device;
  return ((uint64_t{device()} << 32) | device()) | 1;
}

}  // namespace

Result<std::unique_ptr<BackupNode>> BackupNode::Start(const Options& options, const Clock* clock,
                                                      const Clock* wall) {
  std::unique_ptr<BackupNode> node(new BackupNode(options, clock, wall));
  Status opened = node->Open();
  if (!opened.ok()) return opened.WithContext("backup " + std::to_string(options.number));
  return node;
}

std::unique_ptr<dsm::Worker> BackupNode::NewWorker() {
  return std::make_unique<dsm::Worker>(
      dsm::Worker::Deps{std::make_unique<dsm::NullTransport>(), &epochs_, clock_});
}

uint64_t BackupNode::RegionBytes(const server::replication::AreaLayout& layout) {
  return kArea + RoundUp(layout.bytes(), kChunkBytes);
}

Status BackupNode::OpenMemory() {
  const uint64_t bytes = RegionBytes(options_.layout);
  region_bytes_ = options_.region;
  if (!region_bytes_.empty()) {
    FARLEAF_CHECK(region_bytes_.size() == bytes, region_bytes_.size(), bytes);
    return Status::Ok();
  }
  const auto server = static_cast<dsm::ServerId>(options_.number - 1);
  auto layout = dsm::RegionLayout::For(server, bytes, kChunkBytes);
  if (!layout.ok()) return layout.status();
  layout->incarnation = DrawToken();
  auto memory = dsm::MemoryRegion::Create({.bytes = bytes, .file = {}});
  if (!memory.ok()) return memory.status();
  memory_ = std::make_unique<dsm::MemoryRegion>(std::move(*memory));
  region_bytes_ = memory_->bytes();
  dsm::FormatRegion(*layout, region_bytes_);
  const dsm::ServerIdentity identity{std::string(kCluster), {server, bytes, layout->incarnation}};
  auto agent = dsm::TcpAgent::Start({}, identity, region_bytes_, clock_);
  if (!agent.ok()) return agent.status();
  agent_ = std::move(*agent);
  return Status::Ok();
}

Status BackupNode::Open() {
  FARLEAF_RETURN_IF_ERROR(OpenMemory());
  auto storage = index::storage::FileStorage::Open(
      {.directory = options_.directory, .direct = options_.direct});
  if (!storage.ok()) return storage.status();
  storage_ = std::move(*storage);
  asking_ = NewWorker();
  worker_ = NewWorker();
  BackupRegion::Deps deps{.storage = storage_.get(),
                          .area = region_bytes_.subspan(kArea, options_.layout.bytes()),
                          .layout = options_.layout,
                          .checks = &check_memory_,
                          .cpu = &cpu_};
  if (options_.mode == server::replication::IndexMode::kBuild) {
    deps.build = index::lsm::Follower::Host{.options = options_.store,
                                            .epochs = &epochs_,
                                            .wall = wall_,
                                            .open_worker = [this] { return NewWorker(); },
                                            .cpu = &cpu_};
  }
  auto region = worker_->Run(BackupRegion::Open(*worker_, std::move(deps)));
  if (!region.ok()) return region.status();
  region_ = std::move(*region);
  token_ = DrawToken();
  worker_->Run(region_->Expect(token_));
  thread_ = std::thread([this] { worker_->Run(region_->Serve(*worker_)); });
  return Status::Ok();
}

// The agent first: whoever serves looks at memory only.
BackupNode::~BackupNode() {
  agent_.reset();
  if (!thread_.joinable()) return;
  region_->Stop();
  thread_.join();
}

dsm::ServerEndpoint BackupNode::endpoint() const {
  return {static_cast<dsm::ServerId>(options_.number - 1), agent_->endpoint()};
}

server::replication::ChannelAddress BackupNode::address() const {
  return {static_cast<dsm::ServerId>(options_.number - 1), kArea, token_};
}

BackupUse BackupNode::Use() {
  BackupUse use;
  if (agent_) use.agent_cpu_ns = agent_->cpu_ns();
  use.thread_cpu_ns = ThreadCpuNs(thread_);
  for (const auto kind : {MessageKind::kOpenLog, MessageKind::kSeal, MessageKind::kSync}) {
    use.log_cpu_ns += region_->cpu_ns(kind);
  }
  for (const auto kind : {MessageKind::kTable, MessageKind::kPart, MessageKind::kCommit,
                          MessageKind::kFill, MessageKind::kInstall}) {
    use.table_cpu_ns += region_->cpu_ns(kind);
  }
  const index::storage::StorageCounts device = storage_->counts();
  use.bytes_read = device.bytes_read;
  use.bytes_written = device.bytes_written;
  if (index::lsm::Follower* const follower = region_->follower()) {
    use.background_cpu_ns = follower->background_cpu_ns();
    use.following_cpu_ns = follower->following_cpu_ns();
    const index::lsm::StoreMetrics done = follower->store().metrics();
    use.flushed_bytes = done.flushed_bytes;
    use.merged_bytes_written = done.merged_bytes_written;
  }
  return use;
}

bool BackupNode::Quiet() {
  const index::lsm::Follower* const follower = region_->follower();
  if (!follower) return true;
  asking_->GoOnline();
  const bool quiet = follower->store().Quiet();
  asking_->GoOffline();
  return quiet;
}

}  // namespace farleaf::ycsb
