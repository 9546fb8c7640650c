#include "index/lsm/follower.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "dsm/base/shared_copy.h"

namespace farleaf::index::lsm {

dsm::Task<Result<std::unique_ptr<Follower>>> Follower::Open(dsm::Worker& worker, Host host,
                                                            storage::Storage* storage,
                                                            StoreCopy::Parts copy) {
  host.options.durability = Durability::kLocal;  // of logs of its own, which it has not
  host.options.collect_values = false;
  std::unique_ptr<Follower> follower(new Follower(std::move(host), storage, std::move(copy.logs)));
  const StoreState state = copy.manifest->state();
  follower->epoch_ = state.epoch;
  const LsmStore::Deps deps{storage, follower->host_.epochs, follower->host_.wall};
  const std::vector<SegmentId> open = follower->logs_.open();
  std::set<SegmentId> open_set(open.begin(), open.end());
  auto store = co_await LsmStore::OpenFollower(worker, deps, follower->host_.options,
                                               std::move(copy.manifest), std::move(open_set));
  if (!store.ok()) co_return store.status();
  follower->store_ = std::move(*store);
  auto existing = storage->List();
  if (!existing.ok()) co_return existing.status();
  follower->TakeNames(state, *existing);
  auto background = Background::Start(follower->store_.get(), follower->host_.open_worker,
                                      Background::Work::kTables);
  if (!background.ok()) co_return background.status();
  follower->background_ = std::move(*background);
  co_return follower;
}

// Of the value log what exists is whole, or open; of the recovery log what is followed as well.
void Follower::TakeNames(const StoreState& state, const std::vector<SegmentId>& existing) {
  for (const auto& [id, garbage] : state.value_log) {
    values_.insert(id);
    if (!std::ranges::binary_search(existing, id)) unopened_[id] = LogKind::kValues;
  }
  for (const SegmentId id : state.recovery_log) {
    if (!is_open(id) && !store_->IsFollowed(id)) unopened_[id] = LogKind::kRecovery;
  }
}

Follower::~Follower() {
  background_.reset();
  if (store_) store_->Abandon();
}

dsm::Task<Status> Follower::OpenLog(dsm::Worker& worker, LogKind log, SegmentId segment,
                                    std::span<std::byte> buffer) {
  const auto granted = unopened_.find(segment);
  if (granted == unopened_.end() || granted->second != log) {
    co_return Status::InvalidArgument(storage_->NameOf(segment) +
                                      " is opened before it was granted to its log, or again");
  }
  Status opened = co_await logs_.Open(worker, log, segment, buffer);
  if (opened.ok()) unopened_.erase(segment);
  co_return opened;
}

dsm::Task<Status> Follower::Seal(dsm::Worker& worker, SegmentId segment, uint32_t used) {
  RemoveDropped();
  const std::optional<CopiedLogs::Buffer> buffer = logs_.Find(segment);
  if (!buffer) co_return Status::Ok();
  const bool commits = buffer->log == LogKind::kRecovery;
  if (commits) {
    const auto head = HeadOf(segment, buffer->bytes);
    if (!head && used > 0) {
      co_return Status::Corruption(storage_->NameOf(segment) + ": what came has no head");
    }
    Status followed;
    if (head) followed = co_await FollowUpTo(worker, head->first);
    if (!followed.ok()) co_return followed;
  }
  Status sealed = co_await logs_.Seal(worker, segment, used);
  // Of those that it has followed up to here the last one may be another segment's: then this one stays a little longer.
  if (sealed.ok() && commits) store_->AddFollowed(segment, store_->last_sequence());
  co_return sealed;
}

// The primary may be writing to a segment that is open: a part of its head is none.
std::optional<LogHead> Follower::HeadOf(SegmentId segment, std::span<const std::byte> bytes) const {
  std::array<std::byte, RoundUp(kLogHeadBytes, 8)> head;
  CopyFromShared(head.data(), bytes.data(), head.size());
  const auto record =
      ParseLogRecord(SegmentSeed(epoch_, segment), 0, std::span(head).first(kLogHeadBytes));
  return record ? ParseLogHead(*record) : std::nullopt;
}

dsm::Task<Status> Follower::FollowUpTo(dsm::Worker& worker, Sequence last_head) {
  std::vector<std::pair<Sequence, SegmentId>> heads;
  for (const SegmentId id : logs_.open()) {
    const CopiedLogs::Buffer buffer = *logs_.Find(id);
    if (buffer.log != LogKind::kRecovery) continue;
    const auto head = HeadOf(id, buffer.bytes);
    if (head) heads.emplace_back(head->first, id);
  }
  std::ranges::sort(heads);
  for (const auto& [first, id] : heads) {
    if (first > last_head) break;
    Status followed = co_await FollowSegment(worker, id);
    if (!followed.ok()) co_return followed;
  }
  co_return Status::Ok();
}

dsm::Task<Status> Follower::FollowSegment(dsm::Worker& worker, SegmentId segment) {
  uint32_t at = 0;
  for (;;) {
    const uint64_t begun_ns = host_.cpu ? host_.cpu->NowNs() : 0;
    const Result<bool> full = FollowUntilFull(segment, &at);
    if (host_.cpu) following_cpu_ns_.fetch_add(host_.cpu->NowNs() - begun_ns);
    if (!full.ok()) co_return full.status();
    if (!*full) co_return Status::Ok();
    Status rotated = co_await Rotate(worker);
    if (!rotated.ok()) co_return rotated;
  }
}

Result<bool> Follower::FollowUntilFull(SegmentId segment, uint32_t* at) {
  const std::span<const std::byte> bytes = logs_.Find(segment)->bytes;
  const uint32_t seed = SegmentSeed(epoch_, segment);
  Sequence followed = store_->last_sequence();
  while (const auto record = ParseLogRecord(seed, *at, bytes.subspan(*at))) {
    std::optional<CommitReader> commit;
    if (record->kind == LogRecordKind::kCommit) commit = CommitReader::Parse(record->payload);
    if (commit && commit->last() > followed) {
      if (commit->first() != followed + 1) {
        return Status::Corruption(storage_->NameOf(segment) + " at offset " + std::to_string(*at) +
                                  ": commit " + std::to_string(commit->first()) + " behind " +
                                  std::to_string(followed));
      }
      if (store_->TryFollow(*commit, &named_) == LsmStore::Followed::kFull) return true;
      followed = commit->last();
    }
    *at += record->bytes();
  }
  return false;
}

dsm::Task<Status> Follower::Rotate(dsm::Worker& worker) {
  Status status = co_await store_->AwaitFlushed(worker);
  if (!status.ok()) co_return status;
  RemoveDropped();
  // Tables name only values that are durable.
  status = co_await logs_.Sync(worker, SyncReach::kValues, named_);
  if (!status.ok()) co_return status;
  named_.clear();
  store_->RotateFollowed();
  co_return status;
}

dsm::Task<Status> Follower::Sync(dsm::Worker& worker, SyncReach reach, OpenBytes bytes) {
  RemoveDropped();
  Status synced = co_await logs_.Sync(worker, reach, std::move(bytes));
  co_return synced;
}

// What the primary drops of its recovery log goes here by this one's own flushes, but for what was never used.
dsm::Task<Status> Follower::Commit(dsm::Worker& worker, const StateEdit& edit) {
  StateEdit own;
  own.recovery_granted = edit.recovery_granted;
  own.values_granted = edit.values_granted;
  for (const SegmentId id : edit.recovery_dropped) {
    if (unopened_.contains(id)) own.recovery_dropped.push_back(id);
  }
  for (const SegmentId id : edit.values_dropped) {
    if (values_.contains(id)) own.values_dropped.push_back(id);
  }
  if (own.recovery_granted.empty() && own.values_granted.empty() && own.recovery_dropped.empty() &&
      own.values_dropped.empty()) {
    co_return Status::Ok();
  }
  Status committed = co_await store_->CommitOfLogs(worker, own);
  if (!committed.ok()) co_return committed;
  for (const SegmentId id : own.recovery_granted) unopened_[id] = LogKind::kRecovery;
  for (const SegmentId id : own.values_granted) unopened_[id] = LogKind::kValues;
  values_.insert(own.values_granted.begin(), own.values_granted.end());
  for (const auto* ids : {&own.recovery_dropped, &own.values_dropped}) {
    for (const SegmentId id : *ids) {
      unopened_.erase(id);
      values_.erase(id);
      logs_.Forget(id);
      (void)storage_->Remove(
          id);  // perhaps it was never made; what stays goes with the next opening
    }
  }
  co_return Status::Ok();
}

void Follower::RemoveDropped() {
  for (const SegmentId id : store_->TakeDropped()) {
    logs_.Forget(id);
    (void)storage_->Remove(id);  // what stays goes with the next opening
  }
}

dsm::Task<Status> Follower::FinishTails(dsm::Worker& worker) {
  background_.reset();
  RemoveDropped();
  Status finished = co_await logs_.Finish(worker, epoch_);
  co_return finished;
}

}  // namespace farleaf::index::lsm
