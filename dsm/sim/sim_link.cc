#include "dsm/sim/sim_link.h"

#include <algorithm>
#include <utility>

#include "dsm/sim/sim_world.h"

namespace farleaf::dsm {

SimLink::SimLink(SimWorld* world, uint32_t number, Ends ends, Hello hello,
                 const SimLinkOptions& options)
    : world_(world),
      number_(number),
      process_(ends.process),
      transport_(ends.transport),
      server_(std::move(ends.server)),
      hello_(std::move(hello)),
      options_(options),
      recovery_("memory server " + std::to_string(hello_.server), options.recovery,
                &world->clock()) {}

// ---- The compute server's side

void SimLink::Connect() {
  if (state_ != State::kDown || held_back_) return;
  recovery_.AttemptStarted();
  state_ = State::kGreeting;
  hello_ns_ = world_->Send(SimEventKind::kHello, number_, ++attempt_, hello_ns_);
}

void SimLink::Post(Batch& batch) {
  if (state_ == State::kUp) [[likely]] {
    Launch(batch);
    return;
  }
  if (recovery_.Wait(batch, connecting() || held_back_)) Connect();
}

void SimLink::Launch(Batch& batch) {
  if (flights_.empty()) progress_ns_ = world_->now_ns();
  const uint32_t index = world_->NewFlight();
  Flight& flight = world_->flight(index);
  flight.link = number_;
  flight.generation = generation_;
  flight.number = posts_++;
  flight.position = static_cast<uint32_t>(flights_.size());
  flights_.push_back(index);
  PlanFlight(flight, batch, world_->region_bytes_of(server_id()), world_->now_ns(),
             world_->network(), order_, world_->random());
  world_->Start(index);
}

void SimLink::Forget(Flight& flight) {
  const uint32_t last = flights_.back();
  flights_[flight.position] = last;
  world_->flight(last).position = flight.position;
  flights_.pop_back();
}

void SimLink::Arrived(const SimEvent& event) {
  switch (event.kind) {
    case SimEventKind::kCompletion: {
      Flight& flight = world_->flight(event.subject);
      progress_ns_ = world_->now_ns();
      Batch* batch = flight.batch;
      Status status = flight.failure.WithContext("memory server " + std::to_string(server_id()));
      Forget(flight);
      flight.batch = nullptr;
      ++completed_;
      batch->CompleteWith(std::move(status));
      return;
    }
    case SimEventKind::kWelcome:
      if (state_ == State::kGreeting && event.detail == attempt_) Welcomed();
      return;
    case SimEventKind::kReset:
      if (state_ == State::kUp && event.detail == generation_) Break("the connection was reset");
      return;
    default:
      FARLEAF_CHECK(false, "nothing that arrives at a compute server", int(event.kind));
  }
}

void SimLink::Welcomed() {
  const Answer answer = answer_;
  FARLEAF_CHECK(answer.attempt == attempt_, answer.attempt, attempt_);
  if (answer.nobody_listens) {
    AttemptFailed(Status::Unavailable("nobody listens at its address"), Server::kGone);
    return;
  }
  Status status = CheckWelcome(answer.welcome, hello_, server_->incarnation());
  if (status.ok() && !server_->Settle(answer.welcome.region.incarnation)) {
    status =
        CheckWelcome(answer.welcome, hello_, server_->incarnation());  // another link was first
  }
  if (!status.ok()) {
    LoseForGood(std::move(status));
    return;
  }
  generation_ = answer.generation;
  order_ = {};
  state_ = State::kUp;
  for (Batch* batch : recovery_.Restored()) Launch(*batch);
  EndIfRetired();
}

void SimLink::LoseForGood(Status why) {
  state_ = State::kLost;
  recovery_.LoseForGood(std::move(why));
  EndIfRetired();
}

void SimLink::AttemptFailed(Status why, Server server) {
  state_ = State::kDown;
  recovery_.AttemptFailed(std::move(why), server);
  EndIfRetired();
}

void SimLink::Retire() {
  retired_ = true;
  held_back_ = false;
  recovery_.FailWaiting(KnownServers::Removed(server_id()));
  if (state_ == State::kUp && !flights_.empty()) {
    Break("it was removed");
  } else {
    EndIfRetired();
  }
}

void SimLink::EndIfRetired() {
  if (!retired_ || recovery_.holds_batches()) return;
  state_ = State::kLost;
  transport_ = nullptr;  // what arrives from now on is for nobody
}

void SimLink::Release() {
  held_back_ = false;
  if (recovery_.holds_batches()) Connect();
}

std::vector<Batch*> SimLink::LeaveBehind(uint64_t lost_after_ns) {
  std::sort(flights_.begin(), flights_.end(), [this](uint32_t a, uint32_t b) {
    return world_->flight(a).number < world_->flight(b).number;
  });
  std::vector<Batch*> batches;
  for (const uint32_t index : std::exchange(flights_, {})) {
    Flight& flight = world_->flight(index);
    batches.push_back(flight.batch);
    flight.LeaveBatchBehind();
    flight.lost_after_ns = lost_after_ns;
    world_->FreeIfOver(index);
  }
  return batches;
}

void SimLink::Break(const std::string& reason) {
  state_ = State::kDown;
  // Some of what was sent is lost on the way; the rest arrives, unless the server hears first that
  // the connection is over.
  Random& random = world_->random();
  const uint64_t lost_after_ns =
      random.OneIn(2) ? UINT64_MAX : world_->now_ns() + world_->network().Jitter(random);
  for (Batch* batch : LeaveBehind(lost_after_ns)) recovery_.Doom(batch);
  recovery_.Broke(reason);
  Connect();
}

size_t SimLink::Poll() {
  const uint64_t now_ns = world_->now_ns();
  if (state_ == State::kUp) {
    if (!flights_.empty() && now_ns >= progress_ns_ + options_.stall_timeout_ms * kNsPerMs) {
      Break("no progress for " + std::to_string(options_.stall_timeout_ms) + " ms");
    }
  } else if (state_ == State::kGreeting) {
    if (recovery_.attempt_overdue()) {
      AttemptFailed(Status::Unavailable("it does not answer"), Server::kMaybeThere);
    }
  } else if (state_ == State::kDown && recovery_.retry_due()) {
    Connect();
  }
  return std::exchange(completed_, 0) + recovery_.TakeCompleted();
}

uint64_t SimLink::due_ns() const {
  switch (state_) {
    case State::kUp:
      return flights_.empty() ? UINT64_MAX : progress_ns_ + options_.stall_timeout_ms * kNsPerMs;
    case State::kGreeting:
      return recovery_.attempt_deadline_ns();
    case State::kDown:
      return recovery_.retry_due_ns();
    case State::kLost:
      return UINT64_MAX;
  }
  return UINT64_MAX;
}

void SimLink::Detach() {
  transport_ = nullptr;
  if (!flights_.empty()) {
    // It stopped between any two verbs, or in the middle of a WRITE; or all is on its way already, and
    // lands whenever the network and the server let it, until the server cuts the process off.
    Random& random = world_->random();
    const uint64_t stops_ns =
        world_->now_ns() + world_->network().latency_ns + world_->network().Jitter(random);
    const uint64_t lost_after_ns =
        random.OneIn(4) ? UINT64_MAX : (random.OneIn(2) ? stops_ns : world_->now_ns());
    (void)LeaveBehind(lost_after_ns);
  }
  state_ = State::kLost;
}

// ---- The memory server's side

void SimLink::TakeHello(uint32_t attempt) {
  open_generation_ = 0;  // nothing of an older connection lands from here on
  answer_ = {};
  answer_.attempt = attempt;
  SimServer& server = world_->server(hello_.server);
  if (!server.running()) {
    answer_.nobody_listens = true;
    TellClient(SimEventKind::kWelcome, attempt);
    return;
  }
  Welcome& welcome = answer_.welcome;
  welcome.region = server.identity().region;
  welcome.refusal = CheckHello(hello_, server.identity());
  if (welcome.refusal.ok()) welcome.refusal = server.fenced().Admit(hello_.member);
  if (welcome.refusal.ok() && hello_.kind == HelloKind::kCutOff) {
    world_->CutOffAt(hello_.server, hello_.target);
  } else if (welcome.refusal.ok()) {
    open_generation_ = answer_.generation = ++generations_;
  }
  TellClient(SimEventKind::kWelcome, attempt);
}

void SimLink::TellClient(SimEventKind kind, uint32_t detail) {
  told_ns_ = world_->Send(kind, number_, detail, told_ns_);
}

void SimLink::Destroy() {
  const uint32_t generation = std::exchange(open_generation_, 0);
  if (generation != 0) TellClient(SimEventKind::kReset, generation);
}

void SimLink::Drop() {
  if (open_generation_ == 0) return;
  const uint32_t generation = open_generation_;
  if (world_->random().OneIn(2)) open_generation_ = 0;
  TellClient(SimEventKind::kReset, generation);
}

}  // namespace farleaf::dsm
