// NativeService: the native protocol on one thread: a coroutine for each request, as many at once as their
// connections have sent, answered in the order in which they end.
//
// Thread rule: that of its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "dsm/base/clock.h"
#include "server/frontend/at_once.h"
#include "server/frontend/authenticator.h"
#include "server/frontend/execute.h"
#include "server/frontend/native_connection.h"
#include "server/frontend/serving_thread.h"
#include "server/frontend/slow_log.h"

namespace farleaf::server {

class NativeService final : public ProtocolService, public NativeConnection::Runner {
 public:
  struct Options {
    NativeConnection::Limits connection;
    uint32_t connections_max;
    uint64_t deadline_ms_default;
    uint64_t deadline_ms_max;
    uint64_t instance;
  };
  struct Deps {
    ServingThread* thread;
    TreeHost* host;
    const Clock* clock;
    /// Text of the server's counters, for a client that asks.
    std::function<std::string()> stats_text;
    SlowLog* slow_log;                   ///< outlives the service
    const Clock* wall_clock;             ///< likewise
    const Authenticator* authenticator;  ///< outlives the service
  };
  NativeService(Deps deps, Options options) : deps_(std::move(deps)), options_(options) {}

  std::unique_ptr<Connection> NewConnection() override {
    return std::make_unique<NativeConnection>(this, options_.connection);
  }

  // NativeConnection::Runner.
  protocol::ServerHello Hello() override;
  bool Admits(std::string_view password) const override {
    return deps_.authenticator->Accepts(password);
  }
  uint32_t view() override { return deps_.host->view(); }
  void StartRequest(NativeConnection& connection, InputBlockRef block, protocol::Request request,
                    NativeConnection::Token token) override;
  void StartRequests(NativeConnection& connection, const InputBlockRef& block,
                     std::span<NativeConnection::Taken> taken) override;
  /// Where the frames of its coroutines are.
  dsm::FramePool* frame_pool() const { return deps_.thread->worker().frame_pool(); }

 private:
  class Answerer;
  class Puts;
  /// Answers gets of one tree, from the first on, that need not wait. Returns how many.
  size_t AnswerGets(NativeConnection& connection, std::span<const NativeConnection::Taken> gets);
  /// Has what it will look at be fetched meanwhile.
  void ExpectRequest(const protocol::Request& request);
  /// Does puts of one tree, from the first on, that need not wait. Returns how many.
  size_t AnswerPuts(NativeConnection& connection, std::span<const NativeConnection::Taken> puts);
  /// Of requests that have ended alike, and at once; `record.counts` are those of all of them, and then none.
  void NoteAnswered(const NativeConnection& connection,
                    std::span<const NativeConnection::Taken> answered, OperationRecord& record,
                    uint64_t now_ns);
  dsm::Task<void> RunRequest(NativeConnection& connection, InputBlockRef block,
                             protocol::Request request, NativeConnection::Token token);
  void NoteSlow(const NativeConnection& connection, const protocol::Request& request,
                const OperationRecord& record);
  HostedTree FindTree(uint32_t id);

  const Deps deps_;
  const Options options_;
  std::unordered_map<uint32_t, HostedTree> trees_;  // those found so far
  std::vector<std::string_view> keys_;              // room that is used again
  AtOnce puts_together_;
};

}  // namespace farleaf::server
