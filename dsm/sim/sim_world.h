// SimWorld: memory servers, compute servers and the network between them, simulated in one thread, in
// virtual time. One seed decides everything that dsm/transport.h leaves open: when each verb, each
// cache line of a READ and each word of a WRITE takes effect, how long messages and the compute
// servers' turns take. The same seed and the same calls give the same run, told by trace().hash().
//
// A simulated process has a SimFabric (NewFabric). What it runs on its Workers is run by the world,
// which is told of them with AddThread: RunWhileBusy gives each a turn (Worker::RunOnce) when something
// has arrived for it or a timer of it is due, and moves the clock when nobody can run.
//
// Faults (the second half of the public part) happen at once; At lets them happen later.
//
// Thread rule: one thread for the world and all that runs in it. It outlives its fabrics, transports
// and workers.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/random.h"
#include "dsm/directory.h"
#include "dsm/sim/event_queue.h"
#include "dsm/sim/flight.h"
#include "dsm/sim/sim_fabric.h"
#include "dsm/sim/sim_link.h"
#include "dsm/sim/sim_server.h"
#include "dsm/sim/trace.h"
#include "dsm/worker.h"

namespace farleaf::dsm {

class SimWorld {
 public:
  struct Options {
    uint64_t seed = 1;
    std::string cluster = "simulated";
    uint32_t servers = 2;
    uint64_t region_bytes = uint64_t{8} << 20;  ///< of each server
    uint64_t chunk_bytes = kChunkBytesMin;
    /// Of the servers, which cut off whoever is silent for so long; 0: they never do. Otherwise something
    /// always happens, so that no run is ever stuck: RunWhileBusy needs a deadline.
    uint32_t lease_ms = 0;
    std::optional<SimNetwork> network;  ///< drawn from the seed if it is not given
    SimLinkOptions link;
    SimTrace::Sink trace;  ///< of readable lines
  };
  explicit SimWorld(const Options& options);
  SimWorld(const SimWorld&) = delete;

  const Clock& clock() const { return clock_; }
  uint64_t now_ns() const { return clock_.NowNs(); }
  Random& random() { return random_; }
  const SimTrace& trace() const { return trace_; }
  uint64_t events() const { return events_; }
  /// A line of the trace; it does not count for the hash.
  void Say(const std::string& line) { Tell(line); }

  /// The fabric of a new process. It is made with the memory servers that run just now.
  std::unique_ptr<SimFabric> NewFabric();
  /// What a directory would say of a memory server, for Fabric::Add. REQUIRES: it runs.
  ServerEndpoint EndpointOf(ServerId server) const;
  uint32_t servers() const { return options_.servers; }
  std::span<std::byte> region_bytes(ServerId server) { return servers_[server]->region(); }

  /// Whether RunWhileBusy waits for the thread's tasks.
  enum class ThreadRole : uint8_t { kWorks, kBackground };
  /// The world runs `worker`, of a process of this world, from now on. REQUIRES: removed before it is
  /// destroyed.
  void AddThread(uint32_t process, Worker* worker, ThreadRole role = ThreadRole::kWorks);
  void RemoveThread(Worker* worker);
  enum class RunEnd : uint8_t { kIdle, kDeadline, kStuck };
  /// Until no task that was spawned on a thread runs any more (kIdle), or `deadline_ns` on the clock
  /// is reached. kStuck: tasks run, and nothing will ever happen.
  RunEnd RunWhileBusy(uint64_t deadline_ns = UINT64_MAX);

  // ---- Faults
  void At(uint64_t at_ns, std::function<void()> function);
  /// The connections of `process` to `server` break.
  void DropConnections(uint32_t process, ServerId server);
  /// Nothing passes between the two, until Heal.
  void Partition(uint32_t process, ServerId server);
  void Heal(uint32_t process, ServerId server);
  /// The server takes nothing up, until Resume.
  void StallServer(ServerId server);
  void ResumeServer(ServerId server);
  /// The process's threads get no turn until `until_ns`.
  void StallProcess(uint32_t process, uint64_t until_ns);
  /// The process is gone: its threads never run again, nothing completes to it, and what it has in
  /// flight lands wholly, in part (some words of a WRITE) or not at all, perhaps late, but not after a
  /// memory server has cut it off. What belongs to it is destroyed later, behind Pool::Abandon and
  /// Worker::Abandon; REQUIRES that then none of its threads is on the stack (in a call that blocks).
  void CrashProcess(uint32_t process);
  bool has_crashed(uint32_t process) const { return crashed_.contains(process); }
  /// The server and its memory are gone.
  void CrashServer(ServerId server);
  /// An empty server of another incarnation takes its place. A fabric learns of it by Fabric::Add.
  void RestartServer(ServerId server);
  bool is_running(ServerId server) const { return servers_[server]->running(); }

