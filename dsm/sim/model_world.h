// ModelWorld: memory servers and compute servers in virtual time, to learn how long things take: NICs
// and links are queues (model_network.h), threads are cores that take time for each step
// (cost_model.h). The product's own code runs on it: ModelFabric is a Fabric, ModelTransport a
// Transport. SimWorld (sim_world.h) is its counterpart that looks for what may go wrong: there delays
// are drawn to be awkward; here nothing breaks, a batch takes effect in one moment or two, and delays
// are what the cost model says.
//
// Time is free at first: verbs take effect when posted, and nothing costs anything, as over shm. That
// is for joining and loading. In timed mode (StartTiming) only threads that the world was told of
// (AddThread) may post; each runs in turns that a completion, a timer or another thread starts, and
// while it runs, the clock shows its core's own time.
//
// Invariants:
//   - the same model, seed and calls give the same run, told by trace_hash();
//   - batches of one thread to one memory server take effect and complete in the order of posting;
//   - two threads of one core never run at the same virtual time.
// Thread rule: one thread for the world and all that runs in it. It outlives its fabrics, transports
// and workers.
#pragma once

#include <atomic>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/region_layout.h"
#include "dsm/sim/cost_model.h"
#include "dsm/sim/model_network.h"
#include "dsm/transport.h"
#include "dsm/worker.h"

namespace farleaf::dsm {

class ModelWorld;

class ModelTransport final : public Transport {
 public:
  ModelTransport(ModelWorld* world, uint32_t compute_server)
      : world_(world), compute_server_(compute_server) {}

  void Post(Batch& batch) override;
  /// Takes one completion at a time, so that each is paid for when it is looked at.
  size_t Poll() override;
  void Wait(int wake_fd, uint64_t timeout_ns) override;
  uint32_t idle_turns_before_wait() const override { return 0; }

  static constexpr uint32_t kNoThread = UINT32_MAX;
  uint32_t thread = kNoThread;  ///< of the world
  uint32_t compute_server() const { return compute_server_; }

 private:
  ModelWorld* world_;
  const uint32_t compute_server_;
};

class ModelFabric final : public Fabric {
 public:
  ModelFabric(ModelWorld* world, uint32_t compute_server, std::vector<RegionInfo> regions)
      : world_(world), compute_server_(compute_server), regions_(std::move(regions)) {}

  std::string_view name() const override { return "model"; }
  std::span<const RegionInfo> regions() const override { return regions_; }
  Result<std::unique_ptr<Transport>> OpenTransport() override;
  Status Identify(const MemberIdentity&) override { return Status::Ok(); }
  /// Unimplemented: nobody dies here.
  Status CutOff(ServerId server, const MemberIdentity& member) override;

 private:
  ModelWorld* world_;
  const uint32_t compute_server_;
  const std::vector<RegionInfo> regions_;
};

class ModelWorld {
 public:
  struct Options {
    CostModel model;
    uint64_t seed = 1;
    uint64_t region_bytes = uint64_t{64} << 20;  ///< of each memory server
    uint64_t chunk_bytes = kChunkBytesDefault;
  };
  /// InvalidArgument if a region of that size cannot be laid out, ResourceExhausted without memory.
  static Result<std::unique_ptr<ModelWorld>> Create(const Options& options);
  ModelWorld(const ModelWorld&) = delete;

  const Clock& clock() const { return clock_; }
  const CostModel& model() const { return options_.model; }
  const ModelNetwork& network() const { return network_; }
  std::span<std::byte> region(ServerId server) { return regions_[server].bytes; }
  uint64_t trace_hash() const { return trace_hash_; }
  uint64_t events() const { return events_; }

  /// The fabric of compute server 0, 1, … in the order of the calls.
  std::unique_ptr<ModelFabric> NewFabric();

  /// The world runs `worker`, whose transport is of this world, in timed mode. It runs on the next
  /// core of its compute server.
  uint32_t AddThread(Worker* worker);
  /// REQUIRES: nothing runs on any thread.
  void RemoveThreads();

