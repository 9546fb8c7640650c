// ExpectNoPageLost: of a pool that all members have left, each page that is not in use is in a list of the pool,
// or in a chunk where it can be carved.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "dsm/page_scan.h"
#include "dsm/pool.h"

namespace farleaf::test {

struct PageAccount final : dsm::PageVisitor, dsm::ListVisitor {
  void OnChunk(const dsm::ScannedChunk& chunk) override {
    carved = chunk.word.carved;
    owned_chunks += chunk.word.owner != 0 && chunk.use != dsm::ChunkUse::kExtent;
  }
  void OnPage(const dsm::ScannedPage& page) override {
    const bool is_free = page.state == dsm::PageState::kFree;
    free_pages += is_free;
    held_pages += is_free && page.lock.owner != 0;
    never_used_in_carved_chunks += carved && page.state == dsm::PageState::kNeverUsed;
  }
  void OnListedPage(const dsm::ListedPage&) override { ++listed_pages; }
  bool carved = false;
  uint64_t owned_chunks = 0, free_pages = 0, listed_pages = 0, held_pages = 0;
  uint64_t never_used_in_carved_chunks = 0;
};

inline void ExpectNoPageLost(const dsm::Pool& pool, dsm::Worker& worker) {
  dsm::FabricCounts counts;
  dsm::OpContext op{worker, counts};
  PageAccount account;
  for (const dsm::RegionLayout& layout : pool.layouts()) {
    Status scanned = worker.Run(dsm::ScanPages(op, layout, account));
    ASSERT_TRUE(scanned.ok()) << scanned;
    scanned = worker.Run(dsm::ScanFreeLists(op, layout, account));
    ASSERT_TRUE(scanned.ok()) << scanned;
  }
  ASSERT_EQ(account.owned_chunks, 0u);
  ASSERT_EQ(account.free_pages, account.listed_pages) << "pages are lost";
  ASSERT_EQ(account.held_pages, 0u);
  ASSERT_EQ(account.never_used_in_carved_chunks, 0u) << "pages are lost";
}

}  // namespace farleaf::test
