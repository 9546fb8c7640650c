#include "index/lsm/memtable.h"

#include <new>

#include "dsm/base/check.h"
#include "index/lsm/memtable_node.h"

namespace farleaf::index::lsm {

using memtable_internal::Compare;
using memtable_internal::InnerNode;
using memtable_internal::kSlots;
using memtable_internal::Node;
using memtable_internal::Place;
using memtable_internal::PlaceOf;
using memtable_internal::PrefixOf;
using memtable_internal::Record;

namespace {

/// Of a node between these fences.
uint32_t SharedBytes(const Record* low, const Record* high) {
  if (low == nullptr || high == nullptr) return 0;
  const std::string_view a = low->key(), b = high->key();
  const size_t most = std::min(a.size(), b.size());
  size_t shared = 0;
  while (shared < most && a[shared] == b[shared]) ++shared;
  return static_cast<uint32_t>(shared);
}

/// REQUIRES: `node` is locked, or nobody knows it.
void SetSkip(Node* node) {
  const uint32_t skip = SharedBytes(node->low, node->high.load());
  if (skip == node->skip.load()) return;
  node->skip.store(skip);
  for (uint32_t i = 0; i < node->count.load(); ++i) {
    node->prefixes[i].store(PrefixOf(node->records[i].load()->key(), skip));
  }
}

/// Puts `record`, and for an inner node the child to its right, at `at`. REQUIRES: `node` is locked and has room.
void PutAt(Node* node, uint32_t at, const Record* record, Node* right) {
  const uint32_t count = node->count.load();
  for (uint32_t i = count; i > at; --i) {
    node->prefixes[i].store(node->prefixes[i - 1].load());
    node->records[i].store(node->records[i - 1].load());
    if (right) node->child(i + 1).store(node->child(i).load());
  }
  node->prefixes[at].store(PrefixOf(record->key(), node->skip.load()));
  node->records[at].store(record);
  if (right) node->child(at + 1).store(right);
  node->count.store(count + 1);  // behind them: below the count, no reader finds null
}

Entry EntryOf(const Record& record) {
  Entry entry{.key = record.key(), .sequence = record.sequence(), .kind = record.kind()};
  const char* at = record.bytes() + record.key_bytes;
  if (record.tag & Record::kExpires) {
    entry.expires_ms = LoadLittle<uint64_t>(at);
    at += sizeof entry.expires_ms;
  }
  if (entry.kind == EntryKind::kPointer) {
    std::memcpy(&entry.pointer, at, sizeof entry.pointer);
  } else {
    entry.value = {at, record.value_bytes};
  }
  return entry;
}

}  // namespace

Memtable::Memtable() : root_(nullptr) { root_.store(NewNode(0, nullptr, nullptr)); }

Node* Memtable::NewNode(uint32_t level, const Record* low, const Record* high) {
  Node* node;
  if (level == 0) {
    node = new (arena_.AllocateLines(sizeof(Node))) Node(level, low);
  } else {
    node = new (arena_.AllocateLines(sizeof(InnerNode))) InnerNode(level, low);
  }
  node->high.store(high);
  node->skip.store(SharedBytes(low, high));
  return node;
}

Record* Memtable::NewRecord(const Entry& entry) {
  const bool expires = entry.expires_ms != 0, points = entry.kind == EntryKind::kPointer;
  const size_t value_bytes = points ? sizeof entry.pointer : entry.value.size();
  void* const memory =
      arena_.Allocate(sizeof(Record) + entry.key.size() + (expires ? 8 : 0) + value_bytes);
  auto* const record = new (memory) Record{
      entry.sequence << 8 | (expires ? Record::kExpires : 0) | static_cast<uint64_t>(entry.kind),
      static_cast<uint32_t>(entry.key.size()), static_cast<uint32_t>(value_bytes)};
  char* at = record->bytes();
  std::memcpy(at, entry.key.data(), entry.key.size());
  at += entry.key.size();
  if (expires) {
    StoreLittle(at, entry.expires_ms);
    at += 8;
  }
  if (points) {
    std::memcpy(at, &entry.pointer, sizeof entry.pointer);
  } else if (value_bytes > 0) {
    std::memcpy(at, entry.value.data(), value_bytes);
  }
  return record;
}

Memtable::Leaf Memtable::Descend(const Place& place, Side side) const {
  const auto equal = side == Side::kAt ? Node::Equal::kBefore : Node::Equal::kBehind;
  for (;;) {
    const Node* node = root_.load(std::memory_order_acquire);
    uint64_t version = node->Stable();
    if (root_.load(std::memory_order_acquire) != node) continue;
    bool changed = false;
    while (!node->is_leaf()) {
      const Node* const child = node->Child(node->CountBefore(place, equal));
      if (!node->Unchanged(version)) {
        changed = true;
        break;
      }
      child->Prefetch();
      const uint64_t child_version = child->Stable();
      // Again: the child may have been split, and its parent told, since the first look.
      if (!node->Unchanged(version)) {
        changed = true;
        break;
      }
      node = child;
      version = child_version;
    }
    if (!changed) return {node, version};
  }
}

void Memtable::Insert(const Entry& entry) {
  FARLEAF_DCHECK(entry.sequence > 0 && entry.sequence <= kSequenceMax, entry.sequence);
  Record* const record = NewRecord(entry);
  const Place place = PlaceOf(*record);
  while (!TryInsert(place, record)) {
  }
  entries_.fetch_add(1, std::memory_order_relaxed);
  if (entry.kind == EntryKind::kPointer) {
    value_bytes_.fetch_add(entry.pointer.bytes, std::memory_order_relaxed);
  }
  if (entry.expires_ms != 0) {
    std::lock_guard lock(expiry_lock_);
    expiry_.Add(entry.expires_ms, entry.key.size() + entry.value.size() + entry.pointer.bytes);
  }
}

bool Memtable::TryInsert(const Place& place, Record* record) {
  Node *parent = nullptr, *node = root_.load(std::memory_order_acquire);
  uint64_t parent_version = 0, version = node->Stable();
  if (root_.load(std::memory_order_acquire) != node) return false;
  for (;;) {
    if (node->count.load() == kSlots) {
      SplitOnTheWay(parent, parent_version, node, version);
      return false;
    }
    if (node->is_leaf()) break;
    Node* const child = node->Child(node->CountBefore(place, Node::Equal::kBefore));
    if (!node->Unchanged(version)) return false;
    child->Prefetch();
    const uint64_t child_version = child->Stable();
    if (!node->Unchanged(version)) return false;
    parent = node;
    parent_version = version;
    node = child;
    version = child_version;
  }
  const uint32_t at = node->CountBefore(place, Node::Equal::kBehind);
  if (!node->TryLock(version)) return false;
  PutAt(node, at, record, nullptr);
  node->Unlock();
  return true;
}

/// Splits a full node, so that whoever comes down here finds room in each parent. False: something has changed.
bool Memtable::SplitOnTheWay(Node* parent, uint64_t parent_version, Node* node, uint64_t version) {
  if (parent != nullptr && !parent->TryLock(parent_version)) return false;
  if (!node->TryLock(version)) {
    if (parent != nullptr) parent->Unlock();
    return false;
  }
  if (parent == nullptr) {
    // Locked and the root as of `version`: nobody else can make another one.
    FARLEAF_CHECK(root_.load(std::memory_order_relaxed) == node);
    parent = NewNode(node->level + 1, nullptr, nullptr);
    parent->child(0).store(node);
    Split(parent, node);
    root_.store(parent, std::memory_order_release);
    node->Unlock();
    return true;
  }
  Split(parent, node);
  node->Unlock();
  parent->Unlock();
  return true;
}

void Memtable::Split(Node* parent, Node* node) {
  const uint32_t count = node->count.load();
  // The last node's keys are likely to ascend: it is left nearly full, and so are all behind it, then.
  const bool last = node->high.load() == nullptr;
  const uint32_t middle = last ? count - 2 : count / 2;
  const Record* const separator = node->records[middle].load();
  Node* const right = NewNode(node->level, separator, node->high.load());
  uint32_t moved = 0;
  if (!node->is_leaf()) right->child(0).store(node->child(middle + 1).load());
  for (uint32_t i = node->is_leaf() ? middle : middle + 1; i < count; ++i, ++moved) {
    const Record* const record = node->records[i].load();
    right->records[moved].store(record);
    right->prefixes[moved].store(PrefixOf(record->key(), right->skip.load()));
    if (!node->is_leaf()) right->child(moved + 1).store(node->child(i + 1).load());
  }
  right->count.store(moved);
  node->count.store(middle);
  node->high.store(separator);
  SetSkip(node);
  PutAt(parent, parent->CountBefore(PlaceOf(*separator), Node::Equal::kBehind), separator, right);
}

std::optional<Entry> Memtable::Find(std::string_view key, Sequence max) const {
  const Place place{key, max};
  const Record* found;
  for (;;) {
    const Leaf leaf = Descend(place, Side::kAt);
    const uint32_t at = leaf.node->CountBefore(place, Node::Equal::kBehind);
    // Behind a leaf's last entry comes the next leaf's first, which is the fence.
    found = at < leaf.node->count.load() && at < kSlots ? leaf.node->records[at].load()
                                                        : leaf.node->high.load();
    if (leaf.node->Unchanged(leaf.version)) break;
  }
  if (found != nullptr && found->key() != key) found = nullptr;
  if (has_ranges()) {
    const Sequence covered = CoveredAt(key, max);
    if (covered > (found ? found->sequence() : 0)) {
      return Entry{.key = found ? found->key() : key, .sequence = covered};
    }
  }
  if (found == nullptr) return std::nullopt;
  return EntryOf(*found);
}

Sequence Memtable::NewestSequence(std::string_view key) const {
  const std::optional<Entry> found = Find(key, kSequenceMax);
  return found ? found->sequence : 0;
}

void Memtable::Cursor::TakeAt(const Place& from) {
  Place place = from;
  for (;;) {
    const Leaf leaf = memtable_->Descend(place, Side::kAt);
    const uint32_t first = leaf.node->CountBefore(place, Node::Equal::kBehind);
    const uint32_t entries = std::min(leaf.node->count.load(), kSlots);
    at_ = count_ = 0;
    for (uint32_t i = first; i < entries; ++i) taken_[count_++] = leaf.node->records[i].load();
    const Record* const high = leaf.node->high.load();
    if (!leaf.node->Unchanged(leaf.version)) continue;
    if (count_ > 0 || high == nullptr) break;
    place = PlaceOf(*high);
  }
  for (uint32_t i = 0; i < count_; ++i) __builtin_prefetch(taken_[i]);
}

void Memtable::Cursor::TakeBefore(const Place& place) {
  for (;;) {
    // To the leaf whose low fence comes before the place: unless it is the first, it has such an entry, its low fence.
    const Leaf leaf = memtable_->Descend(place, Side::kBefore);
    count_ = leaf.node->CountBefore(place, Node::Equal::kBehind);
    for (uint32_t i = 0; i < count_; ++i) taken_[i] = leaf.node->records[i].load();
    if (leaf.node->Unchanged(leaf.version)) break;
  }
  at_ = count_ == 0 ? 0 : count_ - 1;
}

void Memtable::Cursor::Seek(std::string_view key, Sequence sequence) { TakeAt({key, sequence}); }

void Memtable::Cursor::SeekBefore(std::string_view key, Sequence sequence) {
  TakeBefore({key, sequence});
}

void Memtable::Cursor::SeekLast() {
  // No key is above this one: keys are of at most kKeyBytesMax bytes.
  static const std::string kAboveAll(kKeyBytesMax + 1, '\xff');
  TakeBefore({kAboveAll, 0});
}

Entry Memtable::Cursor::entry() const {
  FARLEAF_DCHECK(valid());
  return EntryOf(*taken_[at_]);
}

void Memtable::Cursor::Next() {
  const Record* const current = taken_[at_];
  if (++at_ < count_) return;
  // Sequence 0 is no entry's: the place right behind the current entry is one sequence below it.
  TakeAt({current->key(), current->sequence() - 1});
}

void Memtable::Cursor::Previous() {
  const Record* const current = taken_[at_];
  if (at_ > 0) {
    --at_;
    return;
  }
  TakeBefore(PlaceOf(*current));
}

}  // namespace farleaf::index::lsm