  // ---- For the parts of the world
  const std::string& cluster() const { return options_.cluster; }
  const SimNetwork& network() const { return network_; }
  SimServer& server(ServerId id) { return *servers_[id]; }
  uint64_t region_bytes_of(ServerId) const { return options_.region_bytes; }
  SimLink* NewLink(SimLink::Ends ends, Hello hello, const SimLinkOptions& options);
  uint32_t NewFlight();
  Flight& flight(uint32_t index) { return flights_[index]; }
  /// After its batch was taken from it.
  void FreeIfOver(uint32_t flight);
  /// Lets the pieces of a planned flight happen.
  void Start(uint32_t flight);
  /// A message, to whichever side its kind says, that arrives not before `after_ns`. Returns when.
  uint64_t Send(SimEventKind kind, uint32_t subject, uint32_t detail, uint64_t after_ns = 0);
  /// REQUIRES: the server runs.
  void CutOffAt(ServerId server, const MemberIdentity& member);
  void NotePost(const Batch& batch);
  /// An arrival is taken in by its link; or nobody will.
  void Deliver(const SimEvent& event);
  void Discard(const SimEvent& event);
  /// Lets the world go on until `transport` has something to poll, `wake_fd` is readable or the
  /// time is over.
  void Block(SimTransport& transport, int wake_fd, uint64_t timeout_ns);
  /// Until no link of `transport` is connecting.
  void AwaitLinks(SimTransport& transport);
  /// There is something to learn for its transports.
  void WakeThreadsOf(uint32_t process);

 private:
  struct Thread {
    uint32_t process;
    Worker* worker;  ///< null: removed
    SimTransport* transport;
    uint64_t run_at_ns = UINT64_MAX;  ///< of the event that gives it a turn
    std::vector<uint64_t> timers_ns;  ///< of events for its timers
    uint64_t stalled_until_ns = 0;
    bool running = false;
    bool busy = false;
    ThreadRole role = ThreadRole::kWorks;
  };
  enum RunReason : uint32_t { kWoken, kTimer };
  static constexpr uint64_t kTurnNsMax = 400;

  class WorldClock final : public Clock {
   public:
    uint64_t NowNs() const override { return now_ns_.load(std::memory_order_relaxed); }
    void AdvanceTo(uint64_t ns) {
      if (ns > NowNs()) now_ns_.store(ns, std::memory_order_relaxed);
    }

   private:
    std::atomic<uint64_t> now_ns_{1};
  };

  /// The next event, if it is due by `limit_ns`; else only the clock moves. False: it is not.
  bool Step(uint64_t limit_ns);
  void Happen(const SimEvent& event);
  void AtServer(const SimEvent& event);
  void TakeUp(const SimEvent& event);
  void TakeEffect(const SimEvent& event);
  void AtClient(const SimEvent& event);
  void LookAtLeases(ServerId server);
  void LookAtLeasesLater(ServerId server);
  void Wake(uint32_t thread);
  void RunThread(const SimEvent& event);
  void Reschedule(uint32_t thread);
  void SetBusy(Thread& thread);
  void ReleaseEvent(uint32_t flight);
  SimLink& link(uint32_t index) { return *links_[index]; }
  SimLink& LinkOf(const SimEvent& event);
  void TellPiece(const SimEvent& event, const Flight& flight);
  void Tell(const std::string& line) { trace_.Say(now_ns(), line); }

  const Options options_;
  WorldClock clock_;
  Random random_;
  SimNetwork network_;
  SimTrace trace_;
  EventQueue queue_;
  uint64_t events_ = 0;
  std::vector<std::unique_ptr<SimServer>> servers_;
  std::vector<std::unique_ptr<SimLink>> links_;
  std::deque<Flight> flights_;
  std::vector<uint32_t> free_flights_;
  std::deque<Thread> threads_;
  uint64_t busy_threads_ = 0;
  std::vector<std::function<void()>> calls_;
  uint32_t processes_ = 0;
  std::set<std::pair<uint32_t, ServerId>> partitions_;  // process and server that are parted
  std::set<uint32_t> crashed_;                          // processes
};

}  // namespace farleaf::dsm
