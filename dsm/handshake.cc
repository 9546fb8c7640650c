#include "dsm/handshake.h"

#include "dsm/base/bytes.h"

namespace farleaf::dsm {

namespace {

constexpr size_t kHelloFixedBytes = 32;
constexpr size_t kWelcomeFixedBytes = 24;

std::string WithHeader(uint16_t version, const std::string& rest) {
  std::string message;
  ByteWriter writer(&message);
  writer.Write(kHandshakeMagic);
  writer.Write(version);
  writer.Write(static_cast<uint16_t>(rest.size()));
  writer.WriteBytes(rest);
  return message;
}

std::string Name(ServerId server) { return "memory server " + std::to_string(server); }

}  // namespace

std::string EncodeHello(const Hello& hello) {
  std::string rest;
  ByteWriter writer(&rest);
  writer.Write(hello.server);
  writer.Write(hello.member.id);
  writer.Write(static_cast<uint8_t>(hello.kind));
  writer.Write(uint8_t{0});
  writer.Write(hello.target.id);
  writer.Write(hello.member.incarnation);
  writer.Write(hello.nonce);
  writer.Write(hello.target.incarnation);
  writer.WriteBytes(hello.cluster);
  return WithHeader(hello.version, rest);
}

std::string EncodeWelcome(const Welcome& welcome) {
  std::string rest;
  ByteWriter writer(&rest);
  writer.Write(static_cast<uint8_t>(welcome.refusal.code()));
  writer.Write(uint8_t{0});
  writer.Write(welcome.region.server);
  writer.Write(uint32_t{0});
  writer.Write(welcome.region.region_bytes);
  writer.Write(welcome.region.incarnation);
  const size_t room = kHandshakeBytesMax - kHandshakeHeaderBytes - kWelcomeFixedBytes;
  writer.WriteBytes(welcome.refusal.message().substr(0, room));
  return WithHeader(welcome.version, rest);
}

Result<std::optional<size_t>> HandshakeBytes(std::span<const std::byte> bytes) {
  if (bytes.size() < kHandshakeHeaderBytes) return std::optional<size_t>();
  if (LoadLittle<uint32_t>(bytes.data()) != kHandshakeMagic) {
    return Status::Corruption("the peer does not speak the memory layer's protocol");
  }
  const size_t whole = kHandshakeHeaderBytes + LoadLittle<uint16_t>(bytes.data() + 6);
  if (whole > kHandshakeBytesMax) {
    return Status::Corruption("a handshake of " + std::to_string(whole) + " bytes, allowed are " +
                              std::to_string(kHandshakeBytesMax));
  }
  return std::optional<size_t>(whole);
}

Result<Hello> ParseHello(std::span<const std::byte> message) {
  ByteReader reader(message);
  Hello hello;
  reader.Read<uint32_t>();
  hello.version = reader.Read<uint16_t>();
  reader.Read<uint16_t>();
  if (reader.ok() && hello.version != kProtocolVersion) return hello;
  hello.server = reader.Read<uint16_t>();
  hello.member.id = reader.Read<uint16_t>();
  const uint8_t kind = reader.Read<uint8_t>();
  reader.Read<uint8_t>();
  hello.target.id = reader.Read<uint16_t>();
  hello.member.incarnation = reader.Read<uint64_t>();
  hello.nonce = reader.Read<uint64_t>();
  hello.target.incarnation = reader.Read<uint64_t>();
  if (!reader.ok()) {
    return Status::Corruption("a Hello of " + std::to_string(message.size()) + " bytes, at least " +
                              std::to_string(kHandshakeHeaderBytes + kHelloFixedBytes) +
                              " expected");
  }
  if (kind != static_cast<uint8_t>(HelloKind::kAttach) &&
      kind != static_cast<uint8_t>(HelloKind::kCutOff)) {
    return Status::Corruption("a Hello of unknown kind " + std::to_string(kind));
  }
  hello.kind = static_cast<HelloKind>(kind);
  hello.cluster = std::string(AsChars(reader.ReadBytes(reader.remaining())));
  FARLEAF_RETURN_IF_ERROR(CheckClusterName(hello.cluster));
  return hello;
}

Result<Welcome> ParseWelcome(std::span<const std::byte> message) {
  ByteReader reader(message);
  Welcome welcome;
  reader.Read<uint32_t>();
  welcome.version = reader.Read<uint16_t>();
  reader.Read<uint16_t>();
  const uint8_t code = reader.Read<uint8_t>();
  reader.Read<uint8_t>();
  welcome.region.server = reader.Read<uint16_t>();
  reader.Read<uint32_t>();
  welcome.region.region_bytes = reader.Read<uint64_t>();
  welcome.region.incarnation = reader.Read<uint64_t>();
  if (!reader.ok() || code > kStatusCodeMax) {
    return Status::Corruption("a malformed Welcome of " + std::to_string(message.size()) +
                              " bytes");
  }
  if (code != 0) {
    welcome.refusal = Status(static_cast<StatusCode>(code),
                             std::string(AsChars(reader.ReadBytes(reader.remaining()))));
  }
  return welcome;
}

Status CheckHello(const Hello& hello, const ServerIdentity& self) {
  const std::string name = Name(self.region.server);
  if (hello.version != kProtocolVersion) {
    return Status::InvalidArgument(name + " speaks protocol version " +
                                   std::to_string(kProtocolVersion) + ", this program " +
                                   std::to_string(hello.version));
  }
  if (hello.cluster != self.cluster) {
    return Status::InvalidArgument(name + " belongs to cluster '" + self.cluster + "', not '" +
                                   hello.cluster + "'");
  }
  if (hello.server != self.region.server) {
    return Status::InvalidArgument("this is " + name + ", not " + Name(hello.server) +
                                   ": the directory's endpoint is wrong");
  }
  if (hello.member.id >= kMembersMax) {
    return Status::InvalidArgument(name + " knows no compute server " +
                                   std::to_string(hello.member.id) + ": ids are below " +
                                   std::to_string(kMembersMax));
  }
  if (self.members_only && hello.member.id == 0) {
    return Status::InvalidArgument(name +
                                   " lets in only whom it can cut off: a process has to say who it "
                                   "is before it attaches (Fabric::Identify)");
  }
  if (hello.kind == HelloKind::kCutOff) return CheckCutOffTarget(self.region.server, hello.target);
  return Status::Ok();
}

Status CheckCutOffTarget(ServerId server, const MemberIdentity& target) {
  if (target.id != 0 && target.id < kMembersMax) return Status::Ok();
  return Status::InvalidArgument(Name(server) + " cannot cut off compute server " +
                                 std::to_string(target.id) + ": ids are 1 to " +
                                 std::to_string(kMembersMax - 1));
}

Status CheckWelcome(const Welcome& welcome, const Hello& sent, uint64_t expected_incarnation) {
  const std::string name = Name(sent.server);
  if (!welcome.refusal.ok()) {
    // It was there once: its life is over, and another has its address.
    if (expected_incarnation != 0 && welcome.region.server != sent.server &&
        welcome.refusal.code() == StatusCode::kInvalidArgument) {
      return Status::Unavailable(name + " lost (" + Name(welcome.region.server) +
                                 " has its address now)");
    }
    return welcome.refusal;
  }
  if (welcome.version != sent.version) {
    return Status::InvalidArgument(name + " speaks protocol version " +
                                   std::to_string(welcome.version) + ", this program " +
                                   std::to_string(sent.version));
  }
  if (welcome.region.server != sent.server) {
    return Status::Corruption(name + " answered as " + Name(welcome.region.server));
  }
  if (welcome.region.region_bytes == 0 || welcome.region.region_bytes % 8 != 0 ||
      welcome.region.region_bytes > GlobalAddress::kOffsetMax) {
    return Status::Corruption(name + " announces a region of " +
                              std::to_string(welcome.region.region_bytes) + " bytes");
  }
  if (expected_incarnation != 0 && welcome.region.incarnation != expected_incarnation) {
    return Status::Unavailable(name + " lost (restarted with another incarnation)");
  }
  return Status::Ok();
}

Status CheckClusterName(std::string_view name) {
  bool good = !name.empty() && name.size() <= kClusterNameBytesMax;
  for (const char c : name) {
    good &= (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            c == '-' || c == '_' || c == '.';
  }
  if (good) return Status::Ok();
  return Status::InvalidArgument("cluster name '" + std::string(name.substr(0, 64)) +
                                 "' is not 1 to 128 letters, digits, '-', '_' or '.'");
}

}  // namespace farleaf::dsm
