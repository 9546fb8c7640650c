// SimWorld's faults.
#include <fmt/format.h>

#include "dsm/sim/sim_world.h"

namespace farleaf::dsm {

namespace {

const char* NameOf(VerbKind kind) {
  switch (kind) {
    case VerbKind::kRead:
      return "READ";
    case VerbKind::kWrite:
      return "WRITE";
    case VerbKind::kCompareAndSwap:
      return "CAS";
    case VerbKind::kFetchAdd:
      return "FETCH-ADD";
  }
  return "?";
}

}  // namespace

void SimWorld::TellPiece(const SimEvent& event, const Flight& flight) {
  const SimLink& over = link(flight.link);
  const auto tell = [&](const Verb& verb, const Flight::Piece* piece) {
    std::string line = fmt::format("process {} server {}: {} 0x{:x} +{}", over.process(),
                                   over.server_id(), NameOf(verb.kind), verb.offset, verb.length);
    if (piece && piece->groups > 1)
      line += fmt::format(" part {}/{}", piece->group + 1, piece->groups);
    if (verb.kind == VerbKind::kCompareAndSwap) {
      line += fmt::format(" 0x{:x} -> 0x{:x}", verb.operand, verb.desired);
    }
    trace_.Say(now_ns(), line);
  };
  if (event.detail == Flight::kAllPieces) {
    for (const Verb& verb : flight.verbs) tell(verb, nullptr);
  } else {
    const Flight::Piece& piece = flight.pieces[event.detail];
    tell(flight.verbs[piece.verb], &piece);
  }
}

void SimWorld::At(uint64_t at_ns, std::function<void()> function) {
  calls_.push_back(std::move(function));
  queue_.Push(std::max(at_ns, now_ns()), SimEventKind::kCall,
              static_cast<uint32_t>(calls_.size() - 1), 0);
}

void SimWorld::CutOffAt(ServerId id, const MemberIdentity& member) {
  Tell(fmt::format("server {} cuts off {}", id, member.ToString()));
  Status cut = servers_[id]->fenced().CutOff(member, [&] {
    for (const auto& one : links_) {
      if (one->server_id() == id && IsCutOffBy(one->hello().member, member)) one->Destroy();
    }
    return Status::Ok();
  });
  FARLEAF_CHECK(cut.ok(), cut);
}

void SimWorld::DropConnections(uint32_t process, ServerId server) {
  Tell(fmt::format("connections of process {} to server {} break", process, server));
  for (const auto& one : links_) {
    if (one->process() == process && one->server_id() == server) one->Drop();
  }
}

void SimWorld::Partition(uint32_t process, ServerId server) {
  Tell(fmt::format("process {} and server {} are parted", process, server));
  partitions_.insert({process, server});
  for (const auto& one : links_) {
    if (one->process() == process && one->server_id() == server) one->Partition();
  }
}

void SimWorld::Heal(uint32_t process, ServerId server) {
  Tell(fmt::format("process {} and server {} find each other again", process, server));
  partitions_.erase({process, server});
  for (size_t i = 0; i < links_.size(); ++i) {
    SimLink& one = *links_[i];
    if (one.process() != process || one.server_id() != server) continue;
    for (const SimEvent& event : one.Heal()) Happen(event);
  }
}

void SimWorld::StallServer(ServerId id) {
  Tell(fmt::format("server {} stalls", id));
  servers_[id]->Stall();
}

void SimWorld::ResumeServer(ServerId id) {
  Tell(fmt::format("server {} goes on", id));
  // The worst order there is: renewals that came meanwhile have not been executed yet.
  if (options_.lease_ms != 0 && servers_[id]->running()) servers_[id]->leases().Look();
  for (const SimEvent& event : servers_[id]->Resume()) TakeUp(event);
}

void SimWorld::StallProcess(uint32_t process, uint64_t until_ns) {
  Tell(fmt::format("process {} stalls", process));
  for (Thread& thread : threads_) {
    if (thread.process == process) thread.stalled_until_ns = until_ns;
  }
}

void SimWorld::CrashProcess(uint32_t process) {
  Tell(fmt::format("process {} crashes", process));
  if (!crashed_.insert(process).second) return;
  for (Thread& thread : threads_) {
    if (thread.process != process || thread.worker == nullptr) continue;
    busy_threads_ -= std::exchange(thread.busy, false);
    thread.transport->thread = SimTransport::kNoThread;
    thread.worker = nullptr;  // one that is on the stack returns to RunThread, and is done
    thread.transport = nullptr;
  }
  for (size_t i = 0; i < links_.size(); ++i) {
    // A transport has several links; each is let go by the first.
    if (links_[i]->process() == process && links_[i]->transport() != nullptr) {
      links_[i]->transport()->Crash();
    }
  }
}

void SimWorld::CrashServer(ServerId id) {
  Tell(fmt::format("server {} crashes", id));
  SimServer& crashed = *servers_[id];
  // What it had not taken up is lost with it.
  for (const SimEvent& event : crashed.Resume()) {
    if (event.kind == SimEventKind::kPiece) ReleaseEvent(event.subject);
  }
  crashed.Crash();
  for (const auto& one : links_) {
    if (one->server_id() == id) one->Destroy();
  }
}

void SimWorld::RestartServer(ServerId id) {
  Tell(fmt::format("server {} starts, empty", id));
  servers_[id]->Start(random_.Next() | 1);
}

}  // namespace farleaf::dsm
