// Whatever a redo slot holds: no record, or one that changes nothing outside its page.
#include <span>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/base/crc32c.h"
#include "dsm/redo_record.h"
#include "test/fuzz/fuzz_target.h"

namespace {
using namespace farleaf;
constexpr size_t kImageBytes = 504;
}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  std::vector<std::byte> before(kImageBytes), after(kImageBytes), slot(dsm::kRedoSlotBytes);
  for (size_t step : {8, 24, 128, 496, 504}) {
    for (size_t i = 0; i < kImageBytes; i += step) after[i] ^= std::byte{7};
    const dsm::RedoHead head{dsm::RedoKind::kDying, 17 + step, {1, 4096}, 2, {0, 8192}, 9};
    const size_t bytes = dsm::EncodeRedo(head, before, after, slot);
    seeds.emplace_back(AsChars(std::span(slot).first(bytes)));
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  std::vector<std::byte> slot(input.begin(), input.end());
  // As it is, and with its CRC set right, so that what stands behind the CRC is reached.
  for (const bool mended : {false, true}) {
    if (mended) {
      if (size < 8) return 0;
      const size_t record_bytes = LoadLittle<uint16_t>(slot.data() + 4);
      if (record_bytes < 8 || record_bytes > size) return 0;
      StoreLittle(slot.data(), Crc32c(std::span(slot).subspan(4, record_bytes - 4)));
    }
    const auto record = dsm::ParseRedo(slot);
    if (!record) continue;
    std::vector<std::byte> image(kImageBytes, std::byte{0x55});
    const bool applied = dsm::ApplyRedo(*record, image);
    FARLEAF_CHECK(applied || image == std::vector<std::byte>(kImageBytes, std::byte{0x55}));
    std::vector<std::byte> copy(dsm::kRedoSlotBytes);
    copy.resize(dsm::CopyRedo(*record, 4711, copy));
    const auto again = dsm::ParseRedo(copy);
    FARLEAF_CHECK(again && again->lock_word == 4711 && again->kind == record->kind);
    FARLEAF_CHECK(again->ranges.size() == record->ranges.size());
  }
  return 0;
}
