#include "index/blink/value_lists.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "dsm/base/random.h"
#include "index/blink/fence_digest.h"
#include "index/blink/node_bytes.h"
#include "index/blink/value_block.h"

namespace farleaf::index {

namespace {

constexpr uint64_t kShardBytesMin = uint64_t{64} << 10;
constexpr size_t kShardsMax = 16;
/// A list mostly wrong so often is used at every 16th scan.
constexpr uint8_t kBadMax = 4;
/// Of a hash of a key, in each word, where that leaves as many for the order.
constexpr int kTagBitsMax = 8;
/// What writes may cost that no scan has asked between, in changes of a word: about what a second round trip does.
constexpr uint16_t kUnaskedMax = 512;
/// Of a list that is made anew.
constexpr uint16_t kAnewCost = 16;
/// Words are allocated so many at a time, for entries come and go.
constexpr uint32_t kWordsStep = 8;
/// Of a list beside its words: the allocations' heads, and what the map takes.
constexpr uint64_t kMapBytes = 64;

internal::BytesProbe ProbeBeside(std::string_view low, std::string_view key) {
  return internal::BytesPage::ProbeBeside(low, key);
}

/// Of a key's bytes; cheap, for a write has it made of a leaf's keys.
uint64_t Mixed(std::string_view bytes) {
  using internal::FoldedProduct;
  using internal::kDigestKeys;
  const uint64_t seed = kDigestKeys[0] ^ bytes.size();
  if (bytes.size() < 8) {
    uint64_t word = 0;
    for (const char byte : bytes) word = word << 8 | static_cast<unsigned char>(byte);
    return FoldedProduct(seed ^ word, kDigestKeys[1]);
  }
  const char* const last = bytes.data() + bytes.size() - 8;
  uint64_t state = seed;
  for (const char* at = bytes.data(); at < last; at += 8) {
    state = FoldedProduct(state ^ LoadLittle<uint64_t>(at), kDigestKeys[1]);
  }
  return FoldedProduct(state ^ LoadLittle<uint64_t>(last), kDigestKeys[2]);
}

/// Probes of a leaf's keys beside its low fence.
class LeafProbes {
 public:
  /// The leftmost leaf has no low fence: beside none all of its keys may begin alike.
  LeafProbes(const ConstNode& leaf, std::string_view low) : leaf_(leaf), low_(low) {}
  /// Good until the next one.
  internal::BytesProbe operator[](size_t i) {
    if (leaf_.has_low()) return leaf_.KeyProbe(i);
    key_.clear();
    leaf_.AppendKey(i, &key_);
    return ProbeBeside(low_, key_);
  }

