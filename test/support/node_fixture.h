// What tests of nodes share: pages with a guarded lock word, key sources that like the awkward, and
// nodes read back as maps.
//
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dsm/base/random.h"
#include "index/blink/node.h"

namespace farleaf::index {

/// An image in a heap block of exactly its size, so that asan sees any access past it. Of a geometry
/// with one page size for leaves and internal nodes.
class NodeImage {
 public:
  explicit NodeImage(const Geometry& geometry)
      : geometry_(geometry),
        bytes_(geometry.leaf_bytes, std::byte{0xa5}),
        node_(geometry_, std::span(bytes_).first(geometry.image_bytes(0))) {}
  NodeImage(const NodeImage&) = delete;
  Node& operator*() { return node_; }
  Node* operator->() { return &node_; }
  std::span<std::byte> image() { return std::span(bytes_).first(bytes_.size() - 8); }
  bool LockWordUntouched() const {
    return std::all_of(bytes_.end() - 8, bytes_.end(),
                       [](std::byte b) { return b == std::byte{0xa5}; });
  }

 private:
  const Geometry geometry_;
  std::vector<std::byte> bytes_;
  Node node_;
};

/// A value of exactly kOutOfLineBytes is stored as if it were out of line.
inline StoredValue Stored(std::string_view value) {
  return {value, value.size() == kOutOfLineBytes};
}

inline std::string ChildText(GlobalAddress child) {
  std::string text(8, '\0');
  StoreLittle(text.data(), child.word());
  return text;
}

/// A node's entries; of an internal node the children as ChildText.
inline std::map<std::string, std::string> EntriesOf(const ConstNode& node) {
  std::map<std::string, std::string> entries;
  for (size_t i = 0; i < node.count(); ++i) {
    entries[node.Key(i)] =
        node.is_leaf() ? std::string(node.Value(i).bytes) : ChildText(node.Child(i));
  }
  return entries;
}

/// Keys and values of one style a source: short, long, sharing prefixes, of few or extreme bytes.
class KeySource {
 public:
  KeySource(const Geometry& geometry, Random* random) : geometry_(geometry), random_(random) {
    prefix_ = Bytes(random_->Below(geometry_.key_bytes_max));
    style_ = random_->Below(4);
    value_max_ = random_->OneIn(2) ? geometry_.inline_value_bytes_max
                                   : std::min<uint32_t>(geometry_.inline_value_bytes_max, 12);
  }

  std::string Key() {
    if (geometry_.layout == Layout::kFixed8) {
      std::string key(8, '\0');
      const uint64_t bits = random_->OneIn(2) ? 64 : 10;
      StoreBig64(key.data(), random_->Next() >> (64 - bits));
      if (random_->OneIn(20)) key.assign(8, random_->OneIn(2) ? '\0' : '\xff');
      return key;
    }
    const size_t max = geometry_.key_bytes_max;
    switch (style_) {
      case 0:  // any length
        return Bytes(1 + random_->Below(max));
      case 1:  // long, of one length, foreign to each other or nearly equal
        return random_->OneIn(2) ? Bytes(max) : Padded(prefix_ + Bytes(2), max);
      case 2: {  // behind one prefix
        std::string key = prefix_ + Bytes(1 + random_->Below(8));
        return key.substr(0, max);
      }
      default:  // short
        return Bytes(1 + random_->Below(std::min<size_t>(max, 6)));
    }
  }
  /// Within [low, high), and every second time one that is in `model`.
  template <typename Model>
  std::string Between(const std::optional<std::string>& low, const std::optional<std::string>& high,
                      const Model& model) {
    if (!model.empty() && random_->OneIn(2)) {
      return std::next(model.begin(), static_cast<long>(random_->Below(model.size())))->first;
    }
    for (int attempt = 0; attempt < 200; ++attempt) {
      std::string key = Key();
      if ((!low || key >= *low) && (!high || key < *high)) return key;
    }
    return low ? *low : Smallest();
  }
  std::string Value() {
    if (geometry_.layout == Layout::kFixed8) return Bytes(8);
    if (random_->OneIn(8)) return Bytes(kOutOfLineBytes);
    return Bytes(random_->Below(value_max_ + 1));
  }
  std::pair<std::optional<std::string>, std::optional<std::string>> Fences() {
    std::optional<std::string> low, high;
    if (!random_->OneIn(3)) low = Key();
    if (!random_->OneIn(3)) high = Key();
    if (low && high && *low > *high) std::swap(low, high);
    if (high && *high == low.value_or(Smallest())) high.reset();
    return {low, high};
  }
  size_t EntryBytesMax() const {
    return 10 + geometry_.key_bytes_max +
           std::max<size_t>(geometry_.inline_value_bytes_max, kOutOfLineBytes);
  }
  GlobalAddress Child() { return GlobalAddress(random_->Below(4), 64 * (1 + next_child_++)); }
  Random& random() { return *random_; }

