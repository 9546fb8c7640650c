// MirroredStorage: an LSM store's storage, from whose I/Os a StoreCopy on another one is kept, as replication does from the store's own word:
// what is written to a log comes to buffers of the copy, what is synced is synced there before the store is told, and each record of the
// manifest is an edit. Some chunks of tables are lost on their way, or come with another bit.
//
// A copy that fails a call twice is left alone from then on: it counts no more.
//
// Thread rule: one thread; the workers of the store.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/base/random.h"
#include "index/lsm/event.h"
#include "index/lsm/log_record.h"
#include "index/lsm/store_copy.h"
#include "index/storage/storage.h"

namespace farleaf::test {

class MirroredStorage final : public index::storage::Storage {
 public:
  using Io = index::storage::Io;
  using IoKind = index::storage::IoKind;
  using LogKind = index::lsm::LogKind;
  using SegmentId = index::storage::SegmentId;
  using StoreCopy = index::lsm::StoreCopy;

  /// What a Sync of the recovery log waits for at the copy.
  enum class Syncs : uint8_t { kBuffers, kDevice };
  MirroredStorage(Storage* inner, uint64_t seed) : inner_(inner), random_(seed) {}

  /// All of a store that does not write, to a copy; from then on it follows. `open_logs` were never made.
  dsm::Task<Status> Fill(dsm::Worker& worker, StoreCopy& copy, index::lsm::StoreState state,
                         Syncs syncs) {
    syncs_ = syncs;
    epoch_ = state.epoch;
    for (const SegmentId id : state.recovery_log) logs_[id] = LogKind::kRecovery;
    for (const auto& [id, garbage] : state.value_log) logs_[id] = LogKind::kValues;
    Status status = co_await copy.BeginFill(worker);
    std::set<SegmentId> named;
    for (const auto& [id, kind] : logs_) named.insert(id);
    for (const auto& [place, run] : state.runs()) {
      for (const auto& each : run->tables) {
        named.insert(each.table.segments.begin(), each.table.segments.end());
      }
    }
    const auto existing = inner_->List();
    for (const SegmentId id : *existing) {
      if (!status.ok()) co_return status;
      if (!named.contains(id) || copy.Inventory().contains(id)) continue;
      status = co_await Send(worker, copy, id, To::kFill);
      ++filled;
    }
    if (!status.ok()) co_return status;
    status = co_await copy.Install(worker, std::move(state), {});
    stamps_.clear();
    proved_ns_ = 0;
    if (status.ok()) copy_ = &copy;
    co_return status;
  }
  /// A turn of what proves stamps (readable_copy.h), in the line of edits. `last`: the store's last sequence.
  template <typename Last>
  dsm::Task<Status> Stamp(dsm::Worker& worker, Last last) {
    const auto held = co_await table_lane_.Lock(worker);
    if (!copy_) co_return Status::Ok();
    while (!stamps_.empty() && stamps_.front().second <= copy_->state().flushed_through) {
      proved_ns_ = stamps_.front().first;
      stamps_.pop_front();
    }
    Status proved = copy_->Prove(proved_ns_);
    if (!proved.ok()) co_return proved;
    const Result<uint64_t> stamp = copy_->TakeStamp();
    if (stamp.ok()) stamps_.emplace_back(*stamp, last());
    co_return stamp.status();
  }
  bool follows() const { return copy_ != nullptr; }
  void Leave() { copy_ = nullptr; }
  void Abandon() {
    for (auto* lane : {&log_lane_, &table_lane_}) lane->Abandon();
  }

