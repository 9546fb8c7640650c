// The tables of a scrub. A table's blocks are taken as they lie: no block crosses a segment's end, and an inner node stands behind all
// of its children, so that one pass over the segments sees everything.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "index/lsm/background_io.h"
#include "index/lsm/leaf_reader.h"
#include "index/lsm/scrub.h"

namespace farleaf::index::lsm {

using storage::kBlockBytes;
using storage::kSegmentBytes;

namespace {

struct Place {
  std::string key;
  Sequence sequence = 0;
  bool ComesBefore(std::string_view other, Sequence other_sequence) const {
    return lsm::ComesBefore(key, sequence, {.key = other, .sequence = other_sequence});
  }
};

class TableScrub {
 public:
  TableScrub(ScrubContext& context, const StoreState::TableState& table)
      : context_(context),
        from_(table.from),
        table_(&context.store.files(), table.table),
        info_(table_.info()) {}

  dsm::Task<void> Run() {
    ++context_.report.tables;
    for (size_t i = 0; i < info_.segments.size(); ++i) {
      const bool readable = co_await context_.Load(info_.segments[i]);
      if (!readable) whole_ = false;
      begin_ = i * uint64_t{kSegmentBytes};
      CheckBlocks();
      CheckFooter();
    }
    if (whole_) CheckDescription();
  }

 private:
  /// Of a block that no inner node has named yet.
  struct Unnamed {
    BlockPlace place;
    Place first, last;
    std::vector<uint64_t> hashes;  // of a leaf's keys
  };

  std::span<const std::byte> Bytes(uint64_t at, uint64_t bytes) const {
    return context_.bytes.span().subspan(at - begin_, bytes);
  }
  void Fault(uint64_t at, std::string what) {
    const BlockPlace place{at, 0};
    const SegmentId segment =
        info_.segments[std::min(place.segment_index(), info_.segments.size() - 1)];
    context_.Fault(context_.store.files().NameOf(segment), place.offset(), std::move(what));
    whole_ = false;
  }

  void CheckBlocks() {
    const uint64_t end = std::min(begin_ + kSegmentBytes, info_.bytes);
    uint64_t at = begin_;
    while (at + kBlockHeaderBytes <= end) {
      const auto bytes = LoadLittle<uint32_t>(Bytes(at, kBlockHeaderBytes).data() + 4);
      const uint64_t page_end = RoundUp(at + 1, kBlockBytes);
      lsm::Fault fault = nullptr;
      if (bytes == 0) {
        const auto padding = Bytes(at, page_end - at);
        if (std::ranges::all_of(padding, [](std::byte b) { return b == std::byte{0}; })) {
          at = page_end;
          continue;
        }
        fault = "block of no length";
      } else if (bytes < kBlockHeaderBytes || bytes > std::min<uint64_t>(kRawBytesMax, end - at)) {
        fault = "block of no possible length";
      } else {
        fault = CheckStored(info_.stamp, at, Bytes(at, bytes));
      }
      if (!fault) {
        CheckBlock(at, Bytes(at, bytes));
        at = RoundUp(at + bytes, kBlockUnit);
        continue;
      }
      Fault(at, fault);
      at = NextWholeBlock(at + kBlockUnit, end);
    }
  }

  /// `end`: there is none.
  uint64_t NextWholeBlock(uint64_t at, uint64_t end) const {
    for (; at + kBlockHeaderBytes <= end; at += kBlockUnit) {
      const auto bytes = LoadLittle<uint32_t>(Bytes(at, kBlockHeaderBytes).data() + 4);
      if (bytes >= kBlockHeaderBytes && bytes <= std::min<uint64_t>(kRawBytesMax, end - at) &&
          !CheckStored(info_.stamp, at, Bytes(at, bytes))) {
        return at;
      }
    }
    return end;
  }

  void CheckBlock(uint64_t at, std::span<const std::byte> stored) {
    ++context_.report.blocks;
    const BlockHeader header = BlockHeader::Load(stored.data());
    std::span<const std::byte> raw = stored;
    lsm::Fault fault = nullptr;
    if (header.compression() != Compression::kNone) {
      if (unpacked_.size() < header.raw_bytes) unpacked_ = IoBuffer(header.raw_bytes);
      const auto into = unpacked_.span().first(header.raw_bytes);
      fault = Unpack(stored, into);
      raw = into;
    }
    if (!fault && header.level > info_.root_level) fault = "block above the root";
    if (!fault) fault = Block::Check(raw, table_.Limits(header.level));
    if (fault) {
      Fault(at, fault);
      return;
    }
    Unnamed block{.place = {at, static_cast<uint32_t>(stored.size())}};
    if (header.level == 0) {
      CheckLeaf(Block(raw.data()), &block);
    } else if (whole_) {
      CheckNode(Block(raw.data()), &block);
    }
    if (whole_) unnamed_[header.level].push_back(std::move(block));
  }

  void CheckLeaf(Block leaf, Unnamed* block) {
    if (whole_ && leaf.number() != leaves_) {
      Fault(block->place.at, fmt::format("leaf {}, where {} is the next", leaf.number(), leaves_));
    }
    leaves_ = leaf.number() + 1;
    reader_.Enter(leaf);
    for (uint32_t i = 0; i < leaf.count(); ++i) {
      Entry entry;
      reader_.Read(table_, i, &entry);
      if (entries_ > 0 && !last_.ComesBefore(entry.key, entry.sequence)) {
        Fault(block->place.at, fmt::format("entry {} of the leaf is out of order", i));
      }
      Count(entry);
      last_ = {std::string(entry.key), entry.sequence};
      if (i == 0) block->first = last_;
      block->hashes.push_back(HashKey(entry.key));
    }
    block->last = last_;
  }

