// redis::Service: Redis' protocol on one thread of a server.
//
// Thread rule: that of its thread; the Keyspace is shared.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/frontend/record_house.h"
#include "server/frontend/redis/connection.h"
#include "server/frontend/server_facts.h"
#include "server/frontend/serving_thread.h"

namespace farleaf::server::redis {

struct Options {
  std::vector<std::string>
      listen;             ///< HOST:PORT; empty, and no Unix socket: Redis' protocol is not spoken
  std::string unix_path;  ///< empty: no Unix socket
  Limits limits;
};

/// What INFO tells of the server. All threads' counters.
struct Facts : ServerFacts {
  uint64_t commands = 0;
  Counters counters;
};

class Service final : public ProtocolService, public Environment {
 public:
  struct Deps {
    ServingThread* thread;
    Keyspace* keyspace;  ///< both outlive the service
    Options options;
    uint64_t deadline_ms;
    std::function<void(Facts*)> gather_facts;
    Counters* counters;                       ///< of this thread; outlives the service
    std::function<uint64_t()> connection_id;  ///< a new one, of all threads
    SlowLog* slow_log;                        ///< outlives the service
    const Authenticator* authenticator;       ///< outlives the service
  };
  explicit Service(Deps deps);

  std::unique_ptr<server::Connection> NewConnection() override;

  // Environment.
  uint64_t DeadlineNs() override;
  void AppendInfo(std::string_view section, std::string* out) override;
  std::vector<std::pair<std::string, std::string>> Settings() override;
  dsm::Task<Status> FlushAll() override;

 private:
  void AppendKeyspace(const Facts& facts, std::string* out) const;

  const Deps deps_;
};

}  // namespace farleaf::server::redis
