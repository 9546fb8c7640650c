#include "benchmark/ycsb/pool_target.h"

#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "dsm/pool.h"
#include "index/blink/catalog.h"
#include "index/blink/tree.h"
#include "server/config.h"

namespace farleaf::ycsb {

namespace {

using dsm::FabricCounts;
using dsm::OpContext;
using dsm::Pool;
using dsm::Task;
using dsm::Worker;

index::Layout LayoutOf(KeyLayout layout) {
  return layout == KeyLayout::kFixed8 ? index::Layout::kFixed8 : index::Layout::kBytes;
}

}  // namespace

index::TreeOptions TreeOptionsOf(const TargetOptions& options) {
  using enum index::CacheMode;
  index::TreeOptions tree;
  tree.cache = options.cache ? kSearchLayer : kNone;
  tree.cache_bytes = options.cache_bytes;
  tree.value_hint_bytes = options.value_hint_bytes;
  tree.value_list_bytes = options.value_list_bytes;
  tree.scan_leaves_max = options.scan_leaves_max;
  if (options.hashed_leaves) tree.placement = index::Placement::kHashed;
  if (!options.share_reads) tree.read_sharing = index::ReadSharing::kOff;
  if (!options.combine_writes) tree.write_combining = index::WriteCombining::kOff;
  if (!options.hand_over) tree.hand_over = index::HandOver::kOff;
  if (!options.in_place) tree.in_place = index::InPlace::kOff;
  if (!options.small_write_backs) tree.small_write_backs = index::SmallWriteBacks::kOff;
  if (!options.back_off) tree.back_off = index::BackOff::kOff;
  if (!options.learn_splits) tree.learn_splits = index::LearnSplits::kOff;
  tree.lock_wait_ms = options.operation_timeout_ms;
  return tree;
}

Task<Result<index::TreeInfo>> CreateOrOpenTree(OpContext& op, Pool& pool,
                                               const TargetOptions& options) {
  if (options.create_tree) {
    const index::Layout keys = LayoutOf(options.key_layout);
    const index::LeafLayout leaves =
        options.sorted_leaves ? index::LeafLayout::kSorted : index::Geometry::DefaultLeaves(keys);
    index::Geometry geometry = index::Geometry::DefaultOf(keys, leaves);
    if (options.leaf_bytes != 0) geometry.leaf_bytes = options.leaf_bytes;
    if (options.node_bytes != 0) geometry.node_bytes = options.node_bytes;
    auto created = co_await index::CreateTree(op, pool, options.tree, geometry);
    if (created.ok() || created.status().code() != StatusCode::kAlreadyExists) co_return created;
  }
  auto opened = co_await index::OpenTree(op, pool, options.tree);
  if (opened.ok() && opened->geometry.layout != LayoutOf(options.key_layout)) {
    const std::string there = options.key_layout == KeyLayout::kFixed8 ? "bytes" : "fixed8";
    co_return Status::InvalidArgument("tree '" + options.tree + "' is of layout " + there +
                                      ": run with -p farleaf.keys=" + there);
  }
  co_return opened;
}

Task<Result<uint64_t>> SumChunks(OpContext& op, std::span<const dsm::RegionLayout> layouts) {
  std::vector<std::vector<uint64_t>> tables;
  std::vector<dsm::Batch> batches;
  for (const dsm::RegionLayout& layout : layouts) {
    tables.emplace_back(layout.chunk_count);
    batches.emplace_back(layout.server);
    batches.back().Read(layout.ChunkWordOffset(0),
                        std::as_writable_bytes(std::span(tables.back())));
  }
  Status read = co_await op.worker.RoundTrip(batches, op.counts);
  if (!read.ok()) co_return read;
  uint64_t bytes = 0;
  for (size_t i = 0; i < layouts.size(); ++i) {
    for (uint64_t word : tables[i]) {
      const bool used = dsm::ChunkWord::Decode(word).kind != dsm::ChunkKind::kUnused;
      bytes += used ? layouts[i].chunk_bytes : 0;
    }
  }
  co_return bytes;
}

namespace {

class PoolTarget final : public IndexTarget {
 public:
  PoolTarget(std::unique_ptr<Pool> pool, TargetOptions options)
      : pool_(std::move(pool)), options_(std::move(options)) {}

  Status Open() {
    auto worker = pool_->OpenWorker();
    if (!worker.ok()) return worker.status();
    worker_ = std::move(*worker);
    FabricCounts counts;
    OpContext op = Context(&counts);
    auto info = worker_->Run(CreateOrOpenTree(op, *pool_, options_));
    if (!info.ok()) return info.status();
    tree_.emplace(pool_.get(), std::move(*info), TreeOptionsOf(options_));
    if (options_.warm && options_.cache) return Warm();
    return Status::Ok();
  }
  nlohmann::ordered_json DescribeCache() const override {
    if (!options_.cache) return nullptr;
    const index::SearchCache& cache = tree_->cache();
    const index::TreeStats& stats = tree_->stats();
    nlohmann::ordered_json json;
    json["Bytes"] = cache.bytes();
    json["Nodes"] = cache.nodes();
    json["Evictions"] = cache.evictions();
    json["WarmBytesRead"] = warming_.bytes_read;
    json["WarmRoundTrips"] = warming_.round_trips;
    json["WarmTime(us)"] = warm_ns_ / kNsPerUs;
    json["DescentBytesRead"] = stats.descent_bytes.load();
    json["PathRefreshBytesRead"] = stats.path_refresh_bytes.load();
    json["HopRefreshBytesRead"] = stats.hop_refresh_bytes.load();
    json["CacheRefreshBytesRead"] = stats.cache_refresh_bytes.load() - warming_.bytes_read;
    return json;
  }