 private:
  const ConstNode& leaf_;
  std::string_view low_;
  std::string key_;
};

}  // namespace

ValueLists::ValueLists(uint64_t bytes_max, std::span<const dsm::RegionLayout> layouts)
    : names_(layouts),
      tag_bits_(std::min(kTagBitsMax, (64 - names_.bits()) / 3)),
      order_bits_(64 - names_.bits() - tag_bits_) {
  if (bytes_max == 0 || !names_.any()) return;
  const size_t shards =
      std::bit_floor(std::clamp<uint64_t>(bytes_max / kShardBytesMin, 1, kShardsMax));
  shard_mask_ = shards - 1;
  shard_bytes_max_ = bytes_max / shards;
  shards_ = std::make_unique<Shard[]>(shards);
}

ValueLists::Shard& ValueLists::ShardOf(GlobalAddress leaf) const {
  return shards_[Mix64(leaf.word()) & shard_mask_];
}

uint64_t ValueLists::BytesOf(const List& list) {
  return sizeof(List) + kMapBytes + list.capacity * sizeof(uint64_t) +
         (list.low.capacity() > std::string().capacity() ? list.low.capacity() : 0);
}

uint64_t ValueLists::NumberOf(const List& list, uint64_t order) {
  const uint64_t level = order >> 32;
  if (level < list.base_level) return 0;
  uint64_t number = level - list.base_level;
  const auto radix = [&list](size_t i) { return uint64_t{list.most[i]} - list.least[i] + 1; };
  for (size_t i = 0; i < kHeadBytes; ++i) {
    const auto byte = static_cast<uint8_t>(order >> (8 * (kHeadBytes - 1 - i)));
    if (byte >= list.least[i] && byte <= list.most[i]) [[likely]] {
      number = number * radix(i) + byte - list.least[i];
      continue;
    }
    // No entry's: behind all that begin like it up to here, or ahead of them.
    const bool past = byte > list.most[i];
    number += past;
    for (; i < kHeadBytes; ++i) number *= radix(i);
    return number - past;
  }
  return number;
}

uint64_t ValueLists::TagOf(std::string_view rest) const { return Mixed(rest) >> (64 - tag_bits_); }

std::optional<ValueLists::Below> ValueLists::Tagged(const List& list, Below alike,
                                                    uint64_t tag) const {
  std::optional<Below> tagged;
  for (size_t i = alike.least; i < alike.most; ++i) {
    if ((list.words[i] >> names_.bits() & ((uint64_t{1} << tag_bits_) - 1)) != tag) continue;
    if (!tagged) tagged = {i, i};
    tagged->most = i;
  }
  return tagged;
}

ValueLists::Below ValueLists::EntriesBelow(const List& list, std::string_view key) const {
  const internal::BytesProbe probe = ProbeBeside(list.low, key);
  if (probe.below_low || probe.order() >> 32 < list.base_level) return {};
  const uint64_t number = NumberOf(list, probe.order());
  if (number < list.base) return {};
  const uint64_t wanted = (number - list.base) >> list.shift;
  if (static_cast<int>(std::bit_width(wanted)) > order_bits_) return {list.count, list.count};
  const uint64_t* const begin = list.words.get();
  const uint64_t* const end = begin + list.count;
  const uint64_t* const first = std::lower_bound(begin, end, wanted << order_shift());
  const uint64_t* last = first;
  while (last != end && *last >> order_shift() == wanted) ++last;
  const Below alike{static_cast<size_t>(first - begin), static_cast<size_t>(last - begin)};
  if (alike.unsure() == 0) return alike;
  std::optional<Below> below = Tagged(list, alike, TagOf(probe.rest));
  // The next key possible behind another: where a reader of pages goes on.
  if (key.ends_with('\0')) {
    key.remove_suffix(1);
    if (const auto before = Tagged(list, alike, TagOf(ProbeBeside(list.low, key).rest))) {
      const Below behind{before->least + 1, before->most + 1};
      if (!below) below = behind;
      below = {std::min(below->least, behind.least), std::max(below->most, behind.most)};
    }
  }
  return below.value_or(alike);
}

std::optional<ListedEntries> ValueLists::Find(GlobalAddress leaf, const WantedEntries& wanted,
                                              std::vector<ValueHint>* blocks) const {
  if (empty()) return std::nullopt;
  Shard& shard = ShardOf(leaf);
  const std::scoped_lock lock(shard.mutex);
  const auto found = shard.by_leaf.find(leaf.word());
  if (found == shard.by_leaf.end()) return std::nullopt;
  const List& list = *found->second;
  list.used = true;
  list.unasked = 0;
  if (list.pause > 0) {
    --list.pause;
    return std::nullopt;
  }
  Below from = EntriesBelow(list, wanted.first);
  Below to{list.count, list.count};
  if (wanted.end) to = EntriesBelow(list, *wanted.end);
  // Of many entries that may lie either side of where the scan begins, it is taken to begin near the first: a bound that
  // is no key is, as a rule, what its keys begin with.
  Below& begin = wanted.forward ? from : to;
  if (begin.unsure() > wanted.rows) begin.most = begin.least + wanted.rows + 1;
  const size_t first = from.least, end = to.most;
  ListedEntries listed;
  if (first >= end) return listed;
  const size_t unsure = std::min(begin.unsure(), end - first);
  listed.wanted = end - first - unsure;
  if (wanted.rows == 0) return listed;
  const uint64_t name_mask = (uint64_t{1} << names_.bits()) - 1;
  const size_t count = unsure + std::min<uint64_t>(wanted.rows, listed.wanted);
  for (size_t i = 0; i < count && listed.bytes < wanted.bytes; ++i) {
    const uint64_t name = list.words[wanted.forward ? first + i : end - 1 - i] & name_mask;
    uint64_t row_bytes = list.key_bytes_min;
    if (name != 0) {
      blocks->push_back(names_.BlockOf(name));
      row_bytes += ShortestValueBytes(blocks->back().bytes);
    }
    if (i < unsure) continue;
    ++listed.rows;
    listed.bytes += row_bytes;
  }
  return listed;
}

void ValueLists::FillOrders(List& list, const ConstNode& leaf) const {
  list.low = leaf.has_low() ? leaf.low() : leaf.Key(0);
  std::array<uint8_t, kHeadBytes> least{}, most{};
  least.fill(UINT8_MAX);
  uint64_t* const words = list.words.get();
  size_t key_bytes_min = kKeyBytesMax;
  LeafProbes probes(leaf, list.low);
  for (size_t i = 0, count = list.count; i < count; ++i) {
    const internal::BytesProbe probe = probes[i];
    words[i] = probe.order();
    key_bytes_min = std::min(key_bytes_min, probe.shared + probe.rest.size());
    for (size_t b = 0; b < kHeadBytes; ++b) {
      const auto byte = static_cast<uint8_t>(probe.head >> (8 * (kHeadBytes - 1 - b)));
      least[b] = std::min(least[b], byte);
      most[b] = std::max(most[b], byte);
    }
  }
  list.least = least;
  list.most = most;
  list.key_bytes_min = static_cast<uint16_t>(key_bytes_min);
  list.base_level = list.words[0] >> 32;
  list.base = NumberOf(list, list.words[0]);
  const uint64_t span = NumberOf(list, list.words[list.count - 1]) - list.base;
  list.shift =
      static_cast<uint8_t>(std::max(0, static_cast<int>(std::bit_width(span)) - order_bits_));
}

uint64_t ValueLists::NameOf(const ConstNode& leaf, size_t i) const {
  const StoredValue stored = leaf.Value(i);
  if (!stored.out_of_line) return 0;
  const OutOfLineValue where = DecodeOutOfLine(stored.bytes);
  const uint64_t bytes = BlockReadBytes(where.length);
  if (bytes > BlockNames::kBlockBytesMax) return 0;
  return names_.NameOf({where.block, static_cast<uint32_t>(bytes)});
}

bool ValueLists::Fill(List& list, const ConstNode& leaf) const {
  const auto count = static_cast<uint32_t>(leaf.count());
  list.version = leaf.version();
  list.count = count;
  if (count == 0) return false;
  if (list.capacity < count || list.capacity > count + 2 * kWordsStep) {
    list.capacity = (count + kWordsStep - 1) / kWordsStep * kWordsStep;
    list.words = std::make_unique_for_overwrite<uint64_t[]>(list.capacity);
  }
  FillOrders(list, leaf);
  // The numbers of orders that entries have are sums.
  std::array<uint64_t, kHeadBytes> weights{};
  uint64_t weight = 1, least = list.base;
  for (size_t b = kHeadBytes; b-- > 0; weight *= uint64_t{list.most[b]} - list.least[b] + 1) {
    weights[b] = weight;
    least += list.least[b] * weight;
  }
  const auto number = [&](uint64_t order) {
    uint64_t sum = ((order >> 32) - list.base_level) * weight;
    for (size_t b = 0; b < kHeadBytes; ++b) {
      sum += static_cast<uint8_t>(order >> (8 * (kHeadBytes - 1 - b))) * weights[b];
    }
    return sum - least;
  };
  LeafProbes probes(leaf, list.low);
  bool out_of_line = false;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t name = NameOf(leaf, i);
    out_of_line |= name != 0;
    const uint64_t order = number(list.words[i]) >> list.shift;
    list.words[i] = order << order_shift() | TagOf(probes[i].rest) << names_.bits() | name;
  }
  return out_of_line;
}

