// Get and MultiGet. On a warm cache both cost one round trip, with one READ a leaf.
#include <algorithm>

#include "dsm/base/mutation.h"
#include "index/blink/tree.h"

namespace farleaf::index {

namespace {
constexpr uint64_t kValueRetryNs = 500;
}  // namespace

Task<Result<bool>> BlinkTree::Get(OpContext& op, std::string_view key, std::string* value) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckKey(key));
  const Geometry& geometry = info_.geometry;
  PageBuffer page;
  uint64_t give_up_ns = 0;
  bool fresh = false;
  if (caching()) {
    const SearchCache::Path path = cache_.Find(key, Side::kAt, 0);
    if (path.complete && !path.node.is_null()) [[likely]] {
      Batch batch(path.node.server());
      batch.Read(path.node.offset(), page.image(geometry, 0));
      Status status = co_await op.worker.RoundTrip(batch, op.counts);
      if (!status.ok()) co_return status;
      if (OpenPage(geometry, 0, page.image(geometry, 0)) == OpenOutcome::kValid) {
        const Fit fit = FitOf(ConstNode(geometry, page.image(geometry, 0)), key, Side::kAt, 0);
        fresh = fit == Fit::kCovers ||
                (Mutated(Mutation::kAbsentFromStaleLeaf) && fit == Fit::kMoveRight);
      }
    }
  }
  while (!op.expired()) {
    if (!fresh) {
      auto leaf = co_await ReadNode(op, key, Side::kAt, 0, page);
      if (!leaf.ok()) co_return leaf.status();
    }
    const ConstNode leaf(geometry, page.image(geometry, 0));
    const ConstNode::Position at = leaf.Search(key);
    if (!at.found) co_return false;
    const StoredValue stored = leaf.Value(at.index);
    if (!stored.out_of_line) [[likely]] {
      value->assign(stored.bytes);
      co_return true;
    }
    auto outcome = co_await ReadValue(op, DecodeOutOfLine(stored.bytes), value);
    if (!outcome.ok()) co_return outcome.status();
    if (*outcome == ValueState::kRead) co_return true;
    fresh = false;  // overwritten meanwhile: the leaf names another block by now
    const uint64_t now_ns = op.worker.clock().NowNs();
    if (give_up_ns == 0) give_up_ns = WaitDeadlineNs(op);
    if (now_ns >= give_up_ns) {
      co_return Status::Corruption("a leaf of tree '" + info_.name +
                                   "' keeps naming value blocks that hold other values");
    }
    co_await op.worker.Sleep(kValueRetryNs);
  }
  co_return Status::DeadlineExceeded("get in tree '" + info_.name + "'");
}

namespace {
/// One leaf that answers some keys of a MultiGet.
struct WantedLeaf {
  GlobalAddress address;
  std::vector<size_t> keys;
};
constexpr size_t kLeavesPerRoundTripMax = 256;
}  // namespace

Task<Status> BlinkTree::MultiGet(OpContext& op, std::span<const std::string_view> keys,
                                 std::vector<std::optional<std::string>>* values) {
  const Geometry& geometry = info_.geometry;
  values->assign(keys.size(), std::nullopt);
  std::vector<WantedLeaf> wanted;
  std::vector<size_t> rest;  // answered one by one
  for (size_t i = 0; i < keys.size(); ++i) {
    FARLEAF_CO_RETURN_IF_ERROR(CheckKey(keys[i]));
    const SearchCache::Path path =
        caching() ? cache_.Find(keys[i], Side::kAt, 0) : SearchCache::Path{};
    if (!path.complete || path.node.is_null()) {
      rest.push_back(i);
    } else {
      wanted.push_back({path.node, {i}});
    }
  }
  std::sort(wanted.begin(), wanted.end(),
            [](const WantedLeaf& a, const WantedLeaf& b) { return a.address < b.address; });
  size_t unique = 0;
  for (size_t i = 1; i < wanted.size(); ++i) {
    if (wanted[i].address == wanted[unique].address) {
      wanted[unique].keys.push_back(wanted[i].keys[0]);
    } else if (++unique != i) {  // a vector moved to itself would be empty
      wanted[unique] = std::move(wanted[i]);
    }
  }
  if (!wanted.empty()) wanted.resize(unique + 1);

  for (size_t first = 0; first < wanted.size(); first += kLeavesPerRoundTripMax) {
    const size_t count = std::min(kLeavesPerRoundTripMax, wanted.size() - first);
    const size_t image_bytes = geometry.image_bytes(0);
    std::vector<std::byte> images(count * image_bytes);
    const auto image = [&](size_t i) {
      return std::span(images).subspan(i * image_bytes, image_bytes);
    };
    std::vector<Batch> batches;  // one a server: the leaves are sorted by address
    for (size_t i = 0; i < count; ++i) {
      const GlobalAddress address = wanted[first + i].address;
      if (batches.empty() || batches.back().server() != address.server()) {
        batches.emplace_back(address.server());
      }
      batches.back().Read(address.offset(), image(i));
    }
    Status status = co_await op.worker.RoundTrip(batches, op.counts);
    if (!status.ok()) co_return status;
    for (size_t i = 0; i < count; ++i) {
      const bool valid = OpenPage(geometry, 0, image(i)) == OpenOutcome::kValid;
      for (const size_t k : wanted[first + i].keys) {
        const ConstNode leaf(geometry, image(i));
        if (!valid || FitOf(leaf, keys[k], Side::kAt, 0) != Fit::kCovers) {
          rest.push_back(k);
          continue;
        }
        const ConstNode::Position at = leaf.Search(keys[k]);
        if (!at.found) continue;
        const StoredValue stored = leaf.Value(at.index);
        if (stored.out_of_line) {
          rest.push_back(k);
        } else {
          (*values)[k].emplace(stored.bytes);
        }
      }
    }
  }
  for (const size_t k : rest) {
    std::string value;
    auto found = co_await Get(op, keys[k], &value);
    if (!found.ok()) co_return found.status();
    if (*found) (*values)[k] = std::move(value);
  }
  co_return Status::Ok();
}

}  // namespace farleaf::index
