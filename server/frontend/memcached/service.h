// memcached::Service: memcached's protocol on one thread of a server. The first thread's service also deletes
// what has expired, and runs flush_all that was asked for with a delay.
//
// Thread rule: that of its thread; the Keyspace is shared.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/frontend/memcached/connection.h"
#include "server/frontend/memcached/counters.h"
#include "server/frontend/memcached/keyspace.h"
#include "server/frontend/serving_thread.h"
#include "server/records/record_walk.h"

namespace farleaf::server::memcached {

struct Options {
  std::vector<std::string> listen;  ///< HOST:PORT; empty: memcached's protocol is not spoken there
  std::string unix_path;            ///< likewise
  std::string tree = "records";     ///< created unless it exists
  Limits limits;
  uint64_t expiry_sweep_s = 60;  ///< what a turn of the sweep takes at least
};

/// What `stats` tells of the server. All threads' counters.
struct ServerFacts {
  uint64_t connections_open = 0, connections_accepted = 0, connections_refused = 0;
  uint64_t connections_max = 0;
  uint32_t threads = 0;
  uint64_t uptime_s = 0;
  Counters counters;
};

class Service final : public ProtocolService, public Environment {
 public:
  struct Deps {
    ServingThread* thread;
    Keyspace* keyspace;  ///< both outlive the service
    Options options;
    uint64_t deadline_ms;
    bool keeps_house;  ///< the one of all threads that sweeps
    std::function<void(ServerFacts*)> gather_facts;
    Counters* counters;                  ///< of this thread; outlives the service
    const Authenticator* authenticator;  ///< likewise
  };
  explicit Service(Deps deps);

  std::unique_ptr<server::Connection> NewConnection() override;
  void Tick() override;

  // Environment.
  ServingThread& thread() override { return *deps_.thread; }
  const RecordStore& store() override { return deps_.keyspace->store; }
  const Authenticator* authenticator() const override { return deps_.authenticator; }
  Counters& counters() override { return *deps_.counters; }
  uint64_t DeadlineNs() override;
  bool AppendStats(std::string_view argument, std::string* out) override;
  dsm::Task<Status> FlushAll(int64_t delay_s) override;

 private:
  WalkContext Walk(dsm::FabricCounts* counts);
  /// One second's share of the sweep, and flush_all if it is due.
  dsm::Task<void> KeepHouse();
  void AppendGeneralStats(std::string* out);
  void AppendSettings(std::string* out);

  const Deps deps_;
  ExpirySweep sweep_;
  bool keeping_house_ = false;
};

}  // namespace farleaf::server::memcached
