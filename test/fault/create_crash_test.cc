// A compute server dies at every verb of CreateTree, before it and in the middle of it; whoever comes after it
// finds the tree, whole, or none, can make one, and no page is lost. And the next one dies at any verb of the
// recovery.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "index/blink/check.h"
#include "index/blink/recover_member.h"
#include "index/blink/search_cache.h"
#include "test/support/crashing_member.h"
#include "test/support/page_account.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

using test::CrashingMember;

struct Death {
  uint64_t verb = UINT64_MAX;
  uint64_t tear_seed = 0;
};

struct Creation {
  Geometry geometry;
  bool leaf_elsewhere = false;  ///< not on the catalog's server
};

class CreationCrashTest : public testing::TestWithParam<Creation> {
 protected:
  CreationCrashTest() {
    auto servers = dsm::LocalFabric::Create({.servers = 2,
                                             .region_bytes = uint64_t{3} << 20,
                                             .chunk_bytes = dsm::kChunkBytesMin,
                                             .hugepages = dsm::Hugepages::kNever});
    FARLEAF_CHECK(servers.ok(), servers.status());
    servers_ = std::move(*servers);
    // Its leaves are of another size than those of the trees that are made later, or of the same.
    CrashingMember builder(servers_.get(), &clock_, options(), true);
    for (uint64_t i = 0; i < 40; ++i) Put(builder, *builder.tree, i);
    for (uint64_t i = 0; i < 30; ++i) Delete(builder, i);
    builder.Leave();
    snapshot_.emplace(servers_.get());
  }
  static CrashingMember::Options options() { return {Geometry::Fixed8(256), {}}; }
  static std::string Key(const BlinkTree& tree, uint64_t number) {
    return tree.info().geometry.layout == Layout::kFixed8 ? Fixed(number)
                                                          : "key " + std::to_string(number);
  }
  static void Put(CrashingMember& member, BlinkTree& tree, uint64_t number) {
    dsm::OpContext op = member.Op();
    const std::string key = Key(tree, number);
    auto put = member.worker->Run(tree.Put(op, key, Fixed(number)));
    ASSERT_TRUE(put.ok()) << put.status();
  }
  static void Delete(CrashingMember& member, uint64_t number) {
    dsm::OpContext op = member.Op();
    auto deleted = member.worker->Run(member.tree->Delete(op, Fixed(number)));
    ASSERT_TRUE(deleted.ok() && *deleted) << deleted.status();
  }
  std::unique_ptr<CrashingMember> Join() {
    return std::make_unique<CrashingMember>(servers_.get(), &clock_, options(), false);
  }
  static Status Create(CrashingMember& member, const std::string& name, Geometry geometry) {
    dsm::OpContext op = member.Op();
    return member.worker->Run(CreateTree(op, *member.pool, name, geometry)).status();
  }
  /// The victim makes a tree, and dies; returns how many verbs that takes.
  uint64_t Kill(Death death) {
    snapshot_->Restore();
    dead_.clear();
    auto victim = Join();
    if (GetParam().leaf_elsewhere) victim->pool->allocator().NextServer(std::nullopt);
    victim->plan.verbs_left = death.verb;
    victim->plan.tear_seed = death.tear_seed;
    victim->plan.verbs_run = 0;
    const Status created = Create(*victim, "late", GetParam().geometry);
    EXPECT_TRUE(created.ok() || victim->plan.dead) << created;
    acknowledged_ = created.ok();
    const uint64_t verbs = victim->plan.verbs_run;
    dead_.push_back(victim->Die(*servers_));
    return verbs;
  }
  /// The first one that recovers it dies, too; returns how many verbs the recovery takes.
  uint64_t RecoverAndDie(Death death) {
    auto second = Join();
    second->plan.verbs_left = death.verb;
    second->plan.tear_seed = death.tear_seed;
    second->plan.verbs_run = 0;
    dsm::OpContext op = second->Op();
    auto recovered = second->worker->Run(RecoverMember(op, *second->pool, dead_[0], {}));
    EXPECT_TRUE(recovered.ok() || second->plan.dead) << recovered.status();
    const uint64_t verbs = second->plan.verbs_run;
    dead_.push_back(second->Die(*servers_));
    return verbs;
  }
  /// `recover_last_first`: the order in which the dead are recovered.
  void Survive(bool recover_last_first) {
    auto survivor = Join();
    if (recover_last_first) std::reverse(dead_.begin(), dead_.end());
    const uint64_t start_ns = clock_.NowNs();
    for (const dsm::MemberIdentity& dead : dead_) {
      dsm::OpContext op = survivor->Op();
      auto recovered =
          survivor->worker->Run(RecoverMember(op, *survivor->pool, dead, {.settle_ms = 1}));
      ASSERT_TRUE(recovered.ok()) << recovered.status();
    }
    const Status made = Create(*survivor, "late", GetParam().geometry);
    EXPECT_TRUE(made.ok() || made.code() == StatusCode::kAlreadyExists) << made;
    EXPECT_TRUE(!made.ok() || !acknowledged_) << "the tree that was made is gone";
    const Status other = Create(*survivor, "other", Geometry::Parted(4, 256));
    EXPECT_TRUE(other.ok()) << other;
    EXPECT_LT(clock_.NowNs() - start_ns, kNsPerSecond) << "it waited";
    for (const char* name : {"late", "other", "crash"}) Use(*survivor, name);
    survivor->tree.reset();
    const Status left = survivor->pool->Leave();
    ASSERT_TRUE(left.ok()) << left;
    dsm::OpContext op = survivor->Op();
    auto report = survivor->worker->Run(
        CheckPool(op, *survivor->pool, {.findings_max = 20, .looks_max = 1, .runs_max = 1}));
    ASSERT_TRUE(report.ok()) << report.status();
    for (const Finding& finding : report->findings.described()) ADD_FAILURE() << finding.text;
    test::ExpectNoPageLost(*survivor->pool, *survivor->worker);
  }
  static void Use(CrashingMember& member, const std::string& name) {
    dsm::OpContext op = member.Op();
    auto info = member.worker->Run(OpenTree(op, *member.pool, name));
    ASSERT_TRUE(info.ok()) << info.status();
    BlinkTree tree(member.pool.get(), *info, {});
    for (uint64_t i = 0; i < 100; ++i) Put(member, tree, i);
    for (uint64_t i = 0; i < 100; ++i) {
      std::string value;
      const std::string key = Key(tree, i);
      auto found = member.worker->Run(tree.Get(op, key, &value));
      ASSERT_TRUE(found.ok() && *found && value == Fixed(i)) << found.status();
    }
  }

