#include "server/cluster/held.h"

#include <charconv>
#include <utility>

#include "dsm/base/bytes.h"
#include "dsm/base/crc32c.h"

namespace farleaf::server::cluster {

namespace {

constexpr std::string_view kHeldMagic = "FHLD";
constexpr uint8_t kHeldVersion = 1;

Status NotHeld(const std::string& path) {
  return Status::Corruption("entry " + path + " does not tell what a node holds of a region");
}

}  // namespace

std::string HeldPath(RegionId region, NodeId node) {
  return std::string(kHeldPath) + "/" + std::to_string(static_cast<uint32_t>(region)) + "-" +
         std::to_string(node);
}

std::string EncodeHeld(const Held& held) {
  std::string bytes(kHeldMagic);
  ByteWriter out(&bytes);
  out.Write(kHeldVersion);
  out.Write(held.life);
  out.Write(held.through.epoch);
  out.Write(held.through.sequence);
  out.Write(Crc32c(AsBytes(bytes)));
  return bytes;
}

Result<Held> ParseHeld(const std::string& path, std::span<const std::byte> bytes) {
  // The name says of whom it is.
  Held held;
  uint32_t region = 0;
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  const char* const end = name.data() + name.size();
  const auto [dash, no_region] = std::from_chars(name.data(), end, region);
  if (no_region != std::errc() || dash == end || *dash != '-') return NotHeld(path);
  const auto [rest, no_node] = std::from_chars(dash + 1, end, held.node);
  if (no_node != std::errc() || rest != end) return NotHeld(path);
  held.region = RegionId{region};
  ByteReader in(bytes);
  const std::string_view magic = AsChars(in.ReadBytes(kHeldMagic.size()));
  const auto version = in.Read<uint8_t>();
  held.life = in.Read<uint64_t>();
  held.through.epoch = in.Read<uint64_t>();
  held.through.sequence = in.Read<index::lsm::Sequence>();
  const auto crc = in.Read<uint32_t>();
  if (!in.ok() || in.remaining() != 0 || magic != kHeldMagic || version != kHeldVersion ||
      crc != Crc32c(bytes.first(bytes.size() - sizeof(uint32_t)))) {
    return NotHeld(path);
  }
  return held;
}

dsm::Task<Status> TellHeld(dsm::Worker& worker, membership::Membership& session, Held held) {
  const std::string path = HeldPath(held.region, held.node);
  // The session of the node's last life may have left one, which goes with it.
  Status withdrawn = co_await WithdrawHeld(worker, session, held.region, held.node);
  if (!withdrawn.ok()) co_return withdrawn;
  const membership::CreateOptions options{.lifetime = membership::Lifetime::kEphemeral};
  auto created = co_await session.Create(worker, path, EncodeHeld(held), options);
  co_return created.status();
}

dsm::Task<Status> WithdrawHeld(dsm::Worker& worker, membership::Membership& session,
                               RegionId region, NodeId node) {
  Status removed = co_await session.Remove(worker, HeldPath(region, node), std::nullopt);
  if (removed.code() == StatusCode::kNotFound) removed = Status::Ok();
  co_return removed;
}

dsm::Task<Result<std::vector<Held>>> ReadHeld(dsm::Worker& worker, membership::Membership& session,
                                              membership::Watch watch) {
  auto names = co_await session.Children(worker, kHeldPath, watch);
  if (!names.ok()) co_return names.status();
  std::vector<Held> all;
  for (const std::string& name : *names) {
    const std::string path = std::string(kHeldPath) + "/" + name;
    auto entry = co_await session.Get(worker, path, membership::Watch::kNothing);
    if (entry.status().code() == StatusCode::kNotFound) continue;  // it has just gone
    if (!entry.ok()) co_return entry.status();
    auto held = ParseHeld(path, AsBytes(entry->bytes));
    if (!held.ok()) co_return held.status();
    all.push_back(*held);
  }
  co_return all;
}

}  // namespace farleaf::server::cluster
