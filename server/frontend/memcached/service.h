// memcached::Service: memcached's protocol on one thread of a server.
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
#include "server/frontend/record_house.h"
#include "server/frontend/server_facts.h"
#include "server/frontend/serving_thread.h"

namespace farleaf::server::memcached {

struct Options {
  std::vector<std::string> listen;  ///< HOST:PORT; empty: memcached's protocol is not spoken there
  std::string unix_path;            ///< likewise
  Limits limits;
};

/// What `stats` tells of the server. All threads' counters.
struct Facts : ServerFacts {
  Counters counters;
};

class Service final : public ProtocolService, public Environment {
 public:
  struct Deps {
    ServingThread* thread;
    Keyspace* keyspace;  ///< both outlive the service
    Options options;
    uint64_t deadline_ms;
    RecordHouse* house;  ///< not null: this service ticks it
    std::function<void(Facts*)> gather_facts;
    Counters* counters;                  ///< of this thread; outlives the service
    SlowLog* slow_log;                   ///< outlives the service
    const Authenticator* authenticator;  ///< likewise
  };
  explicit Service(Deps deps);

  std::unique_ptr<server::Connection> NewConnection() override;
  void Tick() override;

  // Environment.
  uint64_t DeadlineNs() override;
  bool AppendStats(std::string_view argument, std::string* out) override;
  dsm::Task<Status> FlushAll(int64_t delay_s) override;

 private:
  void AppendGeneralStats(std::string* out);
  void AppendSettings(std::string* out);

  const Deps deps_;
};

}  // namespace farleaf::server::memcached
