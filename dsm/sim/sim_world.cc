#include "dsm/sim/sim_world.h"

#include <poll.h>

#include <algorithm>
#include <string>
#include <utility>

#include "dsm/base/check.h"

namespace farleaf::dsm {

SimWorld::SimWorld(const Options& options) : options_(options), random_(options.seed) {
  network_ = options.network ? *options.network : SimNetwork::Draw(random_);
  trace_.set_sink(options.trace);
  for (uint32_t i = 0; i < options.servers; ++i) {
    servers_.push_back(std::make_unique<SimServer>(
        SimServer::Options{options.cluster, static_cast<ServerId>(i), options.region_bytes,
                           options.chunk_bytes, options.lease_ms, &clock_,
                           [this, i](const MemberIdentity& member) {
                             CutOffAt(static_cast<ServerId>(i), member);
                             return Status::Ok();
                           }},
        1 + i));
    if (options.lease_ms != 0) LookAtLeasesLater(static_cast<ServerId>(i));
  }
}

std::unique_ptr<SimFabric> SimWorld::NewFabric() {
  std::vector<RegionInfo> regions;
  for (const auto& server : servers_) {
    if (server->running()) regions.push_back(server->identity().region);
  }
  return std::make_unique<SimFabric>(this, processes_++, std::move(regions), options_.link);
}

ServerEndpoint SimWorld::EndpointOf(ServerId server) const {
  FARLEAF_CHECK(servers_[server]->running(), server);
  const RegionInfo& region = servers_[server]->identity().region;
  return {server, SimFabric::EndpointText(server), region.region_bytes, region.incarnation};
}

SimLink* SimWorld::NewLink(SimLink::Ends ends, Hello hello, const SimLinkOptions& options) {
  const auto number = static_cast<uint32_t>(links_.size());
  const uint32_t process = ends.process;
  links_.push_back(
      std::make_unique<SimLink>(this, number, std::move(ends), std::move(hello), options));
  const ServerId server = links_.back()->server_id();
  if (partitions_.contains({process, server})) links_.back()->Partition();
  return links_.back().get();
}

// ---- Flights

uint32_t SimWorld::NewFlight() {
  if (!free_flights_.empty()) {
    const uint32_t index = free_flights_.back();
    free_flights_.pop_back();
    return index;
  }
  flights_.emplace_back();
  return static_cast<uint32_t>(flights_.size() - 1);
}

void SimWorld::Start(uint32_t index) {
  Flight& flight = flights_[index];
  flight.events_left = flight.pieces_left;
  if (flight.pieces.empty()) {
    queue_.Push(flight.whole_at_ns, SimEventKind::kPiece, index, Flight::kAllPieces);
    return;
  }
  for (uint32_t piece = 0; piece < flight.pieces.size(); ++piece) {
    queue_.Push(flight.pieces[piece].at_ns, SimEventKind::kPiece, index, piece);
  }
}

void SimWorld::ReleaseEvent(uint32_t index) {
  FARLEAF_CHECK(flights_[index].events_left > 0, index);
  --flights_[index].events_left;
  FreeIfOver(index);
}

void SimWorld::FreeIfOver(uint32_t index) {
  Flight& flight = flights_[index];
  if (flight.events_left > 0 || flight.batch != nullptr) return;
  flight.Clear();
  free_flights_.push_back(index);
}

void SimWorld::NotePost(const Batch& batch) {
  for (const Verb& verb : batch.verbs()) {
    trace_.Mix(uint64_t{batch.server()} << 56 ^ uint64_t{static_cast<uint8_t>(verb.kind)} << 48 ^
               verb.offset ^ uint64_t{verb.length} << 32);
    trace_.Mix(verb.operand ^ verb.desired);
  }
}

// ---- What happens

uint64_t SimWorld::Send(SimEventKind kind, uint32_t subject, uint32_t detail, uint64_t after_ns) {
  const uint64_t at_ns =
      std::max(after_ns, now_ns() + network_.latency_ns + network_.Jitter(random_));
  queue_.Push(at_ns, kind, subject, detail);
  return at_ns;
}

bool SimWorld::Step(uint64_t limit_ns) {
  if (queue_.empty() || queue_.first().at_ns > limit_ns) {
    if (limit_ns != UINT64_MAX) clock_.AdvanceTo(limit_ns);
    return false;
  }
  const SimEvent event = queue_.Pop();
  clock_.AdvanceTo(event.at_ns);
  ++events_;
  trace_.Mix(event.at_ns << 8 ^ static_cast<uint8_t>(event.kind));
  trace_.Mix(uint64_t{event.subject} << 32 | event.detail);
  Happen(event);
  return true;
}

void SimWorld::Happen(const SimEvent& event) {
  switch (event.kind) {
    case SimEventKind::kPiece:
    case SimEventKind::kHello:
      AtServer(event);
      return;
    case SimEventKind::kCompletion:
    case SimEventKind::kWelcome:
    case SimEventKind::kReset:
      AtClient(event);
      return;
    case SimEventKind::kRunThread:
      RunThread(event);
      return;
    case SimEventKind::kLeaseLook:
      LookAtLeases(static_cast<ServerId>(event.subject));
      return;
    case SimEventKind::kCall: {
      const auto call = std::exchange(calls_[event.subject], nullptr);
      call();
      return;
    }
  }
}

SimLink& SimWorld::LinkOf(const SimEvent& event) {
  const bool of_flight =
      event.kind == SimEventKind::kPiece || event.kind == SimEventKind::kCompletion;
  return link(of_flight ? flights_[event.subject].link : event.subject);
}

void SimWorld::AtServer(const SimEvent& event) {
  SimLink& to = LinkOf(event);
  if (to.partitioned()) {
    to.Hold(event);
    return;
  }
  TakeUp(event);
}

void SimWorld::TakeUp(const SimEvent& event) {
  SimServer& at = *servers_[LinkOf(event).server_id()];
  if (at.stalled()) {
    at.TakeUpLater(event);
    return;
  }
  if (event.kind == SimEventKind::kPiece) {
    TakeEffect(event);
  } else {
    link(event.subject).TakeHello(event.detail);
  }
}

void SimWorld::TakeEffect(const SimEvent& event) {
  Flight& flight = flights_[event.subject];
  SimLink& over = link(flight.link);
  SimServer& at = *servers_[over.server_id()];
  if (over.is_open(flight.generation) && now_ns() <= flight.lost_after_ns) {
    RunPiece(flight, event.detail, at.region());
    if (trace_.wants_text()) TellPiece(event, flight);
    if (--flight.pieces_left == 0 && flight.batch != nullptr) {
      ++flight.events_left;
      Send(SimEventKind::kCompletion, event.subject, 0);
    }
  }
  ReleaseEvent(event.subject);
}

void SimWorld::LookAtLeases(ServerId id) {
  // One that stands still does not look; that it did so is what its watch has to notice.
  if (servers_[id]->running() && !servers_[id]->stalled()) servers_[id]->leases().Look();
  LookAtLeasesLater(id);
}

void SimWorld::LookAtLeasesLater(ServerId id) {
  const uint64_t interval_ns = options_.lease_ms * kNsPerMs / LeaseWatch::kLooksPerLease;
  queue_.Push(now_ns() + interval_ns, SimEventKind::kLeaseLook, id, 0);
}

void SimWorld::AtClient(const SimEvent& event) {
  SimLink& from = LinkOf(event);
  if (from.partitioned()) {
    from.Hold(event);
    return;
  }
  SimTransport* transport = from.transport();
  if (transport == nullptr) {
    Discard(event);
    return;
  }
  transport->Arrive(event);
  if (transport->thread != SimTransport::kNoThread) Wake(transport->thread);
}

void SimWorld::Deliver(const SimEvent& event) {
  if (event.kind == SimEventKind::kCompletion) {
    // It may have been left behind since.
    if (flights_[event.subject].batch != nullptr) LinkOf(event).Arrived(event);
    ReleaseEvent(event.subject);
  } else {
    LinkOf(event).Arrived(event);
  }
}

void SimWorld::Discard(const SimEvent& event) {
  if (event.kind == SimEventKind::kCompletion) ReleaseEvent(event.subject);
}

// ---- Threads

void SimWorld::AddThread(uint32_t process, Worker* worker, ThreadRole role) {
  auto* transport = dynamic_cast<SimTransport*>(&worker->transport());
  FARLEAF_CHECK(transport != nullptr, "a worker of another fabric");
  transport->thread = static_cast<uint32_t>(threads_.size());
  threads_.push_back({.process = process, .worker = worker, .transport = transport, .role = role});
  Wake(transport->thread);
}

void SimWorld::RemoveThread(Worker* worker) {
  for (Thread& thread : threads_) {
    if (thread.worker != worker) continue;
    FARLEAF_CHECK(!thread.running);
    busy_threads_ -= std::exchange(thread.busy, false);
    thread.transport->thread = SimTransport::kNoThread;
    thread.worker = nullptr;
    thread.transport = nullptr;
  }
}

void SimWorld::Wake(uint32_t index) {
  Thread& thread = threads_[index];
  const uint64_t at_ns =
      std::max(thread.stalled_until_ns, now_ns() + 1 + random_.Below(kTurnNsMax));
  if (thread.run_at_ns <= at_ns) return;
  thread.run_at_ns = at_ns;
  queue_.Push(at_ns, SimEventKind::kRunThread, index, kWoken);
}

void SimWorld::WakeThreadsOf(uint32_t process) {
  for (uint32_t index = 0; index < threads_.size(); ++index) {
    if (threads_[index].process == process && threads_[index].worker != nullptr) Wake(index);
  }
}

void SimWorld::RunThread(const SimEvent& event) {
  Thread& thread = threads_[event.subject];
  if (event.detail == kTimer) std::erase(thread.timers_ns, event.at_ns);
  if (thread.worker == nullptr) return;
  if (thread.running) {  // in a call that blocks: the end of its turn looks whether another is due
    if (event.detail == kWoken && event.at_ns == thread.run_at_ns) thread.run_at_ns = UINT64_MAX;
    return;
  }
  if (event.detail == kWoken && event.at_ns != thread.run_at_ns) return;  // another came first
  if (now_ns() < thread.stalled_until_ns) {
    thread.run_at_ns = UINT64_MAX;
    Wake(event.subject);
    return;
  }
  if (event.detail == kWoken) thread.run_at_ns = UINT64_MAX;
  Worker& worker = *thread.worker;
  thread.running = true;
  worker.GoOnline();
  worker.RunOnce(Worker::Idle::kReturn);
  worker.GoOffline();
  thread.running = false;
  if (thread.worker == nullptr) return;  // it crashed in a call that blocks
  SetBusy(thread);
  Reschedule(event.subject);
  for (uint32_t other = 0; other < threads_.size(); ++other) {
    const Thread& sibling = threads_[other];
    if (sibling.process == thread.process && sibling.worker != nullptr &&
        sibling.worker->has_cross_thread_work()) {
      Wake(other);
    }
  }
}

void SimWorld::Reschedule(uint32_t index) {
  Thread& thread = threads_[index];
  const uint64_t due_ns = std::min(thread.worker->NextDueNs(), thread.transport->due_ns());
  if (due_ns <= now_ns() || thread.transport->has_arrivals()) {
    Wake(index);
  } else if (due_ns != UINT64_MAX) {
    for (const uint64_t timer_ns : thread.timers_ns) {
      if (timer_ns <= due_ns) return;
    }
    thread.timers_ns.push_back(due_ns);
    queue_.Push(due_ns, SimEventKind::kRunThread, index, kTimer);
  }
}

void SimWorld::SetBusy(Thread& thread) {
  const bool busy = thread.role == ThreadRole::kWorks && thread.worker->spawned() > 0;
  busy_threads_ += busy;
  busy_threads_ -= std::exchange(thread.busy, busy);
}

SimWorld::RunEnd SimWorld::RunWhileBusy(uint64_t deadline_ns) {
  FARLEAF_CHECK(options_.lease_ms == 0 || deadline_ns != UINT64_MAX, "leases need a deadline");
  for (uint32_t index = 0; index < threads_.size(); ++index) {
    if (threads_[index].worker == nullptr) continue;
    SetBusy(threads_[index]);
    Wake(index);
  }
  while (busy_threads_ > 0) {
    if (Step(deadline_ns)) continue;
    return deadline_ns == UINT64_MAX ? RunEnd::kStuck : RunEnd::kDeadline;
  }
  return RunEnd::kIdle;
}

void SimWorld::Block(SimTransport& transport, int wake_fd, uint64_t timeout_ns) {
  const uint64_t end_ns = std::min(now_ns() + timeout_ns, transport.due_ns());
  while (now_ns() < end_ns && !transport.has_arrivals()) {
    if (!Step(end_ns)) return;
    pollfd woken{wake_fd, POLLIN, 0};
    if (busy_threads_ > 0 && ::poll(&woken, 1, 0) > 0) return;
  }
}

void SimWorld::AwaitLinks(SimTransport& transport) {
  while (transport.is_connecting()) {
    if (!transport.has_arrivals()) Step(transport.due_ns());
    transport.Poll();
  }
}

}  // namespace farleaf::dsm
