// A copy of a store on a disk that crashes at any I/O, while it is filled, follows and is promoted; and stores whose roles change: a copy
// becomes the primary, and the primary a copy. A copy that was installed is a store with a prefix of the operations and all that were
// acknowledged while it counted; one that was not is none; and what Inventory claims has the primary's bytes.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "index/lsm/log_reader.h"
#include "index/lsm/named_segments.h"
#include "index/lsm/store.h"
#include "index/lsm/store_copy.h"
#include "index/lsm/table_check.h"
#include "index/storage/sim_storage.h"
#include "test/support/interleaved_workers.h"
#include "test/support/mirrored_storage.h"
#include "test/support/prefix_model.h"
#include "test/support/test_scale.h"
#include "test/support/tiny_store.h"

namespace farleaf::index::lsm {
namespace {

using dsm::Worker;
using storage::SimStorage;
using test::InterleavedWorkers;
using test::KeyOf;
using test::MirroredStorage;
using test::PrefixModel;
using test::ValueOf;

constexpr uint64_t kNumbers = uint64_t{1} << 20;

class CopyLives {
 public:
  explicit CopyLives(uint64_t seed) : random_(seed) {}

  void Run(int lives) {
    for (int life = 0; life < lives && !::testing::Test::HasFailure(); ++life) {
      SCOPED_TRACE("life " + std::to_string(life));
      Live();
    }
  }
  uint64_t acknowledged = 0, promoted = 0, crashed_following = 0, crashed_filling = 0;
  uint64_t left_alone = 0, claimed = 0, kept = 0, resumed = 0, sent = 0, edits = 0, resent = 0,
           damaged = 0, sealed = 0;

 private:
  static constexpr size_t kClient = 0;  // there is one
  static constexpr uint64_t kKeys = 60;

  void Live() {
    workers_ = std::make_unique<InterleavedWorkers>(
        InterleavedWorkers::Options{.seed = random_.Next(), .workers = 3});
    primary_disk_ = NewDisk(std::move(primary_));
    copy_disk_ = NewDisk(std::move(copied_));
    mirror_ = std::make_unique<MirroredStorage>(primary_disk_.get(), random_.Next());
    promotes_ = random_.OneIn(2);
    syncs_ = promotes_ && random_.OneIn(2) ? MirroredStorage::Syncs::kBuffers
                                           : MirroredStorage::Syncs::kDevice;
    installed_ = false;
    if (!promotes_) copy_disk_->StopAfter(1 + random_.Below(random_.OneIn(3) ? 60 : 900));
    if (random_.OneIn(3)) copy_disk_->FailIo(1 + random_.Below(200));
    if (random_.OneIn(4)) copy_disk_->SetSegmentsMax(6 + random_.Below(30));
    Spawned(OpenAndFill((*workers_)[0]));
    if (!::testing::Test::HasFailure() && store_ && !copy_disk_->stopped()) Serve();
    if (!::testing::Test::HasFailure() && promotes_ && mirror_->follows()) {
      Spawned(Promote((*workers_)[0]));
    }
    End();
  }

  std::unique_ptr<SimStorage> NewDisk(storage::SimImage image) {
    return std::make_unique<SimStorage>(
        storage::SimStorageOptions{.seed = random_.Next(), .clock = &workers_->clock()},
        std::move(image));
  }
  /// Until it has ended, or the copy's disk has stopped.
  void Spawned(dsm::Task<void> task) {
    Worker& worker = (*workers_)[0];
    worker.Spawn(std::move(task));
    const auto end = workers_->RunWhile([&] {
      return worker.spawned() > 0 && !copy_disk_->stopped() && !::testing::Test::HasFailure();
    });
    ASSERT_EQ(end, InterleavedWorkers::RunEnd::kDone) << "nothing goes on";
  }

