#include "benchmark/micro/pieces.h"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "dsm/base/bytes.h"
#include "dsm/base/clock.h"
#include "dsm/base/crc32c.h"
#include "dsm/base/random.h"

namespace farleaf::micro {

uint64_t ThreadCpuNs() {
  timespec now;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t KeyOf(uint64_t number) { return Mix64(number); }

Leaves::Leaves(uint64_t keys) : keys_(keys) {
  std::vector<uint64_t> sorted(keys);
  for (uint64_t i = 0; i < keys; ++i) sorted[i] = KeyOf(i);
  std::sort(sorted.begin(), sorted.end());
  for (uint64_t i = 0; i < keys; i += kKeysPerLeaf) separators_.push_back(sorted[i]);
  separators_.front() = 0;
  bytes_.resize(separators_.size() * kLeafBytes);
  Random random(1);
  for (size_t i = 0; i < separators_.size(); ++i) {
    std::byte* image = bytes_.data() + i * kLeafBytes;
    for (size_t at = 8; at < kLeafImageBytes; at += 8) StoreLittle(image + at, random.Next());
    StoreLittle(image, Crc32c({image + 8, kLeafImageBytes - 8}));
  }
}

size_t Leaves::Find(uint64_t key) const {
  const uint64_t* first = separators_.data();
  size_t left = separators_.size();
  while (left > 1) {
    const size_t half = left / 2;
    first += first[half] <= key ? half : 0;
    left -= half;
  }
  return static_cast<size_t>(first - separators_.data());
}

bool CopyAndCheck(std::span<const std::byte> leaf, std::span<std::byte> to) {
  std::memcpy(to.data(), leaf.data(), kLeafImageBytes);
  return LoadLittle<uint32_t>(to.data()) == Crc32c({to.data() + 8, kLeafImageBytes - 8});
}

}  // namespace farleaf::micro
