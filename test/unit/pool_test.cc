#include "dsm/pool.h"

#include <gtest/gtest.h>

#include <cstring>

#include "dsm/base/clock.h"
#include "dsm/shm/local_fabric.h"
#include "test/support/shared_fabric.h"

namespace farleaf::dsm {
namespace {

class PoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<LocalFabric> NewServers(uint32_t servers) {
    auto fabric = LocalFabric::Create({.servers = servers,
                                       .region_bytes = 1 << 20,
                                       .chunk_bytes = kChunkBytesMin,
                                       .hugepages = Hugepages::kNever});
    EXPECT_TRUE(fabric.ok()) << fabric.status();
    return std::move(*fabric);
  }
  Result<std::unique_ptr<Pool>> Join(LocalFabric* fabric, PoolOptions options = {}) {
    return Pool::Join(std::make_unique<SharedFabric>(fabric), options, &clock_);
  }
  std::string JoinError(LocalFabric* fabric) {
    auto pool = Join(fabric);
    return pool.ok() ? "joined" : pool.status().ToString();
  }
  std::string JoinErrorIfTold(LocalFabric* fabric, std::vector<RegionInfo> infos);
  uint64_t* Members(LocalFabric& fabric) {
    return reinterpret_cast<uint64_t*>(fabric.region_bytes(kCatalogServer).data() + kMembersOffset);
  }

  MonotonicClock clock_;
};

/// Some of a fabric's regions, with other things told about them.
class EditedFabric final : public Fabric {
 public:
  EditedFabric(LocalFabric* fabric, std::vector<RegionInfo> infos)
      : fabric_(fabric), infos_(std::move(infos)) {}
  std::string_view name() const override { return "edited"; }
  std::span<const RegionInfo> regions() const override { return infos_; }
  Result<std::unique_ptr<Transport>> OpenTransport() override { return fabric_.OpenTransport(); }
  Status Identify(const MemberIdentity& self) override { return fabric_.Identify(self); }
  Status CutOff(ServerId server, const MemberIdentity& member) override {
    return fabric_.CutOff(server, member);
  }

