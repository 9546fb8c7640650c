#include "server/cluster/founding.h"

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/crc32c.h"
#include "server/membership/membership.h"
#include "server/membership/region_map.h"

namespace farleaf::server::cluster {

namespace {

constexpr std::string_view kFoundingMagic = "FFND";
constexpr uint8_t kFoundingVersion = 1;
/// Of a region's entry, beside its keys, when it is founded with one member (membership/format.md).
constexpr size_t kFoundedEntryBytes = 64;
static_assert(2 * kFoundingBytesMax + (kFoundingKeysMax + 1) * kFoundedEntryBytes <=
              membership::kEntryBytesMax);
static_assert(kFoundingKeysMax + 4 <= membership::kChangesMax);

}  // namespace

Status CheckFoundingKeys(const std::vector<std::string>& keys) {
  if (keys.empty() || keys.size() > kFoundingKeysMax) {
    return Status::InvalidArgument(std::to_string(keys.size()) + " keys to cut at: 1 to " +
                                   std::to_string(kFoundingKeysMax) + " are taken");
  }
  size_t bytes = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].empty()) return Status::InvalidArgument("the empty key is the first one anyway");
    if (keys[i].size() > membership::kRegionKeyBytesMax) {
      return Status::InvalidArgument("a key to cut at has at most " +
                                     std::to_string(membership::kRegionKeyBytesMax) + " bytes");
    }
    if (i > 0 && keys[i] <= keys[i - 1]) {
      return Status::InvalidArgument("keys to cut at are given in ascending order, each once");
    }
    bytes += keys[i].size();
  }
  if (bytes > kFoundingBytesMax) {
    return Status::InvalidArgument("keys to cut at have " + std::to_string(kFoundingBytesMax) +
                                   " bytes together at most: split regions later");
  }
  return Status::Ok();
}

std::string EncodeFounding(const std::vector<std::string>& keys) {
  const Status rules = CheckFoundingKeys(keys);
  FARLEAF_CHECK(rules.ok(), rules);
  std::string bytes(kFoundingMagic);
  ByteWriter out(&bytes);
  out.Write(kFoundingVersion);
  out.Write(static_cast<uint16_t>(keys.size()));
  for (const std::string& key : keys) {
    out.Write(static_cast<uint16_t>(key.size()));
    out.WriteBytes(std::string_view(key));
  }
  out.Write(Crc32c(AsBytes(bytes)));
  return bytes;
}

Result<std::vector<std::string>> ParseFounding(std::span<const std::byte> bytes) {
  const std::string what = std::string("entry ") + kFoundingPath;
  ByteReader in(bytes);
  const std::string_view magic = AsChars(in.ReadBytes(kFoundingMagic.size()));
  const auto version = in.Read<uint8_t>();
  std::vector<std::string> keys;
  for (auto count = in.Read<uint16_t>(); count > 0 && in.ok(); --count) {
    const size_t length = in.Read<uint16_t>();
    keys.emplace_back(AsChars(in.ReadBytes(length)));
  }
  const auto crc = in.Read<uint32_t>();
  if (!in.ok() || in.remaining() != 0 || magic != kFoundingMagic || version != kFoundingVersion ||
      crc != Crc32c(bytes.first(bytes.size() - sizeof(uint32_t)))) {
    return Status::Corruption(what + " says not where the first map is to be cut");
  }
  const Status rules = CheckFoundingKeys(keys);
  if (!rules.ok()) return Status::Corruption(what + ": " + std::string(rules.message()));
  return keys;
}

}  // namespace farleaf::server::cluster
