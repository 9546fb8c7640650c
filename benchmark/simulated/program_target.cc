#include "benchmark/simulated/program_target.h"

#include <algorithm>
#include <utility>

#include "benchmark/simulated/program_costs.h"
#include "benchmark/ycsb/operation_loop.h"
#include "dsm/base/check.h"
#include "dsm/op_context.h"

namespace farleaf::ycsb {

namespace {

using dsm::Batch;
using dsm::GlobalAddress;
using dsm::OpContext;
using dsm::Task;
using dsm::Worker;
using Kind = ProgramVerb::Kind;
using Place = ProgramVerb::Place;

constexpr uint64_t kLineBytes = 64;

uint64_t RoundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

uint64_t LongestVerb(const VerbProgram& program) {
  uint64_t bytes = 0;
  const auto look = [&bytes](const std::vector<ProgramStep>& steps) {
    for (const ProgramStep& step : steps) {
      for (const ProgramVerb& verb : step.verbs) bytes = std::max<uint64_t>(bytes, verb.bytes);
    }
  };
  for (const auto& steps : program.steps) look(steps);
  look(program.split);
  return bytes;
}

}  // namespace

struct ProgramTarget::Running {
  Worker& worker;
  ComputeServer& compute_server;
  Operation operation{};
  // Of the operation:
  uint64_t leaf = 0, leaves = 1;  ///< the key's, and how many a scan covers from there on
  uint64_t slot_offset = 0;       ///< of the key's word in the leaf
  uint64_t slot_expected = 0;
  dsm::LocalLockTable::Turn turn{};
  bool swapped = true, locked = true;  ///< by the last round trip
  // Of the round trip:
  bool lock_handed_over = false, hand_lock_over = false, swap_only = false;
  std::vector<Batch> batches{};
  std::vector<std::byte> buffer{};
  size_t buffer_used = 0;
  const std::byte* slot_read = nullptr;  ///< where a READ puts the key's word
  uint64_t lock_old = 0, slot_old = 0, sum_old = 0, lock_free = 0;
  std::byte image[8] = {};