  ManualClock clock_;
  std::unique_ptr<dsm::LocalFabric> servers_;
  std::optional<test::RegionSnapshot> snapshot_;
  std::vector<dsm::MemberIdentity> dead_;
  bool acknowledged_ = false;
};

TEST_P(CreationCrashTest, NoPageIsLostAtAnyVerb) {
  const uint64_t verbs = Kill({});
  ASSERT_TRUE(acknowledged_);
  const uint64_t root_at = TreeInfo{.id = 2}.root_word_offset();
  const auto root =
      RootWord::Decode(LoadLittle<uint64_t>(&servers_->region_bytes(dsm::kCatalogServer)[root_at]));
  ASSERT_EQ(root.address.server() != dsm::kCatalogServer, GetParam().leaf_elsewhere);
  for (uint64_t verb = 0; verb <= verbs; ++verb) {
    for (const uint64_t tear : {0, 1, 2, 3, 4}) {
      SCOPED_TRACE("dies at verb " + std::to_string(verb) + " of " + std::to_string(verbs) +
                   ", tear seed " + std::to_string(tear));
      Kill({verb, tear == 0 ? 0 : verb * 4 + tear});
      Survive(false);
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_P(CreationCrashTest, NoPageIsLostWhenTheNextOneDiesAtTheRecovery) {
  const uint64_t verbs = Kill({});
  for (uint64_t verb = 0; verb <= verbs; ++verb) {
    for (uint64_t again = 0, last = UINT64_MAX; again <= last; ++again) {
      SCOPED_TRACE("dies at verb " + std::to_string(verb) + " of " + std::to_string(verbs) +
                   ", then at verb " + std::to_string(again));
      Kill({verb, verb % 2 == 0 ? 0 : verb});
      if (RecoverAndDie({again, again % 3}) < again) last = 0;
      Survive((verb + again) % 2 == 0);
      ASSERT_FALSE(HasFailure());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Geometries, CreationCrashTest,
                         testing::Values(Creation{Geometry::Fixed8(256)},
                                         Creation{Geometry::Fixed8(512, 256)},
                                         Creation{Geometry::Parted(4, 256)},
                                         Creation{Geometry{Layout::kBytes, 256, 256, 36, 24}},
                                         Creation{Geometry::Fixed8(256), true},
                                         Creation{Geometry::Parted(4, 256), true}));

}  // namespace
}  // namespace farleaf::index
