// ServingThread and ProtocolService: what a thread of a server and the protocols that it serves know of
// each other. The thread knows connections and services, not protocols; a service makes the connections of
// its protocol and runs what they ask for on the thread's worker.
//
// Thread rule: all of it on one thread.
#pragma once

#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <memory>
#include <string_view>

#include "dsm/op_context.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "server/frontend/connection.h"
#include "server/frontend/operation_stats.h"

namespace farleaf::server {

/// A request in execution; linked while it runs, so that a stop can cut its deadline.
struct Running
    : boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
  explicit Running(dsm::OpContext* context) : op(context) {}
  dsm::OpContext* op;
};

class ServingThread {
 public:
  virtual ~ServingThread() = default;

  dsm::Worker& worker() const { return *worker_; }
  /// New requests are to be refused.
  bool stopping() const { return stopping_; }
  /// New connections are to be refused.
  virtual bool full() const = 0;
  /// When the bytes that are being parsed were received.
  uint64_t arrival_ns() const { return arrival_ns_; }

  /// Runs `task` for the connection, which outlives it. Its last act is a call of Served.
  virtual void Serve(Connection& connection, dsm::Task<void> task) = 0;
  virtual void Served(Connection& connection) = 0;
  /// What the connection has to send goes out at the end of this turn.
  virtual void Flush(Connection& connection) = 0;
  /// Runs `task` beside the connections; the thread ends behind it.
  virtual void RunAside(dsm::Task<void> task) = 0;
  /// From now on `running` hears of a stop.
  virtual void Link(Running& running) = 0;
  virtual void Record(OperationRecord record) = 0;
  /// Where the connection's peer is.
  virtual std::string_view PeerName(const Connection& /*connection*/) const { return {}; }

 protected:
  dsm::Worker* worker_ = nullptr;
  bool stopping_ = false;
  uint64_t arrival_ns_ = 0;
};

class ProtocolService {
 public:
  virtual ~ProtocolService() = default;

  virtual std::unique_ptr<Connection> NewConnection() = 0;
  /// Called about once a second, until the thread stops.
  virtual void Tick() {}
};

}  // namespace farleaf::server
