// Executes verbs on memory that this process can address: the shm fabric's client side and the tcp
// fabric's agent threads both end here, so that racy access to a region happens in one place.
//
// Every racy copy is made of 8-byte atomic accesses, loads that acquire and stores that release (on
// x86 both are plain moves), so that the transport contract's rules 1 to 3 hold between CPUs and
// the sanitizers see no data race.
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "dsm/base/status.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

/// REQUIRES: shared 8-aligned, bytes a multiple of 8.
inline void CopyFromShared(std::byte* local, const std::byte* shared, size_t bytes) {
  // The cache misses of a page overlap; a longer copy is left to the processor's own prefetcher.
  const size_t ahead = bytes < 4096 ? bytes : 4096;
  for (size_t line = 0; line < ahead; line += 64) __builtin_prefetch(shared + line);
  auto* words = reinterpret_cast<uint64_t*>(const_cast<std::byte*>(shared));
  for (size_t i = 0; i < bytes / 8; ++i) {
    const uint64_t word = std::atomic_ref(words[i]).load(std::memory_order_acquire);
    std::memcpy(local + i * 8, &word, 8);
  }
}

inline void CopyToShared(std::byte* shared, const std::byte* local, size_t bytes) {
  auto* words = reinterpret_cast<uint64_t*>(shared);
  for (size_t i = 0; i < bytes / 8; ++i) {
    uint64_t word;
    std::memcpy(&word, local + i * 8, 8);
    std::atomic_ref(words[i]).store(word, std::memory_order_release);
  }
}

/// Runs one verb on `region`. Out of bounds or misaligned: InvalidArgument, and nothing happens.
inline Status ExecuteVerb(const Verb& verb, std::span<std::byte> region) {
  if (verb.offset % 8 != 0 || verb.length % 8 != 0 || verb.length > region.size() ||
      verb.offset > region.size() - verb.length) [[unlikely]] {
    return Status::InvalidArgument("verb on [" + std::to_string(verb.offset) + ", +" +
                                   std::to_string(verb.length) + ") is outside the region of " +
                                   std::to_string(region.size()) + " bytes, or misaligned");
  }
  std::byte* shared = region.data() + verb.offset;
  switch (verb.kind) {
    case VerbKind::kRead:
      CopyFromShared(verb.local, shared, verb.length);
      return Status::Ok();
    case VerbKind::kWrite:
      CopyToShared(shared, verb.local, verb.length);
      return Status::Ok();
    case VerbKind::kCompareAndSwap: {
      uint64_t old = verb.operand;
      std::atomic_ref(*reinterpret_cast<uint64_t*>(shared)).compare_exchange_strong(old, verb.desired);
      std::memcpy(verb.local, &old, 8);
      return Status::Ok();
    }
    case VerbKind::kFetchAdd: {
      const uint64_t old =
          std::atomic_ref(*reinterpret_cast<uint64_t*>(shared)).fetch_add(verb.operand);
      std::memcpy(verb.local, &old, 8);
      return Status::Ok();
    }
  }
  return Status::InvalidArgument("unknown verb kind " +
                                 std::to_string(static_cast<int>(verb.kind)));
}

/// Runs a batch in order; the first failure ends it.
inline Status ExecuteBatch(std::span<const Verb> verbs, std::span<std::byte> region) {
  for (const Verb& verb : verbs) {
    if (Status status = ExecuteVerb(verb, region); !status.ok()) [[unlikely]] return status;
  }
  return Status::Ok();
}

}  // namespace farleaf::dsm
