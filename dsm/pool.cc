#include "dsm/pool.h"

#include <string>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/base/log.h"
#include "dsm/base/random.h"
#include "dsm/op_context.h"

namespace farleaf::dsm {

namespace {

/// Passes over the member table while others take the free words first.
constexpr int kMemberPassesMax = 16;

/// The headers of all regions, in one round trip.
Task<Status> ReadHeaders(Worker& worker, std::span<const RegionInfo> regions,
                         std::vector<RegionHeader>* headers) {
  headers->resize(regions.size());
  std::vector<Batch> batches;
  for (size_t i = 0; i < regions.size(); ++i) {
    batches.emplace_back(regions[i].server);
    batches.back().Read(0, std::as_writable_bytes(std::span(&(*headers)[i], 1)));
  }
  FabricCounts counts;
  Status status = co_await worker.RoundTrip(batches, counts);
  co_return status;
}

Status CheckRegion(const RegionInfo& info, const RegionLayout& layout) {
  const std::string name = "region of memory server " + std::to_string(info.server);
  if (layout.server != info.server) {
    return Status::InvalidArgument(name + " says that it belongs to memory server " +
                                   std::to_string(layout.server));
  }
  if (info.incarnation != 0 && layout.incarnation != info.incarnation) {
    return Status::Unavailable(name + " has incarnation " + std::to_string(layout.incarnation) +
                               ", its server announced " + std::to_string(info.incarnation) +
                               ": the server was restarted and its memory lost");
  }
  if (info.region_bytes != 0 && layout.region_bytes != info.region_bytes) {
    return Status::Corruption(name + " has " + std::to_string(layout.region_bytes) +
                              " bytes by its header, " + std::to_string(info.region_bytes) +
                              " by the handshake");
  }
  return Status::Ok();
}

/// Compares the regions with those that the pool was made of; those that are new to it are entered
/// if `role` may write.
Task<Status> CheckRegionWords(OpContext& op, std::span<const RegionLayout> layouts,
                              PoolOptions::Role role) {
  std::vector<uint64_t> words(layouts.size());
  Batch read(kCatalogServer);
  read.Read(kRegionWordsOffset, std::as_writable_bytes(std::span(words)));
  Status status = co_await op.worker.RoundTrip(read, op.counts);
  if (!status.ok()) co_return status;
  for (size_t i = 0; i < layouts.size(); ++i) {
    const uint64_t seen = layouts[i].incarnation;
    if (words[i] == 0 && role == PoolOptions::Role::kMember) {
      Batch enter(kCatalogServer);
      enter.CompareAndSwap(kRegionWordsOffset + i * 8, 0, seen, &words[i]);
      status = co_await op.worker.RoundTrip(enter, op.counts);
      if (!status.ok()) co_return status;
    }
    if (words[i] == 0 || words[i] == seen) continue;
    const std::string name = "memory server " + std::to_string(i);
    co_return Status::Unavailable(name + " lost: it has incarnation " + std::to_string(seen) +
                                  ", the pool was made with " + std::to_string(words[i]) +
                                  ": it was restarted, and what it held is gone; restart all " +
                                  "memory servers for an empty pool");
  }
  co_return status;
}

/// Draws a ticket and reads the member table, in one round trip.
Task<Status> ReadMembers(OpContext& op, uint64_t* ticket, std::vector<uint64_t>* words) {
  words->resize(kMembersMax);
  Batch batch(kCatalogServer);
  batch.FetchAdd(kMembersOffset, 1, ticket);
  batch.Read(kMembersOffset, std::as_writable_bytes(std::span(*words)));
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  co_return status;
}

Task<Result<MemberIdentity>> TakeId(OpContext& op) {
  std::vector<uint64_t> words;
  for (int pass = 0; pass < kMemberPassesMax; ++pass) {
    uint64_t ticket = 0;
    Status read = co_await ReadMembers(op, &ticket, &words);
    if (!read.ok()) co_return read;
    bool any_free = false;
    for (uint64_t i = 0; i < kMembersMax - 1; ++i) {
      const uint64_t id = 1 + (ticket + i) % (kMembersMax - 1);
      const MemberWord member = MemberWord::Decode(words[id]);
      if (member.live) continue;
      any_free = true;
      const MemberWord joined{true, member.incarnation + 1};
      uint64_t old = 0;
      Batch batch(kCatalogServer);
      batch.CompareAndSwap(kMembersOffset + id * 8, words[id], joined.Encode(), &old);
      Status swapped = co_await op.worker.RoundTrip(batch, op.counts);
      if (!swapped.ok()) co_return swapped;
      if (old != words[id]) continue;
      co_return MemberIdentity{static_cast<MemberId>(id), joined.incarnation};
    }
    if (!any_free) break;
  }
  co_return Status::ResourceExhausted("all " + std::to_string(kMembersMax - 1) +
                                      " compute server ids of this pool are taken; stop a compute "
                                      "server that is no longer needed");
}

Task<Status> GiveIdBack(OpContext& op, MemberIdentity self) {
  const MemberWord live{true, self.incarnation};
  const MemberWord left{false, self.incarnation};
  uint64_t old = 0;
  Batch batch(kCatalogServer);
  batch.CompareAndSwap(kMembersOffset + self.id * 8u, live.Encode(), left.Encode(), &old);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  if (old != live.Encode()) {
    co_return Status::Fenced(self.ToString() + " was removed from the pool by another");
  }
  co_return status;
}

}  // namespace

Pool::Pool(std::unique_ptr<Fabric> fabric, PoolOptions options, const Clock* clock)
    : fabric_(std::move(fabric)), options_(options), clock_(clock) {
  FARLEAF_CHECK(fabric_ && clock_);
}

Pool::~Pool() {
  const bool told = leave_refused_;
  if (Status left = Leave(); !left.ok() && !(told && leave_refused_)) {
    FARLEAF_LOG(warn, "{} left the pool in disorder: {}", self_.ToString(), left.ToString());
  }
}

Result<std::unique_ptr<Pool>> Pool::Join(std::unique_ptr<Fabric> fabric, PoolOptions options,
                                         const Clock* clock) {
  std::unique_ptr<Pool> pool(new Pool(std::move(fabric), options, clock));
  auto worker = pool->OpenWorker();
  if (!worker.ok()) return worker.status();
  std::vector<RegionLayout> layouts;
  FARLEAF_RETURN_IF_ERROR(pool->ReadLayouts(**worker, &layouts));
  FabricCounts counts;
  OpContext op{**worker, counts};
  FARLEAF_RETURN_IF_ERROR((*worker)->Run(CheckRegionWords(op, layouts, options.role)));
  if (options.role == PoolOptions::Role::kMember) {
    FARLEAF_RETURN_IF_ERROR(pool->TakeMemberId(**worker));
    if (Status watched = pool->BeginLeases(layouts); !watched.ok()) {
      (void)(*worker)->Run(GiveIdBack(op, std::exchange(pool->self_, {})));
      return watched;
    }
    for (const RegionLayout& layout : layouts) {
      pool->redo_slots_.emplace_back(pool->self_, RedoAreaSlots(layout));
    }
  }
  pool->allocator_ =
      std::make_unique<Allocator>(pool->self_, std::move(layouts), options.allocator);
  return pool;
}

Status Pool::ReadLayouts(Worker& worker, std::vector<RegionLayout>* layouts) {
  const auto regions = fabric_->regions();
  for (size_t i = 0; i < regions.size() || i == 0; ++i) {
    if (i >= regions.size() || regions[i].server != i) {
      return Status::Unavailable("memory server " + std::to_string(i) + " is missing" +
                                 (i == kCatalogServer ? "; it holds the catalog" : ""));
    }
  }
  if (regions.size() > kMemoryServersMax) {
    return Status::InvalidArgument("the pool has " + std::to_string(regions.size()) +
                                   " memory servers, allowed are 1 to " +
                                   std::to_string(kMemoryServersMax));
  }
  std::vector<RegionHeader> headers;
  FARLEAF_RETURN_IF_ERROR(worker.Run(ReadHeaders(worker, regions, &headers)));
  for (size_t i = 0; i < regions.size(); ++i) {
    auto layout = RegionLayout::Parse(std::as_bytes(std::span(&headers[i], 1)));
    if (!layout.ok()) {
      return layout.status().WithContext("memory server " + std::to_string(regions[i].server));
    }
    FARLEAF_RETURN_IF_ERROR(CheckRegion(regions[i], *layout));
    layouts->push_back(*layout);
    if (layout->chunk_bytes != layouts->front().chunk_bytes) {
      return Status::InvalidArgument(
          "memory server " + std::to_string(i) + " has chunks of " +
          std::to_string(layout->chunk_bytes) + " bytes, memory server 0 of " +
          std::to_string(layouts->front().chunk_bytes) + ": start all with one chunk size");
    }
  }
  return Status::Ok();
}

Status Pool::TakeMemberId(Worker& worker) {
  FabricCounts counts;
  OpContext op{worker, counts};
  auto identity = worker.Run(TakeId(op));
  if (!identity.ok()) return identity.status();
  if (Status known = fabric_->Identify(*identity); !known.ok()) {
    // Nobody else gives the id back. If that fails too, it is found dead like any other.
    (void)worker.Run(GiveIdBack(op, *identity));
    return known;
  }
  self_ = *identity;
  return Status::Ok();
}

Status Pool::BeginLeases(std::span<const RegionLayout> layouts) {
  auto leases = std::make_unique<LeaseRenewer>(self_, layouts);
  if (!leases->wanted()) return Status::Ok();
  // By a transport of this compute server, not by the anonymous one that joined.
  auto worker = OpenWorker();
  if (!worker.ok()) return worker.status();
  FabricCounts counts;
  OpContext op{**worker, counts};
  if (Status begun = (*worker)->Run(leases->Begin(op)); !begun.ok()) {
    (void)(*worker)->Run(leases->End(op));
    return begun;
  }
  leases_ = std::move(leases);
  if (options_.renewal == PoolOptions::Renewal::kThread) {
    renewal_ = std::make_unique<RenewalThread>(leases_.get(), std::move(*worker));
  }
  return Status::Ok();
}

Status Pool::EndLeases(OpContext& op) {
  renewal_.reset();
  if (!leases_) return Status::Ok();
  return op.worker.Run(leases_->End(op));
}

Task<void> Pool::RenewLeases(Worker& worker) {
  if (leases_) co_await leases_->RenewUntilStopped(worker);
}

void Pool::StopRenewing() {
  if (leases_) leases_->Stop();
}

Result<std::unique_ptr<Worker>> Pool::OpenWorker() {
  auto transport = fabric_->OpenTransport();
  if (!transport.ok()) return transport.status();
  const uint64_t number = workers_opened_.fetch_add(1);
  return std::make_unique<Worker>(Worker::Deps{.transport = std::move(*transport),
                                               .epochs = &epochs_,
                                               .clock = clock_,
                                               .seed = Mix64(options_.seed ^ number << 32),
                                               .number = number + 1});
}

void Pool::Abandon() {
  left_ = true;
  locks_.Abandon();
}

// A member whose pages could not all be returned keeps its id: the id is then found dead by a scan,
// which returns the rest.
Status Pool::Leave() {
  if (left_ || self_.id == 0) return Status::Ok();
  Status resolved = CheckLocksResolved();
  leave_refused_ = !resolved.ok();
  if (leave_refused_) return resolved;
  left_ = true;
  Status left = LeaveInOrder();
  // Where that failed the leases run out, so that what is left behind is recovered.
  renewal_.reset();
  return left;
}

// They are taken over only from a member that is fenced, and a member that has left never is. Its chunks,
// too, stay in its name until then: a page that it was about to write is found by them.
Status Pool::CheckLocksResolved() const {
  if (unresolved_locks_.empty() || !fenced().ok()) return Status::Ok();
  return Status::Unavailable(
      self_.ToString() + " does not leave: " + unresolved_locks_.Describe() +
      " may still be in its name, since connections broke while they were taken or let go; others "
      "take them over when its process has ended and its lease has run out, or after 'farleafctl "
      "cut-off " +
      std::to_string(self_.id) + "'");
}

Status Pool::LeaveInOrder() {
  FARLEAF_RETURN_IF_ERROR(fenced());
  auto worker = OpenWorker();
  if (!worker.ok()) return worker.status();
  FabricCounts counts;
  OpContext op{**worker, counts};
  if (allocator_) {
    FARLEAF_RETURN_IF_ERROR((*worker)->Run(allocator_->ReturnAll(op)));
    if (allocator_->has_given_up()) {
      return Status::Unknown(
          "connections broke under what this compute server was moving in the pool: "
          "it is to be recovered like one that died");
    }
  }
  FARLEAF_RETURN_IF_ERROR(EndLeases(op));
  return (*worker)->Run(GiveIdBack(op, self_));
}

}  // namespace farleaf::dsm
