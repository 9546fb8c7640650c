// TableBuilder: writes one table, from entries that come in order.
//
// Entries go into a leaf, full leaves into the parent under construction, and all of it into one of two buffers: while
// one is written, the other one fills. Add does no I/O; its caller awaits Write when NeedsWrite says so:
//
//   builder.Add(entry);
//   if (builder.NeedsWrite()) { Status written = co_await builder.Write(worker); ... }
//   ...
//   Result<TableInfo> info = co_await builder.Finish(worker);
//
// Thread rule: one worker. Before it goes, Finish or Abandon has ended.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/background_io.h"
#include "index/lsm/block_encoder.h"
#include "index/lsm/compression.h"
#include "index/lsm/options.h"
#include "index/lsm/table_info.h"
#include "index/storage/storage.h"

namespace farleaf::index::lsm {

struct TableBuilderOptions {
  uint32_t block_bytes = 4096;
  uint64_t table_bytes_max = uint64_t{32} << 20;
  uint32_t filter_bits_per_key = 10;
  Compression compression = Compression::kNone;
  /// A divisor of storage::kSegmentBytes, and a multiple of storage::kBlockBytes.
  uint32_t buffer_bytes = uint32_t{1} << 20;
  /// Of the store: tables of different stores have different checksums.
  uint64_t epoch = 0;
  /// See storage::Making.
  std::optional<storage::Reserve> from = std::nullopt;
  /// Of the store's copies; null: there are none.
  Mirror* mirror = nullptr;

  static TableBuilderOptions Of(const LsmOptions& options, uint64_t epoch) {
    return {.block_bytes = options.block_bytes,
            .table_bytes_max = options.table_bytes_max,
            .filter_bits_per_key = options.filter_bits_per_key,
            .compression = options.compression,
            .epoch = epoch};
  }
};

class TableBuilder {
 public:
  using NewSegment = std::function<SegmentId()>;

  /// `new_segment` is asked for an id when the first byte of a segment is there to be written. `storage` outlives the builder.
  TableBuilder(TableBuilderOptions options, storage::Storage* storage, NewSegment new_segment);
  TableBuilder(const TableBuilder&) = delete;

  /// The next entry, copied. REQUIRES: it comes behind the last one; key and inline value within their limits.
  void Add(const Entry& entry);
  bool NeedsWrite() const { return fill_ >= options_.buffer_bytes; }
  /// Whether the table should end in front of an entry with this key. Never between versions of one key.
  bool EndsBefore(std::string_view key) const {
    return (bytes() >= options_.table_bytes_max || dictionary_.size() >= kDictionaryMax) &&
           key != last_key_;
  }
  bool empty() const { return info_.entries == 0; }
  uint64_t entries() const { return info_.entries; }
  /// So far, of blocks that are finished.
  uint64_t bytes() const { return window_at_ + fill_; }
  std::string_view last_key() const { return last_key_; }

  /// Waits until the other buffer is on its way no more, and sends the full one. The Status is the older one's.
  dsm::Task<Status> Write(dsm::Worker& worker);
  /// Writes the rest and the footer, and syncs all segments. REQUIRES: not empty.
  dsm::Task<Result<TableInfo>> Finish(dsm::Worker& worker);
  /// Waits for what is in flight. What was created of `segments()` is the caller's to remove.
  dsm::Task<void> Abandon(dsm::Worker& worker);
  /// That it has asked for, so far.
  const std::vector<SegmentId>& segments() const { return info_.segments; }

 private:
  static constexpr size_t kDictionaryMax = size_t{1} << 16;
  /// A node that is being filled; its level is its place in levels_, from 1.
  struct Level {
    BlockEncoder encoder;
    Sequence first_sequence = kSequenceMax;  ///< of its first separator
  };

  void FinishLeaf();
  void AddChild(size_t level, std::string_view separator, Sequence sequence, BlockPlace place);
  BlockPlace PutNode(size_t level);
  void FinishNode(size_t level);
  void FinishBlocks();
  void PutFooter();
  void BuildFilter(std::span<std::byte> filter, uint32_t probes);
  BlockPlace PutBlock(BlockEncoder& encoder, BlockEncoder::Head head);
  char* Room(size_t bytes);
  void PadTo(uint64_t at);
  uint64_t DictionaryIndex(const ValuePointer& pointer);
  char* PutTail(const Entry& entry, char* to);
  void SetSeparator(std::string_view key, size_t shared, Sequence sequence);
  uint32_t LeafBudget() const;
  void EnsureSegments(uint64_t end);
  BackgroundIo::Order OrderOf(IoBuffer memory, size_t bytes);
  static constexpr size_t kTailBytesMax = 6 * kVarintBytesMax;

  const TableBuilderOptions options_;
  storage::Storage* const storage_;
  const NewSegment new_segment_;
  Compressor compressor_;
  TableInfo info_;
  std::vector<TableInfo::LogSegment> log_segments_;    // info_.dictionary, until it is finished
  std::unordered_map<uint64_t, uint64_t> dictionary_;  // segment to index
  SegmentId last_segment_ = SegmentId::kNone;          // dictionary_'s last answer
  uint64_t last_index_ = 0;

  BlockEncoder leaf_;
  size_t leaf_budget_ = 0;
  std::string last_key_;
  Sequence last_sequence_ = 0;
  std::string
      separator_;  // of the leaf that is being filled: below its first entry, above all before
  Sequence separator_sequence_ = kSequenceMax;
  std::vector<Level> levels_;
  std::vector<uint64_t> hashes_;  // of the keys below the level-1 node that is being filled
  size_t node_hashes_ = 0;        // of them, of leaves that are finished

  IoBuffer buffer_;
  size_t created_ = 0;      // of the segments
  uint64_t window_at_ = 0;  // where the buffer's front is in the table
  size_t fill_ = 0;         // bytes that are used of it
  BackgroundIo io_;
};

}  // namespace farleaf::index::lsm
