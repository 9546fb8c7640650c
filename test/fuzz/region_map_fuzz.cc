// Whatever bytes the entries of nodes and regions have: they are taken, keep their rules and encode to the same bytes again, or are refused
// as damaged; and regions make a map in which each key has its region, or are refused.
//
// The first byte chooses: 0, a node; 1, a region; else regions, each { bytes of it(2) bytes }, as a map. Inputs to start from:
// corpus/region_map. Each is tried as it is, and with its checksums set right, so that what stands behind them is reached.
#include <algorithm>
#include <string>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/crc32c.h"
#include "server/membership/region_map.h"
#include "test/fuzz/corpus.h"
#include "test/fuzz/fuzz_target.h"

namespace farleaf::test {
namespace {

using namespace server::membership;

void ParseNode(const std::string& bytes) {
  const auto node = ParseNodeEntry("fuzzed", AsBytes(bytes));
  if (!node.ok()) {
    FARLEAF_CHECK(node.status().code() == StatusCode::kCorruption, node.status());
    return;
  }
  FARLEAF_CHECK(CheckNodeEntry(*node).ok() && EncodeNodeEntry(*node) == bytes, bytes.size());
}

void ParseRegion(const std::string& bytes, std::vector<RegionEntry>* regions) {
  const auto region = ParseRegionEntry("fuzzed", AsBytes(bytes));
  if (!region.ok()) {
    FARLEAF_CHECK(region.status().code() == StatusCode::kCorruption, region.status());
    return;
  }
  FARLEAF_CHECK(CheckRegionEntry(*region).ok() && EncodeRegionEntry(*region) == bytes,
                bytes.size());
  regions->push_back(*region);
}

void Mend(std::string* bytes) {
  if (bytes->size() < sizeof(uint32_t)) return;
  bytes->resize(bytes->size() - sizeof(uint32_t));
  ByteWriter(bytes).Write(Crc32c(AsBytes(*bytes)));
}

void MakeMap(const std::vector<RegionEntry>& regions) {
  const auto map = RegionMap::Make(1, regions);
  if (!map.ok()) {
    FARLEAF_CHECK(map.status().code() == StatusCode::kInvalidArgument, map.status());
    return;
  }
  FARLEAF_CHECK(map->regions().size() == regions.size());
  for (const RegionEntry& region : regions) {
    for (const std::string& key : {region.start, region.start + '\0', region.end}) {
      const RegionEntry& found = map->Find(key);
      const auto covers = [&key](const RegionEntry& each) { return each.Covers(key); };
      FARLEAF_CHECK(found.Covers(key) &&
                    std::count_if(regions.begin(), regions.end(), covers) == 1);
    }
    const RegionEntry* next = map->Next(region);
    FARLEAF_CHECK(next == nullptr ? region.end.empty() : next->start == region.end);
  }
}

void TryRegions(std::string_view bytes, bool mended) {
  std::vector<RegionEntry> regions;
  while (bytes.size() >= sizeof(uint16_t)) {
    const size_t length = LoadLittle<uint16_t>(bytes.data());
    bytes.remove_prefix(sizeof(uint16_t));
    std::string region(bytes.substr(0, length));
    bytes.remove_prefix(region.size());
    if (mended) Mend(&region);
    ParseRegion(region, &regions);
  }
  MakeMap(regions);
}

}  // namespace
}  // namespace farleaf::test

std::vector<std::string> FuzzSeeds() { return farleaf::test::ReadCorpus("region_map"); }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace farleaf::test;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (const bool mended : {false, true}) {
    std::string bytes(input);
    std::vector<farleaf::server::membership::RegionEntry> regions;
    switch (data[0]) {
      case 0:
        if (mended) Mend(&bytes);
        ParseNode(bytes);
        break;
      case 1:
        if (mended) Mend(&bytes);
        ParseRegion(bytes, &regions);
        break;
      default:
        TryRegions(input, mended);
    }
  }
  return 0;
}
