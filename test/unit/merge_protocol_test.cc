// Merges of parted leaves at which batches fail, whose author dies, or that meet others at the wrong moment
// (index/blink/merge_parts.cc). Each case is a fault that was there once.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "index/blink/parted_leaf.h"
#include "index/blink/recover_member.h"
#include "test/support/scripted_members.h"

namespace farleaf::index {
namespace {

/// Of some 40 leaves, more than a compute server lets lie on one memory server (Allocator::NextServer).
constexpr uint64_t kMergedKeys = 600;
const Geometry kMergedGeometry = Geometry::Parted(4);

Task<void> PutUntilASplit(ScriptedMember* member, CachedLeaf leaf, std::vector<uint64_t>* put) {
  const uint64_t step = (leaf.range.high - leaf.range.low) / 64,
                 splits = member->tree().stats().splits;
  for (uint64_t i = 1; i < 64 && member->tree().stats().splits == splits; ++i) {
    OpContext op = member->Op();
    const std::string key = Fixed(leaf.range.low + i * step), value = Fixed(1);
    auto done = co_await member->tree().Put(op, key, value);
    EXPECT_TRUE(done.ok()) << done.status();
    put->push_back(leaf.range.low + i * step);
  }
  EXPECT_EQ(member->tree().stats().splits, splits + 1);
}

/// A tree of two levels, in which `a` is about to merge the leaf `left` with its right sibling, at one of its
/// next deletes; `b` has a key for the left one.
class MergeWorld {
 public:
  /// `left`: which leaf, from the left.
  MergeWorld(uint32_t memory_servers, size_t left) : pool_(memory_servers), a(pool_), b(pool_) {
    a.Create("tree", kMergedGeometry);
    for (uint64_t i = 0; i < kMergedKeys; ++i) Put(Mix64(i), i);
    b.Open("tree");
    const CachedLeaves leaves = a.Leaves();
    FARLEAF_CHECK(leaves.size() > left + 3 && a.tree().cache().root().level == 1, leaves.size());
    left_ = leaves[left];
    right_ = leaves[left + 1];
    other_ = leaves[left + 3];
    std::vector<uint64_t> keys = a.KeysIn(right_.address);
    while (keys.size() > 7) {  // as few as there may be without a merge
      Delete(keys.back());
      keys.pop_back();
    }
    FARLEAF_CHECK(a.tree().stats().merges == 0, "the right leaf has merged already");
    keys_ = a.KeysIn(left_.address);
  }

  /// The next key to be deleted from the left leaf.
  uint64_t NextKey() {
    FARLEAF_CHECK(!keys_.empty(), "the left leaf is empty, and nothing has merged");
    const uint64_t key = keys_.back();
    keys_.pop_back();
    model_.erase(key);
    return key;
  }
  uint64_t key_of_b() const { return left_.range.low + 1; }
  GlobalAddress parent() { return a.tree().cache().root().address; }
  GlobalAddress parent_lock() { return a.LockOf(parent(), 1); }
  GlobalAddress left_lock() { return a.LockOf(left_.address); }
  GlobalAddress right_lock() { return a.LockOf(right_.address); }
  bool WritesParent(const dsm::Batch& batch) {
    return Touches(batch, dsm::VerbKind::kWrite, parent(), kMergedGeometry.image_bytes(1));
  }
  const CachedLeaf& left() const { return left_; }
  const CachedLeaf& right() const { return right_; }
  const CachedLeaf& other() const { return other_; }
  ScriptedPool& pool() { return pool_; }
  void Put(uint64_t key, uint64_t value) {
    a.Put(key, value);
    model_[key] = value;
  }
  void Delete(uint64_t key) {
    const Status deleted = a.Delete(key);
    EXPECT_TRUE(deleted.ok()) << deleted;
    model_.erase(key);
  }
  void NotePut(uint64_t key, uint64_t value) { model_[key] = value; }

