// Memory that a process registers for others: a region like a memory server's, behind an agent.
#include "dsm/registered_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "dsm/region_layout.h"
#include "test/support/fabric_under_test.h"
#include "test/support/peers_under_test.h"

namespace farleaf::dsm {
namespace {

struct RegisteredMemoryTest : ::testing::TestWithParam<FabricKind> {
  MonotonicClock clock;

  RegisteredMemory::Options OptionsOf(uint64_t bytes) const {
    RegisteredMemory::Options options;
    options.cluster = "tested";
    options.server = 77;
    options.bytes = bytes;
    options.agent = AgentOptions(GetParam(), ListenHost() + ":0");
    return options;
  }
  std::unique_ptr<RegisteredMemory> Open(uint64_t bytes) const {
    auto memory = RegisteredMemory::Open(OptionsOf(bytes), &clock);
    FARLEAF_CHECK(memory.ok(), memory.status());
    return std::move(*memory);
  }
  std::unique_ptr<Fabric> StrangersFabricTo(const RegisteredMemory& memory) const {
    auto fabric = FabricWithoutServers(GetParam(), "tested", &clock);
    FARLEAF_CHECK(fabric->Add(memory.endpoint()).ok());
    return fabric;
  }
  std::unique_ptr<Fabric> FabricTo(const RegisteredMemory& memory,
                                   MemberIdentity self = {9, 1}) const {
    auto fabric = StrangersFabricTo(memory);
    FARLEAF_CHECK(fabric->Identify(self).ok(), self.id);
    return fabric;
  }
};

TEST_P(RegisteredMemoryTest, ItsAreaLiesBehindTheTables) {
  for (const uint64_t bytes :
       {uint64_t{256} << 10, uint64_t{2} << 20, (uint64_t{96} << 20) + 4096, uint64_t{512} << 20}) {
    const auto memory = Open(bytes);
    const Area usable = memory->usable();
    EXPECT_EQ(usable.offset + usable.bytes, bytes);
    EXPECT_EQ(usable.offset % RegisteredMemory::kAreaAlignment, 0u);
    EXPECT_LE(usable.offset, (uint64_t{256} << 10) + bytes / (256 << 20) * (64 << 10)) << bytes;
    const std::span<std::byte> mine = memory->Bytes(usable);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(mine.data()) % RegisteredMemory::kAreaAlignment, 0u);
    EXPECT_EQ(mine.size(), usable.bytes);

    const auto fabric = FabricTo(*memory);
    TestClient client(*fabric, clock);
    std::array<std::byte, sizeof(RegionHeader)> header;
    Batch batch(77);
    batch.Read(0, header);
    ASSERT_TRUE(client.Run(batch).ok()) << batch.status();
    const auto layout = RegionLayout::Parse(header);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->incarnation, memory->incarnation());
    EXPECT_EQ(layout->region_bytes, bytes);
    EXPECT_LE(layout->CarveMarkOffset(layout->chunk_count), usable.offset);
  }
}

TEST_P(RegisteredMemoryTest, WhatOthersWriteIsThere) {
  const auto memory = Open(1 << 20);
  const Area area{memory->usable().offset + 4096, 64};
  const auto fabric = FabricTo(*memory);
  TestClient client(*fabric, clock);
  client.WriteWord(77, area.offset + 8, 0x1234);
  EXPECT_EQ(memory->connections(), 1u);
  const auto* word = reinterpret_cast<uint64_t*>(memory->Bytes(area).data() + 8);
  EXPECT_EQ(std::atomic_ref(*const_cast<uint64_t*>(word)).load(), 0x1234u);
}

TEST_P(RegisteredMemoryTest, WhoIsCutOffLandsNothingAnyMore) {
  const auto memory = Open(1 << 20);
  const uint64_t offset = memory->usable().offset;
  const auto old_primary = FabricTo(*memory, {5, 1}), new_primary = FabricTo(*memory, {6, 1});
  TestClient cut(*old_primary, clock), client(*new_primary, clock);
  cut.WriteWord(77, offset, 1);
  const Status status = memory->CutOff({5, 1});
  ASSERT_TRUE(status.ok()) << status;
  const uint64_t two = 2;
  Batch batch(77);
  batch.WriteWord(offset, &two);
  EXPECT_EQ(cut.Run(batch).code(), StatusCode::kFenced);
  EXPECT_EQ(client.ReadWord(77, offset), 1u);
  EXPECT_EQ(client.ReadWord(77, FenceWordOffset(5)), 1u);
}

// Also a transport that was opened before its process said who it is: no cut would reach it.
TEST_P(RegisteredMemoryTest, StrangersAreNotLetIn) {
  const auto memory = Open(1 << 20);
  const uint64_t offset = memory->usable().offset;
  const auto fabric = StrangersFabricTo(*memory);
  TestClient stranger(*fabric, clock);
  ASSERT_TRUE(fabric->Identify({5, 1}).ok());
  TestClient known(*fabric, clock);
  known.WriteWord(77, offset, 1);
  const uint64_t two = 2;
  Batch batch(77);
  batch.WriteWord(offset, &two);
  const Status refused = stranger.Run(batch);
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("lets in only whom it can cut off"), std::string::npos)
      << refused;
  EXPECT_EQ(known.ReadWord(77, offset), 1u);
  EXPECT_EQ(memory->connections(), 1u);
}

TEST_P(RegisteredMemoryTest, EveryLifeHasAnIncarnationOfItsOwn) {
  EXPECT_NE(Open(1 << 20)->incarnation(), Open(1 << 20)->incarnation());
}

TEST_P(RegisteredMemoryTest, WhatCannotBeOpenedSaysWhy) {
  const auto code = [&](auto change) {
    RegisteredMemory::Options options = OptionsOf(1 << 20);
    change(options);
    return RegisteredMemory::Open(options, &clock).status().code();
  };
  EXPECT_EQ(code([](auto& o) { o.bytes = 100 << 10; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.bytes += 8; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.cluster = "two words"; }), StatusCode::kInvalidArgument);
  const auto listens = [&](const std::string& listen) {
    return code([&](auto& o) { o.agent = AgentOptions(GetParam(), listen); });
  };
  EXPECT_EQ(listens("nowhere"), StatusCode::kInvalidArgument);
  const auto memory = Open(1 << 20);
  EXPECT_EQ(listens(AddressOf(memory->endpoint())), StatusCode::kAlreadyExists);
}

INSTANTIATE_TEST_SUITE_P(Fabrics, RegisteredMemoryTest, ::testing::ValuesIn(NetworkFabrics()),
                         [](const auto& param) { return FabricKindName(param.param); });

}  // namespace
}  // namespace farleaf::dsm
