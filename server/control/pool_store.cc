// The Store behind a pool that this process joins.
#include <algorithm>
#include <array>
#include <utility>

#include "dsm/bootstrap/open_fabric.h"
#include "server/config.h"
#include "server/control/store.h"
#include "server/frontend/execute.h"
#include "server/frontend/upkeep.h"
#include "server/pool_tree_host.h"

namespace farleaf::server {
namespace {

using Lines = std::vector<std::pair<std::string, std::string>>;

constexpr uint64_t kConnectMsMax = 10'000;

class PoolStore final : public Store {
 public:
  PoolStore(std::unique_ptr<dsm::Pool> pool, std::unique_ptr<dsm::Worker> worker,
            uint64_t deadline_ms)
      : pool_(std::move(pool)),
        host_(pool_.get(), "", index::TreeOptions()),
        worker_(std::move(worker)),
        deadline_ms_(deadline_ms) {}
  ~PoolStore() override {
    // What is left in the end keeps the pool from being left, and is told then.
    dsm::OpContext op{*worker_, counts_, pool_->clock().NowNs() + kLastUpkeepNs};
    [[maybe_unused]] const farleaf::Status kept = worker_->Run(KeepUpToTheEnd(host_, op));
  }

  Result<std::vector<client::TreeInfo>> ListTrees() override {
    dsm::OpContext op = NewOp();
    return worker_->Run(host_.List(op));
  }
  Result<client::TreeInfo> CreateTree(const client::TreeSpec& spec) override {
    dsm::OpContext op = NewOp();
    const NewTree tree{spec.name, spec.layout, spec.geometry};
    return Keep(worker_->Run(host_.Create(op, tree)));
  }
  Result<client::TreeInfo> OpenTree(std::string_view name) override {
    dsm::OpContext op = NewOp();
    return Keep(worker_->Run(host_.Open(op, name)));
  }
  Result<client::Value> Get(std::string_view key) override {
    dsm::OpContext op = NewOp();
    std::string value;
    const auto found = worker_->Run(tree_.index->Get(op, key, &value));
    if (!found.ok()) return found.status();
    return *found ? client::Value(std::move(value)) : client::Value();
  }
  Result<bool> Put(std::string_view key, std::string_view value) override {
    dsm::OpContext op = NewOp();
    return worker_->Run(tree_.index->Put(op, key, value));
  }
  Result<bool> Delete(std::string_view key) override {
    dsm::OpContext op = NewOp();
    return worker_->Run(tree_.index->Delete(op, key));
  }
  Result<client::CompareAndSetResult> CompareAndSet(std::string_view key, std::string_view expected,
                                                    std::string_view value) override {
    protocol::Request request;
    request.opcode = protocol::Opcode::kCompareAndSet;
    request.key = key;
    request.expected = expected;
    request.value = value;
    protocol::Response response;
    ResponseStorage storage;
    FARLEAF_RETURN_IF_ERROR(RunRequest(request, &response, &storage));
    client::CompareAndSetResult result{response.outcome, {}};
    if (response.outcome == client::ConditionOutcome::kDifferent) {
      result.current = std::string(response.current);
    }
    return result;
  }
  Result<int64_t> Add(std::string_view key, int64_t delta,
                      std::optional<int64_t> initial) override {
    protocol::Request request;
    request.opcode = protocol::Opcode::kAdd;
    request.key = key;
    request.delta = delta;
    request.initial = initial;
    protocol::Response response;
    ResponseStorage storage;
    FARLEAF_RETURN_IF_ERROR(RunRequest(request, &response, &storage));
    return response.number;
  }
  Result<client::Rows> Scan(const client::ScanRange& range) override {
    dsm::OpContext op = NewOp();
    index::ScanRange bounds;
    bounds.start = range.start;
    bounds.end = range.end;
    bounds.limit = range.limit;
    if (range.reverse) bounds.direction = index::ScanDirection::kReverse;
    if (range.keys_only) bounds.content = index::ScanContent::kKeys;
    std::vector<index::KeyValue> rows;
    FARLEAF_RETURN_IF_ERROR(worker_->Run(tree_.index->Scan(op, bounds, &rows)));
    client::Rows found;
    found.reserve(rows.size());
    for (auto& row : rows) found.push_back({std::move(row.key), std::move(row.value)});
    return found;
  }

