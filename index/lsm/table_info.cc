#include "index/lsm/table_info.h"

#include "dsm/base/crc32c.h"
#include "index/lsm/varint.h"

namespace farleaf::index::lsm {

namespace {

/// kExpiryFormat: with the times at which entries expire; of tables that have some.
constexpr uint64_t kFormat = 1, kExpiryFormat = 2;

class Writer {
 public:
  void Number(uint64_t value) {
    char bytes[kVarintBytesMax];
    out_.append(bytes, PutVarint(bytes, value));
  }
  void Bytes(std::string_view bytes) {
    Number(bytes.size());
    out_.append(bytes);
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}
  bool ok() const { return at_ != nullptr; }
  bool at_end() const { return at_ == end_; }

  /// At most `most`, or the reader fails.
  uint64_t Number(uint64_t most = UINT64_MAX) {
    uint64_t value = 0;
    if (at_) at_ = GetVarint(at_, end_, &value);
    if (value > most) at_ = nullptr;
    return at_ ? value : 0;
  }
  std::string Bytes(uint64_t most) {
    const uint64_t bytes = Number(most);
    if (!at_ || bytes > static_cast<uint64_t>(end_ - at_)) {
      at_ = nullptr;
      return {};
    }
    std::string result(at_, bytes);
    at_ += bytes;
    return result;
  }
  /// Of items that take `least` bytes each: no more than there are bytes for.
  uint64_t Count(uint64_t least) {
    const uint64_t count = Number();
    if (at_ && count > static_cast<uint64_t>(end_ - at_) / least) at_ = nullptr;
    return at_ ? count : 0;
  }

 private:
  const char* at_;
  const char* end_;
};

/// What no table that was built says of itself.
Fault Misfit(const TableInfo& info) {
  const uint64_t room = info.segments.size() * uint64_t{storage::kSegmentBytes};
  if (info.segments.empty()) return "table without segments";
  for (const SegmentId segment : info.segments) {
    if (segment == SegmentId::kNone) return "table in a segment without a number";
  }
  if (info.bytes > room || RoundUp(info.bytes, storage::kBlockBytes) + info.footer_bytes > room) {
    return "table longer than its segments";
  }
  if (info.root.at % kBlockUnit != 0 || info.root.bytes < kBlockHeaderBytes ||
      info.root.bytes > kRawBytesMax || info.root.at > info.bytes ||
      info.root.at + info.root.bytes > info.bytes ||
      info.root.offset() + info.root.bytes > storage::kSegmentBytes) {
    return "table whose root is outside";
  }
  if (info.root_level < 1 || info.root_level > kBlockLevelMax) return "table of no possible height";
  if (info.entries == 0 || info.leaves == 0 || info.leaves > info.entries) return "empty table";
  if (!info.expiry.Fits()) return "table that expires at no possible times";
  if (info.largest < info.smallest) return "table whose largest key is below its smallest";
  return nullptr;
}

ExpiryTimes DecodeExpiry(Reader& in) {
  const auto shift = static_cast<uint32_t>(in.Number(63));
  std::vector<ExpiryTimes::Span> spans(in.Count(2));
  for (ExpiryTimes::Span& span : spans) {
    span.number = in.Number();
    span.bytes = in.Number();
  }
  return {shift, std::move(spans)};
}

}  // namespace

std::string TableInfo::Encode() const {
  Writer out;
  const bool with_expiry = !expiry.spans().empty();
  out.Number(with_expiry ? kExpiryFormat : kFormat);
  out.Number(segments.size());
  for (const SegmentId segment : segments) out.Number(storage::Number(segment));
  out.Number(stamp);
  out.Bytes(smallest);
  out.Bytes(largest);
  out.Number(root.at);
  out.Number(root.bytes);
  out.Number(root_level);
  out.Number(leaves);
  out.Number(bytes);
  out.Number(footer_bytes);
  out.Number(entries);
  out.Number(deletes);
  out.Number(expiring);
  out.Number(content_bytes);
  out.Number(sequence_max);
  out.Number(dictionary.size());
  for (const LogSegment& each : dictionary) {
    out.Number(storage::Number(each.segment));
    out.Number(each.live_bytes);
  }
  if (!with_expiry) return out.Take();
  out.Number(expiry.shift());
  out.Number(expiry.spans().size());
  for (const ExpiryTimes::Span& span : expiry.spans()) {
    out.Number(span.number);
    out.Number(span.bytes);
  }
  return out.Take();
}

Result<TableInfo> TableInfo::Decode(std::span<const std::byte> bytes) {
  Reader in(AsChars(bytes));
  const uint64_t format = in.Number();
  if (format != kFormat && format != kExpiryFormat)
    return Status::Corruption("table of an unknown format");
  TableInfo info;
  info.segments.resize(in.Count(1));
  for (SegmentId& segment : info.segments) segment = SegmentId{in.Number()};
  info.stamp = in.Number();
  info.smallest = in.Bytes(kKeyBytesMax);
  info.largest = in.Bytes(kKeyBytesMax);
  info.root.at = in.Number();
  info.root.bytes = static_cast<uint32_t>(in.Number(UINT32_MAX));
  info.root_level = static_cast<uint8_t>(in.Number(UINT8_MAX));
  info.leaves = static_cast<uint32_t>(in.Number(UINT32_MAX));
  info.bytes = in.Number(UINT64_MAX / 2);
  info.footer_bytes = static_cast<uint32_t>(in.Number(UINT32_MAX));
  info.entries = in.Number();
  info.deletes = in.Number();
  info.expiring = in.Number();
  info.content_bytes = in.Number();
  info.sequence_max = in.Number(kSequenceMax);
  std::vector<LogSegment> dictionary(in.Count(2));
  for (LogSegment& each : dictionary) {
    each.segment = SegmentId{in.Number(LogSegment::kSegmentMax)};
    each.live_bytes = in.Number(LogSegment::kLiveBytesMax);
  }
  info.dictionary = std::move(dictionary);
  if (format == kExpiryFormat) info.expiry = DecodeExpiry(in);
  if (!in.ok() || !in.at_end())
    return Status::Corruption("table's description is cut off, or too long");
  if (const Fault fault = Misfit(info)) return Status::Corruption(fault);
  return info;
}

std::string EncodeFooter(TableInfo* info) {
  // Its own length is in it: once more, if that makes it longer.
  std::string encoded;
  do {
    encoded = info->Encode();
    const uint64_t bytes = RoundUp(kFooterHeaderBytes + encoded.size(), storage::kBlockBytes);
    if (bytes == info->footer_bytes) break;
    info->footer_bytes = static_cast<uint32_t>(bytes);
  } while (true);
  std::string footer;
  ByteWriter out(&footer);
  out.Write(kFooterMagic);
  out.Write(static_cast<uint32_t>(encoded.size()));
  out.Write(Crc32c(AsBytes(encoded), Crc32c(AsBytes(footer))));
  out.WriteBytes(encoded);
  footer.resize(info->footer_bytes);
  return footer;
}

Result<TableInfo> DecodeFooter(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const auto magic = in.Read<uint64_t>();
  const auto length = in.Read<uint32_t>();
  const auto checksum = in.Read<uint32_t>();
  const auto encoded = in.ReadBytes(length);
  if (!in.ok() || magic != kFooterMagic) return Status::Corruption("no footer of a table");
  if (checksum != Crc32c(encoded, Crc32c(bytes.first(12)))) {
    return Status::Corruption("footer with a wrong checksum");
  }
  return TableInfo::Decode(encoded);
}

}  // namespace farleaf::index::lsm
