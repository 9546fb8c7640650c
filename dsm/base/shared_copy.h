// Copies from and to memory that other processors change at the same time. No aligned 8-byte word is
// ever torn; loads acquire and stores release.
//
// In general a copy is a loop of 8-byte atomic accesses. Where the processor has AVX, blocks of 128
// bytes are moved by 32-byte moves in assembly, which takes half the time. Why that keeps the
// guarantee: x86 processors with AVX make aligned 16-byte accesses atomic (both vendors' manuals), a
// wider or unaligned vector access is split into parts at boundaries of 8 bytes at the least, since
// both addresses are multiples of 8 and cache lines of 64; and x86 does not reorder loads with loads
// nor stores with stores. Test: TransportContract.AWordInsideALargeCopyIsNeverTorn. Sanitizers
// cannot see into assembly, so under them everything is atomic accesses.
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace farleaf {

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
inline constexpr bool kCopyByVectors = true;
#else
inline constexpr bool kCopyByVectors = false;
#endif

namespace internal {

inline constexpr size_t kVectorBlockBytes = 128;

/// Copies whole blocks; returns the number of bytes copied. REQUIRES: the processor has AVX.
inline size_t CopyBlocks(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t whole = bytes / kVectorBlockBytes * kVectorBlockBytes;
#if defined(__x86_64__)
  for (size_t i = 0; i < whole; i += kVectorBlockBytes) {
    asm volatile(
        "vmovdqu   (%0), %%ymm0\n"
        "vmovdqu 32(%0), %%ymm1\n"
        "vmovdqu 64(%0), %%ymm2\n"
        "vmovdqu 96(%0), %%ymm3\n"
        "vmovdqu %%ymm0,   (%1)\n"
        "vmovdqu %%ymm1, 32(%1)\n"
        "vmovdqu %%ymm2, 64(%1)\n"
        "vmovdqu %%ymm3, 96(%1)\n"
        :
        : "r"(from + i), "r"(to + i)
        : "memory", "xmm0", "xmm1", "xmm2", "xmm3");
  }
  // Or the SSE code that follows would pay for the upper halves.
  asm volatile("vzeroupper" ::
                   : "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                     "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#endif
  return whole;
}

inline bool HasVectorCopy([[maybe_unused]] size_t bytes) {
#if defined(__x86_64__)
  return kCopyByVectors && bytes >= kVectorBlockBytes && __builtin_cpu_supports("avx");
#else
  return false;
#endif
}

}  // namespace internal

/// REQUIRES: shared 8-aligned, bytes a multiple of 8.
inline void CopyFromShared(std::byte* local, const std::byte* shared, size_t bytes) {
  size_t done = 0;
  if (internal::HasVectorCopy(bytes)) done = internal::CopyBlocks(local, shared, bytes);
  auto* words = reinterpret_cast<uint64_t*>(const_cast<std::byte*>(shared));
  for (size_t i = done / 8; i < bytes / 8; ++i) {
    const uint64_t word = std::atomic_ref(words[i]).load(std::memory_order_acquire);
    std::memcpy(local + i * 8, &word, 8);
  }
}

/// REQUIRES: shared 8-aligned, bytes a multiple of 8.
inline void CopyToShared(std::byte* shared, const std::byte* local, size_t bytes) {
  size_t done = 0;
  // The stores below are releases of what was stored here: the assembly clobbers memory, and x86
  // keeps the order.
  if (internal::HasVectorCopy(bytes)) done = internal::CopyBlocks(shared, local, bytes);
  auto* words = reinterpret_cast<uint64_t*>(shared);
  for (size_t i = done / 8; i < bytes / 8; ++i) {
    uint64_t word;
    std::memcpy(&word, local + i * 8, 8);
    std::atomic_ref(words[i]).store(word, std::memory_order_release);
  }
}

}  // namespace farleaf