  /// `a` has one merge behind it, and nothing that it could not bring to an end.
  void ExpectMergedAndWhole() {
    a.script().rule = nullptr;
    EXPECT_EQ(a.tree().stats().merges, 1u);
    EXPECT_EQ(a.tree().stats().merges_given_up, 0u);
    for (const auto& [key, value] : model_) EXPECT_EQ(b.Get(key), value) << key;
    EXPECT_TRUE(a.pool().unresolved_locks().empty()) << a.pool().unresolved_locks().Describe();
    EXPECT_FALSE(a.pool().allocator().has_given_up());
    a.ExpectLeavesInGoodOrder();
    b.ExpectWholePool();
  }

 private:
  ScriptedPool pool_;

 public:
  ScriptedMember a, b;

 private:
  CachedLeaf left_, right_, other_;
  std::vector<uint64_t> keys_;
  std::map<uint64_t, uint64_t> model_;
};

/// What else `a` does waits for.
enum class Waits { kForNothing, kForParent, kForChild };

/// `a` merges; the batch that lets the parent and the left leaf go fails after so many of its verbs; then,
/// before `a` knows, `b` asks for the left leaf. Returns how many verbs the batch had.
size_t MergeWithAFailingEnd(Waits waits, size_t verbs_run, StatusCode failure) {
  MergeWorld world(1, 2);
  ScriptedMember &a = world.a, &b = world.b;
  enum class Stage { kDeletes, kParentIsLocked, kEnds, kFailed } stage = Stage::kDeletes;
  size_t verbs = 0;
  std::shared_ptr<ScriptedMember::Begun> put_of_b;
  a.script().rule = [&](const dsm::Batch& batch,
                        const dsm::RunVerbs& run) -> std::optional<Status> {
    const bool takes_parent =
        Touches(batch, dsm::VerbKind::kCompareAndSwap, world.parent_lock(), 8);
    if (stage == Stage::kDeletes && takes_parent) stage = Stage::kParentIsLocked;
    if (stage == Stage::kParentIsLocked && takes_parent) return std::nullopt;
    if (stage == Stage::kEnds && world.WritesParent(batch)) {
      stage = Stage::kFailed;
      verbs = batch.verbs().size();
      run(verbs_run);
      put_of_b = b.BeginPut(world.key_of_b(), 7);
      b.Turn(2);  // its CAS has run
      return failure == StatusCode::kUnknown ? Status::Unknown("no answer")
                                             : Status::Unavailable("the connection broke");
    }
    const bool was_of_b = world.pool().HolderOf(world.left_lock()) == b.id();
    run(dsm::kAllVerbs);
    EXPECT_TRUE(!was_of_b || world.pool().HolderOf(world.left_lock()) == b.id())
        << "unlocked what another has locked";
    return Status::Ok();
  };
  std::shared_ptr<ScriptedMember::Begun> deleted;
  while (stage == Stage::kDeletes) {
    deleted = a.BeginDelete(world.NextKey());
    for (int turn = 0; turn < 100 && stage == Stage::kDeletes && !deleted->ended; ++turn) a.Turn();
  }
  std::vector<uint64_t> put;
  std::shared_ptr<ScriptedMember::Begun> other_put;
  if (waits == Waits::kForParent) a.worker().Spawn(PutUntilASplit(&a, world.other(), &put));
  if (waits == Waits::kForChild)
    other_put = a.BeginPut(put.emplace_back(world.left().range.low), 1);
  a.Turn(1'000);
  EXPECT_EQ(a.worker().spawned(), waits == Waits::kForNothing ? 1u : 2u);
  const uint64_t handovers = a.tree().stats().handovers;
  stage = Stage::kEnds;
  a.RunUntilIdle();
  EXPECT_TRUE(stage == Stage::kFailed);
  EXPECT_EQ(a.tree().stats().handovers - handovers, waits == Waits::kForNothing ? 0u : 1u);
  b.RunUntilIdle();
  for (const auto& begun : {deleted, put_of_b, other_put}) {
    EXPECT_TRUE(!begun || begun->ended->ok()) << *begun->ended;
  }
  for (const uint64_t key : put) world.NotePut(key, 1);
  world.NotePut(world.key_of_b(), 7);
  world.ExpectMergedAndWhole();
  return verbs;
}

void FailAfterEachVerb(Waits waits) {
  for (const StatusCode failure : {StatusCode::kUnavailable, StatusCode::kUnknown}) {
    size_t verbs = 1;
    for (size_t run = 0; run <= verbs && !testing::Test::HasFailure(); ++run) {
      SCOPED_TRACE(testing::Message() << run << " verbs run, then " << Status(failure, ""));
      verbs = MergeWithAFailingEnd(waits, run, failure);
    }
    EXPECT_GE(verbs, 3u);
  }
}

TEST(MergeProtocolTest, BesideAParentThatIsHandedOverNoOtherPageIsUnlocked) {
  FailAfterEachVerb(Waits::kForParent);
}

TEST(MergeProtocolTest, AMergeWhoseLastBatchFailsLeavesNothingBehind) {
  for (const Waits waits : {Waits::kForNothing, Waits::kForChild}) FailAfterEachVerb(waits);
}

/// The write-back of one of the two leaves fails a few times. False: the leaf has merged with its left one.
bool MergeWithAFailingLeaf(MergeWorld& world, GlobalAddress leaf) {
  ScriptedMember& a = world.a;
  int failures = 0;
  bool parent_was_locked = false;
  a.script().rule = [&](const dsm::Batch& batch,
                        const dsm::RunVerbs& run) -> std::optional<Status> {
    const bool fails = world.pool().HolderOf(world.right_lock()) == a.id() &&
                       Touches(batch, dsm::VerbKind::kWrite, leaf, 64);
    if (fails && failures < 3) {
      EXPECT_TRUE(failures == 0 || world.pool().HolderOf(world.parent_lock()) != a.id());
      ++failures;
      return Status::Unavailable("no answer from the leaf's server");
    }
    run(dsm::kAllVerbs);
    if (!world.WritesParent(batch)) {
      parent_was_locked |= world.pool().HolderOf(world.parent_lock()) == a.id();
    }
    return Status::Ok();
  };
  while (a.tree().stats().merges == 0) {
    const Status deleted = a.Delete(world.NextKey());
    EXPECT_TRUE(deleted.ok()) << deleted;
  }
  EXPECT_EQ(failures, failures == 0 ? 0 : 3);
  EXPECT_TRUE(parent_was_locked);
  world.ExpectMergedAndWhole();
  return failures > 0;
}

TEST(MergeProtocolTest, NoParentIsKeptLockedForALeafWhoseServerDoesNotAnswer) {
  int beside = 0, apart = 0;
  for (size_t left = 1; left < 30; ++left) {
    SCOPED_TRACE(testing::Message() << "leaf " << left);
    MergeWorld first(3, left), second(3, left);
    if (!MergeWithAFailingLeaf(first, first.left().address)) continue;
    EXPECT_TRUE(MergeWithAFailingLeaf(second, second.right().address));
    const bool one_server = first.left().address.server() == first.right().address.server();
    ++(one_server ? beside : apart);
  }
  EXPECT_GT(beside, 0);
  EXPECT_GT(apart, 0);
}

/// Two trees. A compute server's cache of the one names as a leaf's right sibling a page that is the other's
/// by now; it deletes from that leaf, which looks as if it were to merge, and dies at a verb.
class StaleSibling {
 public:
  StaleSibling() : pool_(1), writer_(pool_) {
    writer_.Create("first", kMergedGeometry);
    for (uint64_t i = 0; i < kMergedKeys; ++i) writer_.Put(Mix64(i), i);
  }

  /// Returns how many verbs ran. UINT64_MAX: it does not die.
  uint64_t Run(uint64_t verbs_before_death) {
    dsm::CrashPlan plan;
    ScriptedMember stale(
        pool_, std::make_unique<dsm::CrashingFabric>(pool_.servers(), pool_.clock(), &plan));
    stale.Open("first");
    const CachedLeaf leaf = stale.Leaves()[2], sibling = stale.Leaves()[3];
    GiveSiblingToAnotherTree(leaf, sibling);
    const uint64_t key = LastKeyOfAPart(leaf.address, sibling.range.low);
    EXPECT_EQ(stale.tree().stats().merges, 0u);
    plan.verbs_run = 0;
    plan.verbs_left = verbs_before_death;
    const Status deleted = stale.Delete(key);
    EXPECT_TRUE(deleted.ok() || plan.dead) << deleted;
    const uint64_t ran = plan.verbs_run;
    plan.dead = true;
    stale.Die();
    Recover(stale.pool().self());
    for (const uint64_t other : others_) EXPECT_EQ(writer_.Get(other, 1), 3u) << other;
    writer_.ExpectWholePool();
    return ran;
  }

 private:
  /// The leaf and its right sibling merge, the other tree takes the sibling's page, and the leaf, which gets
  /// keys where the sibling had its own, splits at one of them. It has one key at its lower end.
  void GiveSiblingToAnotherTree(const CachedLeaf& leaf, const CachedLeaf& sibling) {
    for (const CachedLeaf& small : {sibling, leaf}) {
      std::vector<uint64_t> keys = writer_.KeysIn(small.address);
      while (!keys.empty() && writer_.tree().stats().merges == 0) {
        if (small.address == sibling.address && keys.size() == 7) break;
        EXPECT_TRUE(writer_.Delete(keys.back()).ok());
        keys.pop_back();
      }
    }
    ASSERT_EQ(writer_.tree().stats().merges, 1u);
    const auto is_free = [&] {
      return dsm::LockWord::Decode(pool_.Word(writer_.LockOf(sibling.address))).state ==
             dsm::LockWord::State::kFreePage;
    };
    ASSERT_TRUE(is_free());
    writer_.Create("second", kMergedGeometry);
    for (uint64_t i = 0; i < 5 || (i < 200 && is_free()); ++i) {
      others_.push_back(Mix64(1'000 + i));
      writer_.Put(others_.back(), 3, 1);
    }
    ASSERT_FALSE(is_free());
    ASSERT_FALSE(writer_.KeysIn(sibling.address, 1).empty());
    const uint64_t step = (sibling.range.high - sibling.range.low) / 64;
    const uint64_t splits = writer_.tree().stats().splits;
    for (uint64_t i = 1; i < 64 && writer_.tree().stats().splits == splits; ++i) {
      writer_.Put(sibling.range.low + i * step, 1);
    }
    ASSERT_EQ(writer_.tree().stats().splits, splits + 1);
    ASSERT_GT(writer_.KeysIn(leaf.address).back(), sibling.range.low);
    writer_.Put(leaf.range.low + 1, 1);
  }
  /// A key below `high` that is the only one in its part of the leaf, which the writer sees to.
  uint64_t LastKeyOfAPart(GlobalAddress leaf, uint64_t high) {
    for (size_t i = 0; i < PartsOf(kMergedGeometry.leaf_bytes); ++i) {
      const ConstPart part(&pool_.Bytes(leaf, kMergedGeometry.image_bytes(0))[i * kPartBytes]);
      std::vector<uint64_t> keys;
      for (size_t slot = 0; slot < kPartSlots; ++slot) {
        if ((part.used() >> slot & 1) != 0) keys.push_back(part.key(slot));
      }
      std::sort(keys.begin(), keys.end());
      if (keys.empty() || keys.back() >= high) continue;
      for (size_t k = 1; k < keys.size(); ++k) EXPECT_TRUE(writer_.Delete(keys[k]).ok());
      return keys[0];
    }
    ADD_FAILURE() << "no part has lower keys only";
    return 0;
  }
  void Recover(dsm::MemberIdentity dead) {
    OpContext op = writer_.Op();
    BlinkTree* trees[] = {&writer_.tree(0), &writer_.tree(1)};
    auto recovered = writer_.Run(RecoverLocks(op, writer_.pool(), trees, dead));
    EXPECT_TRUE(recovered.ok()) << recovered.status();
  }

  ScriptedPool pool_;
  ScriptedMember writer_;
  std::vector<uint64_t> others_;  ///< keys of the second tree
};

TEST(MergeProtocolTest, WhoDiesAtAMergeTakesNoLeafOfAnotherTreeAlong) {
  const uint64_t verbs = StaleSibling().Run(UINT64_MAX);
  EXPECT_GT(verbs, 5u);
  for (uint64_t at = 0; at < verbs && !testing::Test::HasFailure(); ++at) {
    SCOPED_TRACE(testing::Message() << "dies at verb " << at << " of " << verbs);
    StaleSibling().Run(at);
  }
}

}  // namespace
}  // namespace farleaf::index