  Result<Lines> Status() override {
    Lines lines = {{"pool.fabric", std::string(pool_->fabric().name())},
                   {"pool.memory_servers", std::to_string(pool_->layouts().size())}};
    FARLEAF_RETURN_IF_ERROR(AddMembers(&lines));
    for (const dsm::RegionLayout& layout : pool_->layouts()) {
      FARLEAF_RETURN_IF_ERROR(AddServer(layout, &lines));
    }
    return lines;
  }

  Result<Lines> PoolStatus() override { return Status(); }
  Result<std::string> SlowLog() override {
    return farleaf::Status::InvalidArgument(
        "a pool has no slow log: give --server URL, of a compute server");
  }

  Result<index::CheckReport> Check() override {
    dsm::OpContext op{*worker_, counts_};
    return worker_->Run(index::CheckPool(op, *pool_, {}));
  }

  Result<std::vector<PoolMember>> Members(uint64_t watch_ms) override {
    std::vector<uint64_t> words(dsm::kMembersMax);
    FARLEAF_RETURN_IF_ERROR(worker_->Run(
        ReadWords(*worker_, counts_, dsm::kCatalogServer, dsm::kMembersOffset, words)));
    auto leases = ReadAtAll(dsm::kLeasesOffset);
    if (!leases.ok()) return leases.status();
    auto later = leases;
    if (watch_ms > 0) {
      worker_->Run(Sleep(*worker_, watch_ms * kNsPerMs));
      later = ReadAtAll(dsm::kLeasesOffset);
      if (!later.ok()) return later.status();
    }
    // Last, so that whoever is silent because it was cut off is seen to be.
    const auto fences = ReadAtAll(dsm::kFencesOffset);
    if (!fences.ok()) return fences.status();
    std::vector<PoolMember> members;
    // Word 0 is the ticket counter.
    for (uint32_t id = 1; id < dsm::kMembersMax; ++id) {
      const auto word = dsm::MemberWord::Decode(words[id]);
      if (word.incarnation == 0) continue;
      PoolMember member;
      member.identity = {static_cast<dsm::MemberId>(id), word.incarnation};
      member.live = word.live;
      for (size_t i = 0; i < fences->size(); ++i) {
        const dsm::ServerId server = pool_->layouts()[i].server;
        if ((*fences)[i][id] >= word.incarnation) member.fenced_by.push_back(server);
        const uint64_t lease = (*leases)[i][id];
        if (dsm::LeaseWord::Decode(lease).incarnation != word.incarnation) continue;
        member.watched_by.push_back(server);
        if (watch_ms > 0 && (*later)[i][id] == lease) member.silent_at.push_back(server);
      }
      members.push_back(std::move(member));
    }
    return members;
  }

  Result<std::vector<CutOffOutcome>> CutOff(const dsm::MemberIdentity& member) override {
    std::vector<CutOffOutcome> outcomes;
    for (const dsm::RegionLayout& layout : pool_->layouts()) {
      outcomes.push_back({layout.server, pool_->fabric().CutOff(layout.server, member)});
    }
    return outcomes;
  }
  Result<index::MemberRecovered> Recover(
      const dsm::MemberIdentity& member,
      std::function<void(const std::string&)> progress) override {
    dsm::OpContext op{*worker_, counts_};
    index::RecoverMemberOptions options;
    options.progress = std::move(progress);
    return worker_->Run(index::RecoverMember(op, *pool_, member, std::move(options)));
  }

 private:
  dsm::OpContext NewOp() {
    const uint64_t now_ns = pool_->clock().NowNs();
    return {*worker_, counts_, now_ns + deadline_ms_ * kNsPerMs};
  }
  Result<client::TreeInfo> Keep(const Result<HostedTree>& tree) {
    if (!tree.ok()) return tree.status();
    tree_ = *tree;
    return tree->info;
  }
  /// As a compute server would.
  farleaf::Status RunRequest(const protocol::Request& request, protocol::Response* response,
                             ResponseStorage* storage) {
    dsm::OpContext op = NewOp();
    return worker_->Run(Execute(host_, tree_, op, request, response, storage));
  }

  static dsm::Task<farleaf::Status> ReadWords(dsm::Worker& worker, dsm::FabricCounts& counts,
                                              dsm::ServerId server, uint64_t offset,
                                              std::vector<uint64_t>& words) {
    dsm::Batch batch(server);
    batch.Read(offset, std::as_writable_bytes(std::span(words)));
    const farleaf::Status status = co_await worker.RoundTrip(batch, counts);
    co_return status;
  }

  static dsm::Task<void> Sleep(dsm::Worker& worker, uint64_t ns) { co_await worker.Sleep(ns); }

