#include "index/blink/part_entries.h"

#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace farleaf::index {

namespace {

/// Sorts the entries of a part: 16 comparisons, none of which is a jump that could be predicted wrongly.
template <typename Number, typename Order>
[[gnu::always_inline]] inline void SortSlots(Number (&slots)[kPartSlots], const Order& order) {
  static_assert(kPartSlots == 7);
  auto& [a, b, c, d, e, f, g] = slots;
  order(a, g), order(c, d), order(e, f);
  order(a, c), order(b, e), order(d, g);
  order(a, b), order(c, f), order(d, e);
  order(b, c), order(e, g);
  order(c, d), order(e, f);
  order(b, c), order(d, e), order(f, g);
}

}  // namespace

void PartEntries::Add(const LeafParts& leaf, const Parts& parts, size_t number,
                      const EntryWindow& window, Ends* ends) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    AddByVectors(leaf, parts, number, window, ends);
    return;
  }
#endif
  AddOneByOne(leaf, parts, number, window, ends);
}

void PartEntries::AddOneByOne(const LeafParts& leaf, const Parts& parts, size_t number,
                              const EntryWindow& window, Ends* ends) {
  for (size_t i = 0; i < number; ++i) {
    const ConstPart part = leaf.part(parts[i]);
    const uint64_t used = part.used(), base = kEntry | uint64_t{parts[i]} << kSlotBits;
    uint64_t taken = 0;
    double slots[kPartSlots];
#pragma GCC unroll 7
    for (size_t slot = 0; slot < kPartSlots; ++slot) {
      const uint64_t offset = part.key(slot) - window.low;
      const uint64_t takes = uint64_t{offset - window.first < window.span} & used >> slot;
      const uint64_t mask = takes - 1;  // of those that are not taken: all bits
      const uint64_t entry = offset >> window.shift << kPlaceBits | base | slot;
      slots[slot] = std::bit_cast<double>((entry & ~mask) | (kNone & mask));
      taken += takes;
    }
    SortSlots(slots, [](double& x, double& y) {
      const double low = x < y ? x : y, high = x > y ? x : y;
      x = low;
      y = high;
    });
    // One by one from registers: a wider copy would wait for these stores.
#pragma GCC unroll 7
    for (size_t slot = 0; slot < kPartSlots; ++slot) {
      entries_[count_ + slot] = std::bit_cast<uint64_t>(slots[slot]);
    }
    count_ += taken;
    (*ends)[i] = static_cast<uint16_t>(count_);
  }
}

#if defined(__x86_64__)
// Down to pop_options, lambdas included.
#pragma GCC push_options
#pragma GCC target("avx2")
namespace {
inline __m256i Lanes(uint64_t word) { return _mm256_set1_epi64x(static_cast<int64_t>(word)); }
inline __m256i Lanes(const uint64_t (&words)[PartEntries::kTogether]) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(words));
}
}  // namespace

void PartEntries::AddByVectors(const LeafParts& leaf, const Parts& parts, size_t number,
                               const EntryWindow& window, Ends* ends) {
  static_assert(kTogether == 4);
  // A lane a part; lanes without a part have the first one's.
  const std::byte* at[kTogether];
  alignas(32) uint64_t bases[kTogether], used_slots[kTogether];
  for (size_t lane = 0; lane < kTogether; ++lane) {
    const size_t number_of_part = parts[lane < number ? lane : 0];
    const ConstPart part = leaf.part(number_of_part);
    at[lane] = part.key_bytes(0);
    bases[lane] = kEntry | uint64_t{number_of_part} << kSlotBits;
    used_slots[lane] = part.used();
  }
  const __m256i big_endian =
      _mm256_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8,  //
                       7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8);
  constexpr uint64_t kSign = uint64_t{1} << 63;
  const __m256i base = Lanes(bases), used = Lanes(used_slots), low = Lanes(window.low),
                first = Lanes(window.first), sign = Lanes(kSign), end = Lanes(window.span ^ kSign);
  const __m256d none = _mm256_castsi256_pd(Lanes(kNone));
  const __m128i shift = _mm_cvtsi32_si128(window.shift);
  __m256i taken = _mm256_setzero_si256();
  __m256d slots[kPartSlots];