  dsm::Task<Status> Create(dsm::Worker& worker, SegmentId id,
                           index::storage::Making making) override {
    Status created = co_await inner_->Create(worker, id, making);
    if (!created.ok() || !copy_ || !logs_.contains(id)) co_return created;
    const auto held = co_await log_lane_.Lock(worker);
    Buffer& buffer = buffers_[id];
    if (free_.empty()) {
      buffer.bytes = std::make_unique<index::lsm::AlignedBytes>(index::storage::kSegmentBytes);
      std::memset(buffer.bytes->data(), 0x5a, index::storage::kSegmentBytes);
    } else {  // with what it held
      buffer.bytes = std::move(free_.back());
      free_.pop_back();
    }
    for (int tries = 0; tries < 2 && copy_; ++tries) {
      Status opened = co_await copy_->OpenLog(worker, logs_[id], id, buffer.bytes->span());
      if (Settled(opened, tries)) break;
    }
    co_return created;
  }
  dsm::Task<Status> Run(dsm::Worker& worker, std::span<Io> ios) override {
    Status status = co_await inner_->Run(worker, ios);
    if (!status.ok() || !copy_) co_return status;
    bool logs = false, commits = false, syncs = false;
    for (const Io& io : ios) {
      const auto log = logs_.find(io.segment);
      if (log == logs_.end() && io.kind == IoKind::kWrite) {
        co_await SendChunk(worker, io);
      } else if (log != logs_.end() && io.kind != IoKind::kRead) {
        logs = true;
        if (io.kind == IoKind::kWrite) Append(io);
        syncs |= io.kind == IoKind::kSync;
        commits |= io.kind == IoKind::kSync && log->second == LogKind::kRecovery;
      }
    }
    if (!logs) co_return status;
    const auto held = co_await log_lane_.Lock(worker);
    co_await SealFull(worker);
    if (syncs && (!commits || syncs_ == Syncs::kDevice)) co_await Sync(worker, commits);
    co_return status;
  }
  dsm::Task<Status> AppendFile(dsm::Worker& worker, std::string name, std::string bytes) override {
    const std::string record = bytes;
    Status status = co_await inner_->AppendFile(worker, name, std::move(bytes));
    if (!status.ok() || record.empty() || !name.starts_with("MANIFEST-")) co_return status;
    auto edit = index::lsm::StateEdit::Decode(AsBytes(record).subspan(12));
    FARLEAF_CHECK(edit.ok(), edit.status());
    for (const SegmentId id : edit->recovery_granted) logs_[id] = LogKind::kRecovery;
    for (const SegmentId id : edit->values_granted) logs_[id] = LogKind::kValues;
    if (!copy_) co_return status;
    const auto held = co_await table_lane_.Lock(worker);
    co_await CommitThere(worker, *edit);
    co_return status;
  }

  Status Remove(SegmentId id) override { return inner_->Remove(id); }
  Result<std::vector<SegmentId>> List() override { return inner_->List(); }
  void SetReserve(const index::storage::ReserveSizes& segments) override {
    inner_->SetReserve(segments);
  }
  dsm::Task<Status> FillReserve(dsm::Worker& worker) override {
    return inner_->FillReserve(worker);
  }
  dsm::Task<Result<std::string>> ReadFile(dsm::Worker& worker, std::string name) override {
    return inner_->ReadFile(worker, std::move(name));
  }
  dsm::Task<Status> ReplaceFile(dsm::Worker& worker, std::string name, std::string bytes) override {
    return inner_->ReplaceFile(worker, std::move(name), std::move(bytes));
  }
  Status RemoveFile(std::string_view name) override { return inner_->RemoveFile(name); }
  Result<std::vector<std::string>> ListFiles() override { return inner_->ListFiles(); }
  index::storage::StorageCounts counts() const override { return inner_->counts(); }
  Result<index::storage::StorageSpace> Space() override { return inner_->Space(); }
  std::string NameOf(SegmentId id) const override { return inner_->NameOf(id); }

  uint64_t filled = 0, edits = 0, resent = 0, damaged = 0, sealed = 0;

 private:
  struct Buffer {
    std::unique_ptr<index::lsm::AlignedBytes> bytes;
    uint32_t end = 0;  ///< of its records
  };
  enum class To : uint8_t { kFill, kTable };

  /// Whether the call is not to be made again.
  bool Settled(const Status& status, int tries) {
    if (status.ok()) return true;
    if (tries > 0) copy_ = nullptr;
    return false;
  }

