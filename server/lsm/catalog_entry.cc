#include "server/lsm/catalog_entry.h"

#include "dsm/base/bytes.h"
#include "index/lsm/types.h"

namespace farleaf::server {

using index::PrefixedIndex;
namespace protocol = client::protocol;

protocol::TreeInfo InfoOf(const CatalogEntry& entry, std::string_view name) {
  protocol::TreeInfo info;
  info.id = entry.number;
  info.layout = entry.layout;
  info.key_bytes_max = entry.key_bytes_max;
  info.value_bytes_max =
      entry.layout == protocol::TreeLayout::kFixed8 ? 8 : index::lsm::kValueBytesMax;
  info.name = name;
  return info;
}

PrefixedIndex::Limits LimitsOf(const CatalogEntry& entry) {
  PrefixedIndex::Limits limits;
  if (entry.layout == protocol::TreeLayout::kFixed8) limits.sizes = PrefixedIndex::Sizes::kFixed8;
  limits.key_bytes_max = entry.key_bytes_max;
  return limits;
}

Result<CatalogEntry> NewCatalogEntry(client::protocol::TreeLayout layout, uint32_t key_bytes_max) {
  constexpr uint32_t kDefault = 1024;
  const bool fixed8 = layout == client::protocol::TreeLayout::kFixed8;
  if (key_bytes_max > index::PrefixedIndex::kKeyBytesMax ||
      (fixed8 && key_bytes_max != 0 && key_bytes_max != 8)) {
    return Status::InvalidArgument("key_bytes_max is " + std::to_string(key_bytes_max) + ": 1 to " +
                                   std::to_string(index::PrefixedIndex::kKeyBytesMax) +
                                   " can be, and 8 in a fixed8 tree");
  }
  return CatalogEntry{0, layout, fixed8 ? 8 : key_bytes_max == 0 ? kDefault : key_bytes_max};
}

std::string EncodeCatalogEntry(const CatalogEntry& entry) {
  std::string bytes(kCatalogEntryBytes, '\0');
  StoreLittle<uint16_t>(bytes.data(), entry.number);
  bytes[2] = static_cast<char>(entry.layout);
  StoreLittle<uint32_t>(bytes.data() + 3, entry.key_bytes_max);
  return bytes;
}

Result<CatalogEntry> ParseCatalogEntry(std::string_view name, std::string_view bytes) {
  const Status corrupt =
      Status::Corruption("the catalog's entry of tree \"" + std::string(name) + "\" is damaged");
  if (bytes.size() != kCatalogEntryBytes) return corrupt;
  CatalogEntry entry{LoadLittle<uint16_t>(bytes.data()),
                     static_cast<protocol::TreeLayout>(bytes[2]),
                     LoadLittle<uint32_t>(bytes.data() + 3)};
  const bool fixed8 = entry.layout == protocol::TreeLayout::kFixed8;
  if (entry.number == 0 || entry.number >= PrefixedIndex::kNumberEnd ||
      (!fixed8 && entry.layout != protocol::TreeLayout::kBytes) || entry.key_bytes_max == 0 ||
      entry.key_bytes_max > PrefixedIndex::kKeyBytesMax || (fixed8 && entry.key_bytes_max != 8)) {
    return corrupt;
  }
  return entry;
}

std::string EncodeLastNumber(uint64_t number) {
  std::string bytes(8, '\0');
  StoreBig64(bytes.data(), number);
  return bytes;
}

Result<uint64_t> ParseLastNumber(std::string_view bytes) {
  const uint64_t number = bytes.size() == 8 ? LoadBig64(bytes.data()) : 0;
  if (number > 0 && number < PrefixedIndex::kNumberEnd) return number;
  return Status::Corruption("the catalog's number of trees is damaged");
}

}  // namespace farleaf::server
