#include "server/frontend/native_server.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <iterator>
#include <utility>

#include "client/endpoint.h"
#include "client/internal/socket.h"
#include "server/frontend/native_service.h"
#include "server/frontend/open_tree.h"
#include "server/frontend/server_thread.h"

namespace farleaf::server {

using client::Endpoint;
using client::internal::ErrnoText;
using client::internal::Fd;
using client::internal::SocketAddress;

namespace {

constexpr int kBacklog = 512;

/// Whether somebody accepts connections there.
bool IsAlive(const SocketAddress& address) {
  const auto dialled = client::internal::Dial(address);
  return dialled.ok();  // a Unix socket connects at once or is refused
}

Result<Fd> Listen(const Endpoint& endpoint, const SocketAddress& address, uint32_t unix_mode) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::IoError("socket: " + ErrnoText(errno));
  if (endpoint.is_unix()) {
    // The socket of a server that died is in the way of its successor.
    struct stat there;
    if (::lstat(endpoint.unix_path.c_str(), &there) == 0) {
      if (!S_ISSOCK(there.st_mode)) {
        return Status::AlreadyExists(endpoint.unix_path +
                                     " exists and is no socket; remove it or choose another path");
      }
      if (IsAlive(address)) {
        return Status::AlreadyExists("another server listens on " + endpoint.ToString());
      }
      ::unlink(endpoint.unix_path.c_str());
    }
    // The file that bind makes has no more permissions than the socket has, so that nobody else gets in first.
    ::fchmod(fd.get(), unix_mode);
  } else {
    const int one = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  }
  const auto* const raw = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::bind(fd.get(), raw, address.bytes) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    const std::string text = "cannot listen on " + endpoint.ToString() + ": " + ErrnoText(errno);
    return errno == EADDRINUSE ? Status::AlreadyExists(text) : Status::InvalidArgument(text);
  }
  // What the process's umask took from it.
  if (endpoint.is_unix() && ::chmod(endpoint.unix_path.c_str(), unix_mode) != 0) {
    return Status::InvalidArgument(endpoint.unix_path + ": " + ErrnoText(errno));
  }
  return fd;
}

Result<Fd> ListenOn(Endpoint endpoint, uint32_t unix_mode, std::string* url) {
  const auto addresses = client::internal::Resolve(endpoint);
  if (!addresses.ok()) return Status::InvalidArgument(std::string(addresses.status().message()));
  auto fd = Listen(endpoint, addresses->front(), unix_mode);
  if (!fd.ok()) return fd.status();
  if (!endpoint.is_unix() && endpoint.port == 0) {
    sockaddr_storage bound{};
    socklen_t bytes = sizeof bound;
    FARLEAF_CHECK(::getsockname(fd->get(), reinterpret_cast<sockaddr*>(&bound), &bytes) == 0,
                  errno);
    endpoint.port =
        ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                          : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
  }
  *url = endpoint.ToString();
  return std::move(*fd);
}

}  // namespace

// The services of each thread, by number.
constexpr size_t kNativeService = 0, kMemcachedService = 1, kRedisService = 2;

struct NativeServer::Listening {
  std::vector<ServerThread::Listener> listeners;
};

Result<std::unique_ptr<NativeServer>> NativeServer::Start(TreeHost* host, const Clock* clock,
                                                          NativeServerOptions options) {
  std::unique_ptr<NativeServer> server(new NativeServer(host, clock, std::move(options)));
  Listening listening;
  FARLEAF_RETURN_IF_ERROR(server->Listen(&listening));
  if (!server->memcached_urls_.empty() || !server->redis_urls_.empty())
    FARLEAF_RETURN_IF_ERROR(server->OpenRecords());
  std::vector<ServerThread*> threads;
  for (uint32_t i = 0; i < std::max(server->options_.threads, 1u); ++i) {
    auto thread = server->NewThread(i);
    if (!thread.ok()) return thread.status();
    threads.push_back(thread->get());
    server->threads_.push_back(std::move(*thread));
  }
  threads.front()->AcceptFor(std::move(listening.listeners), threads);
  for (ServerThread* thread : threads) thread->Start();
  return server;
}

NativeServer::NativeServer(TreeHost* host, const Clock* clock, NativeServerOptions options)
    : host_(host),
      clock_(clock),
      start_ns_(clock->NowNs()),
      options_(std::move(options)),
      authenticator_(options_.passwords),
      slow_log_(options_.slow_log) {}

