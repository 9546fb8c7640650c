// MultiGet: on a warm cache one round trip, with one READ a leaf, or a run of a leaf's parts.
#include <algorithm>

#include "index/blink/leaf_codec.h"
#include "index/blink/tree.h"

namespace farleaf::index {

/// One leaf that answers some keys of a MultiGet.
struct BlinkTree::WantedLeaf {
  GlobalAddress address;
  uint64_t fence_digest = 0;  ///< as cached
  PartMask window = 0;        ///< of its parts, if it is read in part
  std::vector<size_t> keys;
};

namespace {
constexpr size_t kLeavesPerRoundTripMax = 256;

/// Puts the keys of one leaf together, in the order of addresses.
template <typename Leaf>
void JoinSameLeaves(std::vector<Leaf>& wanted) {
  std::sort(wanted.begin(), wanted.end(),
            [](const Leaf& a, const Leaf& b) { return a.address < b.address; });
  size_t unique = 0;
  for (size_t i = 1; i < wanted.size(); ++i) {
    if (wanted[i].address == wanted[unique].address) {
      wanted[unique].keys.push_back(wanted[i].keys[0]);
      wanted[unique].window |= wanted[i].window;
    } else if (++unique != i) {  // a vector moved to itself would be empty
      wanted[unique] = std::move(wanted[i]);
    }
  }
  if (!wanted.empty()) wanted.resize(unique + 1);
}
}  // namespace

void BlinkTree::AnswerFromParts(const WantedLeaf& wanted, std::span<std::byte> image,
                                std::span<const std::string_view> keys,
                                std::vector<std::optional<std::string>>* values,
                                std::vector<size_t>* rest) {
  const LeafParts leaf(image, wanted.window);
  if (!leaf.Fits(wanted.fence_digest)) {
    rest->insert(rest->end(), wanted.keys.begin(), wanted.keys.end());
    return;
  }
  NoteHints(wanted.address, leaf);
  for (const size_t k : wanted.keys) {
    const LeafParts::Place at = leaf.Find(LoadBig64(keys[k].data()));
    if (at.outcome == LeafParts::Outcome::kNotLoaded) rest->push_back(k);
    if (at.outcome != LeafParts::Outcome::kYes) continue;
    (*values)[k].emplace(AsChars({leaf.part(at.part).value(at.slot), 8}));
  }
}

void BlinkTree::AnswerFromLeaf(const WantedLeaf& wanted, std::span<std::byte> image,
                               std::span<const std::string_view> keys,
                               std::vector<std::optional<std::string>>* values,
                               std::vector<size_t>* rest) {
  const bool valid = OpenPage(info_.geometry, 0, image) == OpenOutcome::kValid;
  for (const size_t k : wanted.keys) {
    const ConstNode leaf(info_.geometry, image);
    if (!valid || FitOf(leaf, keys[k], Side::kAt, 0) != Fit::kCovers) {
      rest->push_back(k);
      continue;
    }
    const ConstNode::Position at = leaf.Search(keys[k]);
    if (!at.found) continue;
    const StoredValue stored = leaf.Value(at.index);
    if (stored.out_of_line) {
      rest->push_back(k);
    } else {
      (*values)[k].emplace(stored.bytes);
    }
  }
}

Task<Status> BlinkTree::MultiGet(OpContext& op, std::span<const std::string_view> keys,
                                 std::vector<std::optional<std::string>>* values) {
  values->assign(keys.size(), std::nullopt);
  std::vector<WantedLeaf> wanted;
  std::vector<size_t> rest;  // answered one by one
  for (size_t i = 0; i < keys.size(); ++i) {
    FARLEAF_CO_RETURN_IF_ERROR(CheckKey(keys[i]));
    const SearchCache::LeafPath path =
        caching() ? cache_.FindLeaf(keys[i]) : SearchCache::LeafPath{};
    if (!path.complete || path.node.is_null()) {
      rest.push_back(i);
      continue;
    }
    wanted.push_back({path.node, path.fence_digest, 0, {i}});
    if (reads_parts()) {
      wanted.back().window = WindowToRead(
          LoadBig64(keys[i].data()), PartsOf(info_.geometry.leaf_bytes), {hints_.Load(path.node)});
    }
  }
  JoinSameLeaves(wanted);

  const size_t image_bytes = info_.geometry.image_bytes(0);
  const size_t images_max = std::min(kLeavesPerRoundTripMax, wanted.size());
  const auto images = std::make_unique_for_overwrite<std::byte[]>(images_max * image_bytes);
  for (size_t first = 0; first < wanted.size(); first += kLeavesPerRoundTripMax) {
    const size_t count = std::min(kLeavesPerRoundTripMax, wanted.size() - first);
    std::vector<Batch> batches;
    for (size_t i = 0; i < count; ++i) {
      const WantedLeaf& leaf = wanted[first + i];
      const std::span image(&images[i * image_bytes], image_bytes);
      Batch& batch = dsm::BatchFor(batches, leaf.address.server());
      if (leaf.window != 0) {
        AddPartReads(leaf.address, leaf.window, image, batch);
      } else {
        batch.Read(leaf.address.offset(), image);
      }
    }
    Status status = co_await op.worker.RoundTrip(batches, op.counts);
    if (!status.ok()) co_return status;
    for (size_t i = 0; i < count; ++i) {
      const WantedLeaf& leaf = wanted[first + i];
      const std::span image(&images[i * image_bytes], image_bytes);
      if (leaf.window != 0) {
        AnswerFromParts(leaf, image, keys, values, &rest);
      } else {
        AnswerFromLeaf(leaf, image, keys, values, &rest);
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
