#include "index/blink/fence_digest.h"
namespace farleaf::index {
namespace {
uint64_t M(uint64_t a, uint64_t b) {
  const auto p = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(p) ^ static_cast<uint64_t>(p >> 64);
}
uint64_t H(std::optional<std::string_view> f) {
  if (!f) return 0x1234567;
  uint64_t h = 0x9e3779b97f4a7c15 ^ f->size();
  for (char c : *f) h = M(h ^ static_cast<unsigned char>(c), 0xa4093822299f31d1);
  return h;
}
}  // namespace
uint64_t FenceDigest(TreeId tree, std::optional<std::string_view> low,
                     std::optional<std::string_view> high) {
  const uint64_t d = M(H(low) + tree, H(high) ^ 0xbe5466cf34e90c6c) & ((uint64_t{1} << 48) - 1);
  return d == 0 ? 1 : d;
}
}  // namespace farleaf::index