void ValueLists::Erase(Shard& shard, Lists::iterator list) {
  const uint64_t bytes = BytesOf(*list);
  shard.bytes -= bytes;
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  lists_.fetch_sub(1, std::memory_order_relaxed);
  shard.by_leaf.erase(list->leaf);
  shard.lists.erase(list);
}

void ValueLists::MakeRoom(Shard& shard) {
  while (shard.bytes > shard_bytes_max_) {  // each turn passes one over at most once
    const auto oldest = shard.lists.begin();
    if (std::exchange(oldest->used, false)) {
      shard.lists.splice(shard.lists.end(), shard.lists, oldest);
    } else {
      Erase(shard, oldest);
    }
  }
}

void ValueLists::Put(Shard& shard, GlobalAddress address, const ConstNode& leaf, uint16_t unasked) {
  const auto [place, fresh] = shard.by_leaf.try_emplace(address.word());
  if (fresh) {
    place->second = shard.lists.emplace(shard.lists.end());
    place->second->leaf = address.word();
    lists_.fetch_add(1, std::memory_order_relaxed);
  }
  List& list = *place->second;
  list.unasked = unasked;
  const uint64_t bytes_before = fresh ? 0 : BytesOf(list);
  const bool useful = Fill(list, leaf);
  const uint64_t bytes = BytesOf(list);
  shard.bytes += bytes - bytes_before;
  bytes_.fetch_add(bytes - bytes_before, std::memory_order_relaxed);
  if (!useful) {
    Erase(shard, place->second);
  } else {
    MakeRoom(shard);
  }
}

