#include "server/records/record.h"

#include <cstring>

#include "dsm/base/bytes.h"

namespace farleaf::server {

namespace {
constexpr uint8_t kStaleMark = 1, kWonMark = 2;
constexpr size_t kMarksAt = 1, kFlagsAt = 2, kExpiryAt = 6, kCasAt = 14;
static_assert(kCasAt + sizeof(uint64_t) == kRecordHeaderBytes);
}  // namespace

Result<Record> ParseRecord(std::string_view value) {
  if (value.size() < kRecordHeaderBytes) {
    return Status::Corruption("a record of " + std::to_string(value.size()) + " bytes");
  }
  const auto type = static_cast<uint8_t>(value[0]), marks = static_cast<uint8_t>(value[kMarksAt]);
  if (type < static_cast<uint8_t>(RecordType::kString) ||
      type > static_cast<uint8_t>(RecordType::kSortedSet) || marks > (kStaleMark | kWonMark)) {
    return Status::Corruption("a record of type " + std::to_string(type) + ", marks " +
                              std::to_string(marks));
  }
  Record record;
  record.type = static_cast<RecordType>(type);
  record.stale = (marks & kStaleMark) != 0;
  record.won = (marks & kWonMark) != 0;
  record.flags = LoadLittle<uint32_t>(value.data() + kFlagsAt);
  record.expiry_ms = LoadLittle<uint64_t>(value.data() + kExpiryAt);
  record.cas = LoadLittle<uint64_t>(value.data() + kCasAt);
  record.data = value.substr(kRecordHeaderBytes);
  return record;
}

void AppendRecord(const Record& record, std::string_view tail, std::string* out) {
  char header[kRecordHeaderBytes];
  header[0] = static_cast<char>(record.type);
  header[kMarksAt] =
      static_cast<char>((record.stale ? kStaleMark : 0) | (record.won ? kWonMark : 0));
  StoreLittle<uint32_t>(header + kFlagsAt, record.flags);
  StoreLittle<uint64_t>(header + kExpiryAt, record.expiry_ms);
  StoreLittle<uint64_t>(header + kCasAt, record.cas);
  out->reserve(out->size() + sizeof header + record.data.size() + tail.size());
  out->append(header, sizeof header).append(record.data).append(tail);
}

}  // namespace farleaf::server
