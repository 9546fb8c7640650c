#include "dsm/member_holdings.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "dsm/page_scan.h"
#include "dsm/pages/chunk_table.h"
#include "dsm/redo_area.h"
#include "dsm/redo_record.h"

namespace farleaf::dsm {

namespace {

constexpr size_t kPageSwapsPerBatch = 64;
constexpr int kListLooksMax = 16;

class HoldingsVisitor final : public PageVisitor {
 public:
  HoldingsVisitor(const RegionLayout& layout, MemberIdentity member, const BlockNames& named_blocks,
                  MemberHoldings* holdings)
      : layout_(layout), member_(member), named_blocks_(named_blocks), holdings_(holdings) {}

  void OnChunk(const ScannedChunk& chunk) override {
    chunk_ = nullptr;
    in_extent_ = chunk.use == ChunkUse::kExtent && Names(chunk.word.owner, chunk.word.incarnation);
    if (!Names(chunk.word.owner, chunk.word.incarnation)) return;
    const uint64_t index = layout_.ChunkOf(chunk.address.offset());
    switch (chunk.use) {
      case ChunkUse::kPages:
        holdings_->chunks.push_back(
            {index, chunk.word, 0, PagesPerChunk(*chunk.page_class, layout_.chunk_bytes)});
        chunk_ = &holdings_->chunks.back();
        next_page_ = 0;
        never_used_.clear();
        return;
      case ChunkUse::kRedo:
        holdings_->redo_areas += chunk.word.page_units != 0;
        [[fallthrough]];
      case ChunkUse::kClearing:
      case ChunkUse::kOrphan:
        holdings_->whole_chunks.push_back({index, chunk.word});
        return;
      default:
        return;
    }
  }

  void OnPage(const ScannedPage& page) override {
    const HeldPage held{page.address, page.page_class, page.lock_word, page.version};
    const bool is_free = page.state == PageState::kFree;
    if (page.page_class.kind == ChunkKind::kExtent) {
      if (is_free && Names(page.lock.owner, page.lock.incarnation)) {
        holdings_->free_extents.push_back(held);
      } else if (!is_free && (in_extent_ || IsNamed(page))) {
        holdings_->blocks.push_back(held);
      }
      return;
    }
    if (is_free && Names(page.lock.owner, page.lock.incarnation)) {
      holdings_->free_pages.push_back(held);
    } else if (is_free && page.lock.owner == 0) {
      holdings_->nobodys.push_back(held);
    }
    if (page.page_class.kind == ChunkKind::kValue && page.state == PageState::kInUse &&
        (WroteBlock(page.lock_word) || IsNamed(page))) {
      holdings_->blocks.push_back(held);
    }
    if (chunk_ == nullptr) return;
    const uint64_t index = next_page_++;
    const bool untouched = std::all_of(page.image.begin(), page.image.end(),
                                       [](std::byte byte) { return byte == std::byte{0}; });
    if (page.state == PageState::kNeverUsed) never_used_.push_back(held);
    if (page.state == PageState::kNeverUsed && untouched) return;
    // Its first write began, if it was not whole. It was carved, and so were those before it.
    chunk_->carved = index + 1;
    auto& unused = holdings_->unused_pages;
    unused.insert(unused.end(), never_used_.begin(), never_used_.end());
    never_used_.clear();
    const bool is_page = page.page_class.kind != ChunkKind::kValue;
    if (is_page && page.state == PageState::kInUse && page.lock_word == kUnlockedWord) {
      holdings_->unlocked.push_back(held);
    }
  }