  dsm::Task<void> OpenAndFill(Worker& worker) {
    LsmOptions options = test::TinyStore();
    options.durability = Durability::kSynced;
    options.compression = static_cast<Compression>(random_.Below(3));
    const LsmStore::Deps deps{mirror_.get(), &workers_->epochs(), &workers_->clock(), 1};
    auto opened = co_await LsmStore::Open(worker, deps, options, LsmStore::IfMissing::kCreate);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (!opened.ok()) co_return;
    store_ = std::move(*opened);
    co_await CheckContent(worker, *store_, model_.durable, "the primary");
    auto copy = co_await StoreCopy::Open(worker, copy_disk_.get());
    if (!copy.ok()) {
      EXPECT_EQ(copy.status().code(), StatusCode::kIoError) << copy.status();
      co_return;
    }
    copy_ = std::move(*copy);
    copy_->NoteFilledEvery(1 + random_.Below(4));
    if (was_filling_) resumed += copy_->Inventory().size();
    co_await CheckClaims(worker);
    kept += copy_->Inventory().size();
    StoreState state = co_await store_->State(worker);
    for (int tries = 0; tries < 2 && !installed_; ++tries) {
      StoreState same = state;
      Status filled = co_await mirror_->Fill(worker, *copy_, std::move(same), syncs_);
      const bool full = filled.code() == StatusCode::kResourceExhausted;
      EXPECT_TRUE(filled.ok() || full || filled.code() == StatusCode::kIoError) << filled;
      if (full) copy_disk_->SetSegmentsMax(0);
      installed_ = filled.ok();
      if (!installed_) continue;
      counts_ = true;
      acknowledged_there_ = model_.durable;
    }
    sent += mirror_->filled;
  }

  /// What Inventory says is whole has the bytes that the primary's has, as far as these are of any use.
  dsm::Task<void> CheckClaims(Worker& worker) {
    const StoreState state = co_await store_->State(worker);
    const auto existing = primary_disk_->List();
    AlignedBytes ours(storage::kSegmentBytes), theirs(storage::kSegmentBytes);
    std::map<SegmentId, uint32_t> tables;
    for (const auto& [place, run] : state.runs()) {
      for (const auto& each : run->tables) {
        for (size_t i = 0; i < each.table.segments.size(); ++i) {
          tables[each.table.segments[i]] = TableBytesIn(each.table, i);
        }
      }
    }
    for (const SegmentId id : copy_->Inventory()) {
      if (!std::ranges::binary_search(*existing, id)) continue;
      if (!tables.contains(id) && !state.value_log.contains(id)) continue;
      storage::Io io{storage::IoKind::kRead, id, 0, ours.span()};
      Status read = co_await primary_disk_->Run(worker, {&io, 1});
      io.bytes = theirs.span();
      if (read.ok()) read = co_await copy_disk_->Run(worker, {&io, 1});
      if (copy_disk_->stopped() || read.code() == StatusCode::kIoError) co_return;
      EXPECT_TRUE(read.ok()) << read;
      uint32_t bytes = tables.contains(id) ? tables[id] : 0;
      if (bytes == 0) {
        const uint32_t seed = SegmentSeed(state.epoch, id);
        while (const auto record = ParseLogRecord(seed, bytes, ours.span().subspan(bytes))) {
          bytes += record->bytes();
        }
      }
      EXPECT_TRUE(read.ok() && std::memcmp(ours.data(), theirs.data(), bytes) == 0)
          << "segment " << Number(id) << " is claimed, and differs within " << bytes << " bytes";
      ++claimed;
    }
  }

  /// A prefix of the operations, no shorter than `least`; the others never were.
  dsm::Task<void> CheckContent(Worker& worker, LsmStore& store, size_t least, std::string_view of) {
    std::vector<KeyValue> rows;
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    const ScanRange all{.start = {}};
    Status scanned = co_await store.Scan(op, all, &rows);
    EXPECT_TRUE(scanned.ok()) << scanned;
    const PrefixModel::Content there = PrefixModel::ContentOf(kClient, rows);
    EXPECT_EQ(there.size(), rows.size()) << of << ": there are keys that nobody wrote";
    const std::optional<size_t> most = model_.MostThatMake(there, least);
    EXPECT_TRUE(most) << of << ": of " << model_.operations.size() << " operations, of which "
                      << least << " were acknowledged, what is there is no prefix";
    if (!most) co_return;
    model_.operations.resize(*most);
    model_.durable = *most;
  }

