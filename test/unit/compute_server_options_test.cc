// What a compute server can be told of its engine: what contradicts itself is refused with the flag and what to do, and the
// ranges of the help are those of the store.
#include "server/compute_server_options.h"

#include <gtest/gtest.h>

namespace farleaf::server {
namespace {

struct Parsed {
  ComputeServerOptions options;
  Status status;
};

Parsed Parse(std::vector<std::string> flags) {
  Parsed parsed;
  ConfigSchema schema("compute_server", "Tested.");
  AddComputeServerOptions(schema, &parsed.options);
  const auto outcome = schema.Parse(flags);
  parsed.status = outcome.ok() ? CheckEngineOptions(schema, &parsed.options) : outcome.status();
  return parsed;
}
std::string Error(std::vector<std::string> flags) {
  return Parse(std::move(flags)).status.ToString();
}
bool Has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(ComputeServerOptionsTest, WhatIsForTheOtherEngineIsRefusedByItsFlag) {
  EXPECT_EQ(Error({"--bootstrap", "file:pool"}), "ok");
  EXPECT_EQ(Error({"--engine", "lsm", "--data-dir", "d"}), "ok");
  EXPECT_TRUE(Has(Error({}), "--bootstrap is missing (or key bootstrap"));
  EXPECT_TRUE(Has(Error({}), "--engine lsm and --data-dir"));
  EXPECT_TRUE(Has(Error({"--engine", "lsm"}), "--data-dir is missing (or key data_dir"));
  for (const std::string flag :
       {"--bootstrap=file:pool", "--memory-servers-min=2", "--join-wait-ms=5",
        "--recover-after-ms=5", "--cache-bytes=1MiB", "--leaf-bytes=1024", "--in-place=off",
        "--value-list-bytes=1MiB", "--scan-leaves-max=8", "--placement=hashed"}) {
    const std::string error = Error({"--engine", "lsm", "--data-dir", "d", flag});
    EXPECT_TRUE(Has(error, flag.substr(0, flag.find('=')) + " (key ")) << error;
    EXPECT_TRUE(Has(error, "is for --engine blink")) << error;
    EXPECT_TRUE(Has(error, "leave it out")) << error;
  }
  for (const std::string flag : {"--data-dir=d", "--durability=synced", "--lsm-cache-bytes=1GiB"}) {
    const std::string error = Error({"--bootstrap", "file:pool", flag});
    EXPECT_TRUE(Has(error, flag.substr(0, flag.find('=')) + " (key ")) << error;
    EXPECT_TRUE(Has(error, "is for --engine lsm")) << error;
  }
}

TEST(ComputeServerOptionsTest, LimitsOfValuesAreWhatTheStoreTakes) {
  const Parsed parsed = Parse({"--engine", "lsm", "--data-dir", "d"});
  EXPECT_EQ(parsed.options.native.connection.value_bytes_max, index::lsm::kValueBytesMax);
  EXPECT_EQ(parsed.options.native.memcached.limits.value_bytes_max + kRecordHeaderBytes,
            index::lsm::kValueBytesMax);
  EXPECT_EQ(parsed.options.native.redis.limits.value_bytes_max + kRecordHeaderBytes,
            index::lsm::kValueBytesMax);
  for (const std::string key :
       {"value_bytes_max", "memcached_value_bytes_max", "redis_value_bytes_max"}) {
    std::string flag = "--" + key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    const std::string error = Error({"--engine", "lsm", "--data-dir", "d", flag, "2MiB"});
    EXPECT_TRUE(Has(error, flag + " (key " + key + ") is 2MiB")) << error;
    EXPECT_EQ(Error({"--engine", "lsm", "--data-dir", "d", flag, "100KiB"}), "ok");
    EXPECT_EQ(Error({"--bootstrap", "file:pool", flag, "2MiB"}), "ok");
  }
}

TEST(ComputeServerOptionsTest, ADiskThatIsTooSmallForTheMemtablesIsRefused) {
  const auto with = [](const std::string& bytes_max, const std::string& memtable) {
    return Error({"--engine", "lsm", "--data-dir", "d", "--lsm-bytes-max", bytes_max,
                  "--lsm-memtable-bytes", memtable});
  };
  EXPECT_EQ(with("0", "64MiB"), "ok");
  EXPECT_EQ(with("320MiB", "64MiB"), "ok");
  EXPECT_EQ(with("68MiB", "1MiB"), "ok");
  const std::string error = with("319MiB", "64MiB");
  EXPECT_TRUE(Has(error, "--lsm-bytes-max (key lsm_bytes_max) is 319MiB")) << error;
  EXPECT_TRUE(Has(error, "it has to be 320MiB at least")) << error;
  EXPECT_TRUE(Has(error, "raise it, or lower --lsm-memtable-bytes")) << error;
  EXPECT_EQ(Error({"--bootstrap", "file:pool", "--expiry-sweep-s", "0"}), "ok");
}

TEST(ComputeServerOptionsTest, ADeviceOfRdmaIsForNodesThatUseIt) {
  const auto with = [](std::vector<std::string> more) {
    std::vector<std::string> flags = {"--engine",          "lsm",    "--data-dir", "d", "--cluster",
                                      "zookeeper://h:1/c", "--node", "1"};
    flags.insert(flags.end(), more.begin(), more.end());
    return Error(std::move(flags));
  };
  EXPECT_EQ(with({}), "ok");
  EXPECT_EQ(with({"--peer-fabric", "verbs", "--peer-rdma-device", "mlx5_0"}), "ok");
  const std::string error = with({"--peer-rdma-device", "mlx5_0"});
  EXPECT_TRUE(Has(error, "--peer-rdma-device (key peer_rdma_device) is for --peer-fabric verbs"))
      << error;
  const std::string shm = with({"--peer-fabric", "shm"});
  EXPECT_TRUE(Has(shm, "tcp") && Has(shm, "verbs")) << shm;
  const std::string far = with({"--peer-fabric", "verbs", "--peer-listen", "10.0.0.1:7500"});
  EXPECT_TRUE(Has(far, "--insecure")) << far;
}

TEST(ComputeServerOptionsTest, NoMoreNodesAreToBeInSyncThanThereAre) {
  const auto error = [](const std::string& replicas, const std::string& min_in_sync) {
    return Error({"--engine", "lsm", "--data-dir", "d", "--cluster", "zookeeper://h:2181/c",
                  "--node", "1", "--peer-listen", "10.0.0.1:7500", "--insecure", "--listen",
                  "10.0.0.1:7400", "--durability", "replicated", "--replicas", replicas,
                  "--min-in-sync", min_in_sync});
  };
  EXPECT_EQ(error("3", "3"), "ok");
  const std::string beyond = error("2", "3");
  EXPECT_TRUE(Has(beyond, "--min-in-sync (key min_in_sync) is 3")) << beyond;
  EXPECT_TRUE(Has(beyond, "--replicas (2)")) << beyond;
  EXPECT_TRUE(Has(error("2", "0"), "--min-in-sync: 0")) << error("2", "0");
}

// Each bound is taken by the store, and what is beyond it is not.
TEST(ComputeServerOptionsTest, RangesAreThoseOfTheStore) {
  using index::lsm::LsmOptions;
  struct Range {
    std::string flag;
    uint64_t min, max, step;
    void (*set)(LsmOptions*, uint64_t);
  };
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  const auto narrow = [](uint64_t value) { return static_cast<uint32_t>(value); };
  static const auto to32 = narrow;
  const std::vector<Range> ranges = {
      {"--lsm-flush-ms", 1, 60'000, 1, [](auto* o, uint64_t v) { o->flush_ms = v; }},
      {"--lsm-memtable-bytes", kMiB, 4096 * kMiB, 1,
       [](auto* o, uint64_t v) { o->memtable_bytes = v; }},
      {"--lsm-cache-bytes", kMiB, kMiB << 24, 1, [](auto* o, uint64_t v) { o->cache_bytes = v; }},
      {"--lsm-growth-factor", 4, 16, 1, [](auto* o, uint64_t v) { o->growth_factor = to32(v); }},
      {"--lsm-value-separation-bytes", 1, 65'536, 1,
       [](auto* o, uint64_t v) { o->value_separation_bytes = to32(v); }},
      {"--lsm-block-bytes", 4096, 65'536, 4096,
       [](auto* o, uint64_t v) { o->block_bytes = to32(v); }},
      {"--lsm-table-bytes-max", 4 * kMiB, 1024 * kMiB, 1,
       [](auto* o, uint64_t v) { o->table_bytes_max = v; }},
      {"--lsm-filter-bits-per-key", 0, 20, 1,
       [](auto* o, uint64_t v) { o->filter_bits_per_key = to32(v); }},
      {"--lsm-log-buffers-max", 2, 64, 1,
       [](auto* o, uint64_t v) { o->log_buffers_max = to32(v); }},
      {"--lsm-reserve-segments-max", 0, 65'536, 1,
       [](auto* o, uint64_t v) { o->reserve_segments_max = v; }},
      {"--lsm-compaction-threads", 1, 16, 1,
       [](auto* o, uint64_t v) { o->compaction_threads = to32(v); }},
      {"--lsm-collect-above-percent", 5, 95, 1,
       [](auto* o, uint64_t v) { o->collect_above = static_cast<double>(v) / 100; }},
      {"--lsm-garbage-max-percent", 10, 95, 1,
       [](auto* o, uint64_t v) { o->garbage_max = static_cast<double>(v) / 100; }}};
  for (const Range& range : ranges) {
    SCOPED_TRACE(range.flag);
    const auto both = [&](uint64_t value, bool fits) {
      LsmOptions options;
      range.set(&options, value);
      EXPECT_EQ(options.Validate().ok(), fits) << value;
      const std::string error =
          Error({"--engine", "lsm", "--data-dir", "d", range.flag, std::to_string(value)});
      EXPECT_EQ(error == "ok", fits) << error;
    };
    both(range.min, true);
    both(range.max, true);
    if (range.min > 0) both(range.min - range.step, false);
    both(range.max + range.step, false);
  }
  EXPECT_TRUE(Has(Error({"--engine", "lsm", "--data-dir", "d", "--lsm-block-bytes", "5000"}),
                  "--lsm-block-bytes: 5000 is no multiple of 4096"));
}

// Each bound is taken by the tree, and what is beyond it is not.
TEST(ComputeServerOptionsTest, RangesAreThoseOfTheTree) {
  using index::TreeOptions;
  struct Range {
    std::string flag;
    uint64_t min, max;
    void (*set)(TreeOptions*, uint64_t);
  };
  const std::vector<Range> ranges = {
      {"--value-hint-bytes", 0, index::kRememberedBytesMax,
       [](auto* o, uint64_t v) { o->value_hint_bytes = v; }},
      {"--value-list-bytes", 0, index::kRememberedBytesMax,
       [](auto* o, uint64_t v) { o->value_list_bytes = v; }},
      {"--scan-leaves-max", 1, 256,
       [](auto* o, uint64_t v) { o->scan_leaves_max = static_cast<uint32_t>(v); }},
      {"--hop-threshold", 1, 64,
       [](auto* o, uint64_t v) { o->hop_threshold = static_cast<uint32_t>(v); }}};
  for (const Range& range : ranges) {
    SCOPED_TRACE(range.flag);
    const auto both = [&](uint64_t value, bool fits) {
      TreeOptions options;
      range.set(&options, value);
      EXPECT_EQ(options.Validate().ok(), fits) << value;
      const std::string error =
          Error({"--bootstrap", "file:pool", range.flag, std::to_string(value)});
      EXPECT_EQ(error == "ok", fits) << error;
      EXPECT_EQ(Has(error, range.flag + ": ") && Has(error, "allowed: "), !fits) << error;
    };
    both(range.min, true);
    both(range.max, true);
    if (range.min > 0) both(range.min - 1, false);
    both(range.max + 1, false);
  }
  EXPECT_TRUE(
      Has(Error({"--bootstrap", "file:pool", "--placement", "sorted"}), "ordered or hashed"));
}

TEST(ComputeServerOptionsTest, WhatIsGivenForTheTreeReachesIt) {
  const Parsed parsed =
      Parse({"--bootstrap", "file:pool", "--value-hint-bytes", "1MiB", "--value-list-bytes", "2MiB",
             "--scan-leaves-max", "8", "--placement", "hashed", "--small-write-backs", "off",
             "--back-off", "off", "--learn-splits", "off"});
  ASSERT_TRUE(parsed.status.ok()) << parsed.status;
  const index::TreeOptions& tree = parsed.options.pool.tree;
  EXPECT_EQ(tree.value_hint_bytes, uint64_t{1} << 20);
  EXPECT_EQ(tree.value_list_bytes, uint64_t{2} << 20);
  EXPECT_EQ(tree.scan_leaves_max, 8u);
  EXPECT_EQ(tree.placement, index::Placement::kHashed);
  EXPECT_EQ(tree.small_write_backs, index::SmallWriteBacks::kOff);
  EXPECT_EQ(tree.back_off, index::BackOff::kOff);
  EXPECT_EQ(tree.learn_splits, index::LearnSplits::kOff);
}

TEST(ComputeServerOptionsTest, TheHelpHasASectionForEachEngine) {
  ComputeServerOptions options;
  ConfigSchema schema("compute_server", "Tested.");
  AddComputeServerOptions(schema, &options);
  const std::string help = schema.Help();
  EXPECT_TRUE(Has(help, "--engine WORD"));
  const size_t pool = help.find("\nWith --engine blink: "),
               store = help.find("\nWith --engine lsm: ");
  ASSERT_TRUE(pool != std::string::npos && store != std::string::npos && pool < store);
  EXPECT_GT(help.find("--bootstrap"), pool);
  EXPECT_GT(help.find("--data-dir"), store);
  EXPECT_TRUE(Has(help, "(1 to 65536; default 512)"));
}

}  // namespace
}  // namespace farleaf::server
