// MultiGet: on a warm cache one round trip, with one READ a leaf, or a run of a leaf's parts; and one more
// for values out of line of which no hint knows where they are.
#include <algorithm>

#include "index/blink/leaf_codec.h"
#include "index/blink/tree.h"

namespace farleaf::index {

/// One leaf that answers some keys of a MultiGet.
struct BlinkTree::WantedLeaf {
  GlobalAddress address;
  uint64_t fence_digest = 0;  ///< as cached
  LeafRange range;
  PartMask window = 0;  ///< of its parts, if it is read in part
  std::vector<size_t> keys;
};

/// A MultiGet on its way. Lives in its frame.
struct BlinkTree::MultiGetState {
  std::span<const std::string_view> keys;
  std::vector<std::optional<std::string>>* values;
  std::vector<GuessedValue> guesses;                        ///< one a key, where there are hints
  std::vector<std::pair<size_t, OutOfLineValue>> to_fetch;  ///< key, where its value is
  std::vector<size_t> rest;                                 ///< answered one by one
};

namespace {
constexpr size_t kLeavesPerRoundTripMax = 256;
constexpr size_t kGuessesPerRoundTripMax = 1024;

/// Of a MultiGet that fails: a key that was not answered would look like one that is absent.
struct AllOrNone {
  std::vector<std::optional<std::string>>* values;
  bool all = false;
  ~AllOrNone() {
    if (!all) values->clear();
  }
};

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
                                MultiGetState& state) {
  const LeafParts leaf(image, wanted.window, wanted.range);
  if (!leaf.Fits(wanted.fence_digest)) {
    state.rest.insert(state.rest.end(), wanted.keys.begin(), wanted.keys.end());
    return;
  }
  NoteHints(wanted.address, leaf);
  for (const size_t k : wanted.keys) {
    const LeafParts::Place at = leaf.Find(LoadBig64(state.keys[k].data()));
    if (at.outcome == LeafParts::Outcome::kNotLoaded) state.rest.push_back(k);
    if (at.outcome != LeafParts::Outcome::kYes) continue;
    (*state.values)[k].emplace(AsChars({leaf.part(at.part).value(at.slot), 8}));
  }
}

void BlinkTree::AnswerFromLeaf(const WantedLeaf& wanted, std::span<std::byte> image,
                               MultiGetState& state) {
  const bool valid = OpenPage(info_.geometry, 0, image) == OpenOutcome::kValid;
  for (const size_t k : wanted.keys) {
    const ConstNode leaf(info_.geometry, image);
    if (!valid || FitOf(leaf, state.keys[k], Side::kAt, 0) != Fit::kCovers) {
      state.rest.push_back(k);
      continue;
    }
    GuessedValue* const guess = state.guesses.empty() ? nullptr : &state.guesses[k];
    const ConstNode::Position at = leaf.Search(state.keys[k]);
    const StoredValue stored = at.found ? leaf.Value(at.index) : StoredValue();
    if (stored.out_of_line) {
      const OutOfLineValue where = DecodeOutOfLine(stored.bytes);
      std::string value;
      if (guess && TakeGuess(*guess, where, &value)) {
        (*state.values)[k] = std::move(value);
      } else {
        state.to_fetch.emplace_back(k, where);
      }
      continue;
    }
    if (guess) ForgetGuess(*guess);
    if (at.found) (*state.values)[k].emplace(stored.bytes);
  }
}

void BlinkTree::AddLeafReads(std::span<const WantedLeaf> wanted, std::span<std::byte> images,
                             MultiGetState& state, std::vector<Batch>& batches,
                             size_t* leaf_batches) {
  const size_t image_bytes = info_.geometry.image_bytes(0);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto image = images.subspan(i * image_bytes, image_bytes);
    Batch& batch = dsm::BatchFor(batches, wanted[i].address.server());
    if (wanted[i].window != 0) {
      AddPartReads(wanted[i].address, wanted[i].window, image, batch);
    } else {
      batch.Read(wanted[i].address.offset(), image);
    }
  }
  *leaf_batches = batches.size();
  if (state.guesses.empty()) return;
  size_t guesses = 0;
  for (const WantedLeaf& leaf : wanted) {
    for (const size_t k : leaf.keys) {
      GuessedValue& guess = state.guesses[k];
      if (!guess.hint || guesses++ >= kGuessesPerRoundTripMax) continue;
      guess.AddRead(dsm::BatchFor(batches, guess.hint->block.server()));
      guess.read = true;
    }
  }
}

