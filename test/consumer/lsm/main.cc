// An LSM store inside the application's own process: batches, snapshots, iterators, range deletes, expiry.
#include <chrono>
#include <filesystem>
#include <iostream>
#include <random>

#include "dsm/null_transport.h"
#include "index/lsm/background.h"
#include "index/lsm/snapshot.h"
#include "index/lsm/store.h"
#include "index/storage/file_storage.h"

using namespace farleaf;
using index::lsm::Change;
using index::lsm::ChangeKind;
using index::lsm::LsmStore;

/// By which entries expire. The application may let time pass, to see it.
class WallClock final : public Clock {
 public:
  uint64_t NowNs() const override {
    const auto since_1970 = std::chrono::system_clock::now().time_since_epoch() + passed_;
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(since_1970).count());
  }
  uint64_t NowMs() const { return NowNs() / kNsPerMs; }
  void LetPass(std::chrono::hours hours) { passed_ += hours; }

 private:
  std::chrono::hours passed_{0};
};

void Expect(bool right, const char* what) {
  std::cout << (right ? "right: " : "WRONG: ") << what << std::endl;
  if (!right) std::_Exit(1);
}

void Use(dsm::Worker& worker, LsmStore& store, WallClock& wall) {
  dsm::FabricCounts counts;
  dsm::OpContext op{worker, counts};

  // A batch: all of it or nothing. One of its keys has an hour to live.
  const std::vector<Change> batch = {{.kind = ChangeKind::kPut, .key = "apple", .value = "red"},
                                     {.kind = ChangeKind::kPut, .key = "banana", .value = "yellow"},
                                     {.kind = ChangeKind::kPut,
                                      .key = "cherry",
                                      .value = "dark",
                                      .expires_ms = wall.NowMs() + 3'600'000}};
  Expect(worker.Run(store.Write(op, batch)).ok(), "a batch is written");

  // A snapshot stays as it is, whatever is changed.
  index::lsm::Snapshot snapshot = store.TakeSnapshot();
  Expect(worker.Run(store.DeleteRange(op, "a", "c")).ok(), "apple and banana are deleted");
  std::string value;
  auto found = worker.Run(store.Get(op, "apple", &value));
  Expect(found.ok() && !*found, "apple is gone");
  found = worker.Run(store.GetAt(op, snapshot, "apple", &value));
  Expect(found.ok() && *found && value == "red", "the snapshot has it");
  index::lsm::SnapshotIterator iterator(&store, snapshot);
  std::string keys;
  for (;;) {
    const auto another = worker.Run(iterator.Next(op));
    if (!another.ok() || !*another) break;
    keys += iterator.row().key + " ";
  }
  Expect(keys == "apple banana cherry ", "so has an iterator on it");

  // A read-modify-write keeps the expiry, unless it says another one.
  const auto expiry = worker.Run(store.ExpiryOf(op, "cherry"));
  Expect(expiry.ok() && *expiry == batch[2].expires_ms, "cherry expires in an hour");
  const auto modified = worker.Run(store.ModifyEntry(
      op, "cherry",
      [](const std::optional<index::lsm::CurrentEntry>& current, index::lsm::NewEntry* next) {
        if (!current) return index::ModifyAction::kKeep;
        next->value = std::string(current->value) + " red";
        next->expires_ms = current->expires_ms + 3'600'000;
        return index::ModifyAction::kWrite;
      },
      index::CurrentValue::kRead));
  Expect(modified.ok() && modified->existed, "it gets an hour more, and another value");
  wall.LetPass(std::chrono::hours(1));
  found = worker.Run(store.Get(op, "cherry", &value));
  Expect(found.ok() && *found && value == "dark red", "an hour later it is there");
  wall.LetPass(std::chrono::hours(1));
  found = worker.Run(store.Get(op, "cherry", &value));
  Expect(found.ok() && !*found, "another hour later it is not");
}

int main() {
  const std::string directory = "consumer-store";
  std::filesystem::remove_all(directory);
  auto storage = index::storage::FileStorage::Open({.directory = directory});
  if (!storage.ok()) return 1;
  const MonotonicClock clock;
  WallClock wall;
  dsm::EpochDomain epochs;
  uint64_t workers = 0;
  const auto open_worker = [&]() -> Result<std::unique_ptr<dsm::Worker>> {
    return std::make_unique<dsm::Worker>(dsm::Worker::Deps{std::make_unique<dsm::NullTransport>(),
                                                           &epochs, &clock, ++workers, workers});
  };
  std::unique_ptr<dsm::Worker> worker = std::move(*open_worker());  // of this thread
  const LsmStore::Deps deps{storage->get(), &epochs, &wall, std::random_device()()};
  for (int times = 0; times < 2; ++times) {
    auto store = worker->Run(LsmStore::Open(*worker, deps, {}, LsmStore::IfMissing::kCreate));
    if (!store.ok()) return 1;
    {
      auto background = index::lsm::Background::Start(store->get(), open_worker);
      if (!background.ok()) return 1;
      Use(*worker, **store, wall);
    }
    if (!worker->Run((*store)->Close(*worker)).ok()) return 1;
  }
  return 0;
}