  void Serve() {
    Worker& behind = (*workers_)[1];
    behind.Spawn(store_->RunLogs(behind));
    behind.Spawn(store_->RunFlushes(behind));
    behind.Spawn(store_->RunCollection(behind));
    Worker& merger = (*workers_)[2];
    merger.Spawn(store_->RunCompactions(merger));
    store_->CompactEagerly(random_.OneIn(2));
    big_ = random_.OneIn(2);
    Spawned(Write((*workers_)[0], 20 + random_.Below(200)));
  }

  dsm::Task<void> Write(Worker& worker, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (counts_ && !mirror_->follows()) {  // it failed, and counts no more from here on
        counts_ = false;
        ++left_alone;
      }
      const size_t bytes = random_.OneIn(2) ? 30 : random_.Below(big_ ? 100'000 : 1000);
      const uint64_t number = random_.Below(kKeys);
      std::optional<std::string> value;
      if (!random_.OneIn(5)) value = ValueOf(model_.operations.size(), bytes);
      model_.operations.push_back({.changes = {{number, value}}});
      const std::string key = KeyOf(kClient, number);
      dsm::FabricCounts counts;
      OpContext op{worker, counts};
      Status status;
      if (value) {
        status = co_await store_->BlindPut(op, key, *value);
      } else {
        auto deleted = co_await store_->Delete(op, key);
        status = deleted.status();
      }
      EXPECT_TRUE(status.ok()) << status;
      model_.durable = model_.operations.size();
      if (mirror_->follows()) acknowledged_there_ = model_.durable;
      ++acknowledged;
      if (random_.OneIn(10)) store_->FlushSoon();
      if (random_.OneIn(8)) co_await worker.Sleep(random_.Below(5 * kNsPerMs));
    }
  }

  dsm::Task<void> Promote(Worker& worker) {
    mirror_->Leave();  // what the primary does is of no effect here any more
    // What was under way has ended.
    co_await worker.Sleep(kNsPerSecond);
    for (int tries = 0; tries < 2; ++tries) {
      Status finished = co_await copy_->FinishTails(worker);
      if (finished.ok()) {
        numbers_ = copy_->state().segments_end + kNumbers;
        finished = co_await copy_->ReserveNumbers(worker, kNumbers);
      }
      if (finished.ok()) {
        ++promoted;
        was_promoted_ = true;
        co_return;
      }
      EXPECT_EQ(finished.code(), StatusCode::kIoError) << finished;
    }
  }

  void End() {
    copied_ = copy_disk_->Crash();
    primary_ = primary_disk_->Crash();
    edits += mirror_->edits;
    resent += mirror_->resent;
    damaged += mirror_->damaged;
    sealed += mirror_->sealed;
    workers_->Abandon();
    if (store_) store_->Abandon();
    mirror_->Abandon();
    was_filling_ = copy_ && copy_->phase() == StoreCopy::Phase::kFilling;
    store_ = nullptr;
    copy_ = nullptr;
    mirror_ = nullptr;
    if (::testing::Test::HasFailure()) return;
    CheckCopy();
    if (was_promoted_) {
      std::swap(primary_, copied_);
      if (random_.OneIn(4)) copied_ = {};  // a new machine
    } else if (random_.OneIn(6)) {
      copied_ = {};
    }
    was_promoted_ = false;
    counts_ = false;
    workers_ = nullptr;
  }