Status NativeServer::Listen(Listening* listening) {
  const auto add = [&](Result<Endpoint> endpoint, size_t service, std::vector<std::string>* urls) {
    if (!endpoint.ok()) return endpoint.status();
    std::string url;
    const TlsServer* const tls = endpoint->is_unix() ? nullptr : options_.tls;
    auto socket = ListenOn(std::move(*endpoint), options_.unix_mode, &url);
    if (!socket.ok()) return socket.status();
    listening->listeners.push_back({std::move(*socket), service, tls});
    urls->push_back(std::move(url));
    return Status::Ok();
  };
  for (const std::string& address : options_.listen) {
    FARLEAF_RETURN_IF_ERROR(add(client::ParseHostPort(address), kNativeService, &urls_));
  }
  if (!options_.unix_path.empty()) {
    FARLEAF_RETURN_IF_ERROR(add(client::ParseUnixPath(options_.unix_path), kNativeService, &urls_));
  }
  for (const std::string& address : options_.memcached.listen) {
    FARLEAF_RETURN_IF_ERROR(
        add(client::ParseHostPort(address), kMemcachedService, &memcached_urls_));
  }
  if (!options_.memcached.unix_path.empty()) {
    FARLEAF_RETURN_IF_ERROR(add(client::ParseUnixPath(options_.memcached.unix_path),
                                kMemcachedService, &memcached_urls_));
  }
  for (const std::string& address : options_.redis.listen) {
    FARLEAF_RETURN_IF_ERROR(add(client::ParseHostPort(address), kRedisService, &redis_urls_));
  }
  if (!options_.redis.unix_path.empty()) {
    FARLEAF_RETURN_IF_ERROR(
        add(client::ParseUnixPath(options_.redis.unix_path), kRedisService, &redis_urls_));
  }
  const auto name = [](std::vector<std::string>* urls, std::string_view scheme) {
    for (std::string& url : *urls) url.replace(0, std::string_view("farleaf").size(), scheme);
  };
  name(&memcached_urls_, "memcached");
  name(&redis_urls_, "redis");
  if (listening->listeners.empty()) {
    return Status::InvalidArgument("a server needs a listen address or a Unix socket path");
  }
  return Status::Ok();
}

Status NativeServer::OpenRecords() {
  constexpr uint64_t kOpenMs = 30'000;
  auto worker = host_->OpenWorker();
  if (!worker.ok()) return worker.status();
  dsm::FabricCounts counts;
  dsm::OpContext op{**worker, counts, clock_->NowNs() + kOpenMs * kNsPerMs};
  const auto tree =
      (*worker)->Run(OpenOrCreateTree(*host_, op, NewTree{.name = options_.record_tree}));
  if (!tree.ok()) return tree.status().WithContext("the records' tree");
  const Clock* const wall = options_.wall_clock ? options_.wall_clock : &system_clock_;
  keyspace_ = std::make_unique<Keyspace>(tree->index, wall);
  house_ = std::make_unique<RecordHouse>(
      keyspace_.get(), RecordHouse::Options{options_.expiry_sweep_s, options_.deadline_ms_default});
  return Status::Ok();
}

Result<std::unique_ptr<ServerThread>> NativeServer::NewThread(uint32_t number) {
  ServerThread::Deps deps;
  deps.host = host_;
  deps.clock = clock_;
  deps.options = {options_.connections_max,  options_.deadline_ms_default,
                  options_.hello_timeout_ms, options_.idle_timeout_ms,
                  options_.drain_ms,         options_.ring_poll_us,
                  options_.socket_poll_us};
  deps.open_connections = [this] { return Connections().open; };
  deps.services.push_back([this](ServingThread& thread) {
    return std::make_unique<NativeService>(
        NativeService::Deps{&thread, host_, clock_, [this] { return StatsText(); }, &slow_log_,
                            options_.wall_clock ? options_.wall_clock : &system_clock_,
                            &authenticator_},
        NativeService::Options{options_.connection, options_.connections_max,
                               options_.deadline_ms_default, options_.deadline_ms_max,
                               options_.instance});
  });
  if (keyspace_) AddServices(number, &deps.services);
  return ServerThread::Create(std::move(deps));
}

