#include "server/replication/area_layout.h"

#include <cstring>
#include <string>

#include "dsm/base/crc32c.h"

namespace farleaf::server::replication {

namespace {

uint32_t CrcOf(AreaHeader header) {
  header.crc = 0;
  return Crc32c(std::as_bytes(std::span(&header, 1)));
}

Status OutOfRange(const char* what, uint64_t value, const std::string& range) {
  return Status::InvalidArgument(std::string(what) + " = " + std::to_string(value) + " is not in " +
                                 range);
}

}  // namespace

Result<AreaLayout> AreaLayout::For(const AreaOptions& options) {
  if (options.slots == 0 || options.slots > kSlotsMax) {
    return OutOfRange("an area's slots", options.slots, "1.." + std::to_string(kSlotsMax));
  }
  if (options.payload_bytes == 0 || options.payload_bytes > kPayloadBytesMax ||
      options.payload_bytes % kAreaAlignment != 0) {
    return OutOfRange("an area's payload_bytes", options.payload_bytes,
                      std::to_string(kAreaAlignment) + ".." + std::to_string(kPayloadBytesMax) +
                          " in steps of " + std::to_string(kAreaAlignment));
  }
  if (options.log_buffers > kLogBuffersMax) {
    return OutOfRange("an area's log_buffers", options.log_buffers,
                      "0.." + std::to_string(kLogBuffersMax));
  }
  return AreaLayout{options.slots, options.payload_bytes, options.log_buffers};
}

AreaHeader HeaderOf(const AreaLayout& layout, uint64_t token) {
  AreaHeader header = {};
  header.magic = AreaHeader::kMagic;
  header.format = AreaHeader::kFormat;
  header.token = token;
  header.slots = layout.slots;
  header.payload_bytes = layout.payload_bytes;
  header.log_buffers = layout.log_buffers;
  header.area_bytes = layout.bytes();
  header.crc = CrcOf(header);
  return header;
}

Result<ParsedArea> ParseAreaHeader(std::span<const std::byte, sizeof(AreaHeader)> bytes) {
  AreaHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != AreaHeader::kMagic) return Status::Corruption("there is no area");
  if (header.format != AreaHeader::kFormat) {
    return Status::Unimplemented("an area of format " + std::to_string(header.format) +
                                 "; this build knows " + std::to_string(AreaHeader::kFormat));
  }
  if (header.crc != CrcOf(header)) return Status::Corruption("an area's header fails its checksum");
  auto layout = AreaLayout::For({header.slots, header.payload_bytes, header.log_buffers});
  if (!layout.ok()) return Status::Corruption(std::string(layout.status().message()));
  if (layout->bytes() != header.area_bytes) {
    return Status::Corruption("an area of " + std::to_string(header.area_bytes) +
                              " bytes whose parts take " + std::to_string(layout->bytes()));
  }
  return ParsedArea{*layout, header.token};
}

}  // namespace farleaf::server::replication
