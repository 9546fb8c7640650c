#include "benchmark/ycsb/kv_mix.h"

#include <cstring>

#include "dsm/base/check.h"
#include "dsm/base/random.h"

namespace farleaf::ycsb {

namespace {

constexpr uint64_t kSizeSeed = 0x6b762d73697a65;

}  // namespace

std::string_view KvMixName(KvMix mix) {
  constexpr std::array<std::string_view, kKvMixes> kNames = {"none", "s",  "m",   "l",  "sd",
                                                             "md",   "ld", "s40", "s80"};
  return kNames[static_cast<size_t>(mix)];
}

std::array<uint64_t, kKvSizes> SharesOf(KvMix mix) {
  constexpr std::array<std::array<uint64_t, kKvSizes>, kKvMixes> kShares = {{{0, 0, 0},
                                                                             {100, 0, 0},
                                                                             {0, 100, 0},
                                                                             {0, 0, 100},
                                                                             {60, 20, 20},
                                                                             {20, 60, 20},
                                                                             {20, 20, 60},
                                                                             {40, 30, 30},
                                                                             {80, 10, 10}}};
  FARLEAF_DCHECK(mix != KvMix::kNone);
  return kShares[static_cast<size_t>(mix)];
}

KvSize SizeOfKey(KvMix mix, std::string_view key) {
  const auto shares = SharesOf(mix);
  const uint64_t drawn = HashKey(key, kSizeSeed) % 100;
  if (drawn < shares[0]) return KvSize::kSmall;
  return drawn < shares[0] + shares[1] ? KvSize::kMedium : KvSize::kLarge;
}

double MeanPairBytes(KvMix mix) {
  const auto shares = SharesOf(mix);
  uint64_t sum = 0;
  for (size_t i = 0; i < kKvSizes; ++i) sum += shares[i] * kPairBytes[i];
  return static_cast<double>(sum) / 100;
}

uint64_t HashKey(std::string_view key, uint64_t seed) {
  uint64_t hash = Mix64(seed ^ key.size());
  for (; !key.empty(); key.remove_prefix(key.size() < 8 ? key.size() : 8)) {
    uint64_t word = 0;
    std::memcpy(&word, key.data(), key.size() < 8 ? key.size() : 8);
    hash = Mix64(hash ^ word);
  }
  return hash;
}

}  // namespace farleaf::ycsb
