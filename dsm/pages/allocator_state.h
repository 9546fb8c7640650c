// What an Allocator keeps in memory; shared by its source files.
//
// Thread rule: thread-safe; every member says what guards it.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "dsm/allocator.h"
#include "dsm/pages/local_pages.h"

namespace farleaf::dsm {

/// After a server was found full it is not asked again for so long, unless all are full.
inline constexpr uint64_t kFullRetryNs = 10 * kNsPerMs;
/// A coroutine that waits for another one's fetch looks again after 2 us, then 4, … to 128 us. Such
/// waits are rare (once a bundle or chunk) and a few round trips long; looking again, rather than
/// a list of waiters, lets each end at its own deadline.
inline constexpr uint64_t kFetchPollNsMin = 2 * kNsPerUs;
inline constexpr uint64_t kFetchPollNsMax = 128 * kNsPerUs;

struct Allocator::ClassPages {
  ClassPages(const PageClass& c, const std::vector<RegionLayout>& layouts)
      : page_class(c), list(FreeListIndex(c)), servers(layouts.size()) {}
  PageClass page_class;
  uint32_t list;
  std::deque<LocalPages> servers;  // by server id; fixed after construction
};

struct Allocator::State {
  struct alignas(64) Server {
    std::atomic<int64_t> leaves{0};        // granted here less retired here
    std::atomic<bool> full{false};         // no chunk was left when last asked
    std::atomic<uint64_t> chunks_used{0};  // when it was found full
    std::atomic<uint64_t> next_chunk{0};   // where the next search of the chunk table begins
    std::mutex redo_mutex;                 // guards the next two
    std::optional<uint64_t> redo_area;     // its first chunk
    bool redo_being_claimed = false;
  };
  explicit State(size_t servers_count) : servers(servers_count) {}
  ~State() {
    for (auto& pages : classes) delete pages.load();
  }

  std::deque<Server> servers;                                     // fixed after construction
  std::array<std::atomic<ClassPages*>, kFreeListsMax> classes{};  // created on first use
  std::atomic<uint64_t> next_server{0};
  std::atomic<uint32_t> pushes{0};                // of bundles
  std::atomic<uint64_t> trim_due_ns{UINT64_MAX};  // when Trim may find something to do
  std::atomic<bool> returned{false};
  std::atomic<bool> gave_up{false};
};

}  // namespace farleaf::dsm
