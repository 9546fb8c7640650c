#include "index/blink/tree.h"

namespace farleaf::index {

Status TreeOptions::Validate() const {
  const auto refuse = [](const char* name, const std::string& value, const std::string& range) {
    return Status::InvalidArgument(std::string(name) + " = " + value + " is outside " + range);
  };
  if (hop_threshold < 1 || hop_threshold > 64) {
    return refuse("hop_threshold", std::to_string(hop_threshold), "1..64");
  }
  if (lock_wait_ms < 1 || lock_wait_ms > 600'000) {
    return refuse("lock_wait_ms", std::to_string(lock_wait_ms), "1..600000");
  }
  if (!(merge_below >= 0 && merge_below <= 0.5)) {
    return refuse("merge_below", std::to_string(merge_below), "0..0.5");
  }
  if (!(merge_up_to >= merge_below && merge_up_to <= 1)) {
    return refuse("merge_up_to", std::to_string(merge_up_to), "merge_below..1");
  }
  if (scan_leaves_max < 1 || scan_leaves_max > 256) {
    return refuse("scan_leaves_max", std::to_string(scan_leaves_max), "1..256");
  }
  for (const auto& [name, bytes] : {std::pair("value_hint_bytes", value_hint_bytes),
                                    std::pair("value_list_bytes", value_list_bytes)}) {
    if (bytes > kRememberedBytesMax) {
      return refuse(name, std::to_string(bytes), "0.." + std::to_string(kRememberedBytesMax));
    }
  }
  return Status::Ok();
}

namespace {
/// A first guess of a leaf's entries before scans have seen any: two thirds of a page of small ones; half of a parted one's
/// slots (README.md, Why parts).
double InitialEntriesPerLeaf(const Geometry& geometry) {
  if (geometry.leaf_layout == LeafLayout::kParted) {
    return static_cast<double>(PartsOf(geometry.leaf_bytes) * kPartSlots) / 2;
  }
  const uint32_t entry_bytes = geometry.layout == Layout::kFixed8 ? 16 : 64;
  return geometry.leaf_bytes / entry_bytes * 2.0 / 3;
}

/// Of what is remembered of values out of line: nothing where there are none, or no cache leads to leaves.
uint64_t BytesFor(uint64_t option, const Geometry& geometry, const TreeOptions& options) {
  const bool wanted = geometry.layout == Layout::kBytes && options.cache != CacheMode::kNone;
  return wanted ? option : 0;
}
}  // namespace

BlinkTree::BlinkTree(dsm::Pool* pool, TreeInfo info, TreeOptions options)
    : pool_(pool),
      info_(std::move(info)),
      options_(options),
      cache_(info_.geometry, info_.id, pool->layouts(), &pool->epochs(), options.cache_bytes),
      hints_(info_.geometry.leaf_bytes, pool->layouts()),
      value_hints_(BytesFor(options.value_hint_bytes, info_.geometry, options), pool->layouts()),
      value_lists_(BytesFor(options.value_list_bytes, info_.geometry, options), pool->layouts()),
      entries_per_leaf_(InitialEntriesPerLeaf(info_.geometry)) {
  FARLEAF_CHECK(options_.Validate().ok(), options_.Validate());
  FARLEAF_CHECK(info_.geometry.Validate().ok(), info_.geometry.Validate());
}

BlinkTree::~BlinkTree() {
  if (!late_blocks_.empty()) pool_->allocator().GiveUp();
}

}  // namespace farleaf::index
