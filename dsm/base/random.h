// A small seeded generator (xoshiro256**, Blackman and Vigna 2018), seeded by splitmix64.
//
// Thread rule: one owner. The same seed gives the same sequence everywhere.
#pragma once

#include <cstdint>

namespace farleaf {

/// splitmix64's finaliser: a bijection on 64 bits that scatters neighbours.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) word = Mix64(seed++);
  }

  uint64_t Next() {
    const uint64_t result = RotateLeft(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = RotateLeft(state_[3], 45);
    return result;
  }
  /// Uniform in [0, bound). REQUIRES: bound > 0. (Lemire 2019, without the rejection step: the bias
  /// is below bound / 2^64.)
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  /// Uniform in [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }

 private:
  static uint64_t RotateLeft(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  uint64_t state_[4];
};

}  // namespace farleaf
