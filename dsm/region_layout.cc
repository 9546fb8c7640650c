#include "dsm/region_layout.h"

#include <sys/random.h>

#include <bit>
#include <string>

namespace farleaf::dsm {

Result<RegionLayout> RegionLayout::For(ServerId server, uint64_t region_bytes,
                                       uint64_t chunk_bytes) {
  if (!std::has_single_bit(chunk_bytes) || chunk_bytes < kChunkBytesMin ||
      chunk_bytes > kChunkBytesMax) {
    return Status::InvalidArgument("chunk size " + std::to_string(chunk_bytes) +
                                   " is not a power of two from 64 KiB to 64 MiB");
  }
  if (region_bytes > GlobalAddress::kOffsetMax) {
    return Status::InvalidArgument("region size " + std::to_string(region_bytes) +
                                   " is above the limit of 256 TiB");
  }
  RegionLayout layout;
  layout.server = server;
  layout.region_bytes = region_bytes;
  layout.chunk_bytes = chunk_bytes;
  const uint64_t chunks_at_most = region_bytes / chunk_bytes;
  layout.first_chunk = RoundUp(kChunkTableOffset + chunks_at_most * 16, chunk_bytes);
  if (layout.first_chunk + chunk_bytes > region_bytes) {
    return Status::InvalidArgument("region size " + std::to_string(region_bytes) +
                                   " holds no chunk of " + std::to_string(chunk_bytes) +
                                   " bytes beside its tables of " +
                                   std::to_string(layout.first_chunk) + " bytes");
  }
  layout.chunk_count = (region_bytes - layout.first_chunk) / chunk_bytes;
  return layout;
}

RegionHeader RegionLayout::ToHeader() const {
  RegionHeader header{};
  header.magic = RegionHeader::kMagic;
  header.format = RegionHeader::kFormat;
  header.region_bytes = region_bytes;
  header.incarnation = incarnation;
  header.chunk_bytes = chunk_bytes;
  header.chunk_count = chunk_count;
  header.first_chunk = first_chunk;
  header.server = server;
  header.lease_ms = lease_ms;
  header.crc = Crc32c(std::as_bytes(std::span(&header, 1)));
  return header;
}

Result<RegionLayout> RegionLayout::Parse(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(RegionHeader)) return Status::Corruption("region header is cut short");
  RegionHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::string name = "region header of memory server " + std::to_string(header.server);
  if (header.magic != RegionHeader::kMagic) return Status::Corruption(name + ": wrong magic");
  if (header.format != RegionHeader::kFormat) {
    return Status::InvalidArgument(name + ": format " + std::to_string(header.format) +
                                   ", this program reads format " +
                                   std::to_string(RegionHeader::kFormat));
  }
  const uint32_t crc = std::exchange(header.crc, 0);
  if (Crc32c(std::as_bytes(std::span(&header, 1))) != crc) {
    return Status::Corruption(name + ": checksum mismatch");
  }
  auto layout = For(header.server, header.region_bytes, header.chunk_bytes);
  if (!layout.ok()) return layout.status().WithContext(name);
  layout->incarnation = header.incarnation;
  layout->lease_ms = header.lease_ms;
  if (layout->first_chunk != header.first_chunk || layout->chunk_count != header.chunk_count) {
    return Status::Corruption(name + ": geometry does not add up");
  }
  return layout;
}

Result<uint64_t> DrawIncarnation() {
  uint64_t incarnation = 0;
  while (incarnation == 0) {
    if (::getrandom(&incarnation, sizeof incarnation, 0) != sizeof incarnation) {
      return Status::IoError("the system gives no random numbers");
    }
  }
  return incarnation;
}

void FormatRegion(const RegionLayout& layout, std::span<std::byte> region) {
  FARLEAF_CHECK(region.size() >= layout.region_bytes, region.size(), layout.region_bytes);
  const RegionHeader header = layout.ToHeader();
  std::memcpy(region.data(), &header, sizeof header);
}

}  // namespace farleaf::dsm