  void Count(const Entry& entry) {
    ++context_.report.entries;
    if (entries_++ == 0) smallest_ = entry.key;
    deletes_ += entry.kind == EntryKind::kDeleted;
    if (entry.expires_ms != 0) {
      ++expiring_;
      expiry_.Add(entry.expires_ms, entry.key.size() + entry.value.size() + entry.pointer.bytes);
    }
    content_bytes_ += entry.key.size() + entry.value.size();
    sequence_max_ = std::max(sequence_max_, entry.sequence);
    if (entry.kind != EntryKind::kPointer) return;
    named_bytes_[entry.pointer.segment] += entry.pointer.bytes;
    if (entry.key >= from_) context_.Name(entry.pointer, entry.key);
  }

  // Children are named in the order in which they lie.
  void CheckNode(Block node, Unnamed* block) {
    std::deque<Unnamed>& below = unnamed_[node.level() - 1];
    std::string key(node.prefix());
    const size_t prefix_bytes = key.size();
    key.resize(kKeyBytesMax + 4);
    const std::optional<std::string> fault = [&]() -> std::optional<std::string> {
      for (uint32_t i = 0; i < node.count(); ++i) {
        if (below.empty() || below.front().place != node.Child(i)) {
          return fmt::format("child {} of the inner node is no block that lies there", i);
        }
        const Unnamed& child = below.front();
        const PackedEntry entry = node.entry(i);
        const uint32_t bytes =
            node.CopySuffix(i, entry, key.data(), static_cast<uint32_t>(prefix_bytes));
        const std::string_view separator(key.data(), bytes);
        const Sequence sequence = kSequenceMax - entry.sequence;
        if (child.first.ComesBefore(separator, sequence) ||
            (i > 0 && !block->last.ComesBefore(separator, sequence))) {
          return fmt::format("separator {} of the inner node does not part its children", i);
        }
        for (const uint64_t hash : child.hashes) {
          if (node.has_filter() && !node.MayContain(hash)) {
            return fmt::format("the filter lacks a key of child {}", i);
          }
        }
        if (i == 0) block->first = child.first;
        block->last = child.last;
        below.pop_front();
      }
      return std::nullopt;
    }();
    if (fault) Fault(block->place.at, *fault);
  }

  void CheckFooter() {
    const uint64_t at = RoundUp(info_.bytes, kBlockBytes);
    if (at < begin_ || at >= begin_ + kSegmentBytes) return;
    if (at + info_.footer_bytes > begin_ + kSegmentBytes) {
      Fault(at, "footer across a segment's end");
      return;
    }
    const auto footer = DecodeFooter(Bytes(at, info_.footer_bytes));
    if (!footer.ok()) {
      Fault(at, std::string(footer.status().message()));
    } else if (*footer != info_) {
      Fault(at, "the footer is not what the manifest says of the table");
    }
  }

  void CheckDescription() {
    const uint64_t at = RoundUp(info_.bytes, kBlockBytes);
    for (const auto& [level, blocks] : unnamed_) {
      for (const Unnamed& each : blocks) {
        if (level == info_.root_level && each.place == info_.root) continue;
        Fault(each.place.at, fmt::format("no inner node names this block of level {}", level));
        return;
      }
    }
    if (unnamed_[info_.root_level].empty()) Fault(info_.root.at, "the root is not here");
    const auto expect = [&](const char* what, uint64_t is, uint64_t said) {
      if (is != said)
        Fault(at, fmt::format("{} {}, but it is described as having {}", is, what, said));
    };
    expect("leaves", leaves_, info_.leaves);
    expect("entries", entries_, info_.entries);
    expect("deleted entries", deletes_, info_.deletes);
    expect("entries that expire", expiring_, info_.expiring);
    if (!info_.expiry.spans().empty() && expiry_ != info_.expiry) {
      Fault(at, "it is described as expiring at other times");
    }
    expect("bytes of keys and values", content_bytes_, info_.content_bytes);
    expect("as the highest sequence", sequence_max_, info_.sequence_max);
    if (smallest_ != info_.smallest || last_.key != info_.largest) {
      Fault(at, "its keys are not between those of its description");
    }
    for (const TableInfo::LogSegment& log : info_.dictionary) {
      expect(("bytes named in " + context_.store.files().NameOf(log.segment)).c_str(),
             named_bytes_[log.segment], log.live_bytes);
    }
  }

  ScrubContext& context_;
  const std::string& from_;
  const Table table_;
  const TableInfo& info_;
  uint64_t begin_ = 0;  // of the segment in memory
  bool whole_ = true;   // no fault so far: what spans blocks can be judged
  LeafReader reader_;
  IoBuffer unpacked_;
  std::map<uint8_t, std::deque<Unnamed>> unnamed_;  // by level

  // Of the entries so far.
  uint32_t leaves_ = 0;
  ExpiryTimes expiry_;
  uint64_t entries_ = 0, deletes_ = 0, expiring_ = 0, content_bytes_ = 0;
  Sequence sequence_max_ = 0;
  std::string smallest_;
  Place last_;
  std::map<SegmentId, uint64_t> named_bytes_;
};

}  // namespace

dsm::Task<void> ScrubTable(ScrubContext& context, const StoreState::TableState& table) {
  TableScrub scrub(context, table);
  co_await scrub.Run();
}

}  // namespace farleaf::index::lsm
