#include "server/cluster/offer.h"

#include "dsm/base/bytes.h"
#include "dsm/base/crc32c.h"

namespace farleaf::server::cluster {

namespace {
constexpr std::string_view kMagic = "FOFR";
constexpr uint8_t kVersion = 2;
}  // namespace

std::string OfferPath(RegionId region, NodeId backup) {
  return std::string(kOffersPath) + "/" + std::to_string(static_cast<uint32_t>(region)) + "-" +
         std::to_string(backup);
}

std::string EncodeOffer(const Offer& offer) {
  std::string bytes(kMagic);
  ByteWriter out(&bytes);
  out.Write(kVersion);
  out.Write(offer.primary);
  out.Write(offer.primary_life);
  out.Write(offer.life);
  out.Write(offer.server);
  out.Write(offer.area);
  out.Write(offer.token);
  out.Write(static_cast<uint32_t>(offer.end.size()));
  out.WriteBytes(offer.end);
  out.Write(Crc32c(AsBytes(bytes)));
  return bytes;
}

Result<Offer> ParseOffer(const std::string& path, std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const std::string_view magic = AsChars(in.ReadBytes(kMagic.size()));
  const auto version = in.Read<uint8_t>();
  Offer offer;
  offer.primary = in.Read<NodeId>();
  offer.primary_life = in.Read<uint64_t>();
  offer.life = in.Read<uint64_t>();
  offer.server = in.Read<dsm::ServerId>();
  offer.area = in.Read<uint64_t>();
  offer.token = in.Read<uint64_t>();
  const auto end_bytes = in.Read<uint32_t>();
  offer.end = AsChars(in.ReadBytes(end_bytes));
  const auto crc = in.Read<uint32_t>();
  if (!in.ok() || in.remaining() != 0 || magic != kMagic || version != kVersion ||
      crc != Crc32c(bytes.first(bytes.size() - sizeof(uint32_t)))) {
    return Status::Corruption("entry " + path + " is no offer of a backup");
  }
  return offer;
}

}  // namespace farleaf::server::cluster