Task<Status> BlinkTree::FetchWanted(OpContext& op, MultiGetState& state) {
  std::vector<std::string> values(state.to_fetch.size());
  std::vector<ValueFetch> fetches;
  fetches.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    fetches.push_back({state.to_fetch[i].second, &values[i]});
  }
  Status status = co_await ReadValues(op, fetches);
  if (!status.ok()) co_return status;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& [k, where] = state.to_fetch[i];
    if (fetches[i].state != ValueState::kRead) {
      state.rest.push_back(k);
      continue;
    }
    if (!state.guesses.empty()) NoteValue(state.guesses[k].hash, where);
    (*state.values)[k] = std::move(values[i]);
  }
  co_return status;
}

Task<Status> BlinkTree::MultiGet(OpContext& op, std::span<const std::string_view> keys,
                                 std::vector<std::optional<std::string>>* values) {
  values->assign(keys.size(), std::nullopt);
  AllOrNone answers{values};
  MultiGetState state{.keys = keys, .values = values};
  if (value_hints_.enabled()) state.guesses.resize(keys.size());
  std::vector<WantedLeaf> wanted;
  for (size_t i = 0; i < keys.size(); ++i) {
    FARLEAF_CO_RETURN_IF_ERROR(CheckKey(keys[i]));
    const SearchCache::LeafPath path =
        caching() ? cache_.FindLeaf(keys[i]) : SearchCache::LeafPath{};
    if (!path.complete || path.node.is_null()) {
      state.rest.push_back(i);
      continue;
    }
    wanted.push_back({path.node, path.fence_digest, path.range, 0, {i}});
    if (!state.guesses.empty()) state.guesses[i] = GuessValue(keys[i]);
    if (parted()) {
      wanted.back().window = UsualWindow(path, LoadBig64(keys[i].data()));
    }
  }
  NoteCacheHits(op, wanted.size());
  JoinSameLeaves(wanted);

  const size_t image_bytes = info_.geometry.image_bytes(0);
  const size_t images_max = std::min(kLeavesPerRoundTripMax, wanted.size());
  const auto images = std::make_unique_for_overwrite<std::byte[]>(images_max * image_bytes);
  for (size_t first = 0; first < wanted.size(); first += kLeavesPerRoundTripMax) {
    const size_t count = std::min(kLeavesPerRoundTripMax, wanted.size() - first);
    const std::span leaves(&wanted[first], count);
    std::vector<Batch> batches;
    size_t leaf_batches = 0;
    AddLeafReads(leaves, {images.get(), count * image_bytes}, state, batches, &leaf_batches);
    Status status = co_await op.worker.RoundTrip(batches, op.counts);
    if (!status.ok()) {  // what is guessed fails nothing
      for (size_t i = 0; i < leaf_batches; ++i) FARLEAF_CO_RETURN_IF_ERROR(batches[i].status());
      for (GuessedValue& guess : state.guesses) guess.read = false;
    }
    for (size_t i = 0; i < count; ++i) {
      const std::span image(&images[i * image_bytes], image_bytes);
      if (leaves[i].window != 0) {
        AnswerFromParts(leaves[i], image, state);
      } else {
        AnswerFromLeaf(leaves[i], image, state);
      }
    }
  }
  if (!state.to_fetch.empty()) {
    Status fetched = co_await FetchWanted(op, state);
    if (!fetched.ok()) co_return fetched;
  }
  for (const size_t k : state.rest) {
    std::string value;
    auto found = co_await Get(op, keys[k], &value);
    if (!found.ok()) co_return found.status();
    if (*found) (*values)[k] = std::move(value);
  }
  answers.all = true;
  co_return Status::Ok();
}

}  // namespace farleaf::index
