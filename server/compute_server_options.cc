#include "server/compute_server_options.h"

#include <algorithm>

#include "client/ring/format.h"
#include "index/blink/options.h"
#include "server/listen_check.h"

namespace farleaf::server {

namespace {

constexpr uint32_t kCopyStalenessMsMin = 100;
constexpr char kPoolSection[] = "With --engine blink: the pool, and trees in its memory";
constexpr char kLsmSection[] = "With --engine lsm: the store on this machine's disk";
constexpr char kClusterSection[] = "With --engine lsm: a cluster of nodes that hold copies of it";
/// What a record has beside its data does not count for what clients are told, but it does for the store.
constexpr uint64_t kLsmRecordDataBytesMax = index::lsm::kValueBytesMax - kRecordHeaderBytes;

void AddFrontEndOptions(ConfigSchema& schema, ComputeServerOptions* options) {
  schema.AddStringList("listen", "addresses for clients, HOST:PORT; port 0 takes any free one",
                       &options->native.listen);
  schema.AddBool("insecure", "allow addresses other than loopback where nothing protects clients",
                 &options->insecure);
  schema.AddString("password_file",
                   "passwords, one a line, of which clients have to know one; not for all to read",
                   &options->password_file);
  schema.AddString("tls_certificate",
                   "PEM file; clients on TCP then speak TLS, and it is read again on SIGHUP",
                   &options->tls.certificate_file);
  schema.AddString("tls_key", "PEM file of its key; not for all to read", &options->tls.key_file);
  schema.AddString("tls_client_ca",
                   "PEM file of who has to have signed clients' certificates; none if empty",
                   &options->tls.client_ca_file);
  schema.AddString("unix_socket", "path of a Unix socket for clients", &options->native.unix_path);
  schema.AddString("unix_socket_mode", "permissions of Unix sockets, octal",
                   &options->unix_socket_mode);
  schema.AddInteger("threads", "threads that serve clients", &options->native.threads, 1, 256);
  schema.AddStringList("trees", "trees to create unless they exist, NAME:LAYOUT (fixed8, bytes)",
                       &options->trees);
  schema.AddInteger("deadline_ms", "deadline of a request that names none",
                    &options->native.deadline_ms_default, 1, 3'600'000);
  schema.AddInteger("deadline_ms_max", "longer deadlines are cut to this",
                    &options->native.deadline_ms_max, 1, 3'600'000);
  schema.AddInteger("connections_max", "clients beyond these are refused",
                    &options->native.connections_max, 1, 1'000'000);
  schema.AddInteger("in_flight_max", "unanswered requests of a connection; more wait unread",
                    &options->native.connection.in_flight_max, 1, 1'000'000);
  schema.AddBytes("value_bytes_max", "larger values of the native protocol are refused",
                  &options->native.connection.value_bytes_max, 1 << 10, protocol::kValueBytesMax);
  schema.AddBytes(
      "connection_bytes_max",
      "what a connection's requests and unsent answers may take; beyond it, it is not read",
      &options->native.connection.out_bytes_max, 4 << 10, uint64_t{1} << 30);
  schema.AddBytesOrNone(
      "ring_bytes_max",
      "of each of the two areas of a client's ring on the Unix socket; 0: no rings",
      &options->native.connection.ring_bytes_max, client::ring::kAreaBytesMin, uint64_t{64} << 20);
  schema.AddInteger("ring_poll_us", "how long a thread polls rings behind the last message",
                    &options->native.ring_poll_us, 0, 1'000'000);
  schema.AddInteger(
      "socket_poll_us",
      "how long a loaded thread looks at its sockets before it blocks; 0: it blocks at once",
      &options->native.socket_poll_us, 0, 1'000'000);
  schema.AddInteger("idle_timeout_ms", "closes a connection without requests; 0: never",
                    &options->native.idle_timeout_ms, 0, 86'400'000);
  schema.AddInteger("drain_ms", "what running requests are granted at shutdown",
                    &options->native.drain_ms, 0, 600'000);
}

void AddRecordOptions(ConfigSchema& schema, NativeServerOptions* native) {
  memcached::Options& memcached = native->memcached;
  schema.AddStringList("memcached_listen",
                       "addresses for memcached's text protocol, HOST:PORT; none by default",
                       &memcached.listen);
  schema.AddString("memcached_unix_socket", "path of a Unix socket for memcached's text protocol",
                   &memcached.unix_path);
  schema.AddString("record_tree",
                   "the tree of memcached's and Redis' keys, created unless it exists",
                   &native->record_tree);
  schema.AddBytes("memcached_value_bytes_max", "larger values are refused",
                  &memcached.limits.value_bytes_max, 1 << 10, kRecordDataBytesMax);
  schema.AddBytes("memcached_line_bytes_max", "a connection with a longer line is closed",
                  &memcached.limits.line_bytes_max, 2 << 10, uint64_t{64} << 20);
  schema.AddBytes("memcached_out_bytes_max",
                  "with more unsent answers a connection's commands wait",
                  &memcached.limits.out_bytes_max, 4 << 10, uint64_t{1} << 30);
  redis::Options& redis = native->redis;
  schema.AddStringList("redis_listen", "addresses for Redis' protocol, HOST:PORT; none by default",
                       &redis.listen);
  schema.AddString("redis_unix_socket", "path of a Unix socket for Redis' protocol",
                   &redis.unix_path);
  schema.AddBytes("redis_value_bytes_max", "larger arguments are refused",
                  &redis.limits.value_bytes_max, 1 << 10, kRecordDataBytesMax);
  schema.AddBytes("redis_request_bytes_max", "larger requests are refused",
                  &redis.limits.request_bytes_max, 1 << 10, uint64_t{1} << 30);
  schema.AddBytes("redis_reply_bytes_max", "larger answers to one command become an error",
                  &redis.limits.reply_bytes_max, 4 << 10, uint64_t{4} << 30);
  schema.AddBytes("redis_out_bytes_max", "with more unsent answers a connection's commands wait",
                  &redis.limits.out_bytes_max, 4 << 10, uint64_t{1} << 30);
  schema.AddInteger("expiry_sweep_s",
                    "how long a turn takes that reads all items and deletes the expired ones; 0: "
                    "never, they are deleted by who meets them",
                    &native->expiry_sweep_s, 0, 86'400);
}

void AddWatchOptions(ConfigSchema& schema, ComputeServerOptions* options) {
  schema.AddString("ready_file", "written when clients are served: process id, then a URL a line",
                   &options->ready_file);
  schema.AddInteger("slow_log_us", "requests that take so long are kept in the slow log; 0: none",
                    &options->native.slow_log.slow_us, 0, 3'600'000'000);
  schema.AddInteger("slow_log_entries", "how many of them, the most recent ones",
                    &options->native.slow_log.entries, 0, 100'000);
  schema.AddBool(
      "metrics_insecure",
      "allow a metrics_listen beyond loopback: whoever reaches it sees metrics and health",
      &options->metrics_insecure);
  schema.AddString("metrics_listen",
                   "HOST:PORT for /metrics (Prometheus) and /health over HTTP; none if empty",
                   &options->metrics_listen);
  schema.AddInteger("stats_interval_s", "logs the counters so often; 0: only at the end",
                    &options->stats_interval_s, 0, 86'400);
  AddLogOptions(schema, &options->log);
}

void AddPoolOptions(ConfigSchema& schema, ComputeServerOptions* options) {
  schema.Section(kPoolSection);
  schema.AddString("bootstrap",
                   "where the pool is found: memcached://HOST:PORT/CLUSTER or file:PATH; required",
                   &options->pool.bootstrap);
  schema.AddInteger("memory_servers_min", "memory servers to wait for",
                    &options->pool.memory_servers_min, 1, 64);
  schema.AddInteger("join_wait_ms", "how long to wait for them", &options->pool.join_wait_ms, 0,
                    3'600'000);
  schema.AddEnum("leaf_layout",
                 "of leaves in trees so created: parted (fixed8 only, and its default) or sorted",
                 &options->leaf_layout,
                 {{"default", protocol::LeafLayout::kDefault},
                  {"sorted", protocol::LeafLayout::kSorted},
                  {"parted", protocol::LeafLayout::kParted}});
  schema.AddInteger("leaf_bytes", "of a leaf's page in them; 0: the default", &options->leaf_bytes,
                    0, index::kPageBytesMax);
  schema.AddInteger("node_bytes", "of an internal node's page in them; 0: the default",
                    &options->node_bytes, 0, index::kPageBytesMax);
  schema.AddEnum(
      "cache", "what of the trees is cached here; none is the FG-style baseline",
      &options->pool.tree.cache,
      {{"search-layer", index::CacheMode::kSearchLayer}, {"none", index::CacheMode::kNone}});
  schema.AddBytes("cache_bytes",
                  "the most memory that a tree's cache is to take; not given: no bound",
                  &options->pool.tree.cache_bytes, uint64_t{64} << 10, uint64_t{1} << 50);
  schema.AddBytes(
      "value_hint_bytes",
      "the most memory for where a tree's values out of line are, 26 bytes a value met; 0: none",
      &options->pool.tree.value_hint_bytes, 0, index::kRememberedBytesMax);
  schema.AddBytes(
      "value_list_bytes",
      "the same for scans: which of them each leaf that was scanned names, some 12 bytes "
      "a value; 0: none",
      &options->pool.tree.value_list_bytes, 0, index::kRememberedBytesMax);
  schema.AddInteger("scan_leaves_max", "leaves that a scan reads ahead in one round trip",
                    &options->pool.tree.scan_leaves_max, 1, 256);
  schema.AddEnum("placement",
                 "of entries in parted leaves that are written whole here: ordered where keys are "
                 "spread evenly, so that scans read parts of leaves; or hashed, and they read all",
                 &options->pool.tree.placement,
                 {{"ordered", index::Placement::kOrdered}, {"hashed", index::Placement::kHashed}});
  schema.AddEnum("share_reads", "gets of a thread that want the same part of a leaf share a READ",
                 &options->pool.tree.read_sharing,
                 {{"on", index::ReadSharing::kOn}, {"off", index::ReadSharing::kOff}});
  schema.AddEnum("combine_writes",
                 "writes of a leaf that wait for its lock are written back together",
                 &options->pool.tree.write_combining,
                 {{"on", index::WriteCombining::kOn}, {"off", index::WriteCombining::kOff}});
  schema.AddEnum("hand_over", "a leaf's lock goes on to another write of this process, in turn",
                 &options->pool.tree.hand_over,
                 {{"on", index::HandOver::kOn}, {"off", index::HandOver::kOff}});
  schema.AddEnum(
      "in_place",
      "over shared memory, gets look at leaves where they are (values of byte strings are also "
      "replaced there)",
      &options->pool.tree.in_place, {{"on", index::InPlace::kOn}, {"off", index::InPlace::kOff}});
  schema.AddEnum("small_write_backs",
                 "of a page that is written to, what changed is written back, not all of it",
                 &options->pool.tree.small_write_backs,
                 {{"on", index::SmallWriteBacks::kOn}, {"off", index::SmallWriteBacks::kOff}});
  schema.AddEnum(
      "back_off", "who finds a page locked by another compute server waits longer each time",
      &options->pool.tree.back_off, {{"on", index::BackOff::kOn}, {"off", index::BackOff::kOff}});
  schema.AddEnum("learn_splits",
                 "a cached node learns that a leaf was split from the leaf itself, and is not read "
                 "again each time",
                 &options->pool.tree.learn_splits,
                 {{"on", index::LearnSplits::kOn}, {"off", index::LearnSplits::kOff}});
  schema.AddInteger("hop_threshold", "moves to the right after which the cache is refreshed",
                    &options->pool.tree.hop_threshold, 1, 64);
  schema.AddInteger("recover_after_ms",
                    "when what another compute server holds is returned, after all memory servers "
                    "have cut it off; 0: never",
                    &options->pool.recover_after_ms, 0, 86'400'000);
}

void AddStoreOptions(ConfigSchema& schema, LsmEngineOptions* lsm) {
  using index::lsm::Compression;
  using index::lsm::Durability;
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  schema.AddString("data_dir", "the directory of the store, made unless it exists; required",
                   &lsm->files.directory);
  schema.AddEnum(
      "durability",
      "what an acknowledged write promises: synced, it survives a power loss; local, the "
      "end of the process may take it until lsm_flush_ms have passed, and a power loss "
      "until the memtable that it is in was flushed (lsm_memtable_bytes); replicated, of a "
      "cluster: "
      "it is in the memory of each replica, and survives the end of all but one of them",
      &lsm->store.durability,
      {{"local", Durability::kLocal},
       {"synced", Durability::kSynced},
       {"replicated", Durability::kReplicated}});
  schema.AddInteger("lsm_flush_ms", "the longest that a local write stays in memory only",
                    &lsm->store.flush_ms, 1, 60'000);
  schema.AddBytes("lsm_memtable_bytes",
                  "changes in memory that are flushed together; two of these may be there",
                  &lsm->store.memtable_bytes, kMiB, 4096 * kMiB);
  schema.AddBytes("lsm_cache_bytes", "memory for blocks of tables and values",
                  &lsm->store.cache_bytes, kMiB, kMiB << 24);
  schema.AddInteger("lsm_growth_factor", "how many times larger each level is than the one above",
                    &lsm->store.growth_factor, 4, 16);
  schema.AddInteger("lsm_value_separation_bytes",
                    "values of this size and more go to the value log",
                    &lsm->store.value_separation_bytes, 1, 65'536);
  schema.AddInteger("lsm_block_bytes", "of leaves and inner nodes, a multiple of 4096",
                    &lsm->store.block_bytes, 4096, 65'536);
  schema.AddBytes("lsm_table_bytes_max", "a table is ended at this size",
                  &lsm->store.table_bytes_max, 4 * kMiB, 1024 * kMiB);
  schema.AddInteger("lsm_filter_bits_per_key", "of Bloom filters; 0: none",
                    &lsm->store.filter_bits_per_key, 0, 20);
  schema.AddEnum(
      "lsm_compression", "of leaves", &lsm->store.compression,
      {{"none", Compression::kNone}, {"lz4", Compression::kLz4}, {"zstd", Compression::kZstd}});
  schema.AddInteger("lsm_log_buffers_max",
                    "log segments of 2 MiB that wait to be written before writers wait",
                    &lsm->store.log_buffers_max, 2, 64);
  schema.AddInteger("lsm_collect_above_percent",
                    "of a segment of the value log: with more garbage it is collected",
                    &lsm->collect_above_percent, 5, 95);
  schema.AddInteger("lsm_garbage_max_percent", "of the value log: with more garbage writers wait",
                    &lsm->garbage_max_percent, 10, 95);
  schema.AddInteger("lsm_reserve_segments_max",
                    "of 2 MiB each, kept for flushes, merges and deletes on a full device: as many "
                    "as these need, and no more than this",
                    &lsm->store.reserve_segments_max, 0, 65'536);
  schema.AddInteger("lsm_compaction_threads", "threads that merge levels below the first",
                    &lsm->store.compaction_threads, 1, 16);
  schema.AddInteger("lsm_close_flush_ms",
                    "what a shutdown grants the flush of what is in memory, which the next start "
                    "has to replay otherwise; 0: none is made",
                    &lsm->close_flush_ms, 0, 3'600'000);
}

void AddStorageOptions(ConfigSchema& schema, index::storage::FileStorageOptions* files) {
  using index::storage::DirectIo;
  using index::storage::IoEngine;
  schema.AddBytesOrNone("lsm_bytes_max", "what all segments may take; 0: what the disk has",
                        &files->bytes_max, uint64_t{16} << 20, uint64_t{1} << 50);
  schema.AddEnum("lsm_io", "how segments are transferred; auto: io_uring where the kernel lets us",
                 &files->engine,
                 {{"auto", IoEngine::kAuto},
                  {"io_uring", IoEngine::kIoUring},
                  {"threads", IoEngine::kThreads}});
  schema.AddEnum("lsm_direct_io", "past the page cache; auto: where the file system can",
                 &files->direct, {{"auto", DirectIo::kAuto}, {"off", DirectIo::kOff}});
  schema.AddInteger("lsm_io_threads", "threads for what would block a thread that serves",
                    &files->threads, 1, 64);
  schema.AddInteger(
      "lsm_open_files_max",
      "descriptors that are kept open; 0: three quarters of what the process may have",
      &files->open_files_max, 0, 1'000'000);
  schema.AddInteger("lsm_free_files_max", "files of removed segments that are kept for new ones",
                    &files->free_files_max, 0, 1024);
}

Status Missing(const std::string& flag, const std::string& key, const std::string& what) {
  return Status::InvalidArgument(flag + " is missing (or key " + key +
                                 " in the configuration file): " + what);
}

/// Two memtables and their logs, a flush, and what collection and compactions make before they free anything.
Status CheckSizes(const LsmEngineOptions& lsm) {
  constexpr uint64_t kBesideBytes = uint64_t{64} << 20;
  const uint64_t memtable_bytes = lsm.store.memtable_bytes;
  const uint64_t least = 4 * memtable_bytes + kBesideBytes;
  if (lsm.files.bytes_max == 0 || lsm.files.bytes_max >= least) return Status::Ok();
  return Status::InvalidArgument(
      "--lsm-bytes-max (key lsm_bytes_max) is " + FormatByteSize(lsm.files.bytes_max) +
      ": with --lsm-memtable-bytes " + FormatByteSize(memtable_bytes) + " it has to be " +
      FormatByteSize(least) + " at least; raise it, or lower --lsm-memtable-bytes");
}

/// A limit that was not asked for is lowered to what the store takes.
Status LimitValues(const ConfigSchema& schema, const std::string& key, uint64_t max,
                   uint64_t* value) {
  if (*value <= max) return Status::Ok();
  if (schema.is_set(key)) {
    std::string flag = "--" + key;
    std::ranges::replace(flag, '_', '-');
    return Status::InvalidArgument(flag + " (key " + key + ") is " + FormatByteSize(*value) +
                                   ": --engine lsm takes values of up to " + FormatByteSize(max) +
                                   " there; lower it or leave it out");
  }
  *value = max;
  return Status::Ok();
}

void AddClusterOptions(ConfigSchema& schema, ClusterOptions* cluster) {
  schema.AddString(
      "cluster",
      "zookeeper://HOST:PORT[,HOST:PORT]/NAME: nodes of that name keep the store together, "
      "in regions, and each serves all keys",
      &cluster->membership);
  schema.AddInteger("node", "which node of the cluster this is, unlike all others; required",
                    &cluster->node, 0, dsm::kMembersMax - 1);
  schema.AddEnum("peer_fabric",
                 "how nodes reach one another's memory; the same for all of a cluster",
                 &cluster->peer_fabric, {{"tcp", PeerFabric::kTcp}, {"verbs", PeerFabric::kVerbs}});
  schema.AddString(
      "peer_rdma_device",
      "verbs: DEVICE[:PORT[:GID INDEX]]; if empty the device that peer_listen belongs to",
      &cluster->peer_rdma_device);
  schema.AddString("peer_listen", "HOST:PORT where other nodes reach this one's memory",
                   &cluster->peer_listen);
  schema.AddString("peer_advertise", "HOST:PORT that they are told; empty: as it listens",
                   &cluster->peer_advertise);
  schema.AddString("advertise",
                   "HOST:PORT of the native protocol, as clients and other nodes are told; empty: "
                   "as it listens",
                   &cluster->advertise);
  schema.AddInteger("replicas", "how many nodes hold each region, the one that serves it included",
                    &cluster->replicas, 1, 16);
  schema.AddInteger("min_in_sync",
                    "of these, how many have to have a write before it is acknowledged: writes "
                    "wait while fewer are in sync; the same at all nodes",
                    &cluster->min_in_sync, 1, 16);
  schema.AddInteger("regions_max",
                    "how many regions of others this node has room to keep copies of",
                    &cluster->regions_max, 1, 1024);
  schema.AddInteger(
      "leave_ms",
      "at the end, what others are granted to take over what is served here, and to be "
      "filled where too few would be in sync without this node",
      &cluster->leave_ms, 0, 600'000);
  schema.AddInteger("session_timeout_ms",
                    "a node that the membership has not heard of for so long is taken for dead",
                    &cluster->session_timeout_ms, 500, 600'000);
  schema.AddInteger("log_buffers",
                    "of 2 MiB, for segments of the logs that are on their way to a backup's disk",
                    &cluster->log_buffers, 8, 512);
  schema.AddInteger(
      "copy_staleness_ms",
      "what backups hold in tables is to be no older than about this, for reads that "
      "may be stale: what is in memory for so long is flushed; 0: backups answer none",
      &cluster->copy_staleness_ms, 0, 3'600'000);
  schema.AddBytes("copy_cache_bytes", "memory for blocks of a copy that is read",
                  &cluster->copy_cache_bytes, uint64_t{1} << 20, uint64_t{1} << 40);
}

Status CheckClusterOptions(const ConfigSchema& schema, const ComputeServerOptions& options) {
  const bool replicated = options.lsm.store.durability == index::lsm::Durability::kReplicated;
  if (options.cluster.membership.empty()) {
    if (replicated) {
      return Status::InvalidArgument(
          "--durability (key durability) is replicated: that needs --cluster; or give local or "
          "synced");
    }
    const auto flag = schema.FirstSetOf(kClusterSection);
    if (!flag) return Status::Ok();
    return Status::InvalidArgument(*flag + " is for --cluster: give that too, or leave it out");
  }
  if (options.cluster.node == 0) {
    return Missing("--node", "node", "which node of the cluster this is, from 1");
  }
  if (options.cluster.peer_fabric == PeerFabric::kTcp &&
      !options.cluster.peer_rdma_device.empty()) {
    return Status::InvalidArgument(
        "--peer-rdma-device (key peer_rdma_device) is for --peer-fabric verbs: give that too, or "
        "leave it out");
  }
  if (options.cluster.min_in_sync > options.cluster.replicas) {
    return Status::InvalidArgument(
        "--min-in-sync (key min_in_sync) is " + std::to_string(options.cluster.min_in_sync) +
        ": no more than --replicas (" + std::to_string(options.cluster.replicas) +
        ") are ever in sync, so that no write would end");
  }
  // Of each log the tail and two that are ready, beside full ones.
  const uint32_t least = options.lsm.store.log_buffers_max + 6;
  const uint32_t staleness_ms = options.cluster.copy_staleness_ms;
  if (staleness_ms != 0 && staleness_ms < kCopyStalenessMsMin) {
    return Status::InvalidArgument(
        "--copy-staleness-ms (key copy_staleness_ms): " + std::to_string(staleness_ms) +
        " is out of range; allowed: 0, or " + std::to_string(kCopyStalenessMsMin) + " and more");
  }
  if (options.cluster.log_buffers < least) {
    return Status::InvalidArgument(
        "--log-buffers (key log_buffers) is " + std::to_string(options.cluster.log_buffers) +
        ": with --lsm-log-buffers-max " + std::to_string(options.lsm.store.log_buffers_max) +
        " it has to be " + std::to_string(least) + " at least");
  }
  if (!options.tls.certificate_file.empty()) {
    return Status::InvalidArgument(
        "--tls-certificate (key tls_certificate) with --cluster: nodes ask one another over the "
        "native protocol, and speak no TLS there; leave it out, and protect the network");
  }
  if (options.insecure) return Status::Ok();
  return CheckLoopback({options.cluster.peer_listen},
                       "nothing protects the memory that other nodes write to: give --insecure "
                       "to serve a network whose hosts are all trusted");
}

}  // namespace

void AddComputeServerOptions(ConfigSchema& schema, ComputeServerOptions* options) {
  schema.AddEnum("engine",
                 "what keeps the trees: blink, the memory of a pool; lsm, a store on disk here",
                 &options->engine, {{"blink", EngineKind::kBlink}, {"lsm", EngineKind::kLsm}});
  AddFrontEndOptions(schema, options);
  AddRecordOptions(schema, &options->native);
  AddWatchOptions(schema, options);
  AddPoolOptions(schema, options);
  schema.Section(kLsmSection);
  AddStoreOptions(schema, &options->lsm);
  AddStorageOptions(schema, &options->lsm.files);
  schema.Section(kClusterSection);
  AddClusterOptions(schema, &options->cluster);
}

Status CheckEngineOptions(const ConfigSchema& schema, ComputeServerOptions* options) {
  if (options->engine == EngineKind::kBlink) {
    for (const char* section : {kLsmSection, kClusterSection}) {
      if (const auto flag = schema.FirstSetOf(section)) {
        return Status::InvalidArgument(*flag +
                                       " is for --engine lsm: give that too, or leave it out");
      }
    }
    if (!options->pool.bootstrap.empty()) return Status::Ok();
    return Missing("--bootstrap", "bootstrap",
                   "where the pool is found: memcached://HOST:PORT/CLUSTER or file:PATH; or give "
                   "--engine lsm and --data-dir, for a store on disk without a pool");
  }
  if (const auto flag = schema.FirstSetOf(kPoolSection)) {
    return Status::InvalidArgument(*flag +
                                   " is for --engine blink: --engine lsm keeps all in --data-dir "
                                   "and joins no pool; leave it out");
  }
  if (options->lsm.files.directory.empty()) {
    return Missing("--data-dir", "data_dir", "the directory of the store of --engine lsm");
  }
  if (options->lsm.store.block_bytes % 4096 != 0) {
    return Status::InvalidArgument(
        "--lsm-block-bytes: " + std::to_string(options->lsm.store.block_bytes) +
        " is no multiple of 4096");
  }
  const uint32_t open_files_max = options->lsm.files.open_files_max;
  if (open_files_max != 0 && open_files_max < 16) {
    return Status::InvalidArgument("--lsm-open-files-max: " + std::to_string(open_files_max) +
                                   " is out of range; allowed: 0, or 16 and more");
  }
  FARLEAF_RETURN_IF_ERROR(CheckSizes(options->lsm));
  FARLEAF_RETURN_IF_ERROR(CheckClusterOptions(schema, *options));
  NativeServerOptions& native = options->native;
  FARLEAF_RETURN_IF_ERROR(LimitValues(schema, "memcached_value_bytes_max", kLsmRecordDataBytesMax,
                                      &native.memcached.limits.value_bytes_max));
  FARLEAF_RETURN_IF_ERROR(LimitValues(schema, "redis_value_bytes_max", kLsmRecordDataBytesMax,
                                      &native.redis.limits.value_bytes_max));
  return LimitValues(schema, "value_bytes_max", index::lsm::kValueBytesMax,
                     &native.connection.value_bytes_max);
}

}  // namespace farleaf::server