  std::span<std::byte> Take(uint64_t bytes) {
    FARLEAF_CHECK(buffer_used + bytes <= buffer.size(), buffer_used, bytes, buffer.size());
    buffer_used += bytes;
    return std::span(buffer).subspan(buffer_used - bytes, bytes);
  }
};

Result<ProgramTarget::Layout> ProgramTarget::LayoutFor(const VerbProgram& program,
                                                       const dsm::CostModel& model,
                                                       uint64_t records, uint64_t chunk_bytes) {
  Layout layout;
  layout.servers = model.memory_servers;
  layout.leaves = std::max<uint64_t>(records / program.leaf_entries, 1);
  layout.leaf_stride = RoundUp(RoundUp(program.leaf_bytes, 8) + 16, kLineBytes);
  const uint64_t longest_verb = RoundUp(LongestVerb(program), kLineBytes);
  layout.leaves_offset = longest_verb;
  if (program.lock_in_device) layout.device_words = model.device_memory_bytes / 8;
  if (program.lock_in_device && layout.device_words == 0) {
    return Status::InvalidArgument("program " + program.name +
                                   " has its locks in the NIC's memory: nic.device_memory_bytes of "
                                   "the model is 0");
  }
  const uint64_t leaves_each = layout.leaves / layout.servers + 1;
  layout.region_bytes = RoundUp(layout.leaves_offset + leaves_each * layout.leaf_stride +
                                    longest_verb + model.device_memory_bytes,
                                chunk_bytes) +
                        2 * chunk_bytes;
  layout.device_offset = layout.region_bytes - model.device_memory_bytes;
  return layout;
}

ProgramTarget::ProgramTarget(std::unique_ptr<dsm::ModelWorld> world, std::string model_file,
                             VerbProgram program, const Layout& layout,
                             const TargetOptions& options)
    : SimulatedTarget(std::move(world), std::move(model_file), options.seed),
      program_(std::move(program)),
      layout_(layout),
      options_(options) {
  for (uint64_t i = 0; i < this->world().model().compute_servers; ++i) {
    compute_servers_.push_back(std::make_unique<ComputeServer>());
    compute_servers_.back()->fabric = this->world().NewFabric();
  }
  // What the world has put at the regions' heads is nobody's here.
  for (uint64_t i = 0; i < layout_.servers; ++i) {
    const auto region = this->world().region(static_cast<dsm::ServerId>(i));
    std::fill(region.begin(), region.end(), std::byte{0});
  }
}

Result<std::unique_ptr<Worker>> ProgramTarget::OpenWorker(uint32_t compute_server) {
  ComputeServer& on = *compute_servers_[compute_server];
  auto transport = on.fabric->OpenTransport();
  if (!transport.ok()) return transport.status();
  return std::make_unique<Worker>(Worker::Deps{.transport = std::move(*transport),
                                               .epochs = &on.epochs,
                                               .clock = &clock(),
                                               .seed = Mix64(options_.seed + ++workers_opened_)});
}

Status ProgramTarget::Close() {
  CloseWorkers();
  return Status::Ok();
}

GlobalAddress ProgramTarget::LeafAddress(uint64_t leaf) const {
  return GlobalAddress(static_cast<dsm::ServerId>(leaf % layout_.servers),
                       layout_.leaves_offset + leaf / layout_.servers * layout_.leaf_stride);
}

GlobalAddress ProgramTarget::LockAddress(uint64_t leaf) const {
  const GlobalAddress page = LeafAddress(leaf);
  if (!program_.lock_in_device) {
    return GlobalAddress(page.server(), page.offset() + RoundUp(program_.leaf_bytes, 8));
  }
  const uint64_t word = Mix64(leaf) % layout_.device_words;
  return GlobalAddress(page.server(), layout_.device_offset + word * 8);
}

Task<void> ProgramTarget::RunOn(Worker& worker, uint32_t compute_server, OperationSource& source) {
  return Loop(worker, *compute_servers_[compute_server], source);
}

Task<void> ProgramTarget::Loop(Worker& worker, ComputeServer& compute_server,
                               OperationSource& source) {
  Running running{.worker = worker, .compute_server = compute_server};
  Operation& operation = running.operation;
  while (source.Next(&operation)) {
    if (operation.due_ns != 0) co_await WaitUntilDue(worker, source, operation.due_ns);
    if (source.Blocked(operation)) co_await WaitUntilUnblocked(worker, source, operation);
    if (!source.Begin(&operation)) break;
    const uint64_t hash = Mix64(operation.key_number);
    running.leaf = hash % layout_.leaves;
    running.leaves = 1;
    running.slot_offset = (hash >> 32) % (program_.leaf_bytes / 8) * 8;
    running.slot_expected = 0;
    if (operation.kind == OpKind::kScan) {
      // The first leaf is entered somewhere in its middle.
      running.leaves = LeavesOfScan(program_, operation.scan_length, hash);
    }
    Status status = co_await RunSteps(running, operation.kind);
    operation.status = std::move(status);
    operation.answered = false;
    operation.found = operation.kind != OpKind::kInsert;
    source.Done(operation);
  }
}

Task<Status> ProgramTarget::RunSteps(Running& running, OpKind kind) {
  const std::vector<ProgramStep>& steps = program_.steps[static_cast<size_t>(kind)];
  Random& random = running.worker.random();
  const bool splits = kind == OpKind::kInsert && program_.split_every > 0 &&
                      random.Uniform() < 1 / program_.split_every;
  bool taken = true;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (splits && i + 1 == steps.size()) {
      for (const ProgramStep& step : program_.split) {
        Status status = co_await RunStep(running, step, running.leaf);
        if (!status.ok()) co_return status;
      }
    }
    const ProgramStep& step = steps[i];
    const double chance = options_.skewed ? step.chance_skewed : step.chance;
    if (step.otherwise ? taken : chance < 1 && random.Uniform() >= chance) {
      taken = false;
      continue;
    }
    taken = true;
    const uint64_t times = step.per_leaf ? running.leaves : step.times;
    for (uint64_t n = 0; n < times; ++n) {
      const uint64_t leaf = step.per_leaf ? (running.leaf + n) % layout_.leaves : running.leaf;
      Status status = co_await RunStep(running, step, leaf);
      if (!status.ok()) co_return status;
    }
  }
  co_return Status::Ok();
}

Task<Status> ProgramTarget::RunStep(Running& running, const ProgramStep& step, uint64_t leaf) {
  const bool locks = step.Has(Kind::kLock), unlocks = step.Has(Kind::kUnlock);
  const bool swaps = step.Has(Kind::kSwap);
  const GlobalAddress lock = LockAddress(leaf);
  dsm::LocalLockTable& queue = running.compute_server.locks;
  running.lock_handed_over = running.hand_lock_over = running.swap_only = false;
  // A slot is queued for ahead of the READ that says what SWAP expects in it.
  const bool shares = step.Has(Kind::kShare), unshares = step.Has(Kind::kUnshare);
  const GlobalAddress slot(lock.server(), LeafAddress(leaf).offset() + running.slot_offset);
  if (shares && program_.lock_queue) {
    auto turn = co_await queue.Acquire(running.worker, slot, 0, running.image);
    running.turn = turn;
  }
  if (locks && program_.lock_queue) {
    auto turn = co_await queue.Acquire(running.worker, lock, 0, running.image);
    running.turn = turn;
    running.lock_handed_over = turn.lock_word != 0;
  }
  if (unlocks && program_.lock_queue && !program_.lock_owned) {
    running.hand_lock_over = running.turn.handovers < program_.lock_handovers_max &&
                             queue.ShouldHandOver(lock, running.turn);
  }
  do {
    Fill(running, step, leaf);
    Status status = co_await running.worker.RoundTrip(running.batches, *running.operation.counts);
    if (!status.ok()) co_return status;
    running.locked = !locks || running.lock_handed_over || running.lock_old == 0;
    running.swapped = !swaps || running.slot_old == running.slot_expected;
    if (!running.swapped) running.slot_expected = running.slot_old;
    if (running.slot_read != nullptr) {
      running.slot_expected = LoadLittle<uint64_t>(running.slot_read);
    }
    running.swap_only = !running.swapped;
    if (!running.locked && program_.lock_retry_ns > 0) {
      co_await running.worker.Sleep(static_cast<uint64_t>(program_.lock_retry_ns));
    }
  } while (!running.locked || !running.swapped);
  if (unlocks && program_.lock_queue) {
    if (running.hand_lock_over) {
      running.turn.lock_word = 1;
      queue.HandOver(lock, running.turn, running.image);
    } else {
      queue.Release(lock);
    }
  }
  if (unshares && program_.lock_queue) queue.Release(slot);
  co_return Status::Ok();
}