void NativeServer::AddServices(uint32_t number, std::vector<ServerThread::MakeService>* services) {
  RecordHouse* const house = number == 0 ? house_.get() : nullptr;
  auto* const memcached_counters =
      memcached_counters_.emplace_back(std::make_unique<memcached::Counters>()).get();
  services->push_back([this, house, memcached_counters](ServingThread& thread) {
    return std::make_unique<memcached::Service>(memcached::Service::Deps{
        &thread, keyspace_.get(), options_.memcached, options_.deadline_ms_default, house,
        [this](memcached::Facts* facts) {
          GatherFacts(facts);
          for (const auto& counters : memcached_counters_) counters->AddTo(&facts->counters);
        },
        memcached_counters, &slow_log_, &authenticator_});
  });
  auto* const redis_counters =
      redis_counters_.emplace_back(std::make_unique<redis::Counters>()).get();
  services->push_back([this, redis_counters](ServingThread& thread) {
    return std::make_unique<redis::Service>(
        redis::Service::Deps{&thread, keyspace_.get(), options_.redis, options_.deadline_ms_default,
                             [this](redis::Facts* facts) {
                               GatherFacts(facts);
                               for (const auto& counters : redis_counters_) {
                                 counters->AddTo(&facts->counters);
                                 for (size_t i = 0; i < redis::kCommandsMax; ++i) {
                                   facts->commands += counters->stats.Counts(i).count;
                                 }
                               }
                             },
                             redis_counters, [this] { return redis_connections_.fetch_add(1) + 1; },
                             &slow_log_, &authenticator_});
  });
}

void NativeServer::GatherFacts(ServerFacts* facts) const {
  const ConnectionCounts connections = Connections();
  facts->connections_open = connections.open;
  facts->connections_accepted = connections.accepted;
  facts->connections_refused = connections.refused;
  facts->connections_max = options_.connections_max;
  facts->threads = static_cast<uint32_t>(threads_.size());
  facts->uptime_s = (clock_->NowNs() - start_ns_) / kNsPerSecond;
  const RecordHouse::Counts& swept = house_->counts();
  facts->swept_expired = swept.expired.load();
  if (const uint64_t ended_ns = swept.met_ns.load(); ended_ns != 0) {
    facts->swept_keys = {swept.keys.load(), swept.expiring.load(), ended_ns};
  }
  facts->expiry_sweep_s = options_.expiry_sweep_s;
  facts->record_tree = options_.record_tree;
}

NativeServer::~NativeServer() { Stop(); }

void NativeServer::Stop() {
  for (const std::string& path :
       {options_.unix_path, options_.memcached.unix_path, options_.redis.unix_path}) {
    if (!threads_.empty() && !path.empty()) ::unlink(path.c_str());
  }
  // The accepting thread first: it may still hand connections to the others.
  for (const auto& thread : threads_) {
    thread->RequestStop();
  }
  for (const auto& thread : threads_) thread->Join();
}

OperationStats NativeServer::Stats() const {
  OperationStats sum;
  for (const auto& thread : threads_) sum.Merge(thread->Stats());
  return sum;
}

NativeServer::ConnectionCounts NativeServer::Connections() const {
  ConnectionCounts sum;
  for (const auto& thread : threads_) {
    sum.accepted += thread->counts().accepted.load();
    sum.open += thread->counts().open.load();
    sum.refused += thread->counts().refused.load();
    sum.truncated += thread->counts().truncated.load();
    sum.event_polls += thread->counts().event_polls.load();
    sum.event_waits += thread->counts().event_waits.load();
  }
  return sum;
}

namespace {

/// Of one command, by all threads.
template <typename AllCounters>
CommandCounts CountsOf(const AllCounters& all, size_t command) {
  CommandCounts sum;
  for (const auto& counters : all) sum += counters->stats.Counts(command);
  return sum;
}

std::string_view MemcachedName(size_t verb) {
  return memcached::VerbName(static_cast<memcached::Verb>(verb));
}

}  // namespace

