#include "dsm/verbs/landing_ring.h"

#include <sys/mman.h>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"

namespace farleaf::dsm {

Result<std::unique_ptr<LandingRing>> LandingRing::Create(const VerbsDevice& device,
                                                         uint64_t bytes) {
  FARLEAF_CHECK(bytes >= 4096 && (bytes & (bytes - 1)) == 0, bytes);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return OsError("no memory for an RDMA connection");
  ibv_mr* region = ibv_reg_mr(device.protection_domain(), memory, bytes, IBV_ACCESS_LOCAL_WRITE);
  if (region == nullptr) {
    Status failed = VerbsError("cannot register " + std::to_string(bytes) +
                               " bytes for an RDMA connection on " + device.name());
    ::munmap(memory, bytes);
    return failed;
  }
  return std::unique_ptr<LandingRing>(
      new LandingRing(static_cast<std::byte*>(memory), bytes, region));
}

LandingRing::~LandingRing() {
  ibv_dereg_mr(region_);
  ::munmap(memory_, bytes_);
}

std::byte* LandingRing::Take(uint64_t count) {
  constexpr uint64_t kUnit = 64;  // a cache line
  count = RoundUp(count, kUnit);
  FARLEAF_DCHECK(count <= bytes_ / 4, count);
  uint64_t begin = head_;
  const uint64_t to_end = bytes_ - (begin & (bytes_ - 1));
  if (count > to_end) begin += to_end;
  if (begin + count - tail_ > bytes_) return nullptr;
  head_ = begin + count;
  return memory_ + (begin & (bytes_ - 1));
}

}  // namespace farleaf::dsm
