// RedisPeer: Redis' protocol on one connection without a socket or threads.
//
// Thread rule: one thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/frontend/redis/connection.h"
#include "test/support/record_peer.h"

namespace farleaf::test {

class RedisPeer final : public RecordPeer, public server::redis::Environment {
 public:
  RedisPeer(dsm::Worker* worker, server::redis::Limits limits,
            std::vector<std::string> passwords = {}, index::RangeIndex* tree = nullptr)
      : RecordPeer(worker, tree), authenticator_(std::move(passwords)), protocol_(this, limits, 1) {
    Open(&protocol_);
  }
  ~RedisPeer() override { Close(); }

  // Environment.
  server::ServingThread& thread() override { return *this; }
  const server::RecordStore& store() override { return records(); }
  const server::Authenticator& authenticator() const override { return authenticator_; }
  server::redis::Counters& counters() override { return counters_; }
  uint64_t DeadlineNs() override { return UINT64_MAX; }
  void AppendInfo(std::string_view section, std::string* out) override {
    out->append("# ").append(section).append("\r\n");
  }
  std::vector<std::pair<std::string, std::string>> Settings() override {
    return {{"appendonly", "no"}, {"save", ""}};
  }
  dsm::Task<Status> FlushAll() override { return DeleteAllKeys(); }

 private:
  const server::Authenticator authenticator_;
  server::redis::Counters counters_;
  server::redis::Connection protocol_;
};

/// A request as clients send it.
inline std::string Request(const std::vector<std::string>& arguments) {
  std::string text = "*" + std::to_string(arguments.size()) + "\r\n";
  for (const std::string& argument : arguments) {
    text += "$" + std::to_string(argument.size()) + "\r\n" + argument + "\r\n";
  }
  return text;
}

}  // namespace farleaf::test