  Result<uint64_t> PoolBytesUsed() override {
    FabricCounts counts;
    OpContext op = Context(&counts);
    return worker_->Run(SumChunks(op, pool_->layouts()));
  }
  Status Close() override {
    tree_.reset();
    worker_.reset();
    return pool_->Leave();
  }

 protected:
  index::RangeIndex& index() override { return *tree_; }
  Result<std::unique_ptr<Worker>> OpenWorker() override { return pool_->OpenWorker(); }

 private:
  Status Warm() {
    OpContext op = Context(&warming_);
    const uint64_t start_ns = worker_->clock().NowNs();
    Status status = worker_->Run(tree_->WarmCache(op));
    warm_ns_ = worker_->clock().NowNs() - start_ns;
    return status;
  }
  OpContext Context(FabricCounts* counts) {
    return {*worker_, *counts, worker_->clock().NowNs() + options_.operation_timeout_ms * kNsPerMs};
  }

  // In this order: the tree and the worker stand on the pool.
  std::unique_ptr<Pool> pool_;
  const TargetOptions options_;
  std::unique_ptr<Worker> worker_;  // of the thread that opens and closes the target
  std::optional<index::BlinkTree> tree_;
  FabricCounts warming_;  // what filling the cache took when the target was opened
  uint64_t warm_ns_ = 0;
};

Status BadLocalOption(std::string_view option, std::string_view expected) {
  return Status::InvalidArgument("option '" + std::string(option) + "': expected " +
                                 std::string(expected));
}

/// A whole number within [min, max].
bool ParseNumber(std::string_view text, uint64_t min, uint64_t max, uint64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size() && *number >= min &&
         *number <= max;
}

Status SetLocalOption(std::string_view option, LocalTargetOptions* options) {
  const size_t split = std::min(option.find('='), option.size());
  const std::string_view name = option.substr(0, split);
  const std::string_view value = split < option.size() ? option.substr(split + 1) : "";
  uint64_t number = 0;
  if (name == "servers") {
    if (!ParseNumber(value, 1, 64, &number)) return BadLocalOption(option, "a number from 1 to 64");
    options->fabric.servers = static_cast<uint32_t>(number);
    return Status::Ok();
  }
  if (name == "delay_us") {
    if (!ParseNumber(value, 0, 1'000'000, &number)) {
      return BadLocalOption(option, "a number from 0 to 1000000");
    }
    options->delay_ns = number * kNsPerUs;
    return Status::Ok();
  }
  if (name != "region" && name != "chunk") {
    return BadLocalOption(option, "servers=N, region=SIZE, chunk=SIZE or delay_us=N");
  }
  auto bytes = server::ParseByteSize(value);
  const bool is_region = name == "region";
  const uint64_t min = is_region ? 1 << 20 : dsm::kChunkBytesMin;
  const uint64_t max = is_region ? uint64_t{1} << 40 : dsm::kChunkBytesMax;
  if (!bytes.ok() || *bytes < min || *bytes > max) {
    return BadLocalOption(option, "a size from " + server::FormatByteSize(min) + " to " +
                                      server::FormatByteSize(max));
  }
  (is_region ? options->fabric.region_bytes : options->fabric.chunk_bytes) = *bytes;
  return Status::Ok();
}

}  // namespace

Result<LocalTargetOptions> ParseLocalOptions(std::string_view text) {
  LocalTargetOptions options;
  options.fabric.region_bytes = uint64_t{512} << 20;
  if (text.empty()) return options;
  if (text.front() != '?') return BadLocalOption(text, "local:?NAME=VALUE&…");
  text.remove_prefix(1);
  while (!text.empty()) {
    const size_t end = std::min(text.find('&'), text.size());
    FARLEAF_RETURN_IF_ERROR(SetLocalOption(text.substr(0, end), &options));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return options;
}

Result<std::unique_ptr<Target>> OpenPoolTarget(std::unique_ptr<dsm::Fabric> fabric,
                                               const TargetOptions& options, const Clock* clock) {
  dsm::PoolOptions pool_options;
  pool_options.seed = options.seed;
  auto pool = Pool::Join(std::move(fabric), pool_options, clock);
  if (!pool.ok()) return pool.status();
  auto target = std::make_unique<PoolTarget>(std::move(*pool), options);
  FARLEAF_RETURN_IF_ERROR(target->Open());
  return std::unique_ptr<Target>(std::move(target));
}

}  // namespace farleaf::ycsb
