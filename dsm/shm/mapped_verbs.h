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

/// What is wrong with a verb that does not lie in the region. Apart from ExecuteVerb, which would have to keep more
/// registers for it.
[[gnu::cold, gnu::noinline]] inline Status OutsideRegion(const Verb& verb, size_t region_bytes) {
  return Status::InvalidArgument("verb on [" + std::to_string(verb.offset) + ", +" +
                                 std::to_string(verb.length) + ") is outside the region of " +
                                 std::to_string(region_bytes) + " bytes, or misaligned");
}
[[gnu::cold, gnu::noinline]] inline Status UnknownKind(const Verb& verb) {
  return Status::InvalidArgument("unknown verb kind " +
                                 std::to_string(static_cast<int>(verb.kind)));
}

}  // namespace internal

/// Runs one verb on `region`. Out of bounds or misaligned: InvalidArgument, and nothing happens.
inline Status ExecuteVerb(const Verb& verb, std::span<std::byte> region) {
  if ((verb.offset | verb.length) % 8 != 0 || verb.length > region.size() ||
      verb.offset > region.size() - verb.length) [[unlikely]] {
    return internal::OutsideRegion(verb, region.size());
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
      std::atomic_ref(*reinterpret_cast<uint64_t*>(shared))
          .compare_exchange_strong(old, verb.desired);
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
  return internal::UnknownKind(verb);
}

/// Runs a batch in order; the first failure ends it.
inline Status ExecuteBatch(std::span<const Verb> verbs, std::span<std::byte> region) {
  for (const Verb& verb : verbs) {
    if (Status status = ExecuteVerb(verb, region); !status.ok()) [[unlikely]]
      return status;
  }
  return Status::Ok();
}

}  // namespace farleaf::dsm
