#include "index/lsm/commit_record.h"

#include "dsm/base/check.h"
#include "index/lsm/varint.h"

namespace farleaf::index::lsm {

namespace {

constexpr uint8_t kExpires = 0x08;

void WriteVarint(std::string* out, uint32_t value) {
  char bytes[kVarintBytesMax];
  out->append(bytes, PutVarint(bytes, value));
}

/// False: none, or one that is longer than needed.
bool ReadVarint(ByteReader* reader, uint32_t* value) {
  *value = 0;
  for (int shift = 0; shift < 28; shift += 7) {
    const auto byte = reader->Read<uint8_t>();
    if (!reader->ok()) return false;
    *value |= uint32_t{byte & 0x7fu} << shift;
    if ((byte & 0x80) == 0) return byte != 0 || shift == 0;
  }
  return false;
}

bool ReadString(ByteReader* reader, uint32_t bytes_max, std::string_view* string) {
  uint32_t bytes = 0;
  if (!ReadVarint(reader, &bytes) || bytes > bytes_max) return false;
  *string = AsChars(reader->ReadBytes(bytes));
  return reader->ok();
}

bool ReadPointer(ByteReader* reader, size_t key_bytes, ValuePointer* pointer) {
  pointer->segment = static_cast<SegmentId>(reader->Read<uint64_t>());
  pointer->offset = reader->Read<uint32_t>();
  pointer->value_bytes = reader->Read<uint32_t>();
  if (!reader->ok() || pointer->segment == SegmentId::kNone) return false;
  if (pointer->value_bytes > kValueBytesMax || pointer->offset < kLogHeadBytes) return false;
  pointer->bytes = ValueRecordBytes(key_bytes, pointer->value_bytes);
  return pointer->offset <= storage::kSegmentBytes &&
         pointer->bytes <= storage::kSegmentBytes - pointer->offset;
}

bool ReadChange(ByteReader* reader, Change* change) {
  *change = {};
  const auto tag = reader->Read<uint8_t>();
  const bool expires = (tag & kExpires) != 0;
  if (!reader->ok() || (tag & ~kExpires) > static_cast<uint8_t>(ChangeKind::kDeleteRange)) {
    return false;
  }
  change->kind = static_cast<ChangeKind>(tag & ~kExpires);
  if (!ReadString(reader, kKeyBytesMax, &change->key)) return false;
  const bool puts = change->kind == ChangeKind::kPut || change->kind == ChangeKind::kPutPointer;
  if (expires) {
    change->expires_ms = reader->Read<uint64_t>();
    if (!puts || change->expires_ms == 0) return false;
  }
  switch (change->kind) {
    case ChangeKind::kPut:
      return ReadString(reader, kValueBytesMax, &change->value);
    case ChangeKind::kPutPointer:
      return ReadPointer(reader, change->key.size(), &change->pointer);
    case ChangeKind::kDelete:
      return true;
    case ChangeKind::kDeleteRange:
      return ReadString(reader, kKeyBytesMax, &change->end) && change->key < change->end;
  }
  return false;
}

}  // namespace

void CommitWriter::Clear() {
  bytes_.assign(kCommitHeadBytes, '\0');
  changes_ = 0;
}

void CommitWriter::Add(const Change& change) {
  FARLEAF_CHECK(change.key.size() <= kKeyBytesMax && change.value.size() <= kValueBytesMax,
                change.key.size(), change.value.size());
  const bool expires = change.expires_ms != 0;
  bytes_.push_back(static_cast<char>(static_cast<uint8_t>(change.kind) | (expires ? kExpires : 0)));
  WriteVarint(&bytes_, static_cast<uint32_t>(change.key.size()));
  bytes_.append(change.key);
  ByteWriter writer(&bytes_);
  if (expires) writer.Write(change.expires_ms);
  switch (change.kind) {
    case ChangeKind::kPut:
      WriteVarint(&bytes_, static_cast<uint32_t>(change.value.size()));
      bytes_.append(change.value);
      break;
    case ChangeKind::kPutPointer:
      FARLEAF_DCHECK(change.pointer.bytes ==
                     ValueRecordBytes(change.key.size(), change.pointer.value_bytes));
      writer.Write(storage::Number(change.pointer.segment));
      writer.Write(change.pointer.offset);
      writer.Write(change.pointer.value_bytes);
      break;
    case ChangeKind::kDelete:
      FARLEAF_DCHECK(!expires);
      break;
    case ChangeKind::kDeleteRange:
      FARLEAF_CHECK(change.key < change.end && change.end.size() <= kKeyBytesMax && !expires);
      WriteVarint(&bytes_, static_cast<uint32_t>(change.end.size()));
      bytes_.append(change.end);
      break;
  }
  StoreLittle(bytes_.data() + 8, ++changes_);
}

uint64_t ChangeBytes(const Change& change) {
  const auto string = [](std::string_view of) {
    char ignored[kVarintBytesMax];
    return of.size() + static_cast<size_t>(PutVarint(ignored, of.size()) - ignored);
  };
  const uint64_t bytes = 1 + string(change.key) + (change.expires_ms != 0 ? 8 : 0);
  switch (change.kind) {
    case ChangeKind::kPut:
      return bytes + string(change.value);
    case ChangeKind::kPutPointer:
      return bytes + 16;
    case ChangeKind::kDelete:
      return bytes;
    case ChangeKind::kDeleteRange:
      return bytes + string(change.end);
  }
  return bytes;
}

std::optional<CommitReader> CommitReader::Parse(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const auto first = reader.Read<uint64_t>();
  const auto changes = reader.Read<uint32_t>();
  if (!reader.ok() || first == 0 || changes == 0) return std::nullopt;
  if (first > kSequenceMax || changes > kSequenceMax - first) return std::nullopt;
  const CommitReader commit(first, changes, payload.subspan(kCommitHeadBytes));
  Change change;
  for (uint32_t i = 0; i < changes; ++i) {
    if (!ReadChange(&reader, &change)) return std::nullopt;
  }
  if (reader.remaining() > 0) return std::nullopt;
  return commit;
}

bool CommitReader::Next(Change* change) {
  if (left_ == 0) return false;
  --left_;
  const bool read = ReadChange(&rest_, change);
  FARLEAF_CHECK(read, "a commit that was parsed", first_);
  return true;
}

}  // namespace farleaf::index::lsm
