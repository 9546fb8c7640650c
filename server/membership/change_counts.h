// ChangeCounts: how often a session was told of changes, by path. Paths share counters by hash, so that the memory is the
// same however many paths there were; a change of one path may then look like one of another, which is allowed.
//
// Invariant: Note(path) moves the count of path and of all paths above it; a count never goes back.
// Thread rule: thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "dsm/base/bytes.h"
#include "dsm/base/crc32c.h"
#include "server/membership/path.h"

namespace farleaf::server::membership {

class ChangeCounts {
 public:
  uint64_t Of(std::string_view path) const { return all_.load() + counters_[SlotOf(path)].load(); }
  void Note(std::string_view path) {
    for (;; path = ParentPath(path)) {
      counters_[SlotOf(path)].fetch_add(1);
      if (path.size() <= 1) return;
    }
  }
  void NoteAll() { all_.fetch_add(1); }

 private:
  static constexpr size_t kSlots = 256;
  static size_t SlotOf(std::string_view path) { return Crc32c(AsBytes(path)) % kSlots; }

  std::atomic<uint64_t> all_{0};
  std::array<std::atomic<uint64_t>, kSlots> counters_{};
};

}  // namespace farleaf::server::membership
