#include "index/lsm/table_cursor.h"

#include <algorithm>

namespace farleaf::index::lsm {

TableCursor::TableCursor(const Table* table, BlockCache* cache, BlockUse use)
    : table_(table), cache_(cache), use_(use), path_(table->info().root_level + size_t{1}) {}

CursorStep TableCursor::Begin(Turn turn) {
  turn_ = turn;
  pending_ = table_->info().root_level;
  return Descend();
}

CursorStep TableCursor::Seek(std::string_view key, Sequence sequence) {
  target_.assign(key);
  target_sequence_ = sequence;
  return Begin(Turn::kKey);
}

CursorStep TableCursor::SeekForPrev(std::string_view key, Sequence sequence) {
  target_.assign(key);
  target_sequence_ = sequence;
  return Begin(Turn::kKeyForPrev);
}

CursorStep TableCursor::Descend() {
  while (pending_ >= 0) {
    const auto level = static_cast<uint8_t>(pending_);
    const bool is_root = level == table_->info().root_level;
    const MissingBlock wanted{
        is_root ? table_->info().root : path_[level + 1].block.Child(path_[level + 1].index),
        level};
    BlockCache::Handle handle = table_->Lookup(*cache_, wanted, use_);
    if (!handle) {
      missing_ = wanted;
      return CursorStep::kMissing;
    }
    Node& node = path_[level];
    node.handle = std::move(handle);
    node.block = Block(node.handle.data());
    node.block.Prefetch();
    node.count = node.block.count();
    --pending_;
    if (turn_ == Turn::kFirst) {
      node.index = 0;
    } else if (turn_ == Turn::kLast) {
      node.index = node.count - 1;
    } else if (level > 0) {
      node.index = node.block.ChildOf(target_, target_sequence_);
    }
  }
  return Stand();
}

CursorStep TableCursor::Stand() {
  Node& leaf = path_[0];
  reader_.Enter(leaf.block);
  if (turn_ != Turn::kKey && turn_ != Turn::kKeyForPrev) return SetEntry();
  const Block::Position position = leaf.block.LowerBound(target_, target_sequence_);
  leaf.index = position.index;
  if (turn_ == Turn::kKey) {
    if (leaf.index < leaf.count) return SetEntry();
    return StepAside(Direction::kForward) ? Descend() : CursorStep::kEnd;
  }
  if (position.same_key && leaf.block.entry(leaf.index).sequence == target_sequence_)
    return SetEntry();
  if (leaf.index > 0) {
    --leaf.index;
    return SetEntry();
  }
  return StepAside(Direction::kBackward) ? Descend() : CursorStep::kEnd;
}

CursorStep TableCursor::PassMissing(Direction direction) {
  const auto above = static_cast<size_t>(pending_) + 1;
  return StepAside(direction, above) ? Descend() : CursorStep::kEnd;
}

bool TableCursor::StepAside(Direction direction, size_t level) {
  for (; level < path_.size(); ++level) {
    Node& node = path_[level];
    if (direction == Direction::kForward ? node.index + 1 < node.count : node.index > 0) {
      node.index += direction == Direction::kForward ? 1 : -1;
      turn_ = direction == Direction::kForward ? Turn::kFirst : Turn::kLast;
      pending_ = static_cast<int>(level) - 1;
      return true;
    }
  }
  return false;
}

CursorStep TableCursor::SetEntry() {
  reader_.Read(*table_, path_[0].index, &entry_);
  return CursorStep::kEntry;
}

CursorStep TableCursor::Next() {
  if (pending_ >= 0) [[unlikely]]
    return Descend();
  Node& leaf = path_[0];
  if (leaf.index + 1 < leaf.count) [[likely]] {
    ++leaf.index;
    return SetEntry();
  }
  return StepAside(Direction::kForward) ? Descend() : CursorStep::kEnd;
}

CursorStep TableCursor::Prev() {
  if (pending_ >= 0) [[unlikely]]
    return Descend();
  Node& leaf = path_[0];
  if (leaf.index > 0) [[likely]] {
    --leaf.index;
    return SetEntry();
  }
  return StepAside(Direction::kBackward) ? Descend() : CursorStep::kEnd;
}

void TableCursor::Upcoming(Direction direction, size_t count,
                           std::vector<MissingBlock>* missing) const {
  missing->clear();
  const Node& parent = path_[1];
  if (!parent.handle) return;
  const bool forward = direction == Direction::kForward;
  // A leaf that is to be loaded comes first.
  uint32_t index = parent.index;
  if (pending_ != 0) index += forward ? 1 : -1;
  for (; missing->size() < count && index < parent.count; index += forward ? 1 : -1) {
    const MissingBlock leaf{parent.block.Child(index), 0};
    if (!cache_->Peek(table_->KeyOf(leaf.place))) missing->push_back(leaf);
  }
}

}  // namespace farleaf::index::lsm
