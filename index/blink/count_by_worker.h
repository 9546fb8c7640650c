// CountByWorker: how often something happens that every operation does: each worker adds to a word of its own, on a line
// of its own, without a locked instruction. They are added up when somebody asks.
//
// Invariant: no addition is lost: a word has one writer. Workers that no pool has numbered, and those beyond the first
// kWorkersMax that a pool has opened, share one word, by locked instructions.
// Thread rule: Add by the thread of that worker; Sum by any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace farleaf::index {

class CountByWorker {
 public:
  static constexpr uint64_t kWorkersMax = 1024;

  CountByWorker() = default;
  ~CountByWorker() {
    for (auto& block : blocks_) delete block.load(std::memory_order_relaxed);
  }
  CountByWorker(const CountByWorker&) = delete;

  /// `worker`: Worker::number.
  void Add(uint64_t worker, uint64_t count) {
    if (worker == 0 || worker >= kWorkersMax) [[unlikely]] {
      shared_.fetch_add(count, std::memory_order_relaxed);
      return;
    }
    std::atomic<Block*>& at = blocks_[worker / kWordsPerBlock];
    Block* block = at.load(std::memory_order_acquire);
    if (block == nullptr) [[unlikely]]
      block = Allocate(at);
    std::atomic<uint64_t>& word = (*block)[worker % kWordsPerBlock].count;
    word.store(word.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }
  uint64_t Sum() const {
    uint64_t sum = shared_.load(std::memory_order_relaxed);
    for (const auto& at : blocks_) {
      const Block* const block = at.load(std::memory_order_acquire);
      if (block == nullptr) continue;
      for (const Word& word : *block) sum += word.count.load(std::memory_order_relaxed);
    }
    return sum;
  }

 private:
  static constexpr size_t kWordsPerBlock = 16;
  struct alignas(64) Word {
    std::atomic<uint64_t> count{0};
  };
  using Block = std::array<Word, kWordsPerBlock>;

  static Block* Allocate(std::atomic<Block*>& at) {
    auto fresh = std::make_unique<Block>();
    Block* there = nullptr;
    if (at.compare_exchange_strong(there, fresh.get(), std::memory_order_acq_rel)) {
      return fresh.release();
    }
    return there;  // another worker's was first
  }

  std::array<std::atomic<Block*>, kWorkersMax / kWordsPerBlock> blocks_{};
  std::atomic<uint64_t> shared_{0};
};

}  // namespace farleaf::index
