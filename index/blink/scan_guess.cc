#include "index/blink/scan_guess.h"

#include <utility>

#include "dsm/base/mutation.h"
#include "index/blink/value_block.h"
#include "index/blink/value_fetch.h"

namespace farleaf::index {

std::vector<ValueHint>& ScanGuess::Begin() {
  blocks_.clear();
  by_address_.clear();
  next_ = 0;
  unread_ = true;
  return blocks_;
}

void ScanGuess::AddReads(std::pmr::vector<dsm::Batch>& batches) {
  if (!std::exchange(unread_, false) || blocks_.empty()) return;
  offsets_.clear();
  size_t bytes = 0;
  for (const ValueHint& hint : blocks_) {
    offsets_.push_back(bytes);
    bytes += hint.bytes;
  }
  bytes_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const ValueHint& hint = blocks_[i];
    dsm::BatchFor(batches, hint.block.server())
        .Read(hint.block.offset(), {&bytes_[offsets_[i]], hint.bytes});
  }
}

const std::byte* ScanGuess::Find(dsm::GlobalAddress block, size_t bytes) {
  if (next_ >= blocks_.size() || blocks_[next_].block != block) {
    if (by_address_.empty()) {
      for (size_t i = 0; i < blocks_.size(); ++i) by_address_.emplace(blocks_[i].block.word(), i);
    }
    const auto found = by_address_.find(block.word());
    if (found == by_address_.end()) return nullptr;
    next_ = found->second;
  }
  const size_t i = next_++;
  return blocks_[i].bytes == bytes ? &bytes_[offsets_[i]] : nullptr;
}

bool ScanGuess::Take(const OutOfLineValue& where, std::string* value) {
  if (blocks_.empty()) return false;
  OutOfLineValue named = where;
  if (Mutated(Mutation::kScanGuessUnchecked) && next_ < blocks_.size()) {
    const std::span block(&bytes_[offsets_[next_]], blocks_[next_].bytes);
    named = {blocks_[next_].block, BlockWord(block), BlockLength(block)};
  }
  const size_t bytes = BlockReadBytes(named.length);
  const std::byte* const block = Find(named.block, bytes);
  return block && OpenBlock({block, bytes}, named, value) == ValueState::kRead;
}

}  // namespace farleaf::index
