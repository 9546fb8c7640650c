#include "server/compute_server.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "dsm/base/log.h"
#include "dsm/base/random.h"
#include "server/frontend/open_tree.h"
#include "server/listen_check.h"

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
    return Status::InvalidArgument(
        "tls_client_ca is given, but no tls_certificate: give that and tls_key, with which clients "
        "are served over TLS");
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
  if (!options.insecure && protection.passwords.empty() && !protection.tls) {
    constexpr std::string_view kOtherwise =
        "nothing protects what is served there: give --password-file or --tls-certificate, or "
        "--insecure to serve a "
        "network whose hosts are all trusted";
    FARLEAF_RETURN_IF_ERROR(CheckLoopback(options.native.listen, kOtherwise));
    FARLEAF_RETURN_IF_ERROR(CheckLoopback(options.native.memcached.listen, kOtherwise));
    FARLEAF_RETURN_IF_ERROR(CheckLoopback(options.native.redis.listen, kOtherwise));
  }
  if (!options.metrics_listen.empty() && !options.metrics_insecure) {
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

Result<std::unique_ptr<ComputeServer>> ComputeServer::Start(const ComputeServerOptions& options,
                                                            uint64_t seed, const Clock* clock) {
  FARLEAF_RETURN_IF_ERROR(options.pool.tree.Validate());
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
  if (!protection->passwords.empty()) {
    server->options_.cluster.password = protection->passwords.front();
  }
  server->options_.native.passwords = std::move(protection->passwords);
  server->tls_ = std::move(protection->tls);
  server->options_.native.tls = server->tls_.get();
  server->options_.native.unix_mode = protection->unix_mode;
  FARLEAF_RETURN_IF_ERROR(server->StartWatching());
  FARLEAF_RETURN_IF_ERROR(server->Join(seed));
  return server;
}

Status ComputeServer::OpenEngine(uint64_t seed) {
  if (!options_.cluster.membership.empty()) {
    auto joined =
        ClusterEngine::Open(options_.cluster, options_.lsm, seed, clock_, options_.unwanted);
    if (!joined.ok()) return joined.status();
    engine_ = std::move(*joined);
    return Status::Ok();
  }
  if (options_.engine == EngineKind::kLsm) {
    auto opened = LsmEngine::Open(options_.lsm, seed, clock_);
    if (!opened.ok()) return opened.status();
    engine_ = std::move(*opened);
    return Status::Ok();
  }
  auto joined = PoolEngine::Join(options_.pool, seed, ++joins_, clock_);
  if (!joined.ok()) return joined.status();
  engine_ = std::move(*joined);
  return Status::Ok();
}

Status ComputeServer::Join(uint64_t seed) {
  FARLEAF_RETURN_IF_ERROR(OpenEngine(seed));
  FARLEAF_RETURN_IF_ERROR(PrepareTrees(engine_->host(), trees_, *clock_));
  NativeServerOptions native = options_.native;
  native.instance = Mix64(seed);
  auto started = NativeServer::Start(&engine_->host(), clock_, std::move(native));
  if (!started.ok()) return started.status();
  native_ = std::move(*started);
  FARLEAF_RETURN_IF_ERROR(engine_->Serves(native_->urls()));
  FARLEAF_RETURN_IF_ERROR(
      engine_->StartBeside(watchers_ ? Engine::Watched::kYes : Engine::Watched::kNo));
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
  engine_.reset();
  options_.pool.join_wait_ms = std::min<uint64_t>(options_.pool.join_wait_ms, kRejoinWaitMs);
  return Join(seed);
}

ComputeServer::~ComputeServer() {
  (void)Stop([] { return false; });
}

void ComputeServer::StopServing() {
  if (native_) {
    Enter(Phase::kDraining);
    native_->Stop();
    FARLEAF_LOG(info, "served: {}", native_->Stats().Summary());
  }
  Enter(Phase::kOutside);
  if (engine_) engine_->StopBeside();
  native_.reset();
}

Status ComputeServer::Stop(const Engine::Hurried& hurried) {
  if (engine_ && native_) engine_->Leave(hurried);
  StopServing();
  if (!engine_) return Status::Ok();
  Status closed = engine_->Close(hurried);
  engine_.reset();
  return closed;
}

}  // namespace farleaf::server