  /// Opens what the crash has left, on a disk of its own.
  void CheckCopy() {
    workers_ = std::make_unique<InterleavedWorkers>(
        InterleavedWorkers::Options{.seed = random_.Next(), .workers = 1});
    storage::SimImage image = copied_;
    copy_disk_ = NewDisk(std::move(image));
    const bool lost_buffers = syncs_ == MirroredStorage::Syncs::kBuffers && !was_promoted_;
    if (installed_ && !lost_buffers) {
      crashed_following += !promotes_;
      Spawned(OpenCopy((*workers_)[0]));
    } else if (was_filling_) {
      ++crashed_filling;
      Spawned(OpenHalf((*workers_)[0]));
    }
    workers_->Abandon();
    if (store_) store_->Abandon();
    store_ = nullptr;
  }
  dsm::Task<void> OpenCopy(Worker& worker) {
    const LsmStore::Deps deps{copy_disk_.get(), &workers_->epochs(), &workers_->clock(), 1};
    const LsmOptions options = test::TinyStore();
    auto opened = co_await LsmStore::Open(worker, deps, options, LsmStore::IfMissing::kFail);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (!opened.ok()) co_return;
    store_ = std::move(*opened);
    const PrefixModel of_primary = model_;
    co_await CheckContent(worker, *store_, acknowledged_there_,
                          was_promoted_ ? "a promoted copy" : "a copy");
    if (!was_promoted_) model_ = of_primary;  // which goes on with what it has
    const StoreState state = co_await store_->State(worker);
    const auto existing = copy_disk_->List();
    const auto unnamed = FindUnnamed(state, copy_disk_.get(), *existing);
    EXPECT_TRUE(unnamed.ok() && unnamed->empty()) << "segments that nothing names";
    if (was_promoted_) {
      EXPECT_GE(state.segments_end, numbers_);
    }
  }
  /// Between BeginFill and Install it is no store, whatever it was before.
  dsm::Task<void> OpenHalf(Worker& worker) {
    const LsmStore::Deps deps{copy_disk_.get(), &workers_->epochs(), &workers_->clock(), 1};
    const LsmOptions options = test::TinyStore();
    auto opened = co_await LsmStore::Open(worker, deps, options, LsmStore::IfMissing::kCreate);
    EXPECT_FALSE(opened.ok()) << "half a copy is taken for a store";
    if (opened.ok()) store_ = std::move(*opened);
  }

  Random random_;
  std::unique_ptr<InterleavedWorkers> workers_;
  std::unique_ptr<SimStorage> primary_disk_, copy_disk_;
  std::unique_ptr<MirroredStorage> mirror_;
  std::unique_ptr<LsmStore> store_;
  std::unique_ptr<StoreCopy> copy_;
  storage::SimImage primary_, copied_;
  MirroredStorage::Syncs syncs_ = MirroredStorage::Syncs::kDevice;
  bool promotes_ = false, installed_ = false, was_filling_ = false, was_promoted_ = false,
       counts_ = false, big_ = false;
  uint64_t numbers_ = 0;
  PrefixModel model_;              // of what the primary has done, and acknowledged
  size_t acknowledged_there_ = 0;  // operations, while the copy counted
};

TEST(LsmCopyCrashTest, ACopyIsAPrefixWithAllThatWasAcknowledgedOrNoStore) {
  const uint64_t seeds = test::Amount{5, 25, 1500};
  std::array<uint64_t, 13> sums{};
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    CopyLives lives(seed);
    lives.Run(8);
    const std::array<uint64_t, 13> of_this{lives.acknowledged,
                                           lives.promoted,
                                           lives.crashed_following,
                                           lives.crashed_filling,
                                           lives.left_alone,
                                           lives.claimed,
                                           lives.kept,
                                           lives.resumed,
                                           lives.sent,
                                           lives.edits,
                                           lives.resent,
                                           lives.damaged,
                                           lives.sealed};
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += of_this[i];
    if (HasFailure()) break;
  }
  std::printf(
      "%lu seeds: %lu acknowledged, %lu promotions, crashes: %lu following, %lu filling; %lu left "
      "alone; %lu claims compared, %lu segments kept, %lu of them by a filling that was cut off, "
      "%lu "
      "sent; %lu edits, %lu segments resent, %lu damaged; %lu sealed\n",
      seeds, sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7], sums[8],
      sums[9], sums[10], sums[11], sums[12]);
  for (const uint64_t sum : sums) EXPECT_GT(sum, 0u);
}

}  // namespace
}  // namespace farleaf::index::lsm