 private:
  bool Names(MemberId owner, uint16_t incarnation) const {
    return owner == member_.id && incarnation == member_.short_incarnation();
  }
  /// Pool::NextUniqueId: 01, member, incarnation, count.
  bool WroteBlock(uint64_t unique_id) const {
    const LockWord word = LockWord::Decode(unique_id);
    return (unique_id & 3) == 1 && Names(word.owner, word.incarnation);
  }
  bool IsNamed(const ScannedPage& page) const {
    const auto named = named_blocks_.find(page.address);
    return named != named_blocks_.end() && named->second == page.lock_word;
  }
  const RegionLayout& layout_;
  const MemberIdentity member_;
  const BlockNames& named_blocks_;
  MemberHoldings* holdings_;
  MemberHoldings::Chunk* chunk_ = nullptr;  ///< whose pages follow, if it is the member's
  bool in_extent_ = false;
  uint64_t next_page_ = 0;
  std::vector<HeldPage> never_used_;  ///< of the chunk, since the last one that was used
};

}  // namespace

Task<Status> ScanRedoBlocks(OpContext& op, const RegionLayout& layout, MemberIdentity member,
                            BlockNames* blocks) {
  auto area = co_await FindRedoArea(op, layout, member.id, member.short_incarnation());
  if (!area.ok()) co_return area.status();
  if (!*area) co_return Status::Ok();
  std::vector<std::byte> slots(RedoAreaSlots(layout) * size_t{kRedoSlotBytes});
  for (size_t done = 0; done < slots.size(); done += kScanReadBytes) {
    Batch batch(layout.server);
    batch.Read(**area + done,
               std::span(slots).subspan(done, std::min(kScanReadBytes, slots.size() - done)));
    Status status = co_await op.worker.RoundTrip(batch, op.counts);
    if (!status.ok()) co_return status;
  }
  for (size_t at = 0; at < slots.size(); at += kRedoSlotBytes) {
    const auto record = ParseRedo(std::span(slots).subspan(at, kRedoSlotBytes));
    if (!record || record->kind != RedoKind::kChange || record->follow_up.is_null()) continue;
    (*blocks)[record->follow_up] = record->follow_up_word;
  }
  co_return Status::Ok();
}

Task<Result<MemberHoldings>> ScanHoldings(OpContext& op, const RegionLayout& layout,
                                          MemberIdentity member, const BlockNames& named_blocks) {
  MemberHoldings holdings;
  HoldingsVisitor visitor(layout, member, named_blocks, &holdings);
  Status status = co_await ScanPages(op, layout, visitor);
  if (!status.ok()) co_return status;
  co_return holdings;
}

namespace {
class ListedAddresses final : public ListVisitor {
 public:
  void OnListedPage(const ListedPage& page) override { addresses.insert(page.address); }
  std::set<GlobalAddress> addresses;
};

// A list that changed under the READs is followed anew; one that is never still is given up.
Task<Status> RemoveListed(OpContext& op, const RegionLayout& layout, const PageClass& page_class,
                          std::vector<HeldPage>* pages) {
  Status status;
  for (int look = 0; look < kListLooksMax && !op.expired(); ++look) {
    ListedAddresses listed;
    status = co_await ScanFreeList(op, layout, page_class, listed);
    if (status.code() == StatusCode::kCorruption) continue;
    if (!status.ok()) co_return status;
    std::erase_if(*pages, [&listed](const HeldPage& page) {
      return listed.addresses.contains(page.address);
    });
    co_return status;
  }
  co_return status.ok() ? Status::DeadlineExceeded("following the free lists of memory server " +
                                                   std::to_string(layout.server))
                        : status;
}
}  // namespace

Task<Result<uint64_t>> RemoveListed(OpContext& op, const RegionLayout& layout,
                                    std::vector<HeldPage>* pages) {
  std::map<uint32_t, std::vector<HeldPage>> by_list;
  for (const HeldPage& page : *pages) by_list[FreeListIndex(page.page_class)].push_back(page);
  pages->clear();
  uint64_t unknown = 0;
  for (auto& [list, of_list] : by_list) {
    Status status = co_await RemoveListed(op, layout, of_list.front().page_class, &of_list);
    if (status.ok()) {
      pages->insert(pages->end(), of_list.begin(), of_list.end());
    } else if (status.code() == StatusCode::kCorruption) {
      unknown += of_list.size();
    } else {
      co_return status;
    }
  }
  co_return unknown;
}

Task<Result<std::vector<HeldPage>>> TakePages(OpContext& op, MemberIdentity self,
                                              const std::vector<HeldPage>& pages) {
  const uint64_t free_word = FreeWordOf(self);
  std::vector<uint64_t> old(pages.size());
  std::vector<HeldPage> taken;
  for (size_t done = 0; done < pages.size(); done += kPageSwapsPerBatch) {
    const size_t end = std::min(pages.size(), done + kPageSwapsPerBatch);
    std::vector<Batch> batches;
    for (size_t i = done; i < end; ++i) {
      const HeldPage& page = pages[i];
      const bool is_page =
          page.page_class.kind == ChunkKind::kLeaf || page.page_class.kind == ChunkKind::kSearch;
      const uint64_t word_at = is_page ? LockWordOffset(page.page_class) : 0;
      BatchFor(batches, page.address.server())
          .CompareAndSwap(page.address.offset() + word_at, page.word, free_word, &old[i]);
    }
    Status status = co_await op.worker.RoundTrip(batches, op.counts);
    if (!status.ok()) co_return status;
    for (size_t i = done; i < end; ++i) {
      if (old[i] == pages[i].word) taken.push_back(pages[i]);
    }
  }
  co_return taken;
}

Task<Status> ReturnChunks(OpContext& op, const RegionLayout& layout,
                          const MemberHoldings& holdings) {
  for (const MemberHoldings::Chunk& chunk : holdings.chunks) {
    ChunkWord carved = chunk.word;
    carved.owner = 0;
    carved.incarnation = 0;
    carved.carved = true;
    Status status;
    if (chunk.carved == chunk.pages) {
      status = co_await ChangeChunkWord(op, layout, chunk.chunk, chunk.word, carved);
    } else {
      status = co_await ReleaseChunk(op, layout, chunk.chunk, chunk.word, chunk.carved);
    }
    if (!status.ok()) co_return status;
  }
  for (const MemberHoldings::Chunk& chunk : holdings.whole_chunks) {
    const uint64_t mark = kCarveMarkDirty;
    uint64_t old = 0;
    Batch release(layout.server);
    release.WriteWord(layout.CarveMarkOffset(chunk.chunk), &mark);
    release.CompareAndSwap(layout.ChunkWordOffset(chunk.chunk), chunk.word.Encode(), 0, &old);
    Status status = co_await op.worker.RoundTrip(release, op.counts);
    if (!status.ok()) co_return status;
  }
  co_return Status::Ok();
}

}  // namespace farleaf::dsm
