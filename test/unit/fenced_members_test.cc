// Fence words: when a memory server stores them, and what they say of a lock word's holder.
#include "dsm/fenced_members.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "dsm/region_layout.h"

namespace farleaf::dsm {
namespace {

struct FencedMembersTest : ::testing::Test {
  std::vector<uint64_t> memory = std::vector<uint64_t>(kChunkBytesMin * 4 / 8);
  FencedMembers fenced{3, std::as_writable_bytes(std::span(memory))};

  static Status Confirm() { return Status::Ok(); }
  uint64_t FenceWord(MemberId id) const { return memory[FenceWordOffset(id) / 8]; }
  void CutOff(MemberIdentity member) {
    Status cut = fenced.CutOff(member, Confirm);
    EXPECT_TRUE(cut.ok()) << cut;
  }
};

TEST_F(FencedMembersTest, TheWordIsStoredWhenTheCutIsConfirmedAndNotBefore) {
  Status cut = fenced.CutOff({5, 3}, [&] {
    EXPECT_EQ(FenceWord(5), 0u);
    EXPECT_EQ(fenced.Check({5, 3}).code(), StatusCode::kFenced);
    return Status::DeadlineExceeded("its process has not ended");
  });
  EXPECT_EQ(cut.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(FenceWord(5), 0u) << "not confirmed";
  EXPECT_EQ(fenced.Admit({5, 3}).code(), StatusCode::kFenced);
  CutOff({5, 3});
  EXPECT_EQ(FenceWord(5), 3u);
  EXPECT_EQ(FenceWord(4), 0u);
  EXPECT_EQ(FenceWord(6), 0u);
}

TEST_F(FencedMembersTest, TheWordNamesTheNewestIncarnationThatIsCutOff) {
  CutOff({4095, 7});
  CutOff({4095, 6});
  EXPECT_EQ(FenceWord(4095), 7u);
  CutOff({4095, uint64_t{1} << 40});
  EXPECT_EQ(FenceWord(4095), uint64_t{1} << 40);
}

TEST_F(FencedMembersTest, TheWordIsClearedWhenANewerIncarnationIsLetIn) {
  CutOff({5, 3});
  EXPECT_FALSE(fenced.Admit({5, 2}).ok());
  EXPECT_TRUE(fenced.Admit({6, 9}).ok());
  EXPECT_TRUE(fenced.Admit({0, 0}).ok());
  EXPECT_TRUE(fenced.Check({5, 4}).ok());
  EXPECT_EQ(FenceWord(5), 3u);
  EXPECT_TRUE(fenced.Admit({5, 4}).ok());
  EXPECT_EQ(FenceWord(5), 0u);
  EXPECT_FALSE(fenced.Admit({5, 3}).ok()) << "what is fenced stays fenced";
}

TEST(IsFencedTest, AHolderIsFencedIfTheFenceWordNamesItsIncarnation) {
  EXPECT_TRUE(IsFenced(3, 5, 3));
  EXPECT_TRUE(IsFenced(4096 + 3, 5, 3));
  EXPECT_TRUE(IsFenced(4096, 5, 0));
  EXPECT_FALSE(IsFenced(0, 5, 3));
  EXPECT_FALSE(IsFenced(0, 5, 0)) << "no fence, not a fence of incarnation 0";
  EXPECT_FALSE(IsFenced(3, 5, 4)) << "a successor";
  EXPECT_FALSE(IsFenced(3, 0, 3)) << "nobody holds it";
}

TEST(IsFencedTest, ALockWordOfAFencedMemberIsRecognized) {
  const MemberIdentity dead{7, 4098}, successor{7, 4099};
  const auto is_fenced = [&](const MemberIdentity& holder) {
    LockWord lock;
    lock.state = LockWord::State::kLocked;
    lock.owner = holder.id;
    lock.incarnation = holder.short_incarnation();
    const LockWord seen = LockWord::Decode(lock.Encode());
    return IsFenced(dead.incarnation, seen.owner, seen.incarnation);
  };
  EXPECT_TRUE(is_fenced(dead));
  EXPECT_FALSE(is_fenced(successor));
}

TEST(RegionLayoutTest, TheTablesDoNotOverlapAndEveryIdHasAWordInEach) {
  EXPECT_EQ(LeaseWordOffset(0), kLeasesOffset);
  EXPECT_EQ(LeaseWordOffset(kMembersMax - 1) + 8, kFencesOffset);
  EXPECT_EQ(FenceWordOffset(0), kFencesOffset);
  EXPECT_EQ(FenceWordOffset(kMembersMax - 1) + 8, kFreeListsOffset);
  EXPECT_EQ(kCatalogOffset + kCatalogEntries * kCatalogEntryBytes, kChunkTableOffset);
}

}  // namespace
}  // namespace farleaf::dsm