 private:
  SharedFabric fabric_;
  std::vector<RegionInfo> infos_;
};

std::string PoolTest::JoinErrorIfTold(LocalFabric* fabric, std::vector<RegionInfo> infos) {
  auto told = std::make_unique<EditedFabric>(fabric, std::move(infos));
  auto pool = Pool::Join(std::move(told), {}, &clock_);
  return pool.ok() ? "joined" : pool.status().ToString();
}

TEST_F(PoolTest, MembersGetDifferentIds) {
  auto servers = NewServers(2);
  auto first = Join(servers.get());
  auto second = Join(servers.get());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE((*first)->self().id, 0);
  EXPECT_NE((*first)->self().id, (*second)->self().id);
  EXPECT_EQ((*first)->self().incarnation, 1u);
  EXPECT_EQ((*first)->layouts().size(), 2u);
  EXPECT_EQ((*first)->layouts()[1].chunk_bytes, kChunkBytesMin);
}

TEST_F(PoolTest, AnIdThatWasLeftIsGrantedAgainWithTheNextIncarnation) {
  auto servers = NewServers(1);
  for (uint32_t id = 1; id < kMembersMax; ++id) {
    Members(*servers)[id] = MemberWord{id != 77, 5}.Encode();
  }
  for (uint64_t incarnation = 6; incarnation < 9; ++incarnation) {
    auto pool = Join(servers.get());
    ASSERT_TRUE(pool.ok()) << pool.status();
    EXPECT_EQ((*pool)->self().id, 77);
    EXPECT_EQ((*pool)->self().incarnation, incarnation);
    EXPECT_EQ(Members(*servers)[77], (MemberWord{true, incarnation}.Encode()));
    if (incarnation % 2) {
      Status left = (*pool)->Leave();
      EXPECT_TRUE(left.ok()) << left;
    }  // else its destructor leaves
    pool->reset();
    EXPECT_EQ(Members(*servers)[77], (MemberWord{false, incarnation}.Encode()));
  }
}

TEST_F(PoolTest, MoreMembersThanIdsIsRefused) {
  auto servers = NewServers(1);
  for (uint32_t id = 1; id < kMembersMax; ++id)
    Members(*servers)[id] = MemberWord{true, 1}.Encode();
  EXPECT_EQ(
      JoinError(servers.get()),
      "resource exhausted: all 4095 compute server ids of this pool are taken; stop a compute "
      "server that is no longer needed");
  auto observer = Join(servers.get(), {.role = PoolOptions::Role::kObserver});
  EXPECT_TRUE(observer.ok()) << observer.status();
}

TEST_F(PoolTest, CorruptHeaderIsRefused) {
  auto servers = NewServers(2);
  std::byte* header = servers->region_bytes(1).data();
  header[24] ^= std::byte{1};
  EXPECT_EQ(JoinError(servers.get()),
            "corruption: memory server 1: region header of memory server 1: checksum mismatch");
  header[0] ^= std::byte{1};
  EXPECT_EQ(JoinError(servers.get()),
            "corruption: memory server 1: region header of memory server 1: wrong magic");
}

TEST_F(PoolTest, MissingServersAreNamed) {
  auto servers = NewServers(3);
  const auto infos = servers->regions();
  EXPECT_EQ(JoinErrorIfTold(servers.get(), {infos[1], infos[2]}),
            "unavailable: memory server 0 is missing; it holds the catalog");
  EXPECT_EQ(JoinErrorIfTold(servers.get(), {infos[0], infos[2]}),
            "unavailable: memory server 1 is missing");
  EXPECT_EQ(JoinErrorIfTold(servers.get(), {}),
            "unavailable: memory server 0 is missing; it holds the catalog");
  servers->KillServer(1);
  EXPECT_EQ(JoinError(servers.get()), "unavailable: memory server 1 lost");
}

TEST_F(PoolTest, ARegionThatIsNotTheAnnouncedOneIsRefused) {
  auto servers = NewServers(1);
  const uint64_t incarnation = servers->regions()[0].incarnation;
  EXPECT_EQ(JoinErrorIfTold(servers.get(), {{0, 1 << 20, 42}}),
            "unavailable: region of memory server 0 has incarnation " +
                std::to_string(incarnation) +
                ", its server announced 42: the server was restarted and its memory lost");
  EXPECT_EQ(JoinErrorIfTold(servers.get(), {{0, 2 << 20, incarnation}}),
            "corruption: region of memory server 0 has 1048576 bytes by its header, 2097152 by the "
            "handshake");
  EXPECT_EQ(JoinErrorIfTold(servers.get(), {{0, 0, 0}}), "joined");
}

TEST_F(PoolTest, ServersOfDifferentChunkSizesAreRefused) {
  auto servers = NewServers(2);
  auto layout = RegionLayout::For(1, 1 << 20, 2 * kChunkBytesMin);
  ASSERT_TRUE(layout.ok());
  layout->incarnation = servers->regions()[1].incarnation;
  FormatRegion(*layout, servers->region_bytes(1));
  EXPECT_EQ(
      JoinError(servers.get()),
      "invalid argument: memory server 1 has chunks of 131072 bytes, memory server 0 of 65536: "
      "start all with one chunk size");
}

TEST_F(PoolTest, AnObserverTakesNoIdAndAllocatesNothing) {
  auto servers = NewServers(1);
  auto pool = Join(servers.get(), {.role = PoolOptions::Role::kObserver});
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ((*pool)->self().id, 0);
  for (uint32_t id = 1; id < kMembersMax; ++id) ASSERT_EQ(Members(*servers)[id], 0u);
  auto worker = std::move(*(*pool)->OpenWorker());
  FabricCounts counts;
  OpContext op{*worker, counts};
  auto grant = worker->Run((*pool)->allocator().Allocate(op, {ChunkKind::kLeaf, 1024, 0}, 0));
  EXPECT_EQ(grant.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(counts, FabricCounts{});
}

TEST_F(PoolTest, TheLastFreeIdIsFoundWithOneTicket) {
  auto servers = NewServers(1);
  for (uint32_t id = 1; id < kMembersMax - 1; ++id) {
    Members(*servers)[id] = MemberWord{true, 1}.Encode();
  }
  auto pool = Join(servers.get());
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ((*pool)->self().id, kMembersMax - 1);
  EXPECT_EQ(Members(*servers)[0], 1u) << "one ticket was drawn";
}

}  // namespace
}  // namespace farleaf::dsm