#pragma GCC unroll 7
  for (int slot = 0; slot < static_cast<int>(kPartSlots); ++slot) {
    const auto key = [&](size_t lane) {
      return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at[lane] + 16 * slot));
    };
    const __m256i keys =
        _mm256_set_m128i(_mm_unpacklo_epi64(key(2), key(3)), _mm_unpacklo_epi64(key(0), key(1)));
    const __m256i offset = _mm256_sub_epi64(_mm256_shuffle_epi8(keys, big_endian), low);
    const __m256i inside =
        _mm256_cmpgt_epi64(end, _mm256_xor_si256(_mm256_sub_epi64(offset, first), sign));
    // Bit `slot` of `used` in the place of the sign.
    const __m256i takes = _mm256_and_si256(inside, _mm256_slli_epi64(used, 63 - slot));
    taken = _mm256_add_epi64(taken, _mm256_srli_epi64(takes, 63));
    const __m256i entry =
        _mm256_or_si256(_mm256_slli_epi64(_mm256_srl_epi64(offset, shift), kPlaceBits),
                        _mm256_or_si256(base, Lanes(static_cast<uint64_t>(slot))));
    slots[slot] = _mm256_blendv_pd(none, _mm256_castsi256_pd(entry), _mm256_castsi256_pd(takes));
  }
  SortSlots(slots, [](__m256d& x, __m256d& y) {
    const __m256d lower = _mm256_min_pd(x, y);
    y = _mm256_max_pd(x, y);
    x = lower;
  });
  // From a slot of four parts each to four, and four, slots of a part each.
  __m256d halves[2][kTogether];
#pragma GCC unroll 2
  for (size_t half = 0; half < 2; ++half) {
    const __m256d* const from = slots + 4 * half;
    const __m256d last = half == 0 ? from[3] : none;
    const __m256d even01 = _mm256_unpacklo_pd(from[0], from[1]),
                  odd01 = _mm256_unpackhi_pd(from[0], from[1]),
                  even23 = _mm256_unpacklo_pd(from[2], last),
                  odd23 = _mm256_unpackhi_pd(from[2], last);
    halves[half][0] = _mm256_permute2f128_pd(even01, even23, 0x20);
    halves[half][1] = _mm256_permute2f128_pd(odd01, odd23, 0x20);
    halves[half][2] = _mm256_permute2f128_pd(even01, even23, 0x31);
    halves[half][3] = _mm256_permute2f128_pd(odd01, odd23, 0x31);
  }
  alignas(32) uint64_t taken_of[kTogether];
  _mm256_store_si256(reinterpret_cast<__m256i*>(taken_of), taken);
  for (size_t i = 0; i < number; ++i) {
    auto* const out = reinterpret_cast<double*>(entries_.data() + count_);
    _mm256_storeu_pd(out, halves[0][i]);
    _mm256_storeu_pd(out + 4, halves[1][i]);
    count_ += taken_of[i];
    (*ends)[i] = static_cast<uint16_t>(count_);
  }
}
#pragma GCC pop_options
#endif

bool PartEntries::SortNearly() {
  uint64_t* const all = entries_.data();
  bool equal = false;
  for (size_t i = 1; i < count_; ++i) {
    const uint64_t entry = all[i], previous = all[i - 1];
    if (previous <= entry) [[likely]] {
      equal |= (previous ^ entry) >> kPlaceBits == 0;
      continue;
    }
    size_t at = i;
    for (; at > 0 && all[at - 1] > entry; --at) all[at] = all[at - 1];
    all[at] = entry;
    equal |= at > 0 && (all[at - 1] ^ entry) >> kPlaceBits == 0;
    equal |= (all[at + 1] ^ entry) >> kPlaceBits == 0;
  }
  return equal;
}

bool PartEntries::SortByKeys(const LeafParts& leaf) {
  const auto key = [&](size_t i) { return leaf.part(part(i)).key(slot(i)); };
  for (size_t i = 1; i < count_; ++i) {
    for (size_t at = i; at > 0 && key(at - 1) >= key(at); --at) {
      if (key(at - 1) == key(at)) return false;
      std::swap(entries_[at - 1], entries_[at]);
    }
  }
  return true;
}

}  // namespace farleaf::index
