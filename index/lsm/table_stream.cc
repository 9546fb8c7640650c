#include "index/lsm/table_stream.h"

#include <algorithm>
#include <utility>

namespace farleaf::index::lsm {

TableStream::TableStream(const Table* table, std::string from, uint32_t extent_bytes)
    : table_(table), from_(std::move(from)), extent_bytes_(extent_bytes) {
  FARLEAF_CHECK(extent_bytes > 0 && storage::kSegmentBytes % extent_bytes == 0 &&
                    extent_bytes % storage::kBlockBytes == 0,
                extent_bytes);
}

TableStream::Found TableStream::Fail(std::string_view what) {
  failure_ = table_->Corrupt(std::min(at_, table_->info().bytes - 1), what);
  return Found::kMissing;
}

CursorStep TableStream::NextLeaf() {
  while (started_ && failure_.ok()) {
    const Found found = FindLeaf();
    // Not with a read in flight: then its owner could not go.
    if (found == Found::kNothing && !io_.running()) return CursorStep::kEnd;
    if (found == Found::kNothing) break;
    if (found == Found::kMissing) break;
    if (index_ == count_) continue;  // all of the first leaf may be below from_
    reader_.Read(*table_, index_++, &entry_);
    return CursorStep::kEntry;
  }
  return CursorStep::kMissing;
}

/// Between blocks there are zeros up to the next page. False: at_ is not between blocks.
bool TableStream::SkipPadding() {
  const uint64_t page_end = RoundUp(at_ + 1, storage::kBlockBytes);
  const std::byte* const from = memory(at_);
  if (!std::all_of(from, from + (page_end - at_),
                   [](std::byte byte) { return byte == std::byte{0}; })) {
    return false;
  }
  at_ = page_end;
  return true;
}

TableStream::Found TableStream::FindLeaf() {
  const TableInfo& info = table_->info();
  while (next_leaf_ < info.leaves) {
    at_ = RoundUp(at_, kBlockUnit);
    if (at_ >= info.bytes) return Fail("leaf that is lost");
    const uint64_t page_end = RoundUp(at_ + 1, storage::kBlockBytes);
    if (page_end > end_) return Found::kMissing;
    const uint64_t segment_end = RoundUp(at_ + 1, storage::kSegmentBytes);
    const uint32_t bytes = segment_end - at_ < kBlockHeaderBytes ? 0
                           : at_ + kBlockHeaderBytes > end_      ? UINT32_MAX
                                                            : LoadLittle<uint32_t>(memory(at_) + 4);
    if (bytes == UINT32_MAX) return Found::kMissing;  // the header is in the next extent, too
    if (bytes == 0) {
      if (!SkipPadding()) return Fail("block of no length");
      continue;
    }
    if (bytes < kBlockHeaderBytes || bytes > kRawBytesMax ||
        at_ + bytes > std::min(segment_end, info.bytes)) {
      return Fail("block of no possible length");
    }
    if (at_ + bytes > end_) return Found::kMissing;
    const std::span<const std::byte> stored(memory(at_), bytes);
    if (const Fault fault = CheckStored(info.stamp, at_, stored)) return Fail(fault);
    if (BlockHeader::Load(stored.data()).level == 0)
      return EnterLeaf(stored) ? Found::kLeaf : Found::kMissing;
    at_ += bytes;
  }
  return Found::kNothing;
}

bool TableStream::EnterLeaf(std::span<const std::byte> stored) {
  const BlockHeader header = BlockHeader::Load(stored.data());
  std::span<const std::byte> raw = stored;
  const bool is_start = !from_.empty() && !reader_.leaf().valid();
  if (is_start) next_leaf_ = std::min(header.number, table_->info().leaves - 1);
  Fault fault = header.number == next_leaf_ ? nullptr : "leaf out of order";
  if (!fault && header.compression() != Compression::kNone) {
    if (unpacked_.size() < header.raw_bytes) unpacked_ = IoBuffer(header.raw_bytes);
    const auto into = unpacked_.span().first(header.raw_bytes);
    fault = Unpack(stored, into);
    raw = into;
  }
  if (!fault) fault = Block::Check(raw, table_->Limits(0));
  if (fault) {
    Fail(fault);
    return false;
  }
  const Block leaf(raw.data());
  index_ = is_start ? leaf.LowerBound(from_, kSequenceMax).index : 0;
  reader_.Enter(leaf);
  count_ = leaf.count();
  at_ += stored.size();
  ++next_leaf_;
  return true;
}

/// The leaf that has from_, if any has, without reading it.
dsm::Task<Status> TableStream::FindStart(dsm::Worker& worker, BlockCache& cache) {
  MissingBlock block{table_->info().root, table_->info().root_level};
  for (; block.level > 0; --block.level) {
    BlockCache::Handle handle = table_->Lookup(cache, block, BlockUse::kOnce);
    if (!handle) {
      Result<BlockCache::Handle> fetched =
          co_await table_->Fetch(worker, cache, block, BlockUse::kOnce);
      if (!fetched.ok()) co_return fetched.status();
      handle = std::move(*fetched);
    }
    const Block node(handle.data());
    block.place = node.Child(node.ChildOf(from_, kSequenceMax));
  }
  at_ = block.place.at;
  co_return Status::Ok();
}

void TableStream::StartRead(dsm::Worker& worker) {
  const uint64_t limit = RoundUp(table_->info().bytes, storage::kBlockBytes);
  if (end_ >= limit || next_leaf_ == table_->info().leaves) return;
  reading_ = std::min<uint64_t>(extent_bytes_ - end_ % extent_bytes_, limit - end_);
  BackgroundIo::Order order;
  order.memory = std::move(spare_);
  if (order.memory.size() == 0) order.memory = IoBuffer(kFront + extent_bytes_);
  const BlockPlace place{end_, 0};
  order.ios.push_back({.kind = storage::IoKind::kRead,
                       .segment = table_->info().segments[place.segment_index()],
                       .offset = place.offset(),
                       .bytes = order.memory.span().subspan(kFront, reading_)});
  io_.Start(worker, *table_->storage(), std::move(order));
}

dsm::Task<Status> TableStream::Read(dsm::Worker& worker, BlockCache& cache) {
  if (failure_.ok() && !started_) {
    if (!from_.empty()) {
      Status found = co_await FindStart(worker, cache);
      failure_ = std::move(found);
    }
    extent_at_ = end_ = at_ / storage::kBlockBytes * storage::kBlockBytes;
    started_ = true;
    if (failure_.ok()) StartRead(worker);
  }
  Status read = co_await io_.Wait();
  if (failure_.ok()) failure_ = std::move(read);
  if (!failure_.ok() || reading_ == 0) co_return failure_;
  IoBuffer next = io_.TakeMemory();
  // What is left of this extent goes in front of the next one, so that blocks are in one piece.
  if (const uint64_t rest = end_ - std::min(at_, end_); rest > 0) {
    std::copy_n(memory(at_), rest, next.data() + kFront - rest);
  }
  spare_ = std::exchange(buffer_, std::move(next));
  extent_at_ = end_;
  end_ += std::exchange(reading_, 0);
  StartRead(worker);
  co_return Status::Ok();
}

dsm::Task<void> TableStream::Close(dsm::Worker& worker) {
  (void)worker;
  Status ignored = co_await io_.Wait();
  (void)ignored;
}

}  // namespace farleaf::index::lsm