  /// A table of words by id, at every memory server.
  Result<std::vector<std::vector<uint64_t>>> ReadAtAll(uint64_t offset) {
    std::vector<std::vector<uint64_t>> tables;
    for (const dsm::RegionLayout& layout : pool_->layouts()) {
      std::vector<uint64_t> words(dsm::kMembersMax);
      FARLEAF_RETURN_IF_ERROR(
          worker_->Run(ReadWords(*worker_, counts_, layout.server, offset, words)));
      tables.push_back(std::move(words));
    }
    return tables;
  }

  farleaf::Status AddMembers(Lines* lines) {
    const auto members = Members(0);
    if (!members.ok()) return members.status();
    std::string live;
    for (const PoolMember& member : *members) {
      if (!member.live || member.identity.id == pool_->self().id) continue;
      live += (live.empty() ? "" : ",") + std::to_string(member.identity.id);
    }
    lines->emplace_back("pool.compute_servers", live.empty() ? "none" : live);
    return farleaf::Status::Ok();
  }

  farleaf::Status AddServer(const dsm::RegionLayout& layout, Lines* lines) {
    std::vector<uint64_t> words(layout.chunk_count);
    FARLEAF_RETURN_IF_ERROR(worker_->Run(
        ReadWords(*worker_, counts_, layout.server, layout.ChunkWordOffset(0), words)));
    constexpr std::array<std::string_view, dsm::kChunkKindMax + 1> kNames = {
        "unused", "leaf", "search", "value", "extent", "extent_rest", "redo"};
    std::array<uint64_t, kNames.size() + 1> chunks{};
    for (const uint64_t word : words) {
      ++chunks[std::min<size_t>(static_cast<size_t>(dsm::ChunkWord::Decode(word).kind),
                                kNames.size())];
    }
    const std::string server = "memory_server." + std::to_string(layout.server);
    lines->emplace_back(server + ".bytes", FormatByteSize(layout.region_bytes));
    lines->emplace_back(server + ".incarnation", std::to_string(layout.incarnation));
    lines->emplace_back(server + ".chunk_bytes", FormatByteSize(layout.chunk_bytes));
    lines->emplace_back(server + ".chunks", std::to_string(layout.chunk_count));
    for (size_t kind = 0; kind < kNames.size(); ++kind) {
      lines->emplace_back(server + ".chunks." + std::string(kNames[kind]),
                          std::to_string(chunks[kind]));
    }
    if (chunks.back() > 0) {
      lines->emplace_back(server + ".chunks.invalid", std::to_string(chunks.back()));
    }
    return farleaf::Status::Ok();
  }

  std::unique_ptr<dsm::Pool> pool_;
  PoolTreeHost host_;
  std::unique_ptr<dsm::Worker> worker_;
  const uint64_t deadline_ms_;
  dsm::FabricCounts counts_;
  HostedTree tree_;  // opened last
};

}  // namespace

Result<std::unique_ptr<Store>> OpenPoolStore(const std::string& bootstrap, uint64_t deadline_ms,
                                             StoreAccess access, const Clock* clock) {
  dsm::OpenFabricOptions fabric_options;
  fabric_options.wait_ms = deadline_ms;
  // Also what a memory server may take to cut a compute server off.
  const uint64_t connect_ms = std::min(deadline_ms, kConnectMsMax);
  fabric_options.tcp.recovery.connect_timeout_ms = connect_ms;
  fabric_options.shm.connect_timeout_ms = connect_ms;
  fabric_options.verbs.recovery.connect_timeout_ms = connect_ms;
  auto fabric = dsm::OpenFabric(bootstrap, fabric_options, clock);
  if (!fabric.ok()) {
    // Not found is what a key or a tree is; a directory's file is a wrong argument.
    if (fabric.status().code() != StatusCode::kNotFound) return fabric.status();
    return Status::InvalidArgument(std::string(fabric.status().message()));
  }
  dsm::PoolOptions pool_options;
  if (access == StoreAccess::kRead) pool_options.role = dsm::PoolOptions::Role::kObserver;
  auto pool = dsm::Pool::Join(std::move(*fabric), pool_options, clock);
  if (!pool.ok()) return pool.status();
  auto worker = (*pool)->OpenWorker();
  if (!worker.ok()) return worker.status();
  return std::unique_ptr<Store>(
      std::make_unique<PoolStore>(std::move(*pool), std::move(*worker), deadline_ms));
}

}  // namespace farleaf::server