 private:
  std::string Bytes(size_t length) {
    static constexpr char kAwkward[] = {'\0', '\x01', 'a', 'b', '\x7f', '\x80', '\xff'};
    const bool awkward = random_->OneIn(2);
    std::string bytes(length, '\0');
    for (char& c : bytes) {
      c = awkward ? kAwkward[random_->Below(sizeof kAwkward)] : static_cast<char>(random_->Next());
    }
    return bytes;
  }
  std::string Smallest() const {
    return std::string(geometry_.layout == Layout::kFixed8 ? 8 : 1, '\0');
  }
  static std::string Padded(std::string key, size_t length) {
    key.resize(length, 'p');
    return key;
  }

  const Geometry geometry_;
  Random* random_;
  std::string prefix_;
  uint64_t style_;
  uint32_t value_max_;
  uint64_t next_child_ = 0;
};

/// What a PendingEntry's views point to.
struct PendingStorage {
  std::string key, value;
};

/// Inserts into an empty node, and into `model`, until something does not fit, and returns that.
/// Nullopt: the fences leave too few keys to fill it.
inline std::optional<PendingEntry> FillUntilRefused(
    KeySource* keys, const std::optional<std::string>& low, const std::optional<std::string>& high,
    Node* node, std::map<std::string, std::string>* model, PendingStorage* storage) {
  const bool leaf = node->is_leaf();
  if (!leaf) {
    const GlobalAddress child = keys->Child();
    node->InsertChild(0, node->low(), child);
    (*model)[node->low()] = ChildText(child);
  }
  for (int attempt = 0; attempt < 5000; ++attempt) {
    storage->key = keys->Between(low, high, *model);
    storage->value = keys->Value();
    PendingEntry pending{storage->key, Stored(storage->value), keys->Child(), false};
    if (!leaf) {
      if (model->contains(storage->key)) continue;
      const size_t i = node->ChildIndexFor(storage->key) + 1;
      if (!node->InsertChild(i, storage->key, pending.child)) return pending;
      (*model)[storage->key] = ChildText(pending.child);
      continue;
    }
    const auto at = node->Search(storage->key);
    pending.replaces = at.found;
    if (at.found ? !node->ReplaceValue(at.index, pending.value)
                 : !node->Insert(at.index, storage->key, pending.value)) {
      return pending;
    }
    (*model)[storage->key] = storage->value;
  }
  return std::nullopt;
}

inline std::vector<Geometry> TestGeometries() {
  return {Geometry::Fixed8(256),
          Geometry::Fixed8(),
          Geometry::Fixed8(4096),
          {Layout::kBytes, 256, 256, 36, 24},
          {Layout::kBytes, 512, 512, 60, 40},
          {Layout::kBytes, 1024, 1024, 200, 100},
          {Layout::kBytes, 4096, 4096, 64, 1000},
          Geometry::Bytes()};
}

inline std::string GeometryName(const Geometry& geometry) {
  return (geometry.layout == Layout::kFixed8 ? "Fixed8_" : "Bytes_") +
         std::to_string(geometry.leaf_bytes) + "_" + std::to_string(geometry.key_bytes_max);
}

}  // namespace farleaf::index
