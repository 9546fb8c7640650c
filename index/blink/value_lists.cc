#include "index/blink/value_lists.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "dsm/base/random.h"
#include "index/blink/node_bytes.h"
#include "index/blink/value_block.h"

namespace farleaf::index {

namespace {

constexpr uint64_t kShardBytesMin = uint64_t{64} << 10;
constexpr size_t kShardsMax = 16;
/// A list mostly wrong so often is used at every 16th scan.
constexpr uint8_t kBadMax = 4;
/// Words are allocated so many at a time, for entries come and go.
constexpr uint32_t kWordsStep = 8;
/// Of a list beside its words: the allocations' heads, and what the map takes.
constexpr uint64_t kMapBytes = 64;

uint64_t OrderBeside(std::string_view low, std::string_view key) {
  const internal::BytesProbe probe = internal::BytesPage::ProbeBeside(low, key);
  return probe.below_low ? 0 : probe.order();
}

}  // namespace

ValueLists::ValueLists(uint64_t bytes_max, std::span<const dsm::RegionLayout> layouts)
    : names_(layouts), order_bits_(64 - names_.bits()) {
  if (bytes_max == 0) return;
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

ValueLists::Place ValueLists::PlaceOf(const List& list, std::string_view key) const {
  const uint64_t number = NumberOf(list, OrderBeside(list.low, key));
  if (number < list.base) return {};
  const uint64_t wanted = (number - list.base) >> list.shift;
  if (static_cast<int>(std::bit_width(wanted)) > order_bits_) return {list.count, list.count};
  const uint64_t* const begin = list.words.get();
  const uint64_t* const end = begin + list.count;
  const uint64_t* const first = std::lower_bound(begin, end, WordFor(wanted));
  const uint64_t* last = first;
  while (last != end && *last >> names_.bits() == wanted) ++last;
  return {static_cast<size_t>(first - begin), static_cast<size_t>(last - begin)};
}

std::optional<size_t> ValueLists::Find(GlobalAddress leaf, const WantedEntries& wanted,
                                       std::vector<ValueHint>* blocks) const {
  if (empty()) return std::nullopt;
  Shard& shard = ShardOf(leaf);
  const std::scoped_lock lock(shard.mutex);
  const auto found = shard.by_leaf.find(leaf.word());
  if (found == shard.by_leaf.end()) return std::nullopt;
  const List& list = *found->second;
  list.used = true;
  if (list.pause > 0) {
    --list.pause;
    return std::nullopt;
  }
  const Place from = PlaceOf(list, wanted.first);
  Place to{list.count, list.count};
  if (wanted.end) to = PlaceOf(list, *wanted.end);
  // One entry that is like the end is the end, as a rule; of several some are wanted.
  const size_t first = from.first, end = to.alike() > 1 ? to.end : to.first;
  if (first >= end) return 0;
  const size_t alike = std::max<size_t>(wanted.forward ? from.alike() : to.alike(), 1);
  const uint64_t rows =
      wanted.rows == 0 ? 0 : std::min<uint64_t>(end - first, wanted.rows + (alike - 1));
  const uint64_t name_mask = (uint64_t{1} << names_.bits()) - 1;
  uint64_t bytes = 0;
  for (size_t i = 0; i < rows; ++i) {
    if (bytes >= wanted.bytes) break;
    const uint64_t name = list.words[wanted.forward ? first + i : end - 1 - i] & name_mask;
    if (name == 0) continue;
    blocks->push_back(names_.BlockOf(name));
    bytes += blocks->back().bytes;
  }
  return end - first;
}

void ValueLists::FillOrders(List& list, const ConstNode& leaf, int order_bits) {
  // The leftmost leaf has no low fence: beside none all of its keys may begin alike.
  const bool has_low = leaf.has_low();
  list.low = has_low ? leaf.low() : leaf.Key(0);
  list.least.fill(UINT8_MAX);
  list.most.fill(0);
  for (size_t i = 0; i < list.count; ++i) {
    const uint64_t order = has_low ? leaf.KeyOrder(i) : OrderBeside(list.low, leaf.Key(i));
    list.words[i] = order;
    for (size_t b = 0; b < kHeadBytes; ++b) {
      const auto byte = static_cast<uint8_t>(order >> (8 * (kHeadBytes - 1 - b)));
      list.least[b] = std::min(list.least[b], byte);
      list.most[b] = std::max(list.most[b], byte);
    }
  }
  list.base_level = list.words[0] >> 32;
  list.base = NumberOf(list, list.words[0]);
  const uint64_t span = NumberOf(list, list.words[list.count - 1]) - list.base;
  list.shift =
      static_cast<uint8_t>(std::max(0, static_cast<int>(std::bit_width(span)) - order_bits));
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
  FillOrders(list, leaf, order_bits_);
  bool out_of_line = false;
  for (size_t i = 0; i < count; ++i) {
    uint64_t name = 0;
    const StoredValue stored = leaf.Value(i);
    if (stored.out_of_line) {
      const OutOfLineValue where = DecodeOutOfLine(stored.bytes);
      const uint64_t bytes = BlockReadBytes(where.length);
      if (bytes <= BlockNames::kBlockBytesMax) {
        name = names_.NameOf({where.block, static_cast<uint32_t>(bytes)});
      }
      out_of_line |= name != 0;
    }
    list.words[i] = WordFor((NumberOf(list, list.words[i]) - list.base) >> list.shift) | name;
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

void ValueLists::Put(Shard& shard, GlobalAddress address, const ConstNode& leaf) {
  const auto [place, fresh] = shard.by_leaf.try_emplace(address.word());
  if (fresh) {
    place->second = shard.lists.emplace(shard.lists.end());
    place->second->leaf = address.word();
    lists_.fetch_add(1, std::memory_order_relaxed);
  }
  List& list = *place->second;
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
    if (verdict.guessed > 2 * verdict.right) {
      if (list.bad < kBadMax) ++list.bad;
      list.pause = static_cast<uint8_t>((1 << list.bad) - 1);
    } else if (verdict.guessed > 0 && list.bad > 0) {
      --list.bad;
    }
    // What is newer than the image was noted by a write of this compute server's, as a rule. One that came to
    // nothing would be believed for ever if what was missed did not speak against it.
    if (verdict.missed == 0 && list.version >= leaf.version()) return;
  } else if (verdict.missed == 0) {
    return;
  }
  Put(shard, address, leaf);
}

void ValueLists::NoteWritten(GlobalAddress address, const ConstNode& leaf) {
  if (empty()) return;
  Shard& shard = ShardOf(address);
  const std::scoped_lock lock(shard.mutex);
  if (shard.by_leaf.contains(address.word())) Put(shard, address, leaf);
}

void ValueLists::NoteSplit(GlobalAddress left, GlobalAddress right_address,
                           const ConstNode& right) {
  if (empty()) return;
  {
    Shard& shard = ShardOf(left);
    const std::scoped_lock lock(shard.mutex);
    if (!shard.by_leaf.contains(left.word())) return;
  }
  Shard& shard = ShardOf(right_address);
  const std::scoped_lock lock(shard.mutex);
  Put(shard, right_address, right);
}

}  // namespace farleaf::index
