// Executes verbs on memory that this process can address: the shm fabric's client side and the tcp
// fabric's agent threads both end here, so that racy access to a region happens in one place.
//
// Racy copies are those of dsm/base/shared_copy.h, so that the transport contract's rules 1 to 3 hold
// between CPUs.
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "dsm/base/shared_copy.h"
#include "dsm/base/status.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

namespace internal {

/// What is wrong with a verb that was not run. Apart from those who run them, which would have to keep more registers
/// for it.
[[gnu::cold, gnu::noinline]] inline Status WhyNot(const Verb& verb, size_t region_bytes) {
  if (verb.kind < VerbKind::kRead || verb.kind > VerbKind::kFetchAdd) {
    return Status::InvalidArgument("unknown verb kind " +
                                   std::to_string(static_cast<int>(verb.kind)));
  }
  return Status::InvalidArgument("verb on [" + std::to_string(verb.offset) + ", +" +
                                 std::to_string(verb.length) + ") is outside the region of " +
                                 std::to_string(region_bytes) + " bytes, or misaligned");
}

}  // namespace internal

/// Runs one verb on `region`. False: it is out of bounds, misaligned or of no kind, and nothing has happened.
inline bool TryVerb(const Verb& verb, std::span<std::byte> region) {
  if ((verb.offset | verb.length) % 8 != 0 || verb.length > region.size() ||
      verb.offset > region.size() - verb.length) [[unlikely]] {
    return false;
  }
  std::byte* shared = region.data() + verb.offset;
  switch (verb.kind) {
    case VerbKind::kRead:
      CopyFromShared(verb.local, shared, verb.length);
      return true;
    case VerbKind::kWrite:
      CopyToShared(shared, verb.local, verb.length);
      return true;
    case VerbKind::kCompareAndSwap: {
      uint64_t old = verb.operand;
      std::atomic_ref(*reinterpret_cast<uint64_t*>(shared))
          .compare_exchange_strong(old, verb.desired);
      std::memcpy(verb.local, &old, 8);
      return true;
    }
    case VerbKind::kFetchAdd: {
      const uint64_t old =
          std::atomic_ref(*reinterpret_cast<uint64_t*>(shared)).fetch_add(verb.operand);
      std::memcpy(verb.local, &old, 8);
      return true;
    }
  }
  return false;
}

/// The same; what is wrong with the verb is InvalidArgument.
inline Status ExecuteVerb(const Verb& verb, std::span<std::byte> region) {
  if (TryVerb(verb, region)) [[likely]]
    return Status::Ok();
  return internal::WhyNot(verb, region.size());
}

/// Runs a batch in order; the first failure ends it.
inline Status ExecuteBatch(std::span<const Verb> verbs, std::span<std::byte> region) {
  for (const Verb& verb : verbs) {
    if (!TryVerb(verb, region)) [[unlikely]]
      return internal::WhyNot(verb, region.size());
  }
  return Status::Ok();
}

}  // namespace farleaf::dsm
