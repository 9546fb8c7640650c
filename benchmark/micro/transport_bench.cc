// Round trips of the native protocol side by side: TCP over loopback, a Unix socket and a ring of shared memory,
// from one client thread to one server thread of this process, one request at a time (closed loop).
//
//   transport_bench [REQUESTS]      20,000 by default, of each kind over each transport
//
// The tree is a pool's, over memory of this process; keys are of 16 bytes, values of 100. Each line is measured
// in turns with the others, so that what else runs on the machine disturbs them alike. Client and server have a
// processor each, where there are two. Exit code 1: something answered wrongly.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "client/session.h"
#include "dsm/pool.h"
#include "dsm/shm/local_fabric.h"
#include "server/frontend/native_server.h"
#include "server/pool_tree_host.h"

namespace farleaf {
namespace {

constexpr uint64_t kKeys = 10'000, kRounds = 20;

std::string KeyOf(uint64_t i) { return fmt::format("user{:012}", i % kKeys); }

uint64_t ProcessCpuNs() {
  timespec now;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

struct Measured {
  std::vector<uint64_t> ns;
  uint64_t cpu_ns = 0;

  double us(double quantile) {
    std::sort(ns.begin(), ns.end());
    const auto at = static_cast<size_t>(quantile * static_cast<double>(ns.size() - 1));
    return static_cast<double>(ns[at]) / 1e3;
  }
};

/// For this thread, and those that it starts. Best effort: it only makes figures steadier.
void RunOn(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  (void)::sched_setaffinity(0, sizeof set, &set);
}

enum class What { kPing, kGet, kPut };

struct Way {
  std::string name;
  std::unique_ptr<client::Session> session;
  std::unique_ptr<client::SessionTree> tree;
  Measured measured[3];

  bool RunOne(What what, uint64_t i) {
    switch (what) {
      case What::kPing:
        return session->Ping().ok();
      case What::kGet: {
        const auto value = tree->Get(KeyOf(i * 7919));
        return value.ok() && value->has_value() && (**value).size() == 100;
      }
      default:
        return tree->Put(KeyOf(i * 7919), std::string(100, 'w')).ok();
    }
  }
  bool Run(What what, uint64_t requests, const Clock& clock) {
    Measured& into = measured[static_cast<size_t>(what)];
    const uint64_t cpu_ns = ProcessCpuNs();
    for (uint64_t i = 0; i < requests; ++i) {
      const uint64_t begin_ns = clock.NowNs();
      if (!RunOne(what, i)) return false;
      into.ns.push_back(clock.NowNs() - begin_ns);
    }
    into.cpu_ns += ProcessCpuNs() - cpu_ns;
    return true;
  }
};

Status Open(const std::string& url, Way* way) {
  auto session = client::Session::Connect(url);
  if (!session.ok()) return session.status();
  way->session = std::move(*session);
  auto tree = way->session->OpenTree("t");
  if (!tree.ok()) return tree.status();
  way->tree = std::make_unique<client::SessionTree>(std::move(*tree));
  return Status::Ok();
}

Status Load(Way& way) {
  Status first;
  for (uint64_t i = 0; i < kKeys; ++i) {
    way.tree->PutAsync(KeyOf(i), std::string(100, 'v'), [&](Result<bool> put) {
      if (!put.ok() && first.ok()) first = put.status();
    });
  }
  while (way.session->pending() > 0) way.session->Poll(1'000);
  return first;
}

void Print(std::vector<Way>& ways, uint64_t requests) {
  fmt::print("{} requests of each kind, one at a time; us of a round trip\n", requests);
  fmt::print("{:<6} {:<14} {:>8} {:>8} {:>8} {:>8} {:>12} {:>12}\n", "what", "transport", "p10",
             "p50", "p99", "p99.9", "p50 / tcp's", "CPU us each");
  for (const auto& [what, name] :
       {std::pair{What::kPing, "ping"}, {What::kGet, "get"}, {What::kPut, "put"}}) {
    const auto kind = static_cast<size_t>(what);
    const double tcp_us = ways[0].measured[kind].us(0.5);
    for (Way& way : ways) {
      Measured& of = way.measured[kind];
      fmt::print("{:<6} {:<14} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>12.3f} {:>12.2f}\n", name,
                 way.name, of.us(0.1), of.us(0.5), of.us(0.99), of.us(0.999), of.us(0.5) / tcp_us,
                 static_cast<double>(of.cpu_ns) / 1e3 / static_cast<double>(of.ns.size()));
    }
  }
}

Status Run(uint64_t requests, const std::string& socket_path) {
  const MonotonicClock clock;
  auto fabric = dsm::LocalFabric::Create({.servers = 1, .region_bytes = uint64_t{64} << 20});
  if (!fabric.ok()) return fabric.status();
  auto pool = dsm::Pool::Join(std::move(*fabric), {}, &clock);
  if (!pool.ok()) return pool.status();
  server::PoolTreeHost host(pool->get(), "", index::TreeOptions{});
  server::NativeServerOptions options;
  options.threads = 1;
  options.listen = {"127.0.0.1:0"};
  options.unix_path = socket_path;
  RunOn(1);
  auto server = server::NativeServer::Start(&host, &clock, options);
  if (!server.ok()) return server.status();
  RunOn(0);
  {
    auto session = client::Session::Connect((*server)->urls()[0]);
    if (!session.ok()) return session.status();
    const auto created = (*session)->CreateTree({.name = "t"});
    if (!created.ok()) return created.status();
  }
  std::vector<Way> ways(3);
  ways[0].name = "tcp, loopback";
  ways[1].name = "unix socket";
  ways[2].name = "ring";
  FARLEAF_RETURN_IF_ERROR(Open((*server)->urls()[0], &ways[0]));
  FARLEAF_RETURN_IF_ERROR(Open("farleaf+unix:" + socket_path, &ways[1]));
  FARLEAF_RETURN_IF_ERROR(Open("farleaf+ring:" + socket_path, &ways[2]));
  FARLEAF_RETURN_IF_ERROR(Load(ways[0]));
  for (uint64_t round = 0; round <= kRounds; ++round) {
    if (round == 1) {  // the first one warmed things up
      for (Way& way : ways) std::fill(std::begin(way.measured), std::end(way.measured), Measured{});
    }
    for (const What what : {What::kPing, What::kGet, What::kPut}) {
      for (Way& way : ways) {
        if (!way.Run(what, std::max<uint64_t>(requests / kRounds, 1), clock)) {
          return Status::Corruption(way.name + ": a wrong answer");
        }
      }
    }
  }
  Print(ways, requests);
  ways.clear();
  (*server)->Stop();
  return Status::Ok();
}

}  // namespace
}  // namespace farleaf

int main(int argc, char** argv) {
  uint64_t requests = 20'000;
  const std::string text = argc > 1 ? argv[1] : "";
  std::from_chars(text.data(), text.data() + text.size(), requests);
  std::string directory = (std::filesystem::temp_directory_path() / "farleaf-XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) return 1;
  const farleaf::Status status = farleaf::Run(requests, directory + "/socket");
  std::filesystem::remove_all(directory);
  if (status.ok()) return 0;
  std::fprintf(stderr, "transport_bench: %s\n", status.ToString().c_str());
  return 1;
}
