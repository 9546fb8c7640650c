#include "index/lsm/table_check.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace farleaf::index::lsm {

using storage::kBlockBytes;
using storage::kSegmentBytes;

namespace {

bool AllZero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

uint64_t FooterAt(const TableInfo& table) { return RoundUp(table.bytes, kBlockBytes); }

}  // namespace

uint32_t TableBytesIn(const TableInfo& table, size_t segment_index) {
  const uint64_t begin = segment_index * uint64_t{kSegmentBytes};
  const uint64_t end = RoundUp(FooterAt(table) + table.footer_bytes, kBlockBytes);
  return static_cast<uint32_t>(std::min<uint64_t>(end - std::min(end, begin), kSegmentBytes));
}

std::optional<TableCheck::Damage> TableCheck::Next(std::span<const std::byte> bytes) {
  segment_ = bytes;
  begin_ = std::exchange(next_, next_ + kSegmentBytes);
  const uint64_t end = std::min(begin_ + bytes.size(), FooterAt(table_));
  uint64_t at = begin_;
  while (at < end) {
    const bool room = at + kBlockHeaderBytes <= end;
    const uint32_t stored = room ? LoadLittle<uint32_t>(Bytes(at, 8).data() + 4) : 0;
    uint64_t padding = at, next = std::min(RoundUp(at + 1, kBlockBytes), end);
    if (stored != 0) {
      if (stored < kBlockHeaderBytes || stored > std::min<uint64_t>(kRawBytesMax, end - at)) {
        return At(at, "block of no possible length");
      }
      if (const Fault fault = CheckBlock(at, Bytes(at, stored))) return At(at, fault);
      padding = at + stored;
      next = std::min(RoundUp(padding, kBlockUnit), end);
    }
    if (!AllZero(Bytes(padding, next - padding))) return At(padding, "neither block nor zeros");
    at = next;
  }
  return CheckFooter();
}

Fault TableCheck::CheckBlock(uint64_t at, std::span<const std::byte> stored) {
  if (const Fault fault = CheckStored(table_.stamp, at, stored)) return fault;
  const BlockHeader header = BlockHeader::Load(stored.data());
  if (header.level > table_.root_level) return "block above the root";
  if (header.level == 0 && header.number != leaves_++) return "leaf out of order";
  if (header.level > 0) {
    if (const Fault fault = CheckChildren(stored, header)) return fault;
  }
  unnamed_[header.level].push_back({at, static_cast<uint32_t>(stored.size())});
  return nullptr;
}

Fault TableCheck::CheckChildren(std::span<const std::byte> stored, const BlockHeader& header) {
  if (header.compression() != Compression::kNone) {
    if (unpacked_.size() < header.raw_bytes) unpacked_ = IoBuffer(header.raw_bytes);
    const auto raw = unpacked_.span().first(header.raw_bytes);
    if (const Fault fault = Unpack(stored, raw)) return fault;
    stored = raw;
  }
  const BlockLimits limits{header.level, table_.bytes, table_.dictionary.size()};
  if (const Fault fault = Block::Check(stored, limits)) return fault;
  const Block node(stored.data());
  std::deque<BlockPlace>& below = unnamed_[header.level - 1];
  for (uint32_t i = 0; i < node.count(); ++i) {
    if (below.empty() || below.front() != node.Child(i)) {
      return "inner node with a child that is no block there";
    }
    below.pop_front();
  }
  return nullptr;
}

std::optional<TableCheck::Damage> TableCheck::CheckFooter() const {
  const uint64_t at = FooterAt(table_);
  if (at < begin_ || at >= begin_ + segment_.size()) return std::nullopt;
  TableInfo described = table_;
  const std::string footer = EncodeFooter(&described);
  if (at + footer.size() > begin_ + segment_.size() ||
      std::memcmp(footer.data(), Bytes(at, footer.size()).data(), footer.size()) != 0) {
    return At(at, "the footer is not what the edit says of the table");
  }
  return std::nullopt;
}

std::optional<TableCheck::Damage> TableCheck::End() const {
  if (leaves_ != table_.leaves)
    return At(FooterAt(table_), "not as many leaves as it is said to have");
  for (size_t level = 0; level < unnamed_.size(); ++level) {
    for (const BlockPlace& each : unnamed_[level]) {
      if (level != table_.root_level || each != table_.root) {
        return At(each.at, "block that no inner node names");
      }
    }
  }
  if (unnamed_[table_.root_level].size() != 1) return At(table_.root.at, "the root is not here");
  return std::nullopt;
}

}  // namespace farleaf::index::lsm
