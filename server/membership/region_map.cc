#include "server/membership/region_map.h"

#include <algorithm>
#include <set>
#include <utility>

#include "dsm/base/bytes.h"
#include "dsm/base/crc32c.h"

namespace farleaf::server::membership {

namespace {

constexpr uint32_t kNodeMagic = 0x444f4e46;    // "FNOD"
constexpr uint32_t kRegionMagic = 0x47455246;  // "FREG"
constexpr uint8_t kFormatVersion = 2;

std::string Begin(uint32_t magic) {
  std::string bytes;
  ByteWriter out(&bytes);
  out.Write(magic);
  out.Write(kFormatVersion);
  return bytes;
}

std::string Seal(std::string bytes) {
  ByteWriter(&bytes).Write(Crc32c(AsBytes(bytes)));
  return bytes;
}

template <std::unsigned_integral Length>
void WriteString(ByteWriter& out, std::string_view text) {
  out.Write(static_cast<Length>(text.size()));
  out.WriteBytes(text);
}

template <std::unsigned_integral Length>
std::string ReadString(ByteReader& in) {
  const size_t length = in.Read<Length>();
  return std::string(AsChars(in.ReadBytes(length)));
}

void WriteNodes(ByteWriter& out, const std::vector<NodeId>& nodes) {
  out.Write(static_cast<uint8_t>(nodes.size()));
  for (const NodeId node : nodes) out.Write(node);
}

std::vector<NodeId> ReadNodes(ByteReader& in) {
  std::vector<NodeId> nodes;
  for (uint8_t count = in.Read<uint8_t>(); count > 0 && in.ok(); --count) {
    nodes.push_back(in.Read<NodeId>());
  }
  return nodes;
}

/// The fields between the version and the checksum.
Result<std::span<const std::byte>> Unseal(const std::string& what, uint32_t magic,
                                          std::span<const std::byte> bytes) {
  constexpr size_t kHeadBytes = 5, kCrcBytes = 4;
  if (bytes.size() < kHeadBytes + kCrcBytes || LoadLittle<uint32_t>(bytes.data()) != magic) {
    return Status::Corruption(what + " is none: it begins otherwise");
  }
  const auto version = static_cast<uint8_t>(bytes[4]);
  if (version != kFormatVersion) {
    return Status::Corruption(what + " has format version " + std::to_string(version) +
                              ", this program knows " + std::to_string(kFormatVersion));
  }
  const std::span<const std::byte> sealed = bytes.first(bytes.size() - kCrcBytes);
  if (LoadLittle<uint32_t>(bytes.data() + sealed.size()) != Crc32c(sealed)) {
    return Status::Corruption(what + " is damaged: its checksum is wrong");
  }
  return sealed.subspan(kHeadBytes);
}

Status AsCorruption(const std::string& what, const ByteReader& in, const Status& rules) {
  if (!in.ok()) return Status::Corruption(what + " is damaged: it is too short");
  if (in.remaining() > 0) return Status::Corruption(what + " is damaged: it is too long");
  if (!rules.ok()) return Status::Corruption(what + ": " + std::string(rules.message()));
  return Status::Ok();
}

bool AreMembers(const std::vector<NodeId>& nodes) {
  return nodes.size() <= kMembersMax && (nodes.empty() || nodes.front() != kNoNode) &&
         std::adjacent_find(nodes.begin(), nodes.end(), std::greater_equal<>()) == nodes.end();
}

bool Contains(const std::vector<NodeId>& nodes, NodeId node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

std::string NameOf(RegionId id) { return "region " + std::to_string(static_cast<uint32_t>(id)); }

}  // namespace

Status CheckNodeEntry(const NodeEntry& entry) {
  const std::string name = "node " + std::to_string(entry.id) + ": ";
  if (entry.id == kNoNode || entry.incarnation == 0) {
    return Status::InvalidArgument(name + "ids and incarnations begin with 1");
  }
  const auto& natives = entry.native_endpoints;
  if (natives.size() > kEndpointsMax ||
      std::any_of(natives.begin(), natives.end(), [](const std::string& endpoint) {
        return endpoint.empty() || endpoint.size() > kEndpointBytesMax;
      })) {
    return Status::InvalidArgument(name + "at most " + std::to_string(kEndpointsMax) +
                                   " native endpoints, of 1 to " +
                                   std::to_string(kEndpointBytesMax) + " bytes");
  }
  if (entry.fabric_endpoint.size() > kEndpointBytesMax) {
    return Status::InvalidArgument(name + "its fabric endpoint is too long");
  }
  return Status::Ok();
}

Status CheckRegionEntry(const RegionEntry& entry) {
  const auto broken = [&](const char* rule) {
    return Status::InvalidArgument(NameOf(entry.id) + ": " + rule);
  };
  if (entry.id == RegionId::kNone || entry.view == 0 || entry.moves == 0) {
    return broken("ids, views and moves begin with 1");
  }
  if (entry.state != RegionState::kServing && entry.state != RegionState::kHeadless) {
    return broken("there is no such state");
  }
  if (entry.start.size() > kRegionKeyBytesMax || entry.end.size() > kRegionKeyBytesMax) {
    return broken("its keys are too long");
  }
  if (!entry.end.empty() && entry.end <= entry.start) return broken("it ends before it starts");
  if (!AreMembers(entry.in_sync) || !AreMembers(entry.filling)) {
    return broken("its members are not in order, or too many");
  }
  if (entry.in_sync.empty()) return broken("nobody is in sync");
  for (const NodeId node : entry.filling) {
    if (Contains(entry.in_sync, node)) return broken("a node in sync is being filled");
  }
  if ((entry.primary == kNoNode) != (entry.state == RegionState::kHeadless)) {
    return broken("it is headless if and only if it has no primary");
  }
  if (entry.primary != kNoNode && !Contains(entry.in_sync, entry.primary)) {
    return broken("its primary is not in sync");
  }
  if (!AreMembers(entry.assigned)) {
    return broken("the nodes that it is assigned to are not in order, or too many");
  }
  if (!entry.split_at.empty() && (entry.split_at <= entry.start || !entry.Covers(entry.split_at))) {
    return broken("it is to be split at a key of its own, behind its first");
  }
  return Status::Ok();
}

std::string EncodeNodeEntry(const NodeEntry& entry) {
  const Status rules = CheckNodeEntry(entry);
  FARLEAF_CHECK(rules.ok(), rules);
  std::string bytes = Begin(kNodeMagic);
  ByteWriter out(&bytes);
  out.Write(entry.id);
  out.Write(entry.incarnation);
  out.Write(static_cast<uint8_t>(entry.native_endpoints.size()));
  for (const std::string& endpoint : entry.native_endpoints) WriteString<uint8_t>(out, endpoint);
  WriteString<uint8_t>(out, entry.fabric_endpoint);
  return Seal(std::move(bytes));
}

std::string EncodeRegionEntry(const RegionEntry& entry) {
  const Status rules = CheckRegionEntry(entry);
  FARLEAF_CHECK(rules.ok(), rules);
  std::string bytes = Begin(kRegionMagic);
  ByteWriter out(&bytes);
  out.Write(static_cast<uint32_t>(entry.id));
  out.Write(entry.view);
  out.Write(entry.moves);
  out.Write(static_cast<uint8_t>(entry.state));
  out.Write(entry.primary);
  WriteNodes(out, entry.in_sync);
  WriteNodes(out, entry.filling);
  WriteString<uint16_t>(out, entry.start);
  WriteString<uint16_t>(out, entry.end);
  out.Write(entry.successor);
  WriteNodes(out, entry.assigned);
  WriteString<uint16_t>(out, entry.split_at);
  return Seal(std::move(bytes));
}

Result<NodeEntry> ParseNodeEntry(std::string_view name, std::span<const std::byte> bytes) {
  const std::string what = "node entry " + std::string(name);
  auto fields = Unseal(what, kNodeMagic, bytes);
  if (!fields.ok()) return fields.status();
  ByteReader in(*fields);
  NodeEntry entry;
  entry.id = in.Read<NodeId>();
  entry.incarnation = in.Read<uint64_t>();
  for (uint8_t count = in.Read<uint8_t>(); count > 0 && in.ok(); --count) {
    entry.native_endpoints.push_back(ReadString<uint8_t>(in));
  }
  entry.fabric_endpoint = ReadString<uint8_t>(in);
  FARLEAF_RETURN_IF_ERROR(AsCorruption(what, in, CheckNodeEntry(entry)));
  return entry;
}

Result<RegionEntry> ParseRegionEntry(std::string_view name, std::span<const std::byte> bytes) {
  const std::string what = "region entry " + std::string(name);
  auto fields = Unseal(what, kRegionMagic, bytes);
  if (!fields.ok()) return fields.status();
  ByteReader in(*fields);
  RegionEntry entry;
  entry.id = static_cast<RegionId>(in.Read<uint32_t>());
  entry.view = in.Read<uint32_t>();
  entry.moves = in.Read<uint32_t>();
  entry.state = static_cast<RegionState>(in.Read<uint8_t>());
  entry.primary = in.Read<NodeId>();
  entry.in_sync = ReadNodes(in);
  entry.filling = ReadNodes(in);
  entry.start = ReadString<uint16_t>(in);
  entry.end = ReadString<uint16_t>(in);
  entry.successor = in.Read<NodeId>();
  entry.assigned = ReadNodes(in);
  entry.split_at = ReadString<uint16_t>(in);
  FARLEAF_RETURN_IF_ERROR(AsCorruption(what, in, CheckRegionEntry(entry)));
  return entry;
}

Result<RegionMap> RegionMap::Make(uint64_t version, std::vector<RegionEntry> regions) {
  std::sort(regions.begin(), regions.end(),
            [](const RegionEntry& a, const RegionEntry& b) { return a.start < b.start; });
  std::set<RegionId> ids;
  for (const RegionEntry& region : regions) {
    FARLEAF_RETURN_IF_ERROR(CheckRegionEntry(region));
    if (!ids.insert(region.id).second) {
      return Status::InvalidArgument(NameOf(region.id) + " is there twice");
    }
  }
  if (regions.empty()) return Status::InvalidArgument("a map has at least one region");
  if (!regions.front().start.empty()) {
    return Status::InvalidArgument("keys before " + NameOf(regions.front().id) +
                                   " belong to no region");
  }
  for (size_t i = 0; i + 1 < regions.size(); ++i) {
    const RegionEntry &left = regions[i], &right = regions[i + 1];
    if (!left.end.empty() && left.end == right.start) continue;
    const bool overlap = left.end.empty() || left.end > right.start;
    return Status::InvalidArgument(NameOf(left.id) + " and " + NameOf(right.id) +
                                   (overlap ? " overlap" : " leave keys between them out"));
  }
  if (!regions.back().end.empty()) {
    return Status::InvalidArgument("keys behind " + NameOf(regions.back().id) +
                                   " belong to no region");
  }
  return RegionMap(version, std::move(regions));
}

uint32_t RegionMap::view() const {
  uint32_t view = 0;
  for (const RegionEntry& region : regions_) view += region.moves;
  return view;
}

const RegionEntry& RegionMap::Find(std::string_view key) const {
  const auto behind = std::upper_bound(
      regions_.begin(), regions_.end(), key,
      [](std::string_view wanted, const RegionEntry& region) { return wanted < region.start; });
  return *std::prev(behind);  // the first region starts at the smallest key
}

const RegionEntry* RegionMap::Next(const RegionEntry& region) const {
  return region.end.empty() ? nullptr : &Find(region.end);
}

const RegionEntry* RegionMap::FindId(RegionId id) const {
  const auto at = std::find_if(regions_.begin(), regions_.end(),
                               [id](const RegionEntry& region) { return region.id == id; });
  return at == regions_.end() ? nullptr : &*at;
}

}  // namespace farleaf::server::membership
