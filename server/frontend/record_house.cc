#include "server/frontend/record_house.h"

#include "dsm/base/log.h"

namespace farleaf::server {

using dsm::Task;

WalkContext WalkOn(ServingThread& thread, dsm::FabricCounts& counts, uint64_t piece_ms) {
  return {thread.worker(), counts, piece_ms, [&thread] { return thread.stopping(); }};
}

namespace {

/// What was begun so long ago is over, or will never be: commands end at their deadlines, a batch within a minute,
/// and who is silent for a lease's time is cut off. Clocks may differ by minutes.
uint64_t AbandonedMs(const RecordHouse::Options& options) {
  constexpr uint64_t kLongMs = 10 * 60 * 1'000;
  return kLongMs + 2 * options.piece_ms;
}

}  // namespace

RecordHouse::RecordHouse(Keyspace* keyspace, Options options)
    : keyspace_(keyspace),
      options_(options),
      sweep_(&keyspace->store, std::string(1, kUserKeySpace),
             EndOfPrefix(std::string(1, kCursorSpace)), {.turn_s = options.turn_s},
             AbandonedMs(options)),
      members_(&keyspace->store, {.turn_s = options.turn_s}, AbandonedMs(options)) {}

void RecordHouse::Tick(ServingThread& thread) {
  if (keeping_) return;
  keeping_ = true;
  thread.RunAside(Keep(thread));
}

Task<void> RecordHouse::Keep(ServingThread& thread) {
  dsm::FabricCounts counts;
  const RecordStore& store = keyspace_->store;
  const WalkContext walk = WalkOn(thread, counts, options_.piece_ms);
  const uint64_t now_ns = thread.worker().clock().NowNs();
  uint64_t due_ms = keyspace_->flush_at_ms.load();
  if (due_ms != 0 && due_ms <= store.NowMs()) {
    const Status flushed = co_await DeleteAll(walk, store, kUserKeySpace);
    // What could not be done is tried again a second later; a flush that came meanwhile stays.
    if (flushed.ok()) {
      keyspace_->flush_at_ms.compare_exchange_strong(due_ms, 0);
    } else {
      FARLEAF_LOG(warn, "a flush that was due is not through: {}", flushed.ToString());
    }
  }
  // A sweep that is never to come leaves what has expired to those who meet it.
  if (options_.turn_s == 0) {
    keeping_ = false;
    co_return;
  }
  // A piece that failed is met again in a second; a server that is lost is told of by whoever needs it.
  [[maybe_unused]] const Status swept = co_await sweep_.Step(walk, now_ns);
  [[maybe_unused]] const Status members = co_await members_.Step(walk, now_ns);
  Publish(thread.worker().clock().NowNs());
  keeping_ = false;
}

void RecordHouse::Publish(uint64_t now_ns) {
  counts_.members.store(members_.counts().deleted);
  counts_.turns.store(sweep_.counts().turns);
  counts_.records.store(sweep_.counts().records);
  counts_.expired.store(sweep_.counts().deleted);
  const auto met = sweep_.TakeMet();
  if (!met) return;
  counts_.keys.store(met->keys);
  counts_.expiring.store(met->expiring);
  counts_.met_ns.store(now_ns);
}

}  // namespace farleaf::server