void NativeServer::AppendRecordMetrics(MetricsText* out) const {
  if (!memcached_urls_.empty()) {
    memcached::Counters sum;
    for (const auto& counters : memcached_counters_) counters->AddTo(&sum);
    sum.AppendMetrics(out);
    for (size_t verb = 0; verb < memcached::kVerbCount; ++verb) {
      CountsOf(memcached_counters_, verb).AppendMetrics("memcached", MemcachedName(verb), out);
    }
  }
  if (!redis_urls_.empty()) {
    redis::Counters sum;
    for (const auto& counters : redis_counters_) counters->AddTo(&sum);
    sum.AppendMetrics(out);
    for (const redis::CommandSpec& command : redis::Commands()) {
      CountsOf(redis_counters_, redis::IndexOf(command)).AppendMetrics("redis", command.name, out);
    }
  }
  out->Counter("farleaf_expired_records_deleted_total",
               "Expired records that the sweep of this server has deleted.", {},
               static_cast<double>(house_->counts().expired.load()));
}

void NativeServer::AppendRecordStats(std::string* text) const {
  if (!memcached_urls_.empty()) {
    memcached::Counters sum;
    for (const auto& counters : memcached_counters_) counters->AddTo(&sum);
    sum.AppendTo(text);
    for (size_t verb = 0; verb < memcached::kVerbCount; ++verb) {
      const CommandCounts counts = CountsOf(memcached_counters_, verb);
      if (counts.count > 0) counts.AppendTo(fmt::format("memcached.{}", MemcachedName(verb)), text);
    }
  }
  if (!redis_urls_.empty()) {
    redis::Counters sum;
    for (const auto& counters : redis_counters_) counters->AddTo(&sum);
    sum.AppendTo(text);
    for (const redis::CommandSpec& command : redis::Commands()) {
      const CommandCounts counts = CountsOf(redis_counters_, redis::IndexOf(command));
      if (counts.count > 0) counts.AppendTo(fmt::format("redis.{}", command.name), text);
    }
  }
  const RecordHouse::Counts& swept = house_->counts();
  fmt::format_to(std::back_inserter(*text),
                 "records.sweep_turns {}\nrecords.swept_records {}\nrecords.swept_expired {}\n"
                 "records.swept_members {}\n",
                 swept.turns.load(), swept.records.load(), swept.expired.load(),
                 swept.members.load());
}

void NativeServer::AppendMetrics(MetricsText* out) const {
  const ConnectionCounts connections = Connections();
  out->Gauge("farleaf_connections", "Connections of clients that are open.", {},
             static_cast<double>(connections.open));
  out->Gauge("farleaf_connections_limit", "How many there may be.", {}, options_.connections_max);
  out->Counter("farleaf_connections_accepted_total", "Connections of clients that have come in.",
               {}, static_cast<double>(connections.accepted));
  out->Counter("farleaf_connections_refused_total",
               "Connections that were cut off for what they sent, or since there were too many.",
               {}, static_cast<double>(connections.refused));
  out->Counter("farleaf_connections_truncated_total",
               "Connections that their clients ended in the middle of a request.", {},
               static_cast<double>(connections.truncated));
  constexpr std::string_view kEvents = "farleaf_server_event_calls_total";
  constexpr std::string_view kEventsHelp =
      "Calls of the system for events of sockets: poll, without waiting; wait, until there is one.";
  out->Counter(kEvents, kEventsHelp, {{"kind", "poll"}},
               static_cast<double>(connections.event_polls));
  out->Counter(kEvents, kEventsHelp, {{"kind", "wait"}},
               static_cast<double>(connections.event_waits));
  out->Gauge("farleaf_server_threads", "Threads that serve clients.", {},
             static_cast<double>(threads_.size()));
  out->Counter("farleaf_slow_requests_total", "Requests that took slow_log_us or longer.", {},
               static_cast<double>(slow_log_.count()));
  Stats().AppendMetrics(out);
  if (keyspace_) AppendRecordMetrics(out);
  host_->AppendMetrics(out);
}

std::string NativeServer::StatsText() const {
  const ConnectionCounts connections = Connections();
  std::string text = fmt::format(
      "connections.accepted {}\nconnections.open {}\nconnections.refused {}\n"
      "connections.truncated {}\nserver.event_polls {}\nserver.event_waits {}\n",
      connections.accepted, connections.open, connections.refused, connections.truncated,
      connections.event_polls, connections.event_waits);
  Stats().AppendTo(&text);
  if (keyspace_) AppendRecordStats(&text);
  host_->AppendStats(&text);
  return text;
}

}  // namespace farleaf::server
