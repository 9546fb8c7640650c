#include "dsm/allocator.h"

#include <algorithm>
#include <limits>
#include <string>

#include "dsm/base/check.h"
#include "dsm/pages/allocator_state.h"
#include "dsm/pages/chunk_table.h"

namespace farleaf::dsm {

namespace {
/// Of each compute server, so that a small tree that ten of them have loaded is not on a few of ten memory servers.
constexpr int64_t kBalanceSlackPages = 2;
/// Grace periods waited for in one Allocate, while others take what becomes free.
constexpr int kGraceWaitsMax = 100;
}  // namespace

Allocator::Allocator(MemberIdentity self, std::vector<RegionLayout> layouts,
                     AllocatorOptions options)
    : self_(self),
      layouts_(std::move(layouts)),
      options_(options),
      state_(std::make_unique<State>(layouts_.size())) {
  FARLEAF_CHECK(!layouts_.empty());
  for (size_t i = 0; i < layouts_.size(); ++i) {
    FARLEAF_CHECK(layouts_[i].server == i, layouts_[i].server, i);
    // Members begin at different places, so that they rarely race for one word.
    state_->servers[i].next_chunk =
        Mix64(uint64_t{self.id} << 32 ^ self.incarnation ^ i << 48) % layouts_[i].chunk_count;
  }
}

Allocator::~Allocator() = default;

const RegionLayout& Allocator::layout(ServerId server) const {
  FARLEAF_CHECK(server < layouts_.size(), server, layouts_.size());
  return layouts_[server];
}

Allocator::ClassPages& Allocator::PagesOf(const PageClass& page_class) {
  std::atomic<ClassPages*>& slot = state_->classes[FreeListIndex(page_class)];
  ClassPages* pages = slot.load(std::memory_order_acquire);
  if (pages == nullptr) [[unlikely]] {
    auto fresh = std::make_unique<ClassPages>(page_class, layouts_);
    if (slot.compare_exchange_strong(pages, fresh.get())) pages = fresh.release();
  }
  FARLEAF_CHECK(pages->page_class == page_class, page_class.tree, page_class.page_bytes,
                pages->page_class.page_bytes);
  return *pages;
}

PageGrant Allocator::Granted(ClassPages& pages, ServerId server, uint64_t offset,
                             uint64_t version) {
  if (pages.page_class.kind == ChunkKind::kLeaf) {
    state_->servers[server].leaves.fetch_add(1, std::memory_order_relaxed);
  }
  return {GlobalAddress(server, offset), version};
}

ChunkWord Allocator::OwnedWord(const ClassPages& pages) const {
  ChunkWord word = ChunkWordOf(pages.page_class);
  word.owner = self_.id;
  word.incarnation = self_.short_incarnation();
  return word;
}

Task<Result<PageGrant>> Allocator::Allocate(OpContext& op, PageClass page_class,
                                            ServerId preferred) {
  FARLEAF_CHECK(preferred < layouts_.size(), preferred, layouts_.size());
  ClassPages& pages = PagesOf(page_class);
  if (auto page = pages.servers[preferred].Take(op.worker.clock())) {
    co_return Granted(pages, preferred, page->offset, page->version);
  }
  auto grant = co_await AllocateRemote(op, pages, preferred);
  co_return grant;
}

Task<Result<PageGrant>> Allocator::AllocateRemote(OpContext& op, ClassPages& pages,
                                                  ServerId preferred) {
  if (self_.id == 0) co_return Status::InvalidArgument("an observer of a pool allocates nothing");
  FARLEAF_CHECK(!state_->returned.load(), "allocation after ReturnAll");
  const size_t servers = layouts_.size();
  for (int waits = 0;; ++waits) {
    // First the servers that are not known to be full, then all: what is known may be out of date.
    for (size_t i = 0; i < 2 * servers; ++i) {
      const auto server = static_cast<ServerId>((preferred + i) % servers);
      auto grant = co_await AllocateOn(op, pages, server, i >= servers);
      if (!grant.ok()) co_return grant.status();
      if (*grant) co_return **grant;
    }
    uint64_t due_ns = UINT64_MAX;
    for (const LocalPages& local : pages.servers) {
      due_ns = std::min(due_ns, local.first_due_ns().value_or(UINT64_MAX));
    }
    if (due_ns == UINT64_MAX || waits == kGraceWaitsMax) co_return PoolIsFull();
    if (op.expired()) co_return Status::DeadlineExceeded("waiting for a freed page's grace period");
    const uint64_t now_ns = op.worker.clock().NowNs();
    co_await op.worker.Sleep(due_ns > now_ns ? due_ns - now_ns : 0);
  }
}

Task<Result<std::optional<PageGrant>>> Allocator::AllocateOn(OpContext& op, ClassPages& pages,
                                                             ServerId server, bool ask_full) {
  LocalPages& local = pages.servers[server];
  const auto ask = ask_full ? LocalPages::AskFull::kYes : LocalPages::AskFull::kNo;
  uint64_t poll_ns = kFetchPollNsMin;
  for (;;) {
    FreePage page;
    const auto refill = local.TakeOrBeginRefill(op.worker.clock(), ask, &page);
    if (refill == LocalPages::Refill::kNotNeeded) {
      co_return std::optional(Granted(pages, server, page.offset, page.version));
    }
    if (refill == LocalPages::Refill::kFull) co_return std::optional<PageGrant>();
    if (refill == LocalPages::Refill::kMine) {
      auto supply = co_await FetchMore(op, pages, server);
      const bool full = supply.ok() && *supply == Supply::kFull;
      local.EndRefill(full ? op.worker.clock().NowNs() + kFullRetryNs : 0);
      if (!supply.ok()) co_return supply.status();
      if (full) co_return std::optional<PageGrant>();
      continue;
    }
    if (op.expired()) {
      co_return Status::DeadlineExceeded("waiting for pages of memory server " +
                                         std::to_string(server));
    }
    co_await op.worker.Sleep(poll_ns);
    poll_ns = std::min(poll_ns * 2, kFetchPollNsMax);
  }
}

// REQUIRES: the refill is held. kFound: something was added (and may be gone again).
Task<Result<Allocator::Supply>> Allocator::FetchMore(OpContext& op, ClassPages& pages,
                                                     ServerId server) {
  auto popped = co_await PopBundle(op, pages, server);
  if (!popped.ok() || *popped == Supply::kFound) co_return popped;
  auto taken = co_await TakeChunk(op, pages, server);
  // A chunk may have been claimed, and be carved by nobody. (Who runs out of time has claimed none.)
  if (!taken.ok() && taken.status().code() != StatusCode::kDeadlineExceeded) GiveUp();
  co_return taken;
}

Task<Result<Allocator::Supply>> Allocator::TakeChunk(OpContext& op, ClassPages& pages,
                                                     ServerId server) {
  LocalPages& local = pages.servers[server];
  const RegionLayout& region = layouts_[server];
  State::Server& state = state_->servers[server];
  const ChunkWord owned = OwnedWord(pages);
  auto claim = co_await ClaimChunk(op, region, owned, state.next_chunk.load());
  if (!claim.ok()) co_return claim.status();
  if (!claim->chunk) {
    state.chunks_used.store(claim->chunks_used);
    state.full.store(true);
    co_return Supply::kFull;
  }
  const uint64_t chunk = *claim->chunk;
  state.next_chunk.store(chunk + 1);
  state.full.store(false);
  const uint64_t count = PagesPerChunk(pages.page_class, region.chunk_bytes);
  if (claim->carved > count) {
    co_return Status::Corruption("carve mark of chunk " + std::to_string(chunk) +
                                 " of memory server " + std::to_string(server) + " says " +
                                 std::to_string(claim->carved) + " of " + std::to_string(count) +
                                 " pages");
  }
  const uint64_t first =
      region.ChunkOffset(chunk) + PageOffsetInChunk(pages.page_class, region.chunk_bytes, 0);
  local.SetCarving({chunk, first, pages.page_class.page_bytes, claim->carved, count});
  Status sealed = co_await SealCarvedUp(op, pages, server);
  if (!sealed.ok()) co_return sealed;
  co_return Supply::kFound;
}

Task<Status> Allocator::SealCarvedUp(OpContext& op, ClassPages& pages, ServerId server) {
  ChunkWord carved = ChunkWordOf(pages.page_class);
  carved.carved = true;
  while (const auto chunk = pages.servers[server].TakeCarvedUp()) {
    Status sealed =
        co_await ChangeChunkWord(op, layouts_[server], chunk->chunk, OwnedWord(pages), carved);
    if (!sealed.ok()) co_return sealed;
  }
  co_return Status::Ok();
}

void Allocator::NoteWritten(PageClass page_class, GlobalAddress address) {
  PagesOf(page_class).servers[address.server()].NoteWritten(address.offset());
}

Status Allocator::PoolIsFull() const {
  std::string servers;
  for (size_t i = 0; i < layouts_.size(); ++i) {
    servers += (i ? ", memory server " : "memory server ") + std::to_string(i) + ": " +
               std::to_string(state_->servers[i].chunks_used.load()) + " of " +
               std::to_string(layouts_[i].chunk_count) + " chunks in use";
  }
  return Status::ResourceExhausted("the pool is full: " + servers +
                                   "; add a memory server or enlarge the regions");
}

void Allocator::Retire(const Clock& clock, PageClass page_class, PageGrant page) {
  const ServerId server = page.address.server();
  FARLEAF_CHECK(
      server < layouts_.size() && IsPageOffset(page_class, layouts_[server], page.address.offset()),
      page.address);
  ClassPages& pages = PagesOf(page_class);
  State::Server& state = state_->servers[server];
  if (page_class.kind == ChunkKind::kLeaf) state.leaves.fetch_sub(1, std::memory_order_relaxed);
  if (state.full.load(std::memory_order_relaxed)) state.full.store(false);
  pages.servers[server].NoteWritten(page.address.offset());
  const uint64_t due_ns = clock.NowNs() + options_.grace_ms * kNsPerMs;
  const size_t held = pages.servers[server].Retire(due_ns, {page.address.offset(), page.version});
  if (held <= options_.FreePagesMax(page_class, layouts_[server].region_bytes)) return;
  uint64_t trim_due_ns = state_->trim_due_ns.load(std::memory_order_relaxed);
  while (due_ns < trim_due_ns && !state_->trim_due_ns.compare_exchange_weak(trim_due_ns, due_ns)) {
  }
}

void Allocator::GiveUp() { state_->gave_up.store(true, std::memory_order_relaxed); }

bool Allocator::has_given_up() const { return state_->gave_up.load(std::memory_order_relaxed); }

ServerId Allocator::NextServer(std::optional<ServerId> left) {
  const auto leaves = [this](size_t i) {
    return state_->servers[i].leaves.load(std::memory_order_relaxed);
  };
  const auto full = [this](size_t i) {
    return state_->servers[i].full.load(std::memory_order_relaxed);
  };
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < layouts_.size(); ++i) {
    if (!full(i)) least = std::min(least, leaves(i));
  }
  const auto fits = [&](size_t i) {
    return !full(i) && leaves(i) - least <= std::max(kBalanceSlackPages, least / 10);
  };
  if (left && fits(*left)) return *left;
  const uint64_t turn = state_->next_server.fetch_add(1, std::memory_order_relaxed);
  for (size_t i = 0; i < layouts_.size(); ++i) {
    const size_t server = (turn + i) % layouts_.size();
    if (fits(server)) return static_cast<ServerId>(server);
  }
  return static_cast<ServerId>(turn % layouts_.size());  // all are full
}

}  // namespace farleaf::dsm
