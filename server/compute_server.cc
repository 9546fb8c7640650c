#include "server/compute_server.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "client/ring/format.h"
#include "dsm/base/log.h"
#include "dsm/base/random.h"
#include "dsm/bootstrap/open_fabric.h"
#include "server/frontend/open_tree.h"
#include "server/listen_check.h"
#include "server/metrics/process_metrics.h"

namespace farleaf::server {

namespace {

/// For the memory servers, in each attempt to join again.
constexpr uint64_t kRejoinWaitMs = 1'000;

Status PrepareTrees(TreeHost& host, const std::vector<NewTree>& trees, const Clock& clock) {
  constexpr uint64_t kPrepareMs = 30'000;
  auto worker = host.OpenWorker();
  if (!worker.ok()) return worker.status();
  for (const NewTree& tree : trees) {
    dsm::FabricCounts counts;
    dsm::OpContext op{**worker, counts, clock.NowNs() + kPrepareMs * kNsPerMs};
    const auto prepared = (*worker)->Run(OpenOrCreateTree(host, op, tree));
    if (!prepared.ok()) return prepared.status();
  }
  return Status::Ok();
}

/// What keeps those out who are not to be served.
struct Protection {
  std::vector<std::string> passwords;
  std::unique_ptr<TlsServer> tls;
  uint32_t unix_mode = 0;
};

/// InvalidArgument if it is too little for where the server is to listen.
Result<Protection> ReadProtection(const ComputeServerOptions& options) {
  Protection protection;
  if (!options.password_file.empty()) {
    auto passwords = client::ReadPasswords(options.password_file);
    if (!passwords.ok()) return passwords.status();
    protection.passwords = std::move(*passwords);
  }
  if (options.tls.certificate_file.empty() != options.tls.key_file.empty()) {
    return Status::InvalidArgument("tls_certificate and tls_key are given together or not at all");
  }
  if (!options.tls.client_ca_file.empty() && options.tls.certificate_file.empty()) {
    return Status::InvalidArgument("tls_client_ca is given, but no tls_certificate");
  }
  if (!options.tls.certificate_file.empty()) {
    auto tls = TlsServer::Load(options.tls);
    if (!tls.ok()) return tls.status();
    protection.tls = std::move(*tls);
  }
  const std::string& mode = options.unix_socket_mode;
  const auto [end, error] =
      std::from_chars(mode.data(), mode.data() + mode.size(), protection.unix_mode, 8);
  if (error != std::errc() || end != mode.data() + mode.size() || protection.unix_mode > 0777) {
    return Status::InvalidArgument("unix_socket_mode \"" + mode +
                                   "\": an octal number from 0 to 0777 is wanted");
  }
  if (options.insecure) return protection;
  if (protection.passwords.empty() && !protection.tls) {
    constexpr std::string_view kOtherwise =
        "nothing protects what is served there: give --password-file or --tls-certificate, or "
        "--insecure to serve a "
        "network whose hosts are all trusted";
    FARLEAF_RETURN_IF_ERROR(CheckLoopback(options.native.listen, kOtherwise));
    FARLEAF_RETURN_IF_ERROR(CheckLoopback(options.native.memcached.listen, kOtherwise));
    FARLEAF_RETURN_IF_ERROR(CheckLoopback(options.native.redis.listen, kOtherwise));
  }
  if (!options.metrics_listen.empty()) {
    FARLEAF_RETURN_IF_ERROR(CheckLoopback({options.metrics_listen}, kWatchedByAll));
  }
  return protection;
}

Status CheckTreeName(const std::string& name) {
  if (!name.empty() && name.size() <= protocol::kTreeNameBytesMax) return Status::Ok();
  return Status::InvalidArgument("tree \"" + name + "\": a name has 1 to " +
                                 std::to_string(protocol::kTreeNameBytesMax) + " bytes");
}

}  // namespace

Result<NewTree> ParseTreeOption(const std::string& text) {
  const size_t colon = text.rfind(':');
  NewTree tree;
  tree.name = text.substr(0, colon);
  const std::string layout = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (layout == "fixed8") {
    tree.layout = protocol::TreeLayout::kFixed8;
  } else if (layout != "bytes" || tree.name.empty()) {
    return Status::InvalidArgument("tree \"" + text +
                                   "\": NAME:LAYOUT is wanted, LAYOUT being fixed8 or bytes");
  }
  FARLEAF_RETURN_IF_ERROR(CheckTreeName(tree.name));
  return tree;
}

void AddComputeServerOptions(ConfigSchema& schema, ComputeServerOptions* options) {
  schema.AddString("bootstrap",
                   "where the pool is found: memcached://HOST:PORT/CLUSTER or file:PATH",
                   &options->bootstrap);
  schema.Required();
  schema.AddInteger("memory_servers_min", "memory servers to wait for",
                    &options->memory_servers_min, 1, 64);
  schema.AddInteger("join_wait_ms", "how long to wait for them", &options->join_wait_ms, 0,
                    3'600'000);
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
  memcached::Options& memcached = options->native.memcached;
  schema.AddStringList("memcached_listen",
                       "addresses for memcached's text protocol, HOST:PORT; none by default",
                       &memcached.listen);
  schema.AddString("memcached_unix_socket", "path of a Unix socket for memcached's text protocol",
                   &memcached.unix_path);
  schema.AddString("record_tree",
                   "the tree of memcached's and Redis' keys, created unless it exists",
                   &options->native.record_tree);
  schema.AddBytes("memcached_value_bytes_max", "larger values are refused",
                  &memcached.limits.value_bytes_max, 1 << 10, kRecordDataBytesMax);
  schema.AddBytes("memcached_line_bytes_max", "a connection with a longer line is closed",
                  &memcached.limits.line_bytes_max, 2 << 10, uint64_t{64} << 20);
  schema.AddBytes("memcached_out_bytes_max",
                  "with more unsent answers a connection's commands wait",
                  &memcached.limits.out_bytes_max, 4 << 10, uint64_t{1} << 30);
  redis::Options& redis = options->native.redis;
  schema.AddStringList("redis_listen", "addresses for Redis' protocol, HOST:PORT; none by default",
                       &redis.listen);
  schema.AddBytes("redis_value_bytes_max", "larger arguments are refused",
                  &redis.limits.value_bytes_max, 1 << 10, kRecordDataBytesMax);
  schema.AddBytes("redis_request_bytes_max", "larger requests are refused",
                  &redis.limits.request_bytes_max, 1 << 10, uint64_t{1} << 30);
  schema.AddBytes("redis_reply_bytes_max", "larger answers to one command become an error",
                  &redis.limits.reply_bytes_max, 4 << 10, uint64_t{4} << 30);
  schema.AddBytes("redis_out_bytes_max", "with more unsent answers a connection's commands wait",
                  &redis.limits.out_bytes_max, 4 << 10, uint64_t{1} << 30);
  schema.AddInteger("expiry_sweep_s", "how long a turn takes that deletes all expired items",
                    &options->native.expiry_sweep_s, 1, 86'400);
  schema.AddInteger("threads", "threads that serve clients", &options->native.threads, 1, 256);
  schema.AddStringList("trees", "trees to create unless they exist, NAME:LAYOUT (fixed8, bytes)",
                       &options->trees);
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
      &options->tree.cache,
      {{"search-layer", index::CacheMode::kSearchLayer}, {"none", index::CacheMode::kNone}});
  schema.AddBytes("cache_bytes",
                  "the most memory that a tree's cache is to take; not given: no bound",
                  &options->tree.cache_bytes, uint64_t{64} << 10, uint64_t{1} << 50);
  schema.AddBytes(
      "value_hint_bytes",
      "memory that remembers where a tree's values out of line are, 8 bytes a value; 0: none",
      &options->tree.value_hint_bytes, 0, uint64_t{1} << 40);
  schema.AddEnum("share_reads", "gets of a thread that want the same part of a leaf share a READ",
                 &options->tree.read_sharing,
                 {{"on", index::ReadSharing::kOn}, {"off", index::ReadSharing::kOff}});
  schema.AddEnum("combine_writes",
                 "writes of a leaf that wait for its lock are written back together",
                 &options->tree.write_combining,
                 {{"on", index::WriteCombining::kOn}, {"off", index::WriteCombining::kOff}});
  schema.AddEnum("hand_over", "a leaf's lock goes on to another write of this process, in turn",
                 &options->tree.hand_over,
                 {{"on", index::HandOver::kOn}, {"off", index::HandOver::kOff}});
  schema.AddEnum(
      "in_place", "over shared memory, leaves of byte strings are looked at where they are",
      &options->tree.in_place, {{"on", index::InPlace::kOn}, {"off", index::InPlace::kOff}});
  schema.AddInteger("hop_threshold", "moves to the right after which the cache is refreshed",
                    &options->tree.hop_threshold, 1, 64);
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
  schema.AddInteger("idle_timeout_ms", "closes a connection without requests; 0: never",
                    &options->native.idle_timeout_ms, 0, 86'400'000);
  schema.AddInteger("drain_ms", "what running requests are granted at shutdown",
                    &options->native.drain_ms, 0, 600'000);
  schema.AddString("ready_file", "written when clients are served: process id, then a URL a line",
                   &options->ready_file);
  schema.AddInteger("slow_log_us", "requests that take so long are kept in the slow log; 0: none",
                    &options->native.slow_log.slow_us, 0, 3'600'000'000);
  schema.AddInteger("slow_log_entries", "how many of them, the most recent ones",
                    &options->native.slow_log.entries, 0, 100'000);
  schema.AddString("metrics_listen",
                   "HOST:PORT for /metrics (Prometheus) and /health over HTTP; none if empty",
                   &options->metrics_listen);
  schema.AddInteger("recover_after_ms",
                    "when what another compute server holds is returned, after all memory servers "
                    "have cut it off; 0: never",
                    &options->recover_after_ms, 0, 86'400'000);
  schema.AddInteger("stats_interval_s", "logs the counters so often; 0: only at the end",
                    &options->stats_interval_s, 0, 86'400);
  AddLogOptions(schema, &options->log);
}

Result<std::unique_ptr<ComputeServer>> ComputeServer::Start(const ComputeServerOptions& options,
                                                            uint64_t seed, const Clock* clock) {
  FARLEAF_RETURN_IF_ERROR(options.tree.Validate());
  auto protection = ReadProtection(options);
  if (!protection.ok()) return protection.status();
  FARLEAF_RETURN_IF_ERROR(CheckTreeName(options.native.record_tree));
  std::vector<NewTree> trees;
  for (const std::string& text : options.trees) {
    auto tree = ParseTreeOption(text);
    if (!tree.ok()) return tree.status();
    tree->geometry.leaf_layout = options.leaf_layout;
    tree->geometry.leaf_bytes = options.leaf_bytes;
    tree->geometry.node_bytes = options.node_bytes;
    FARLEAF_RETURN_IF_ERROR(GeometryOf(tree->layout, tree->geometry).Validate());
    trees.push_back(std::move(*tree));
  }
  std::unique_ptr<ComputeServer> server(new ComputeServer(options, std::move(trees), clock));
  server->options_.native.passwords = std::move(protection->passwords);
  server->tls_ = std::move(protection->tls);
  server->options_.native.tls = server->tls_.get();
  server->options_.native.unix_mode = protection->unix_mode;
  FARLEAF_RETURN_IF_ERROR(server->StartWatching());
  FARLEAF_RETURN_IF_ERROR(server->Join(seed));
  return server;
}

Status ComputeServer::Join(uint64_t seed) {
  dsm::OpenFabricOptions fabric_options;
  fabric_options.servers_min = options_.memory_servers_min;
  fabric_options.wait_ms = options_.join_wait_ms;
  auto fabric = dsm::OpenFabric(options_.bootstrap, fabric_options, clock_);
  if (!fabric.ok()) return fabric.status();
  dsm::PoolOptions pool_options;
  pool_options.seed = seed;
  auto pool = dsm::Pool::Join(std::move(*fabric), pool_options, clock_);
  if (!pool.ok()) return pool.status();
  pool_ = std::move(*pool);
  // What clients are told is the pool's directory, not this machine's way to it.
  const std::string directory_url = options_.bootstrap.substr(0, options_.bootstrap.find('?'));
  host_ = std::make_unique<PoolTreeHost>(pool_.get(), directory_url, options_.tree, ++joins_);
  FARLEAF_RETURN_IF_ERROR(PrepareTrees(*host_, trees_, *clock_));
  NativeServerOptions native = options_.native;
  native.instance = Mix64(seed);
  auto started = NativeServer::Start(host_.get(), clock_, std::move(native));
  if (!started.ok()) return started.status();
  native_ = std::move(*started);
  if (options_.recover_after_ms > 0) {
    MemberRecovery::Options recovery;
    recovery.after_ms = options_.recover_after_ms;
    recovery.tree = options_.tree;
    auto recovering = MemberRecovery::Start(pool_.get(), host_.get(), std::move(recovery));
    if (!recovering.ok()) return recovering.status();
    recovery_ = std::move(*recovering);
  }
  if (watchers_) {
    auto watch = PoolWatch::Start(pool_.get());
    if (!watch.ok()) return watch.status();
    watch_ = std::move(*watch);
  }
  Enter(Phase::kServing);
  return Status::Ok();
}

Status ComputeServer::Rejoin(uint64_t seed) {
  if (native_) {
    // The ports that the system chose are the ones that clients know.
    const auto keep = [](const std::vector<std::string>& urls, std::vector<std::string>* listen) {
      constexpr std::string_view kBehindScheme = "://";
      for (size_t i = 0; i < listen->size(); ++i) {
        (*listen)[i] = urls[i].substr(urls[i].find(kBehindScheme) + kBehindScheme.size());
      }
    };
    keep(native_->urls(), &options_.native.listen);
    keep(native_->memcached_urls(), &options_.native.memcached.listen);
    keep(native_->redis_urls(), &options_.native.redis.listen);
  }
  StopServing();
  host_.reset();
  if (pool_) (void)pool_->Leave();  // whoever is fenced cannot leave in order
  pool_.reset();
  options_.join_wait_ms = std::min<uint64_t>(options_.join_wait_ms, kRejoinWaitMs);
  return Join(seed);
}

ComputeServer::~ComputeServer() {
  const Status stopped = Stop();
  if (!stopped.ok()) FARLEAF_LOG(warn, "{}", stopped.ToString());
}

void ComputeServer::StopServing() {
  if (native_) {
    Enter(Phase::kDraining);
    native_->Stop();
    FARLEAF_LOG(info, "served: {}", native_->Stats().Summary());
  }
  Enter(Phase::kOutside);
  watch_.reset();
  recovery_.reset();
  native_.reset();
}

Status ComputeServer::Stop() {
  StopServing();
  host_.reset();
  if (!pool_) return Status::Ok();
  const Status left = pool_->Leave();
  pool_.reset();
  return left.WithContext("the pool was not left in good order");
}

}  // namespace farleaf::server