void ProgramTarget::Fill(Running& running, const ProgramStep& step, uint64_t leaf) {
  running.batches.clear();
  running.buffer_used = 0;
  running.slot_read = nullptr;
  running.lock_old = 0;
  running.slot_old = running.slot_expected;
  uint64_t bytes = 0;
  for (const ProgramVerb& verb : step.verbs) {
    bytes += verb.bytes * (verb.place == Place::kLeaves ? running.leaves : 1);
  }
  if (running.buffer.size() < bytes) running.buffer.resize(bytes);
  for (const ProgramVerb& verb : step.verbs) {
    if (running.swap_only && verb.kind != Kind::kSwap) continue;
    FillVerb(running, verb, leaf);
  }
}

void ProgramTarget::FillVerb(Running& running, const ProgramVerb& verb, uint64_t leaf) {
  const GlobalAddress lock = LockAddress(leaf);
  const GlobalAddress page = LeafAddress(leaf);
  const auto batch = [&](GlobalAddress address) -> Batch& {
    return BatchFor(running.batches, address.server());
  };
  const GlobalAddress slot(page.server(), page.offset() + running.slot_offset);
  const uint64_t sharers = page.offset() + RoundUp(program_.leaf_bytes, 8) + 8;
  // Within the page, the part that holds the key's word.
  const auto part_of = [&](GlobalAddress of, uint64_t bytes) {
    const uint64_t room =
        RoundUp(program_.leaf_bytes, 8) - std::min<uint64_t>(bytes, program_.leaf_bytes);
    return GlobalAddress(of.server(), of.offset() + std::min(running.slot_offset, room / 8 * 8));
  };
  const auto place = [&]() -> GlobalAddress {
    if (verb.place == Place::kRoot) return LeafAddress(0);
    if (verb.place == Place::kOther) {
      return LeafAddress(running.worker.random().Below(layout_.leaves));
    }
    return part_of(page, verb.bytes);
  };
  switch (verb.kind) {
    case Kind::kRead:
      if (verb.place == Place::kLeaves) {
        for (uint64_t n = 0; n < running.leaves; ++n) {
          const GlobalAddress one = LeafAddress((leaf + n) % layout_.leaves);
          batch(one).Read(one.offset(), running.Take(verb.bytes));
        }
        return;
      }
      {
        const GlobalAddress from = place();
        const auto into = running.Take(verb.bytes);
        if (verb.place == Place::kLeaf && verb.bytes <= program_.leaf_bytes) {
          running.slot_read = into.data() + (slot.offset() - from.offset());
        }
        batch(from).Read(from.offset(), into);
      }
      return;
    case Kind::kWrite: {
      // Nobody looks at what is written, and slots change by SWAP alone: so it goes to the scratch
      // bytes ahead of the leaves.
      const GlobalAddress scratch(place().server(), 0);
      batch(scratch).Write(scratch.offset(), running.Take(verb.bytes));
      return;
    }
    case Kind::kLock:
      if (!running.lock_handed_over && !program_.lock_owned)
        batch(lock).CompareAndSwap(lock.offset(), 0, 1, &running.lock_old);
      return;
    case Kind::kUnlock:
      if (!running.hand_lock_over && !program_.lock_owned)
        batch(lock).WriteWord(lock.offset(), &running.lock_free);
      return;
    case Kind::kShare:
      batch(page).FetchAdd(sharers, 1, &running.sum_old);
      return;
    case Kind::kUnshare:
      batch(page).FetchAdd(sharers, ~uint64_t{0}, &running.sum_old);
      return;
    case Kind::kSwap:
      batch(slot).CompareAndSwap(slot.offset(), running.slot_expected,
                                 running.worker.random().Next(), &running.slot_old);
      return;
    case Kind::kAdd: {
      const GlobalAddress page_of_sums = LockAddress(running.worker.random().Below(layout_.leaves));
      batch(page_of_sums).FetchAdd(page_of_sums.offset(), 0, &running.sum_old);
      return;
    }
  }
}

}  // namespace farleaf::ycsb
