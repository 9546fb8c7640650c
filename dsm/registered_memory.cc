#include "dsm/registered_memory.h"

#include <utility>

#include "dsm/base/check.h"
#include "dsm/region_layout.h"

namespace farleaf::dsm {

static_assert(kChunkBytesMin % RegisteredMemory::kAreaAlignment == 0);

Result<std::unique_ptr<RegisteredMemory>> RegisteredMemory::Open(const Options& options,
                                                                 const Clock* clock) {
  FARLEAF_RETURN_IF_ERROR(CheckClusterName(options.cluster));
  // The smallest chunks: nobody grants them, and their tables are what has to be given up for them.
  auto layout = RegionLayout::For(options.server, options.bytes, kChunkBytesMin);
  if (!layout.ok()) return layout.status();
  if (options.bytes % kAreaAlignment != 0) {
    return Status::InvalidArgument("registered memory of " + std::to_string(options.bytes) +
                                   " bytes is no multiple of 4 KiB");
  }
  auto incarnation = DrawIncarnation();
  if (!incarnation.ok()) return incarnation.status();
  layout->incarnation = *incarnation;
  auto memory = MemoryRegion::Create({options.bytes, options.hugepages, ""});
  if (!memory.ok()) return memory.status();
  FormatRegion(*layout, memory->bytes());

  const Area usable{layout->first_chunk, options.bytes - layout->first_chunk};
  std::unique_ptr<RegisteredMemory> opened(new RegisteredMemory(
      std::move(*memory),
      {options.cluster, {options.server, options.bytes, *incarnation}, /*members_only=*/true},
      usable));
  auto agent = opened->StartAgent(options, clock);
  if (!agent.ok()) return agent.status();
  opened->agent_ = std::move(*agent);
  return opened;
}

Result<std::unique_ptr<RegionAgent>> RegisteredMemory::StartAgent(const Options& options,
                                                                  const Clock* clock) const {
  if (const auto* verbs = std::get_if<VerbsAgent::Options>(&options.agent)) {
    auto agent = VerbsAgent::Start(*verbs, identity_, memory_.bytes());
    if (!agent.ok()) return agent.status();
    return std::unique_ptr<RegionAgent>(std::move(*agent));
  }
  auto agent = TcpAgent::Start(std::get<TcpAgent::Options>(options.agent), identity_,
                               memory_.bytes(), clock);
  if (!agent.ok()) return agent.status();
  return std::unique_ptr<RegionAgent>(std::move(*agent));
}

std::span<std::byte> RegisteredMemory::Bytes(Area area) const {
  FARLEAF_CHECK(area.offset >= usable_.offset && area.bytes <= usable_.bytes &&
                    area.offset - usable_.offset <= usable_.bytes - area.bytes,
                area.offset, area.bytes);
  return memory_.bytes().subspan(area.offset, area.bytes);
}

ServerEndpoint RegisteredMemory::endpoint() const {
  return {identity_.region.server, agent_->endpoint(), identity_.region.region_bytes,
          identity_.region.incarnation};
}

}  // namespace farleaf::dsm