void ValueLists::NoteScanned(GlobalAddress address, const ConstNode& leaf,
                             const ListVerdict& verdict) {
  if (!shards_) return;
  Shard& shard = ShardOf(address);
  const std::scoped_lock lock(shard.mutex);
  const auto found = shard.by_leaf.find(address.word());
  if (found != shard.by_leaf.end()) {
    List& list = *found->second;
    // Of a list that is right more may be read than proves to be wanted.
    const bool wrong = verdict.missed > 0 || list.version != leaf.version();
    if (wrong && verdict.guessed > 2 * verdict.right) {
      if (list.bad < kBadMax) ++list.bad;
      list.pause = static_cast<uint8_t>((1 << list.bad) - 1);
    } else if (verdict.guessed > 0 && list.bad > 0) {
      --list.bad;
    }
    // It was out of use, and says what the leaf does.
    if (verdict.guessed == 0 && list.bad > 0 && list.version == leaf.version()) return;
    // What is newer than the image was noted by a write of this compute server's, as a rule. One that came to
    // nothing would be believed for ever if what was missed did not speak against it.
    if (verdict.missed == 0 && list.version >= leaf.version()) return;
  } else if (verdict.missed == 0) {
    return;
  }
  Put(shard, address, leaf, 0);
}

void ValueLists::NoteWritten(GlobalAddress address, const ConstNode& leaf,
                             std::optional<uint32_t> replaced) {
  if (empty()) return;
  Shard& shard = ShardOf(address);
  const std::scoped_lock lock(shard.mutex);
  const auto found = shard.by_leaf.find(address.word());
  if (found == shard.by_leaf.end()) return;
  List& list = *found->second;
  if (list.unasked >= kUnaskedMax) {
    Erase(shard, found->second);
    return;
  }
  // Only where the list is of the version before: keys, and so orders and tags, are the same.
  const bool patches = replaced && list.version + 1 == leaf.version() &&
                       list.count == leaf.count() && *replaced < list.count;
  if (!patches) {
    Put(shard, address, leaf, list.unasked + kAnewCost);
    return;
  }
  uint64_t& word = list.words[*replaced];
  word = (word >> names_.bits() << names_.bits()) | NameOf(leaf, *replaced);
  list.version = leaf.version();
  ++list.unasked;
}

void ValueLists::NoteSplit(GlobalAddress left, GlobalAddress right_address,
                           const ConstNode& right) {
  if (empty()) return;
  uint16_t unasked = 0;
  {
    Shard& shard = ShardOf(left);
    const std::scoped_lock lock(shard.mutex);
    const auto found = shard.by_leaf.find(left.word());
    if (found == shard.by_leaf.end()) return;
    unasked = found->second->unasked;
  }
  Shard& shard = ShardOf(right_address);
  const std::scoped_lock lock(shard.mutex);
  Put(shard, right_address, right, unasked);
}

}  // namespace farleaf::index
