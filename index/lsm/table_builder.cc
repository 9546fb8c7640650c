#include "index/lsm/table_builder.h"

#include <algorithm>
#include <bit>

#include "dsm/base/random.h"

namespace farleaf::index::lsm {

namespace {

/// Lowest inner nodes are larger than leaves: with a filter in them, they would have few children otherwise.
constexpr uint32_t kNodeBlocks = 4;
constexpr uint32_t kNodeBytesMax = uint32_t{1} << 16;
/// A leaf is stored compressed only if that saves as much: a page that is not read pays for it, a few bytes do not.
constexpr uint32_t kCompressionPercent = 12;
/// Behind what fills a buffer: the blocks that one Add may finish.
constexpr size_t kBufferSlack = size_t{512} << 10;

/// How many bytes `a` and `b` share.
size_t SharedBytes(std::string_view a, std::string_view b) {
  const size_t both = std::min(a.size(), b.size());
  size_t at = 0;
  for (; at + 8 <= both; at += 8) {
    const uint64_t differs =
        LoadLittle<uint64_t>(a.data() + at) ^ LoadLittle<uint64_t>(b.data() + at);
    if (differs != 0) return at + static_cast<size_t>(std::countr_zero(differs)) / 8;
  }
  while (at < both && a[at] == b[at]) ++at;
  return at;
}

}  // namespace

TableBuilder::TableBuilder(TableBuilderOptions options, storage::Storage* storage,
                           NewSegment new_segment)
    : options_(options),
      storage_(storage),
      new_segment_(std::move(new_segment)),
      compressor_(options.compression),
      buffer_(options.buffer_bytes + kBufferSlack) {
  FARLEAF_CHECK(options_.buffer_bytes > 0 && storage::kSegmentBytes % options_.buffer_bytes == 0 &&
                    options_.buffer_bytes % storage::kBlockBytes == 0,
                options_.buffer_bytes);
  FARLEAF_CHECK(options_.block_bytes <= kNodeBytesMax, options_.block_bytes);
  info_.segments.push_back(new_segment_());
  info_.stamp = Mix64(options_.epoch ^ Mix64(storage::Number(info_.segments.front())));
  leaf_budget_ = LeafBudget();
}

uint64_t TableBuilder::DictionaryIndex(const ValuePointer& pointer) {
  if (pointer.segment != last_segment_) {
    const auto [at, is_new] =
        dictionary_.try_emplace(storage::Number(pointer.segment), log_segments_.size());
    if (is_new) log_segments_.emplace_back().segment = pointer.segment;
    last_segment_ = pointer.segment;
    last_index_ = at->second;
  }
  // Of a whole store it is never more than the segment's bytes.
  TableInfo::LogSegment& log = log_segments_[last_index_];
  log.live_bytes =
      std::min(log.live_bytes + uint64_t{pointer.bytes}, TableInfo::LogSegment::kLiveBytesMax);
  return last_index_;
}

char* TableBuilder::PutTail(const Entry& entry, char* to) {
  if (entry.sequence != 0) to = PutVarint(to, entry.sequence);
  if (entry.expires_ms != 0) to = PutVarint(to, entry.expires_ms);
  switch (entry.kind) {
    case EntryKind::kValue:
      return std::copy(entry.value.begin(), entry.value.end(), to);
    case EntryKind::kPointer:
      to = PutVarint(to, DictionaryIndex(entry.pointer));
      to = PutVarint(to, entry.pointer.offset);
      to = PutVarint(to, entry.pointer.bytes);
      return PutVarint(to, entry.pointer.value_bytes);
    case EntryKind::kDeleted:
      return to;
  }
  return to;
}

void TableBuilder::Add(const Entry& entry) {
  const size_t inline_bytes = entry.kind == EntryKind::kValue ? entry.value.size() : 0;
  FARLEAF_CHECK(entry.key.size() <= kKeyBytesMax && inline_bytes <= kInlineValueBytesMax,
                entry.key.size(), inline_bytes);
  const size_t shared = SharedBytes(last_key_, entry.key);
  const bool same_key =
      shared == entry.key.size() && shared == last_key_.size() && info_.entries > 0;
  if (same_key) {
    FARLEAF_CHECK(entry.sequence < last_sequence_, entry.sequence, last_sequence_);
  } else {
    FARLEAF_CHECK(shared == last_key_.size() ||
                      (shared < entry.key.size() && static_cast<uint8_t>(last_key_[shared]) <
                                                        static_cast<uint8_t>(entry.key[shared])),
                  "keys out of order");
  }
  const size_t tail_bytes_max = inline_bytes + kTailBytesMax;
  char* tail = leaf_.TailRoom(tail_bytes_max);
  char* tail_end = PutTail(entry, tail);
  if (!leaf_.empty() && leaf_.BytesWith(entry.key.size(), shared,
                                        static_cast<size_t>(tail_end - tail)) > leaf_budget_) {
    // The tail stands behind the leaf's own; it is made again for the next one, but for what it has counted.
    std::string kept(tail, tail_end);
    FinishLeaf();
    SetSeparator(entry.key, shared, same_key ? last_sequence_ - 1 : kSequenceMax);
    tail = leaf_.TailRoom(tail_bytes_max);
    tail_end = std::copy(kept.begin(), kept.end(), tail);
  }
  if (options_.filter_bits_per_key > 0 && (!same_key || leaf_.empty())) {
    hashes_.push_back(HashKey(entry.key));
  }
  uint8_t tag = static_cast<uint8_t>(entry.kind);
  if (entry.sequence != 0) tag |= internal::kTagSequence;
  if (entry.expires_ms != 0) tag |= internal::kTagExpiry;
  leaf_.Add(entry.key, shared, tag, tail_end);
  if (info_.entries == 0) info_.smallest = entry.key;
  ++info_.entries;
  info_.deletes += entry.kind == EntryKind::kDeleted;
  if (entry.expires_ms != 0) {
    ++info_.expiring;
    info_.expiry.Add(entry.expires_ms, entry.key.size() + inline_bytes + entry.pointer.bytes);
  }
  info_.content_bytes += entry.key.size() + inline_bytes;
  info_.sequence_max = std::max(info_.sequence_max, entry.sequence);
  if (!same_key) last_key_.assign(entry.key);
  last_sequence_ = entry.sequence;
}

void TableBuilder::SetSeparator(std::string_view key, size_t shared, Sequence sequence) {
  separator_.assign(key.substr(0, sequence == kSequenceMax ? shared + 1 : key.size()));
  separator_sequence_ = sequence;
}

uint32_t TableBuilder::LeafBudget() const {
  // Behind an inner node a page has begun: a shorter leaf fills it, if it is not much shorter.
  const auto into_page = static_cast<uint32_t>(RoundUp(bytes(), kBlockUnit) % storage::kBlockBytes);
  return into_page <= options_.block_bytes / 2 ? options_.block_bytes - into_page
                                               : options_.block_bytes;
}

char* TableBuilder::Room(size_t bytes) {
  const size_t needed = fill_ + bytes + CharArena::kSlack;
  if (needed > buffer_.size()) [[unlikely]] {
    IoBuffer larger(std::max(needed, 2 * buffer_.size()));
    std::memcpy(larger.data(), buffer_.data(), fill_);
    buffer_ = std::move(larger);
  }
  return reinterpret_cast<char*>(buffer_.data() + fill_);
}

void TableBuilder::PadTo(uint64_t at) {
  const size_t bytes = at - this->bytes();
  std::memset(Room(bytes), 0, bytes);
  fill_ += bytes;
}

BlockPlace TableBuilder::PutBlock(BlockEncoder& encoder, BlockEncoder::Head head) {
  const bool packed = head.level > 0 || options_.compression != Compression::kNone;
  const size_t bytes_max = encoder.EncodedBytesMax(head.filter_lines);
  uint64_t at = RoundUp(bytes(), kBlockUnit);
  if (!packed) {
    const uint64_t bytes = encoder.Bytes(), page = storage::kBlockBytes;
    const uint64_t into_page = at % page;
    if ((into_page + bytes + page - 1) / page > (bytes + page - 1) / page) at = RoundUp(at, page);
  }
  if (at % storage::kSegmentBytes + bytes_max > storage::kSegmentBytes) {
    at = RoundUp(at, storage::kSegmentBytes);
  }
  PadTo(at);
  std::span<std::byte> block = encoder.Encode(head, Room(bytes_max));
  if (head.filter_lines > 0) {
    BuildFilter(block.last(head.filter_lines * size_t{kFilterLineBytes}), head.filter_probes);
  }
  if (head.level == 0 && options_.compression != Compression::kNone) {
    const auto compressed =
        compressor_.Compress(block.subspan(kBlockHeaderBytes), kCompressionPercent);
    if (!compressed.empty()) {
      std::copy(compressed.begin(), compressed.end(), block.begin() + kBlockHeaderBytes);
      block = block.first(kBlockHeaderBytes + compressed.size());
      BlockHeader header = BlockHeader::Load(block.data());
      header.stored_bytes = static_cast<uint32_t>(block.size());
      header.flags |= static_cast<uint8_t>(options_.compression);
      header.Store(block.data());
    }
  }
  StoreLittle(block.data(), BlockChecksum(info_.stamp, at, block));
  fill_ += block.size();
  return {at, static_cast<uint32_t>(block.size())};
}

void TableBuilder::FinishLeaf() {
  const BlockPlace place = PutBlock(leaf_, {.number = info_.leaves});
  ++info_.leaves;
  AddChild(1, separator_, separator_sequence_, place);
  node_hashes_ = hashes_.size();
  leaf_budget_ = LeafBudget();
}

void TableBuilder::AddChild(size_t level, std::string_view separator, Sequence sequence,
                            BlockPlace place) {
  if (levels_.size() < level) levels_.resize(level);
  const uint64_t rank = SeparatorRank(sequence);
  char tail[3 * kVarintBytesMax];
  char* tail_end = rank != 0 ? PutVarint(tail, rank) : tail;
  tail_end = PutVarint(tail_end, place.at / kBlockUnit);
  tail_end = PutVarint(tail_end, place.bytes);
  const auto tail_bytes = static_cast<size_t>(tail_end - tail);
  BlockEncoder* node = &levels_[level - 1].encoder;
  size_t shared = 0;
  if (!node->empty()) {
    shared = SharedBytes(node->last_key(), separator);
    size_t bytes = node->BytesWith(separator.size(), shared, tail_bytes);
    size_t target = options_.block_bytes;
    if (level == 1) {
      target = std::min(kNodeBlocks * options_.block_bytes, kNodeBytesMax);
      if (!hashes_.empty()) {
        // The node's filter is in its place, and with this child has its keys as well.
        bytes += (FilterLines(hashes_.size(), options_.filter_bits_per_key) + 1) *
                 size_t{kFilterLineBytes};
      }
    }
    // With one child it would be no step up.
    if (bytes > target && node->count() >= 2) {
      FinishNode(level);
      node = &levels_[level - 1].encoder;
    }
  }
  if (node->empty()) levels_[level - 1].first_sequence = sequence;
  char* const to = node->TailRoom(tail_bytes);
  std::copy(tail, tail_end, to);
  node->Add(separator, shared, rank != 0 ? internal::kTagSequence : 0, to + tail_bytes);
}

BlockPlace TableBuilder::PutNode(size_t level) {
  FARLEAF_CHECK(level <= kBlockLevelMax, level);
  BlockEncoder::Head head{.level = static_cast<uint8_t>(level)};
  if (level == 1 && node_hashes_ > 0) {
    head.filter_lines = FilterLines(node_hashes_, options_.filter_bits_per_key);
    head.filter_probes = FilterProbes(options_.filter_bits_per_key);
  }
  return PutBlock(levels_[level - 1].encoder, head);
}

void TableBuilder::FinishNode(size_t level) {
  // Copied: the encoder forgets it.
  const std::string separator(levels_[level - 1].encoder.first_key());
  const Sequence sequence = levels_[level - 1].first_sequence;
  const BlockPlace place = PutNode(level);
  AddChild(level + 1, separator, sequence, place);
}

void TableBuilder::FinishBlocks() {
  FinishLeaf();
  // Each level has a node that is not finished; the highest one is the root, as it was never full.
  size_t level = 1;
  for (; level < levels_.size(); ++level) FinishNode(level);
  info_.root = PutNode(level);
  info_.root_level = static_cast<uint8_t>(level);
  info_.largest = last_key_;
  log_segments_.shrink_to_fit();  // it stays as long as the table
  info_.dictionary = std::move(log_segments_);
}

void TableBuilder::PutFooter() {
  uint64_t at = RoundUp(bytes(), storage::kBlockBytes);
  std::string footer;
  do {
    EnsureSegments(at + info_.footer_bytes);
    info_.bytes = at;
    footer = EncodeFooter(&info_);
    if (at % storage::kSegmentBytes + footer.size() > storage::kSegmentBytes) {
      at = RoundUp(at, storage::kSegmentBytes);
    }
  } while (info_.bytes != at ||
           at + footer.size() > info_.segments.size() * uint64_t{storage::kSegmentBytes});
  PadTo(at);
  std::memcpy(Room(footer.size()), footer.data(), footer.size());
  fill_ += footer.size();
}

void TableBuilder::BuildFilter(std::span<std::byte> filter, uint32_t probes) {
  for (size_t i = 0; i < node_hashes_; ++i) AddToFilter(filter, probes, hashes_[i]);
  hashes_.erase(hashes_.begin(), hashes_.begin() + static_cast<ptrdiff_t>(node_hashes_));
  node_hashes_ = 0;
}

void TableBuilder::EnsureSegments(uint64_t end) {
  while (info_.segments.size() * uint64_t{storage::kSegmentBytes} < end) {
    info_.segments.push_back(new_segment_());
  }
}

BackgroundIo::Order TableBuilder::OrderOf(IoBuffer memory, size_t bytes) {
  EnsureSegments(window_at_ + bytes);
  BackgroundIo::Order order;
  order.from = options_.from;
  order.mirror = options_.mirror;
  for (size_t done = 0; done < bytes;) {
    const BlockPlace place{window_at_ + done, 0};
    const size_t part = std::min<size_t>(bytes - done, storage::kSegmentBytes - place.offset());
    if (place.segment_index() >= created_) {
      order.create.push_back(info_.segments[place.segment_index()]);
      created_ = place.segment_index() + 1;
    }
    order.ios.push_back({.kind = storage::IoKind::kWrite,
                         .segment = info_.segments[place.segment_index()],
                         .offset = place.offset(),
                         .bytes = {memory.data() + done, part}});
    done += part;
  }
  order.memory = std::move(memory);
  return order;
}

dsm::Task<Status> TableBuilder::Write(dsm::Worker& worker) {
  while (NeedsWrite()) {
    Status earlier = co_await io_.Wait();
    if (!earlier.ok()) co_return earlier;
    IoBuffer next = io_.TakeMemory();
    const size_t rest = fill_ - options_.buffer_bytes;
    if (next.size() < rest + kBufferSlack)
      next = IoBuffer(std::max<size_t>(rest, options_.buffer_bytes) + kBufferSlack);
    std::memcpy(next.data(), buffer_.data() + options_.buffer_bytes, rest);
    std::swap(next, buffer_);
    io_.Start(worker, *storage_, OrderOf(std::move(next), options_.buffer_bytes));
    window_at_ += options_.buffer_bytes;
    fill_ = rest;
  }
  co_return Status::Ok();
}

dsm::Task<Result<TableInfo>> TableBuilder::Finish(dsm::Worker& worker) {
  FARLEAF_CHECK(!empty());
  FinishBlocks();
  PutFooter();
  Status written = co_await Write(worker);
  if (!written.ok()) co_return written;
  Status earlier = co_await io_.Wait();
  if (!earlier.ok()) co_return earlier;
  BackgroundIo::Order last = OrderOf(std::move(buffer_), fill_);
  for (const SegmentId segment : info_.segments) {
    last.syncs.push_back({.kind = storage::IoKind::kSync, .segment = segment});
  }
  io_.Start(worker, *storage_, std::move(last));
  Status synced = co_await io_.Wait();
  if (!synced.ok()) co_return synced;
  co_return info_;
}

dsm::Task<void> TableBuilder::Abandon(dsm::Worker& worker) {
  (void)worker;
  Status ignored = co_await io_.Wait();  // what was written is of no use
  (void)ignored;
}

}  // namespace farleaf::index::lsm
