#include "server/member_recovery.h"

#include <chrono>
#include <span>
#include <utility>

#include "dsm/base/log.h"
#include "index/blink/recover_member.h"
#include "server/frontend/upkeep.h"

namespace farleaf::server {

namespace {

dsm::Task<Status> ReadMembersAndFences(dsm::OpContext& op,
                                       std::span<const dsm::RegionLayout> layouts,
                                       std::vector<uint64_t>& members,
                                       std::vector<std::vector<uint64_t>>& fences) {
  std::vector<dsm::Batch> batches;
  for (const dsm::RegionLayout& layout : layouts) {
    fences.emplace_back(dsm::kMembersMax);
    dsm::Batch& batch = batches.emplace_back(layout.server);
    batch.Read(dsm::kFencesOffset, std::as_writable_bytes(std::span(fences.back())));
    if (layout.server == dsm::kCatalogServer) {
      batch.Read(dsm::kMembersOffset, std::as_writable_bytes(std::span(members)));
    }
  }
  Status status = co_await op.worker.RoundTrip(batches, op.counts);
  co_return status;
}

}  // namespace

MemberRecovery::MemberRecovery(dsm::Pool* pool, TreeHost* host, Options options,
                               std::unique_ptr<dsm::Worker> worker)
    : pool_(pool), host_(host), options_(std::move(options)), worker_(std::move(worker)) {}

Result<std::unique_ptr<MemberRecovery>> MemberRecovery::Start(dsm::Pool* pool, TreeHost* host,
                                                              Options options) {
  auto worker = pool->OpenWorker();
  if (!worker.ok()) return worker.status();
  std::unique_ptr<MemberRecovery> recovery(
      new MemberRecovery(pool, host, std::move(options), std::move(*worker)));
  recovery->thread_ = std::thread([self = recovery.get()] { self->Run(); });
  return recovery;
}

MemberRecovery::~MemberRecovery() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool MemberRecovery::stopping() {
  std::lock_guard lock(mutex_);
  return stop_;
}

void MemberRecovery::Run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::milliseconds(options_.look_ms),
                        [this] { return stop_; });
      if (stop_) break;
    }
    Look();
    dsm::OpContext op = UpkeepOp();
    // What cannot be done yet is done at the next look.
    [[maybe_unused]] Status kept = worker_->Run(host_->Upkeep(op));
  }
  // What is left in the end keeps the pool from being left, and is told then.
  dsm::OpContext op = UpkeepOp();
  [[maybe_unused]] Status kept = worker_->Run(KeepUpToTheEnd(*host_, op));
}

void MemberRecovery::Look() {
  const auto members = CutOffEverywhere();
  if (!members.ok()) return;  // a memory server does not answer: later
  const uint64_t now_ns = pool_->clock().NowNs();
  for (const dsm::MemberIdentity& member : *members) {
    auto& [incarnation, since_ns] = seen_[member.id];
    if (incarnation != member.incarnation) {
      incarnation = member.incarnation;
      since_ns = now_ns;
    }
    if (now_ns - since_ns < options_.after_ms * kNsPerMs) continue;
    Recover(member);
    since_ns = pool_->clock().NowNs();  // again, if it failed, but not at once
  }
}

dsm::OpContext MemberRecovery::UpkeepOp() {
  return {*worker_, counts_, pool_->clock().NowNs() + kLastUpkeepNs};
}

Result<std::vector<dsm::MemberIdentity>> MemberRecovery::CutOffEverywhere() {
  std::vector<uint64_t> words(dsm::kMembersMax);
  std::vector<std::vector<uint64_t>> fences;
  dsm::OpContext op{*worker_, counts_};
  FARLEAF_RETURN_IF_ERROR(worker_->Run(ReadMembersAndFences(op, pool_->layouts(), words, fences)));
  std::vector<dsm::MemberIdentity> members;
  for (uint32_t id = 1; id < dsm::kMembersMax; ++id) {
    const auto word = dsm::MemberWord::Decode(words[id]);
    bool everywhere = word.live;
    for (const auto& of_server : fences) everywhere &= of_server[id] == word.incarnation;
    if (everywhere) members.push_back({static_cast<dsm::MemberId>(id), word.incarnation});
  }
  return members;
}

void MemberRecovery::Recover(const dsm::MemberIdentity& member) {
  index::RecoverMemberOptions options;
  options.tree = options_.tree;
  options.cancelled = [this] { return stopping(); };
  dsm::OpContext op{*worker_, counts_};
  const auto recovered = worker_->Run(index::RecoverMember(op, *pool_, member, std::move(options)));
  if (!recovered.ok()) {
    FARLEAF_LOG(warn, "{} is not recovered yet: {}", member.ToString(),
                recovered.status().ToString());
  } else if (recovered->was_member) {
    std::string text;
    for (const auto& [name, count] : recovered->Counts()) {
      text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(count);
    }
    FARLEAF_LOG(info, "{} is recovered: {}", member.ToString(), text);
  }
}

}  // namespace farleaf::server
