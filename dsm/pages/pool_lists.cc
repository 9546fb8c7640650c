// The allocator's traffic with the pool's free lists, and the return of everything.
#include <algorithm>
#include <string>

#include "dsm/allocator.h"
#include "dsm/base/check.h"
#include "dsm/pages/allocator_state.h"
#include "dsm/pages/chunk_table.h"

namespace farleaf::dsm {

namespace {

/// Lost races for one list's head: each means that another member got through.
constexpr int kListAttemptsMax = 10'000;

std::string ListName(ServerId server, uint32_t list) {
  return "free list " + std::to_string(list) + " of memory server " + std::to_string(server);
}

uint64_t HeadOffset(uint32_t list) { return kFreeListsOffset + list * 8; }

Task<Result<FreeListHead>> ReadHead(OpContext& op, ServerId server, uint32_t list) {
  uint64_t word = 0;
  Batch batch(server);
  batch.ReadWord(HeadOffset(list), &word);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  co_return FreeListHead::Decode(word);
}

/// Replaces the head if it is `*head`; else `*head` becomes what is there.
Task<Result<bool>> SwapHead(OpContext& op, ServerId server, uint32_t list, FreeListHead* head,
                            FreeListHead desired) {
  uint64_t word = 0;
  Batch batch(server);
  batch.CompareAndSwap(HeadOffset(list), head->Encode(), desired.Encode(), &word);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  if (word == head->Encode()) co_return true;
  *head = FreeListHead::Decode(word);
  co_return false;
}

/// The first bundle of the list; nullopt if `*head` is no longer the head, and then it becomes what
/// is. A bundle that does not decode is corrupt only if it is first in the list still, after it was
/// read; otherwise it was taken and overwritten meanwhile.
Task<Result<std::optional<FreeBundle>>> ReadBundle(OpContext& op, const PageClass& page_class,
                                                   const RegionLayout& region, FreeListHead* head) {
  const uint32_t list = FreeListIndex(page_class);
  if (!IsPageOffset(page_class, region, head->offset)) {
    co_return Status::Corruption(ListName(region.server, list) + " begins outside the chunks");
  }
  std::vector<std::byte> bytes(BundleBytes(BundlePagesMax(page_class)));
  Batch batch(region.server);
  batch.Read(head->offset + BundleOffsetInPage(page_class), bytes);
  Status read = co_await op.worker.RoundTrip(batch, op.counts);
  if (!read.ok()) co_return read;
  auto bundle = DecodeBundle(page_class, region, head->offset, bytes);
  if (bundle.ok()) co_return std::optional(std::move(*bundle));
  auto now = co_await ReadHead(op, region.server, list);
  if (!now.ok()) co_return now.status();
  if (now->Encode() == head->Encode()) co_return bundle.status();
  *head = *now;
  co_return std::optional<FreeBundle>();
}

}  // namespace

// The list's head as last seen is tried first, which saves a round trip: the CAS tells whether it
// is still the head. A bundle cannot change between the READ and the CAS that finds the head
// unchanged.
Task<Result<Allocator::Supply>> Allocator::PopBundle(OpContext& op, ClassPages& pages,
                                                     ServerId server) {
  LocalPages& local = pages.servers[server];
  FreeListHead head = local.known_head();
  if (head.is_empty()) {
    auto read = co_await ReadHead(op, server, pages.list);
    if (!read.ok()) co_return read.status();
    head = *read;
  }
  for (int attempt = 0; attempt < kListAttemptsMax && !op.expired(); ++attempt) {
    local.set_known_head(head);
    if (head.is_empty()) co_return Supply::kFull;
    auto bundle = co_await ReadBundle(op, pages.page_class, layouts_[server], &head);
    if (!bundle.ok()) co_return bundle.status();
    if (!*bundle) continue;
    const FreeListHead rest = head.ChangedTo((*bundle)->next_offset);
    auto popped = co_await SwapHead(op, server, pages.list, &head, rest);
    if (!popped.ok()) {
      GiveUp();
      co_return popped.status();
    }
    if (!*popped) continue;
    local.set_known_head(rest);
    (*bundle)->others.push_back((*bundle)->carrier);
    Status named = co_await NameHolder(op, pages, server, **bundle);
    if (!named.ok()) {
      GiveUp();
      co_return named;
    }
    local.AddFree((*bundle)->others);
    state_->servers[server].full.store(false);
    co_return Supply::kFound;
  }
  co_return Status::DeadlineExceeded("taking pages from " + ListName(server, pages.list) +
                                     ", whose head kept changing");
}

// From here on a scan after this member's death finds the pages in its name. By CAS, since whoever
// recovers another member may have taken a page that was nobody's for long (dsm/member_holdings.h).
Task<Status> Allocator::NameHolder(OpContext& op, ClassPages& pages, ServerId server,
                                   FreeBundle& bundle) {
  std::vector<FreePage>& free_pages = bundle.others;
  const uint64_t own = LockWord{.state = LockWord::State::kFreePage,
                                .owner = self_.id,
                                .incarnation = self_.short_incarnation()}
                           .Encode();
  std::vector<uint64_t> old(free_pages.size());
  Batch batch(server);
  for (size_t i = 0; i < free_pages.size(); ++i) {
    batch.CompareAndSwap(free_pages[i].offset + LockWordOffset(pages.page_class),
                         bundle.listed_word, own, &old[i]);
  }
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  size_t kept = 0;
  for (size_t i = 0; i < free_pages.size(); ++i) {
    if (old[i] == bundle.listed_word) free_pages[kept++] = free_pages[i];
  }
  free_pages.resize(kept);
  co_return Status::Ok();
}

// The pages' words (ListedWord) and the bundle are in place before the CAS that shows them: a later
// verb of a batch takes effect after an earlier WRITE. If the batch fails, its effect is unknown,
// and the pages are given up.
Task<Status> Allocator::PushBundle(OpContext& op, ClassPages& pages, ServerId server,
                                   std::vector<FreePage> free_pages) {
  LocalPages& local = pages.servers[server];
  const uint64_t word_offset = LockWordOffset(pages.page_class);
  FreeBundle bundle;
  bundle.listed_word = ListedWord(self_, state_->pushes.fetch_add(1, std::memory_order_relaxed));
  bundle.carrier = free_pages.back();
  free_pages.pop_back();
  bundle.others = std::move(free_pages);
  std::vector<std::byte> bytes(BundleBytes(static_cast<uint32_t>(bundle.others.size())));
  FreeListHead head = local.known_head();
  for (int attempt = 0; attempt < kListAttemptsMax; ++attempt) {
    bundle.next_offset = head.offset;
    EncodeBundle(pages.page_class, bundle, bytes);
    Batch batch(server);
    if (attempt == 0) {
      batch.WriteWord(bundle.carrier.offset + word_offset, &bundle.listed_word);
      for (const FreePage& page : bundle.others) {
        batch.WriteWord(page.offset + word_offset, &bundle.listed_word);
      }
    }
    batch.Write(bundle.carrier.offset + BundleOffsetInPage(pages.page_class), bytes);
    const FreeListHead pushed = head.ChangedTo(bundle.carrier.offset);
    uint64_t word = 0;
    batch.CompareAndSwap(HeadOffset(pages.list), head.Encode(), pushed.Encode(), &word);
    Status status = co_await op.worker.RoundTrip(batch, op.counts);
    if (!status.ok()) {
      GiveUp();
      co_return status;
    }
    if (word == head.Encode()) {
      local.set_known_head(pushed);
      co_return Status::Ok();
    }
    head = FreeListHead::Decode(word);
  }
  bundle.others.push_back(bundle.carrier);
  local.AddFree(bundle.others);
  co_return Status::DeadlineExceeded("returning pages to " + ListName(server, pages.list) +
                                     ", whose head kept changing");
}

Task<Status> Allocator::PushSurplus(OpContext& op, ClassPages& pages, ServerId server,
                                    size_t keep) {
  const size_t bundle_pages = BundlePagesMax(pages.page_class) + 1;
  for (;;) {
    auto surplus = pages.servers[server].TakeSurplus(op.worker.clock(), keep, bundle_pages);
    if (surplus.empty()) co_return Status::Ok();
    Status pushed = co_await PushBundle(op, pages, server, std::move(surplus));
    if (!pushed.ok()) co_return pushed;
  }
}

// What is above the watermark goes, and a quarter of the watermark with it, so that the next page
// that is freed does not cause the next push.
Task<Status> Allocator::Trim(OpContext& op) {
  std::atomic<uint64_t>& due_ns = state_->trim_due_ns;
  const uint64_t seen_ns = due_ns.load(std::memory_order_relaxed);
  if (seen_ns == UINT64_MAX || op.worker.clock().NowNs() < seen_ns) co_return Status::Ok();
  due_ns.store(UINT64_MAX);
  for (auto& slot : state_->classes) {
    ClassPages* pages = slot.load(std::memory_order_acquire);
    if (pages == nullptr) continue;
    for (size_t i = 0; i < layouts_.size(); ++i) {
      LocalPages& local = pages->servers[i];
      const size_t held_max = options_.FreePagesMax(pages->page_class, layouts_[i].region_bytes);
      if (local.size() <= held_max) continue;
      Status pushed =
          co_await PushSurplus(op, *pages, static_cast<ServerId>(i), held_max - held_max / 4);
      if (!pushed.ok()) co_return pushed;
      const auto last_due_ns = local.last_due_ns();
      if (local.size() <= held_max || !last_due_ns) continue;
      uint64_t later_ns = due_ns.load();
      while (*last_due_ns < later_ns && !due_ns.compare_exchange_weak(later_ns, *last_due_ns)) {
      }
    }
  }
  co_return Status::Ok();
}

Task<Status> Allocator::ReturnClass(OpContext& op, ClassPages& pages, ServerId server) {
  LocalPages& local = pages.servers[server];
  const uint64_t due_ns = local.last_due_ns().value_or(0);
  const uint64_t now_ns = op.worker.clock().NowNs();
  if (due_ns > now_ns) co_await op.worker.Sleep(due_ns - now_ns);
  Status pushed = co_await PushSurplus(op, pages, server, 0);
  if (!pushed.ok()) co_return pushed;
  if (local
          .has_unwritten()) {  // by operations that failed: a recovery finds out what became of them
    GiveUp();
    co_return Status::Ok();
  }
  const LocalPages::Carving carving = local.TakeCarving();
  Status sealed = co_await SealCarvedUp(op, pages, server);
  if (!sealed.ok() || carving.is_none()) co_return sealed;
  Status released =
      co_await ReleaseChunk(op, layouts_[server], carving.chunk, OwnedWord(pages), carving.next);
  co_return released;
}

Task<Status> Allocator::ReturnAll(OpContext& op) {
  state_->returned.store(true);
  Status first_failure;
  for (auto& slot : state_->classes) {
    ClassPages* pages = slot.load(std::memory_order_acquire);
    if (pages == nullptr) continue;
    for (size_t i = 0; i < layouts_.size(); ++i) {
      Status returned = co_await ReturnClass(op, *pages, static_cast<ServerId>(i));
      if (first_failure.ok()) first_failure = std::move(returned);
    }
  }
  for (size_t i = 0; i < layouts_.size(); ++i) {
    Status released = co_await ReleaseRedoArea(op, static_cast<ServerId>(i));
    if (first_failure.ok()) first_failure = std::move(released);
  }
  co_return first_failure;
}

}  // namespace farleaf::dsm
