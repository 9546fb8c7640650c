// TcpAgent: opens a memory server's region to TCP clients. A listener thread shakes hands, agent
// threads execute the batches that arrive (dsm/tcp/batch_executor.h).
//
// Invariants:
//   - connections with one nonce belong to one agent thread, so that an older one is destroyed
//     before the newer one's Welcome is sent;
//   - a connection's agent thread is the one that checks the fence for it and that destroys it when
//     its compute server is cut off (the rule of dsm/fenced_members.h);
//   - a connection holds at most 512 KiB of buffers, and its peer cannot make an agent thread wait.
// Thread rule: see RegionAgent.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "dsm/agent.h"
#include "dsm/base/clock.h"
#include "dsm/fenced_members.h"
#include "dsm/handshake_listener.h"
#include "dsm/socket.h"

namespace farleaf::dsm {

class TcpAgent final : public RegionAgent {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";  ///< HOST:PORT; port 0 lets the system choose
    std::string advertise;               ///< HOST:PORT that the endpoint names; empty: as listening
    uint32_t threads = 1;
    uint32_t connections_max = 4096;
  };
  /// `region`, its bytes and `clock` outlive the agent.
  static Result<std::unique_ptr<TcpAgent>> Start(const Options& options,
                                                 const ServerIdentity& identity,
                                                 std::span<std::byte> region, const Clock* clock);
  ~TcpAgent() override;

  const std::string& endpoint() const override { return endpoint_; }
  size_t connections() const override { return connections_.load(); }
  Status CutOff(const MemberIdentity& member) override;
  /// What the agent threads have taken so far.
  uint64_t cpu_ns() const;

 private:
  class Loop;
  TcpAgent(const Options& options, const ServerIdentity& identity, std::span<std::byte> region);
  void Accept(UniqueFd fd, const Hello& hello);

  const Options options_;
  const ServerIdentity identity_;
  std::string endpoint_;
  FencedMembers fenced_;
  std::atomic<size_t> connections_{0};
  std::vector<std::unique_ptr<Loop>> loops_;
  std::unique_ptr<HandshakeListener> listener_;  // destroyed first: it feeds the loops
};

}  // namespace farleaf::dsm
