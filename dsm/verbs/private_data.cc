#include "dsm/verbs/private_data.h"

#include "dsm/base/bytes.h"
#include "dsm/base/random.h"

namespace farleaf::dsm {

namespace {

constexpr uint32_t kMagic = 0x42564c46;  // "FLVB"
constexpr size_t kConnectBytes = 56;
constexpr size_t kNameBytes = 16;
constexpr size_t kRejectFixedBytes = 10;
static_assert(kConnectBytes <= kConnectDataBytesMax);

/// What a request tells of a cluster's name. It tells clusters apart that were confused; nobody is kept
/// out by it.
struct ClusterMark {
  uint16_t hash = 0;
  std::string name;  ///< kNameBytes

  bool operator==(const ClusterMark&) const = default;
};

ClusterMark MarkOf(std::string_view cluster) {
  uint64_t hash = cluster.size();
  for (const char c : cluster) hash = Mix64(hash ^ static_cast<uint8_t>(c));
  ClusterMark mark{static_cast<uint16_t>(hash), std::string(cluster.substr(0, kNameBytes))};
  mark.name.resize(kNameBytes);
  return mark;
}

/// For messages: the name, or its beginning and '*', which no name has, and so never `cluster`.
std::string NameOfAnother(const ClusterMark& mark, std::string_view cluster) {
  std::string text = mark.name.substr(0, mark.name.find('\0'));
  for (char& c : text) {
    if (!CheckClusterName(std::string_view(&c, 1)).ok()) c = '?';
  }
  if (text.size() == kNameBytes || text == cluster) text += '*';
  return text;
}

std::string Begin(uint16_t version) {
  std::string bytes;
  ByteWriter writer(&bytes);
  writer.Write(kMagic);
  writer.Write(version);
  return bytes;
}

/// The version, if the bytes are of this protocol.
Result<uint16_t> ReadBegin(ByteReader& reader) {
  const auto magic = reader.Read<uint32_t>();
  const auto version = reader.Read<uint16_t>();
  if (!reader.ok() || magic != kMagic) {
    return Status::Corruption("the peer does not speak the memory layer's protocol over RDMA");
  }
  return version;
}

Status OtherVersion(uint16_t version) {
  return Status::InvalidArgument("the memory server speaks protocol version " +
                                 std::to_string(version) + ", this program " +
                                 std::to_string(kProtocolVersion));
}

}  // namespace

std::string EncodeConnectData(const Hello& hello) {
  std::string bytes = Begin(hello.version);
  ByteWriter writer(&bytes);
  writer.Write(hello.server);
  writer.Write(hello.member.id);
  writer.Write(static_cast<uint8_t>(hello.kind));
  writer.Write(uint8_t{0});
  writer.Write(hello.target.id);
  const ClusterMark mark = MarkOf(hello.cluster);
  writer.Write(mark.hash);
  writer.Write(hello.member.incarnation);
  writer.Write(hello.target.incarnation);
  writer.Write(hello.nonce);
  writer.WriteBytes(mark.name);
  return bytes;
}

std::string EncodeAcceptData(const RemoteRegion& region) {
  std::string bytes = Begin(kProtocolVersion);
  ByteWriter writer(&bytes);
  writer.Write(region.info.server);
  writer.Write(region.info.region_bytes);
  writer.Write(region.info.incarnation);
  writer.Write(region.address);
  writer.Write(region.key);
  writer.Write(uint32_t{0});
  return bytes;
}

std::string EncodeRejectData(ServerId server, const Status& why) {
  const std::string_view message = why.message().substr(0, kRejectDataBytesMax - kRejectFixedBytes);
  std::string bytes = Begin(kProtocolVersion);
  ByteWriter writer(&bytes);
  writer.Write(server);
  writer.Write(static_cast<uint8_t>(why.code()));
  writer.Write(static_cast<uint8_t>(message.size()));
  writer.WriteBytes(message);
  return bytes;
}

Result<Hello> ParseConnectData(std::string_view bytes, const std::string& cluster) {
  ByteReader reader(AsBytes(bytes));
  auto version = ReadBegin(reader);
  if (!version.ok()) return version.status();
  Hello hello;
  hello.version = *version;
  if (hello.version != kProtocolVersion) return hello;
  hello.server = reader.Read<uint16_t>();
  hello.member.id = reader.Read<uint16_t>();
  const auto kind = reader.Read<uint8_t>();
  reader.Read<uint8_t>();
  hello.target.id = reader.Read<uint16_t>();
  ClusterMark mark;
  mark.hash = reader.Read<uint16_t>();
  hello.member.incarnation = reader.Read<uint64_t>();
  hello.target.incarnation = reader.Read<uint64_t>();
  hello.nonce = reader.Read<uint64_t>();
  mark.name = std::string(AsChars(reader.ReadBytes(kNameBytes)));
  if (!reader.ok()) {
    return Status::Corruption("a connect request of " + std::to_string(bytes.size()) + " bytes, " +
                              std::to_string(kConnectBytes) + " expected");
  }
  if (kind != static_cast<uint8_t>(HelloKind::kAttach) &&
      kind != static_cast<uint8_t>(HelloKind::kCutOff)) {
    return Status::Corruption("a connect request of unknown kind " + std::to_string(kind));
  }
  hello.kind = static_cast<HelloKind>(kind);
  hello.cluster = mark == MarkOf(cluster) ? cluster : NameOfAnother(mark, cluster);
  return hello;
}

Result<RemoteRegion> ParseAcceptData(std::string_view bytes) {
  ByteReader reader(AsBytes(bytes));
  auto version = ReadBegin(reader);
  if (!version.ok()) return version.status();
  if (*version != kProtocolVersion) return OtherVersion(*version);
  RemoteRegion region;
  region.info.server = reader.Read<uint16_t>();
  region.info.region_bytes = reader.Read<uint64_t>();
  region.info.incarnation = reader.Read<uint64_t>();
  region.address = reader.Read<uint64_t>();
  region.key = reader.Read<uint32_t>();
  reader.Read<uint32_t>();
  if (!reader.ok()) {
    return Status::Corruption("a malformed acceptance of " + std::to_string(bytes.size()) +
                              " bytes");
  }
  return region;
}

Status ParseRejectData(std::string_view bytes, Welcome* refusal) {
  ByteReader reader(AsBytes(bytes));
  auto version = ReadBegin(reader);
  if (!version.ok()) return version.status();
  if (*version != kProtocolVersion) {
    refusal->refusal = OtherVersion(*version);
    return Status::Ok();
  }
  const auto server = reader.Read<ServerId>();
  const auto code = reader.Read<uint8_t>();
  const auto message_bytes = reader.Read<uint8_t>();
  const std::string_view message = AsChars(reader.ReadBytes(message_bytes));
  if (!reader.ok() || code > kStatusCodeMax) {
    return Status::Corruption("a malformed rejection of " + std::to_string(bytes.size()) +
                              " bytes");
  }
  refusal->region.server = server;
  refusal->refusal = Status(static_cast<StatusCode>(code), std::string(message));
  return Status::Ok();
}

}  // namespace farleaf::dsm
