// The handshake that opens every connection to a memory server. The client sends a Hello, the server
// answers with a Welcome: who it is, or why it refuses. (RDMA has a shorter form of the same,
// dsm/verbs/private_data.h.)
//
//   both:     u32 magic "FLHS" · u16 protocol version · u16 bytes of the rest
//   Hello:    u16 memory server wanted · u16 compute server id (0: anonymous) · u8 kind · u8 0 ·
//             u16 id to cut off · u64 the compute server's incarnation · u64 connection nonce ·
//             u64 incarnation to cut off · cluster name
//   Welcome:  u8 status code · u8 0 · u16 memory server · u32 0 · u64 region bytes ·
//             u64 region incarnation · message (why it is refused; empty otherwise)
//
// Little-endian. The first line and the Welcome's layout are the same in every version, so that
// programs of different versions can tell each other so.
//
// Kind 1, attach: the connection carries verbs from then on. Kind 2, cut off: the Welcome says that
// the compute server named is cut off, or why that could not be confirmed, and ends the connection.
//
// The nonce names one transport's connections to one memory server for ever, also behind its removal
// and return (HelloTo): before the Welcome is sent, the server has destroyed an older connection with
// the same nonce, so that nothing from it can land any more.
//
// Thread rule: pure functions and value types. Bytes from outside never fail a check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "dsm/address.h"
#include "dsm/base/result.h"
#include "dsm/member.h"
#include "dsm/region_layout.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

inline constexpr uint32_t kHandshakeMagic = 0x53484c46;  // "FLHS"
inline constexpr uint16_t kProtocolVersion = 3;
inline constexpr size_t kHandshakeHeaderBytes = 8;
inline constexpr size_t kHandshakeBytesMax = 1024;  ///< header included
inline constexpr size_t kClusterNameBytesMax = 128;

/// What a memory server says of itself.
struct ServerIdentity {
  std::string cluster;
  RegionInfo region;
  /// Whoever does not say who he is (id 0) is refused: no cut would reach him.
  bool members_only = false;
};

enum class HelloKind : uint8_t { kAttach = 1, kCutOff = 2 };

struct Hello {
  uint16_t version = kProtocolVersion;
  HelloKind kind = HelloKind::kAttach;
  ServerId server = 0;
  MemberIdentity member;  ///< who sends it; id 0: anonymous, which observers and joiners are
  MemberIdentity target;  ///< kCutOff: who is to be cut off, older incarnations included
  uint64_t nonce = 0;
  std::string cluster;
};

struct Welcome {
  uint16_t version = kProtocolVersion;
  Status refusal;  ///< ok: accepted
  RegionInfo region;
};

std::string EncodeHello(const Hello& hello);
std::string EncodeWelcome(const Welcome& welcome);

/// A transport's Hello to one of its memory servers, always with the same nonce. `hello`: its own, with a nonce that was
/// drawn at random. (Two transports whose nonces are as near as ids are about as unlikely as two with the same one.)
inline Hello HelloTo(ServerId server, Hello hello) {
  hello.server = server;
  hello.nonce += server;
  return hello;
}

/// Bytes of the whole message that begins with `bytes`; nullopt: more bytes are needed to tell.
/// Corruption: the peer does not speak this protocol at all.
Result<std::optional<size_t>> HandshakeBytes(std::span<const std::byte> bytes);
/// REQUIRES: `message` is a whole message as HandshakeBytes told. Corruption: malformed. A Hello of
/// another version is returned with its version and nothing else.
Result<Hello> ParseHello(std::span<const std::byte> message);
Result<Welcome> ParseWelcome(std::span<const std::byte> message);

/// The server's decision.
Status CheckHello(const Hello& hello, const ServerIdentity& self);
/// Whether there can be such a compute server to cut off at memory server `server`.
Status CheckCutOffTarget(ServerId server, const MemberIdentity& target);
/// The client's. `expected_incarnation` 0: not known yet. Every message names the memory server.
Status CheckWelcome(const Welcome& welcome, const Hello& sent, uint64_t expected_incarnation);

/// Refuses names that a handshake or a directory cannot carry.
Status CheckClusterName(std::string_view name);

}  // namespace farleaf::dsm
