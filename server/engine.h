// Engine: what keeps a compute server's trees, and all that it needs to run: a pool of memory servers (pool_engine.h), or an
// LSM store on this machine's disk (lsm/lsm_engine.h).
//
// Thread rule: one thread, but for fenced, Health and AppendMetrics.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dsm/base/status.h"
#include "server/frontend/tree_host.h"
#include "server/metrics/metrics_text.h"

namespace farleaf::server {

enum class EngineKind : uint8_t {
  kBlink,  ///< trees in the memory of a pool
  kLsm,    ///< trees in one store on disk
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual TreeHost& host() = 0;
  enum class Watched : uint8_t { kNo, kYes };
  /// Starts what works beside clients, who are being served by now. `watched`: somebody may ask for metrics.
  virtual Status StartBeside(Watched /*watched*/) { return Status::Ok(); }
  virtual void StopBeside() {}

  /// Clients of the native protocol are served at these URLs by now.
  virtual Status Serves(const std::vector<std::string>& /*urls*/) { return Status::Ok(); }

  /// Fenced, once nothing in this process's memory is true any more: another engine has to take its place.
  virtual Status fenced() const { return Status::Ok(); }
  /// Ok if clients are served as they should be; otherwise why not. From any thread.
  virtual Status Health() const = 0;
  /// Beside those of the host. From any thread.
  virtual void AppendMetrics(MetricsText*) const {}
  /// One line, for the log: what is served from where.
  virtual std::string Describe() const = 0;

  /// Asked now and then: whether somebody waits for the end, so that what only makes the next start faster is left out.
  using Hurried = std::function<bool()>;
  /// The end is near: others take over what they can, while clients are still served here.
  virtual void Leave(const Hurried& /*hurried*/) {}
  /// Leaves all in order, and logs how that went. The host is gone then. REQUIRES: nothing runs on it.
  virtual Status Close(const Hurried& hurried) = 0;
};

}  // namespace farleaf::server