  void Append(const Io& io) {
    const auto found = buffers_.find(io.segment);
    if (found == buffers_.end()) return;
    Buffer& buffer = found->second;
    const auto bytes = buffer.bytes->span();
    std::memcpy(bytes.data() + io.offset, io.bytes.data(), io.bytes.size());
    const uint32_t seed = index::lsm::SegmentSeed(epoch_, io.segment);
    while (const auto record =
               index::lsm::ParseLogRecord(seed, buffer.end, bytes.subspan(buffer.end))) {
      buffer.end += record->bytes();
    }
  }
  /// Behind a segment that has bytes there is none of its log that is not full.
  dsm::Task<void> SealFull(dsm::Worker& worker) {
    std::map<LogKind, SegmentId> last;
    for (const auto& [id, buffer] : buffers_) {
      if (buffer.end > 0) last[logs_[id]] = id;
    }
    std::vector<SegmentId> full;
    for (const auto& [id, buffer] : buffers_) {
      if (buffer.end > 0 && last[logs_[id]] != id) full.push_back(id);
    }
    for (const SegmentId id : full) {
      for (int tries = 0; tries < 2 && copy_; ++tries) {
        Status done = co_await copy_->Seal(worker, id, buffers_[id].end);
        if (Settled(done, tries)) break;
      }
      if (!copy_) co_return;
      free_.push_back(std::move(buffers_[id].bytes));
      buffers_.erase(id);
      ++sealed;
    }
  }
  dsm::Task<void> Sync(dsm::Worker& worker, bool commits) {
    for (int tries = 0; tries < 2 && copy_; ++tries) {
      index::lsm::OpenBytes bytes;
      for (const auto& [id, buffer] : buffers_) bytes[id] = buffer.end;
      const auto reach = commits ? index::lsm::SyncReach::kBoth : index::lsm::SyncReach::kValues;
      Status synced = co_await copy_->Sync(worker, reach, std::move(bytes));
      if (Settled(synced, tries)) break;
    }
  }
  dsm::Task<void> SendChunk(dsm::Worker& worker, const Io& io) {
    if (random_.OneIn(8)) co_return;  // lost
    const auto held = co_await table_lane_.Lock(worker);
    std::vector<std::byte> bytes(io.bytes.begin(), io.bytes.end());
    if (random_.OneIn(8)) {
      bytes[random_.Below(bytes.size())] ^= std::byte{1} << random_.Below(8);
    }
    if (!copy_) co_return;
    const index::lsm::SegmentChunk chunk{io.segment, io.offset, bytes};
    Status sent = co_await copy_->WriteTable(worker, chunk);
    (void)sent;  // nothing depends on it
  }
  dsm::Task<Status> Send(dsm::Worker& worker, StoreCopy& copy, SegmentId id, To to) {
    constexpr uint32_t kChunk = index::storage::kSegmentBytes / 2;
    index::lsm::AlignedBytes bytes(index::storage::kSegmentBytes);
    Io io{IoKind::kRead, id, 0, bytes.span()};
    Status status = co_await inner_->Run(worker, {&io, 1});
    for (uint32_t at = 0; at < bytes.size() && status.ok(); at += kChunk) {
      const index::lsm::SegmentChunk chunk{id, at, bytes.span().subspan(at, kChunk)};
      const bool last = at + kChunk == bytes.size();
      if (to == To::kTable) {
        status = co_await copy.WriteTable(worker, chunk);
      } else {
        status = co_await copy.WriteSegment(
            worker, chunk, last ? StoreCopy::More::kNone : StoreCopy::More::kComes);
      }
    }
    co_return status;
  }
  dsm::Task<void> CommitThere(dsm::Worker& worker, const index::lsm::StateEdit& edit) {
    int failures = 0;
    while (copy_) {
      const std::vector<SegmentId> missing = copy_->Missing(edit);
      Status status;
      for (const SegmentId id : missing) {
        if (status.ok() && copy_) status = co_await Send(worker, *copy_, id, To::kTable);
        ++resent;
      }
      if (!copy_) co_return;
      if (status.ok()) status = co_await copy_->Commit(worker, edit);
      if (!copy_) co_return;  // it left meanwhile
      if (status.ok()) break;
      if (status.code() == StatusCode::kCorruption) {
        FARLEAF_CHECK(!copy_->Missing(edit).empty(), status);
        ++damaged;
      } else if (++failures > 1) {
        copy_ = nullptr;
      }
    }
    const auto held = co_await log_lane_.Lock(worker);  // nothing is written from what goes
    for (const auto* ids : {&edit.recovery_dropped, &edit.values_dropped}) {
      for (const SegmentId id : *ids) buffers_.erase(id);
    }
    ++edits;
  }

  Storage* const inner_;
  Random random_;
  StoreCopy* copy_ = nullptr;
  Syncs syncs_ = Syncs::kDevice;
  uint64_t epoch_ = 0;
  std::map<SegmentId, LogKind> logs_;
  std::map<SegmentId, Buffer> buffers_;  // of open segments
  std::vector<std::unique_ptr<index::lsm::AlignedBytes>> free_;
  std::deque<std::pair<uint64_t, index::lsm::Sequence>> stamps_;  // not proved, and the last sequence then
  uint64_t proved_ns_ = 0;
  index::lsm::CoroutineMutex log_lane_, table_lane_;
};

}  // namespace farleaf::test