  void StartTiming();
  /// REQUIRES: nothing runs.
  void StopTiming();
  /// `first_turn` spawns what the thread is to run. REQUIRES: timed mode.
  void StartThread(uint32_t thread, uint64_t after_ns, std::function<void()> first_turn);
  enum class RunEnd : uint8_t { kEvents, kIdle, kStuck };
  /// Until `events` have happened (kEvents), or no spawned task runs any more (kIdle). kStuck: tasks
  /// run, and nothing will ever happen.
  RunEnd Run(uint64_t events);

  /// The thread in its turn works for so long. In free mode: nothing.
  void Charge(double ns) {
    if (running_ != nullptr) TimeOfCore() += PsOfNs(ns);
  }
  /// CPU time of all threads, in timed mode.
  uint64_t cpu_ps() const { return cpu_ps_; }
  uint64_t now_ps() const { return now_ps_; }

 private:
  friend class ModelTransport;
  enum class Kind : uint8_t { kDepart, kArrive, kEffect, kReply, kLand, kComplete, kRun };
  struct Event {
    uint64_t at_ps;
    uint64_t sequence;
    Kind kind;
    uint32_t subject;                           ///< flight; kRun: thread
    bool operator<(const Event& other) const {  // for a heap with the first on top
      return at_ps != other.at_ps ? at_ps > other.at_ps : sequence > other.sequence;
    }
  };
  struct Flight {
    Batch* batch = nullptr;
    uint32_t thread = 0;
    ModelNetwork::Way way{};
    BatchLoad load;
    Status status;
  };
  struct Thread {
    Worker* worker = nullptr;
    ModelTransport* transport = nullptr;
    uint32_t compute_server = 0;
    uint32_t core = 0;
    std::deque<uint32_t> arrived;     ///< flights, in order
    uint64_t run_at_ps = UINT64_MAX;  ///< of the event that gives it a turn
    std::function<void()> first_turn;
    bool busy = false;
    /// By memory server: when the last batch took effect, and when its reply left.
    std::vector<uint64_t> effect_ps, reply_ps;
  };
  struct Region {
    std::unique_ptr<std::byte, decltype(&std::free)> memory{nullptr, &std::free};
    std::span<std::byte> bytes;
    RegionInfo info;
  };
  class WorldClock final : public Clock {
   public:
    explicit WorldClock(const ModelWorld* world) : world_(world) {}
    uint64_t NowNs() const override;

   private:
    const ModelWorld* world_;
  };

  explicit ModelWorld(const Options& options);
  uint64_t& TimeOfCore() { return cores_free_ps_[running_->core]; }
  void Push(uint64_t at_ps, Kind kind, uint32_t subject);
  void Post(ModelTransport& transport, Batch& batch);
  void Launch(Batch& batch);
  bool Take(ModelTransport& transport);
  void Happen(const Event& event);
  void Arrive(uint32_t index);
  void RunVerbs(Flight& flight, bool reads);
  void Reply(uint32_t index);
  void RunSoon(uint32_t thread, uint64_t at_ps);
  void RunThread(uint32_t thread);

  const Options options_;
  ModelNetwork network_;
  WorldClock clock_{this};
  std::vector<Region> regions_;
  uint32_t compute_servers_ = 0;
  bool timed_ = false;
  uint64_t now_ps_ = PsOfNs(1);
  uint64_t sequence_ = 0, events_ = 0, trace_hash_ = 0, cpu_ps_ = 0;
  std::vector<Event> queue_;  // heap
  std::deque<Flight> flights_;
  std::vector<uint32_t> free_flights_;
  std::deque<Thread> threads_;
  std::vector<std::vector<uint32_t>> threads_of_;  // by compute server
  std::vector<uint64_t> cores_free_ps_;            // by compute server and core
  Thread* running_ = nullptr;
  uint64_t busy_threads_ = 0;
};

}  // namespace farleaf::dsm
