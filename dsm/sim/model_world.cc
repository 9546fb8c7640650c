#include "dsm/sim/model_world.h"

#include <algorithm>
#include <utility>

#include "dsm/base/check.h"
#include "dsm/base/random.h"
#include "dsm/shm/mapped_verbs.h"

namespace farleaf::dsm {

// ---- The fabric

void ModelTransport::Post(Batch& batch) { world_->Post(*this, batch); }

size_t ModelTransport::Poll() { return world_->Take(*this) ? 1 : 0; }

void ModelTransport::Wait(int, uint64_t timeout_ns) {
  // Only in free mode does a worker block: nothing completes later there, so a timer is next.
  FARLEAF_CHECK(!world_->timed_, "a worker blocks in timed mode");
  world_->now_ps_ += PsOfNs(static_cast<double>(timeout_ns));
}

Result<std::unique_ptr<Transport>> ModelFabric::OpenTransport() {
  return std::unique_ptr<Transport>(std::make_unique<ModelTransport>(world_, compute_server_));
}

Status ModelFabric::CutOff(ServerId server, const MemberIdentity&) {
  return Status::Unimplemented("memory server " + std::to_string(server) +
                               " of a performance model cuts nobody off");
}

// ---- The world

ModelWorld::ModelWorld(const Options& options)
    : options_(options),
      network_(options.model, Mix64(options.seed)),
      threads_of_(options.model.compute_servers),
      cores_free_ps_(options.model.compute_servers * options.model.cores) {}

Result<std::unique_ptr<ModelWorld>> ModelWorld::Create(const Options& options) {
  std::unique_ptr<ModelWorld> world(new ModelWorld(options));
  for (uint64_t i = 0; i < options.model.memory_servers; ++i) {
    const auto server = static_cast<ServerId>(i);
    auto layout = RegionLayout::For(server, options.region_bytes, options.chunk_bytes);
    if (!layout.ok()) return layout.status();
    layout->incarnation = 1;
    Region region;
    // From calloc: what is not touched costs nothing.
    region.memory.reset(static_cast<std::byte*>(std::calloc(options.region_bytes, 1)));
    if (!region.memory) {
      return Status::ResourceExhausted("no memory for a region of " +
                                       std::to_string(options.region_bytes) + " bytes");
    }
    region.bytes = {region.memory.get(), options.region_bytes};
    region.info = {server, options.region_bytes, layout->incarnation};
    FormatRegion(*layout, region.bytes);
    world->regions_.push_back(std::move(region));
  }
  return world;
}

uint64_t ModelWorld::WorldClock::NowNs() const {
  const ModelWorld& world = *world_;
  const uint64_t ps = world.running_ ? world.cores_free_ps_[world.running_->core] : world.now_ps_;
  return ps / 1'000;
}

std::unique_ptr<ModelFabric> ModelWorld::NewFabric() {
  FARLEAF_CHECK(compute_servers_ < options_.model.compute_servers, compute_servers_);
  std::vector<RegionInfo> infos;
  for (const Region& region : regions_) infos.push_back(region.info);
  return std::make_unique<ModelFabric>(this, compute_servers_++, std::move(infos));
}

uint32_t ModelWorld::AddThread(Worker* worker) {
  auto* transport = dynamic_cast<ModelTransport*>(&worker->transport());
  FARLEAF_CHECK(transport != nullptr, "a worker of another fabric");
  const auto number = static_cast<uint32_t>(threads_.size());
  Thread thread;
  thread.worker = worker;
  thread.transport = transport;
  thread.compute_server = transport->compute_server();
  auto& siblings = threads_of_[thread.compute_server];
  thread.core = static_cast<uint32_t>(thread.compute_server * options_.model.cores +
                                      siblings.size() % options_.model.cores);
  thread.effect_ps.resize(regions_.size());
  thread.reply_ps.resize(regions_.size());
  siblings.push_back(number);
  transport->thread = number;
  threads_.push_back(std::move(thread));
  return number;
}

void ModelWorld::RemoveThreads() {
  FARLEAF_CHECK(!timed_ && busy_threads_ == 0, busy_threads_);
  for (Thread& thread : threads_) thread.transport->thread = ModelTransport::kNoThread;
  threads_.clear();
  for (auto& siblings : threads_of_) siblings.clear();
}

void ModelWorld::StartTiming() {
  FARLEAF_CHECK(!timed_ && queue_.empty());
  timed_ = true;
}

void ModelWorld::StopTiming() {
  FARLEAF_CHECK(timed_ && busy_threads_ == 0, busy_threads_);
  // What is left are turns of threads with nothing to do.
  for (const Event& event : queue_) FARLEAF_CHECK(event.kind == Kind::kRun, event.at_ps);
  queue_.clear();
  for (Thread& thread : threads_) thread.run_at_ps = UINT64_MAX;
  timed_ = false;
}

void ModelWorld::StartThread(uint32_t thread, uint64_t after_ns, std::function<void()> first_turn) {
  FARLEAF_CHECK(timed_);
  threads_[thread].first_turn = std::move(first_turn);
  threads_[thread].busy = true;
  ++busy_threads_;
  RunSoon(thread, now_ps_ + PsOfNs(static_cast<double>(after_ns)));
}

void ModelWorld::Push(uint64_t at_ps, Kind kind, uint32_t subject) {
  queue_.push_back({at_ps, sequence_++, kind, subject});
  std::push_heap(queue_.begin(), queue_.end());
}

ModelWorld::RunEnd ModelWorld::Run(uint64_t events) {
  FARLEAF_CHECK(timed_);
  for (uint64_t i = 0; i < events; ++i) {
    if (busy_threads_ == 0) return RunEnd::kIdle;
    if (queue_.empty()) return RunEnd::kStuck;
    std::pop_heap(queue_.begin(), queue_.end());
    const Event event = queue_.back();
    queue_.pop_back();
    now_ps_ = event.at_ps;
    ++events_;
    trace_hash_ = Mix64(trace_hash_ ^ event.at_ps << 3 ^ static_cast<uint64_t>(event.kind) ^
                        uint64_t{event.subject} << 48);
    Happen(event);
  }
  return RunEnd::kEvents;
}

void ModelWorld::Happen(const Event& event) {
  const uint32_t subject = event.subject;
  switch (event.kind) {
    case Kind::kDepart: {
      const Flight& flight = flights_[subject];
      Push(network_.Depart(flight.way, flight.load, now_ps_), Kind::kArrive, subject);
      return;
    }
    case Kind::kArrive:
      Arrive(subject);
      return;
    case Kind::kEffect:
      RunVerbs(flights_[subject], false);
      return;
    case Kind::kReply:
      Reply(subject);
      return;
    case Kind::kLand: {
      const Flight& flight = flights_[subject];
      Push(network_.Land(flight.way, flight.load, now_ps_), Kind::kComplete, subject);
      return;
    }
    case Kind::kComplete: {
      const uint32_t thread = flights_[subject].thread;
      threads_[thread].arrived.push_back(subject);
      RunThread(thread);
      return;
    }
    case Kind::kRun:
      if (threads_[subject].run_at_ps != event.at_ps) return;  // another came first
      threads_[subject].run_at_ps = UINT64_MAX;
      RunThread(subject);
      return;
  }
}

// ---- Batches

void ModelWorld::Post(ModelTransport& transport, Batch& batch) {
  if (batch.server() >= regions_.size()) {
    batch.CompleteWith(Status::Unavailable("memory server " + std::to_string(batch.server()) +
                                           " is not in this pool"));
    return;
  }
  if (!timed_) {
    Status status = ExecuteBatch(batch.verbs(), regions_[batch.server()].bytes);
    batch.CompleteWith(status.WithContext("memory server " + std::to_string(batch.server())));
    return;
  }
  FARLEAF_CHECK(running_ != nullptr && running_->transport == &transport,
                "a thread posts outside of its turn");
  Launch(batch);
}

void ModelWorld::Launch(Batch& batch) {
  uint32_t index;
  if (free_flights_.empty()) {
    index = static_cast<uint32_t>(flights_.size());
    flights_.emplace_back();
  } else {
    index = free_flights_.back();
    free_flights_.pop_back();
  }
  const CostModel& model = options_.model;
  Flight& flight = flights_[index];
  flight.batch = &batch;
  flight.thread = running_->transport->thread;
  flight.way = network_.WayOf(running_->compute_server, batch.server());
  flight.load.Clear();
  const uint64_t slot_mask = (uint64_t{1} << model.atomic_slot_bits) - 1;
  const uint64_t device_begin = options_.region_bytes - model.device_memory_bytes;
  for (const Verb& verb : batch.verbs()) {
    const bool reads = verb.kind == VerbKind::kRead, writes = verb.kind == VerbKind::kWrite;
    flight.load.reads += reads;
    flight.load.writes += writes;
    if (!reads) flight.load.bytes_out += verb.length;
    if (!writes) flight.load.bytes_in += verb.length;
    if (!reads && !writes) {
      const bool device = verb.offset >= device_begin;
      flight.load.atomics.push_back({device ? verb.offset : verb.offset & slot_mask, device});
    }
  }
  Charge(model.post_ns + model.verb_ns * flight.load.verbs() +
         model.write_byte_ns * static_cast<double>(flight.load.bytes_out));
  Push(TimeOfCore() + network_.request_ps(), Kind::kDepart, index);
}

void ModelWorld::Arrive(uint32_t index) {
  Flight& flight = flights_[index];
  Thread& thread = threads_[flight.thread];
  uint64_t& effect_ps = thread.effect_ps[flight.batch->server()];
  effect_ps = std::max(effect_ps, network_.Arrive(flight.way, flight.load, now_ps_));
  uint64_t& reply_ps = thread.reply_ps[flight.batch->server()];
  reply_ps = std::max(reply_ps, effect_ps + (flight.load.reads > 0 ? network_.read_ps() : 0));
  if (flight.load.verbs() > flight.load.reads) Push(effect_ps, Kind::kEffect, index);
  Push(reply_ps, Kind::kReply, index);
}

void ModelWorld::RunVerbs(Flight& flight, bool reads) {
  for (const Verb& verb : flight.batch->verbs()) {
    if (!flight.status.ok()) return;
    if ((verb.kind == VerbKind::kRead) != reads) continue;
    flight.status = ExecuteVerb(verb, regions_[flight.batch->server()].bytes);
  }
}

void ModelWorld::Reply(uint32_t index) {
  Flight& flight = flights_[index];
  RunVerbs(flight, true);
  Push(network_.Reply(flight.way, flight.load, now_ps_), Kind::kLand, index);
}

bool ModelWorld::Take(ModelTransport& transport) {
  if (running_ == nullptr || running_->transport != &transport) return false;
  if (running_->arrived.empty()) return false;
  const uint32_t index = running_->arrived.front();
  running_->arrived.pop_front();
  Flight& flight = flights_[index];
  const CostModel& model = options_.model;
  Charge(model.complete_ns + model.read_byte_ns * static_cast<double>(flight.load.bytes_in));
  Batch* batch = std::exchange(flight.batch, nullptr);
  Status status = std::exchange(flight.status, Status::Ok());
  free_flights_.push_back(index);
  batch->CompleteWith(status.WithContext("memory server " + std::to_string(batch->server())));
  return true;
}

// ---- Threads

void ModelWorld::RunSoon(uint32_t index, uint64_t at_ps) {
  Thread& thread = threads_[index];
  if (thread.run_at_ps <= at_ps) return;
  thread.run_at_ps = at_ps;
  Push(at_ps, Kind::kRun, index);
}

void ModelWorld::RunThread(uint32_t index) {
  Thread& thread = threads_[index];
  uint64_t& core_ps = cores_free_ps_[thread.core];
  if (core_ps > now_ps_) {  // it, or another thread of the core, is at work until then
    RunSoon(index, core_ps);
    return;
  }
  core_ps = now_ps_;
  running_ = &thread;
  thread.worker->GoOnline();
  if (thread.first_turn) std::exchange(thread.first_turn, nullptr)();
  thread.worker->RunOnce(Worker::Idle::kReturn);
  thread.worker->GoOffline();
  running_ = nullptr;
  cpu_ps_ += core_ps - now_ps_;

  if (const bool busy = thread.worker->spawned() > 0; busy != thread.busy) {
    thread.busy = busy;
    busy_threads_ += busy ? 1 : -1;
  }
  const uint64_t due_ns = thread.worker->NextDueNs();
  if (!thread.arrived.empty() || due_ns == 0) {
    RunSoon(index, core_ps);
  } else if (due_ns != UINT64_MAX) {
    RunSoon(index, std::max(core_ps, due_ns * 1'000));
  }
  for (const uint32_t other : threads_of_[thread.compute_server]) {
    if (other != index && threads_[other].worker->has_cross_thread_work()) {
      RunSoon(other, core_ps + PsOfNs(options_.model.handover_ns));
    }
  }
}

}  // namespace farleaf::dsm
