// ExpectedLeaves: which leaf each worker was told of last for a key (RangeIndex::Expect), so that the operation which was
// expected need not look for it again.
//
// Invariant: a hint, and no more: whoever uses it finds out by the leaf's fences whether the key is there.
// Thread rule: thread-safe, with relaxed atomics; workers have places of their own, as long as they are few.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include "dsm/address.h"
#include "index/blink/fence_digest.h"

namespace farleaf::index {

class ExpectedLeaves {
 public:
  void Note(uint64_t worker, std::string_view key, dsm::GlobalAddress leaf) {
    Place& place = places_[worker % kPlaces];
    place.key.store(HashOf(key), std::memory_order_relaxed);
    place.leaf.store(leaf.word(), std::memory_order_relaxed);
  }
  /// The key was not there.
  void Forget(uint64_t worker, std::string_view key) {
    Place& place = places_[worker % kPlaces];
    if (place.key.load(std::memory_order_relaxed) == HashOf(key)) {
      place.key.store(0, std::memory_order_relaxed);
    }
  }
  std::optional<dsm::GlobalAddress> Find(uint64_t worker, std::string_view key) const {
    const Place& place = places_[worker % kPlaces];
    const uint64_t hash = place.key.load(std::memory_order_relaxed);
    if (hash == 0 || hash != HashOf(key)) return std::nullopt;
    return dsm::GlobalAddress::FromWord(place.leaf.load(std::memory_order_relaxed));
  }

 private:
  static constexpr size_t kPlaces = 32;
  struct alignas(64) Place {
    std::atomic<uint64_t> key{0}, leaf{0};
  };
  static uint64_t HashOf(std::string_view key) { return internal::DigestBytes(1, key); }

  std::array<Place, kPlaces> places_;
};

}  // namespace farleaf::index
