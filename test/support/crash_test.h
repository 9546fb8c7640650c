// CrashTest: a compute server dies at a verb of what it does, before it or in the middle of it, and whoever comes after it
// finds a whole tree, with all that was acknowledged; the next one may die at any verb of the recovery.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "index/blink/check.h"
#include "index/blink/recover_member.h"
#include "test/support/crashing_member.h"
#include "test/support/page_account.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {

using Model = std::map<std::string, std::string>;

struct Write {
  std::string key;
  std::optional<std::string> value;  ///< nullopt: delete
};

struct Scenario {
  std::string name;
  Geometry geometry;
  TreeOptions tree;
  uint32_t servers = 2;
  std::vector<Write> before;  ///< what the tree is made with
  std::vector<Write> script;  ///< at whose verbs the compute server dies
  dsm::CrashMemory memory = dsm::CrashMemory::kByVerbs;
};

/// One compute server of a test.
struct Actor : test::CrashingMember {
  Actor(dsm::LocalFabric* servers, ManualClock* clock, const Scenario& scenario, bool creates)
      : CrashingMember(servers, clock, {scenario.geometry, scenario.tree, scenario.memory},
                       creates) {}
  Status Do(const Write& write) {
    OpContext op = Op();
    return (write.value ? worker->Run(tree->Put(op, write.key, *write.value))
                        : worker->Run(tree->Delete(op, write.key)))
        .status();
  }
  Result<std::optional<std::string>> Get(const std::string& key) {
    std::string value;
    OpContext op = Op();
    auto found = worker->Run(tree->Get(op, key, &value));
    if (!found.ok()) return found.status();
    return *found ? std::optional(value) : std::nullopt;
  }
};

/// When a compute server dies: at which verb, and what of that verb lands; and what it has done wrong until then.
struct Death {
  uint64_t verb = UINT64_MAX;
  uint64_t tear_seed = 0;
  dsm::CrashFault fault = dsm::CrashFault::kNone;
};

class CrashWorld {
 public:
  explicit CrashWorld(const Scenario& scenario) : scenario_(scenario) {
    auto servers = dsm::LocalFabric::Create({.servers = scenario.servers,
                                             .region_bytes = uint64_t{3} << 20,
                                             .chunk_bytes = dsm::kChunkBytesMin,
                                             .hugepages = dsm::Hugepages::kNever});
    FARLEAF_CHECK(servers.ok(), servers.status());
    servers_ = std::move(*servers);
    Actor builder(servers_.get(), &clock_, scenario_, true);
    for (const Write& write : scenario_.before) {
      Status done = builder.Do(write);
      FARLEAF_CHECK(done.ok(), done);
      Apply(write, &built_);
    }
    builder.Leave();
    snapshot_.emplace(servers_.get());
  }

  /// Verbs of the whole script.
  uint64_t ScriptVerbs() { return RunScript().verbs_run; }
  /// What has run when nobody dies.
  dsm::CrashPlan RunScript() {
    snapshot_->Restore();
    Actor victim(servers_.get(), &clock_, scenario_, false);
    victim.plan.verbs_run = victim.plan.reads_run = 0;
    for (const Write& write : scenario_.script) {
      Status done = victim.Do(write);
      FARLEAF_CHECK(done.ok(), done);
    }
    return victim.plan;
  }
  /// READs of as many gets as the tree was made with keys, of one who knows the tree.
  uint64_t ReadsOfGets() {
    snapshot_->Restore();
    Actor reader(servers_.get(), &clock_, scenario_, false);
    for (const auto& [key, value] : built_) FARLEAF_CHECK(reader.Get(key).ok());
    reader.plan.reads_run = 0;
    for (const auto& [key, value] : built_) FARLEAF_CHECK(reader.Get(key).ok());
    return reader.plan.reads_run;
  }
  /// The victim dies, and, if asked, the one that comes first after it. Returns how many verbs the
  /// latter's recovery took.
  uint64_t Run(Death first, std::optional<Death> second) {
    snapshot_->Restore();
    model_ = built_;
    doubtful_.clear();
    Kill(first);
    uint64_t verbs = 0;
    if (second) verbs = RecoverAndDie(*second);
    if (!::testing::Test::HasFatalFailure()) Survive();
    return verbs;
  }
  uint64_t takeovers() const { return takeovers_; }

 private:
  static void Apply(const Write& write, Model* model) {
    if (write.value) {
      (*model)[write.key] = *write.value;
    } else {
      model->erase(write.key);
    }
  }
  void Kill(Death death) {
    Actor victim(servers_.get(), &clock_, scenario_, false);
    victim.plan.verbs_left = death.verb;
    victim.plan.tear_seed = death.tear_seed;
    victim.plan.fault = death.fault;
    for (const Write& write : scenario_.script) {
      const Status done = victim.Do(write);
      if (!done.ok()) {
        ASSERT_TRUE(victim.plan.dead) << done;
        doubtful_.push_back(write);
        break;
      }
      Apply(write, &model_);
    }
    dead_.push_back(victim.Die(*servers_));  // with nothing in hand, if it came to the script's end
  }
  /// The key in doubt is looked at and written, and all the dead one's locks are recovered.
  void Recover(Actor& actor) {
    for (const Write& doubtful : doubtful_) {
      if (!actor.Get(doubtful.key).ok()) return;
    }
    OpContext op = actor.Op();
    BlinkTree* trees[] = {actor.tree.get()};
    for (const dsm::MemberIdentity& dead : dead_) {
      auto recovered = actor.worker->Run(RecoverLocks(op, *actor.pool, trees, dead));
      ASSERT_TRUE(recovered.ok() || actor.plan.dead) << recovered.status();
    }
    takeovers_ += actor.tree->stats().locks_taken_over;
  }
  uint64_t RecoverAndDie(Death death) {
    Actor actor(servers_.get(), &clock_, scenario_, false);
    actor.plan.verbs_left = death.verb;
    actor.plan.tear_seed = death.tear_seed;
    actor.plan.fault = death.fault;
    actor.plan.verbs_run = 0;
    if (++runs_ % 2 == 0) {
      Recover(actor);
    } else {
      OpContext op = actor.Op();
      auto recovered = actor.worker->Run(RecoverMember(op, *actor.pool, dead_[0], {}));
      EXPECT_TRUE(recovered.ok() || actor.plan.dead) << recovered.status();
    }
    const uint64_t verbs = actor.plan.verbs_run;
    dead_.push_back(actor.Die(*servers_));
    return verbs;
  }
  void Survive() {
    Actor actor(servers_.get(), &clock_, scenario_, false);
    ReadAll(actor);
    if (::testing::Test::HasFatalFailure()) return;
    // Half of the runs meet what was left by the way, the others by a scan.
    if (++runs_ % 2 == 0) Recover(actor);
    WriteAll(actor);
    if (::testing::Test::HasFatalFailure()) return;
    Recover(actor);
    if (::testing::Test::HasFatalFailure()) return;
    ReadAll(actor);
    if (::testing::Test::HasFatalFailure()) return;
    doubtful_.clear();
    WriteAll(actor);
    if (::testing::Test::HasFatalFailure()) return;
    Check(actor);
    dead_.clear();
  }
  /// A write in doubt may come to effect as long as its leaf was not recovered, which whoever reads what is
  /// torn of it does; it is never undone.
  void NoteDoubtful(const std::string& key, const std::optional<std::string>& got) {
    for (const Write& write : doubtful_) {
      if (write.key == key && write.value == got) Apply(write, &model_);
    }
  }
  void ReadAll(Actor& actor) {
    std::set<std::string> keys;
    for (const Write& write : scenario_.before) keys.insert(write.key);
    for (const Write& write : scenario_.script) keys.insert(write.key);
    for (const std::string& key : keys) {
      auto got = actor.Get(key);
      ASSERT_TRUE(got.ok()) << got.status();
      NoteDoubtful(key, *got);
      const auto expected = model_.find(key);
      ASSERT_EQ(*got, expected == model_.end() ? std::nullopt : std::optional(expected->second));
    }
    std::vector<KeyValue> rows;
    OpContext op = actor.Op();
    Status scanned = actor.worker->Run(actor.tree->Scan(op, {}, &rows));
    ASSERT_TRUE(scanned.ok()) << scanned;
    std::map<std::string, std::string> scan;
    for (const KeyValue& row : rows) scan.emplace(row.key, row.value);
    ASSERT_EQ(scan.size(), rows.size());
    for (const Write& write : doubtful_) {
      const auto row = scan.find(write.key);
      NoteDoubtful(write.key, row == scan.end() ? std::nullopt : std::optional(row->second));
    }
    ASSERT_EQ(scan, model_);
  }
  void WriteAll(Actor& actor) {
    for (auto& [key, value] : model_) {
      if (!doubtful_.empty() && doubtful_[0].key == key) continue;
      std::reverse(value.begin(), value.end());
      Status written = actor.Do({key, value});
      ASSERT_TRUE(written.ok()) << written;
    }
  }
  /// All that the dead held is returned, and when the last member has left every page is in a tree or in a
  /// list of the pool.
  void Check(Actor& actor) {
    for (const dsm::MemberIdentity& dead : dead_) {
      OpContext op = actor.Op();
      auto recovered = actor.worker->Run(RecoverMember(op, *actor.pool, dead, {}));
      ASSERT_TRUE(recovered.ok()) << recovered.status();
      ASSERT_TRUE(recovered->was_member || dead_.size() > 1);
    }
    actor.tree.reset();
    Status left = actor.pool->Leave();
    ASSERT_TRUE(left.ok()) << left;
    OpContext op = actor.Op();
    auto report = actor.worker->Run(
        CheckPool(op, *actor.pool, {.findings_max = 20, .looks_max = 1, .runs_max = 1}));
    ASSERT_TRUE(report.ok()) << report.status();
    for (const Finding& finding : report->findings.described()) ADD_FAILURE() << finding.text;
    ASSERT_TRUE(report->ok());
    ASSERT_EQ(report->keys(), model_.size());
    test::ExpectNoPageLost(*actor.pool, *actor.worker);
  }

  const Scenario& scenario_;
  ManualClock clock_;
  std::unique_ptr<dsm::LocalFabric> servers_;
  std::optional<test::RegionSnapshot> snapshot_;
  Model built_, model_;
  std::vector<Write> doubtful_;
  std::vector<dsm::MemberIdentity> dead_;
  uint64_t runs_ = 0;
  uint64_t takeovers_ = 0;
};

inline std::string Number(const Geometry& geometry, uint64_t number) {
  if (geometry.layout == Layout::kFixed8) return Fixed(number * 10);
  std::string digits = std::to_string(100'000 + number);
  return "key/" + digits;
}
inline std::string Value(const Geometry& geometry, uint64_t number, size_t bytes = 12) {
  if (geometry.layout == Layout::kFixed8) return Fixed(number + 1'000'000);
  std::string value = std::to_string(number) + "/";
  value.resize(bytes, static_cast<char>('a' + number % 26));
  return value;
}

inline const Geometry kFixed = Geometry::Fixed8(256);
inline const Geometry kParted = Geometry::Parted(4, 256);
inline const Geometry kDefaultLeaves = Geometry::Parted(kLeafPartsDefault, 256);
inline const Geometry kLargeLeaves = Geometry::Fixed8(512, 256);
inline const Geometry kBytes{Layout::kBytes, 256, 256, 36, 24};

inline std::vector<Write> Inserts(const Geometry& geometry, uint64_t from, uint64_t to,
                                  uint64_t step = 1) {
  std::vector<Write> writes;
  for (uint64_t i = from; i < to; i += step) {
    writes.push_back({Number(geometry, i), Value(geometry, i)});
  }
  return writes;
}
inline std::vector<Write> Deletes(const Geometry& geometry, uint64_t from, uint64_t to,
                                  uint64_t step = 1) {
  std::vector<Write> writes;
  for (uint64_t i = from; i < to; i += step) writes.push_back({Number(geometry, i), std::nullopt});
  return writes;
}

class CrashTest : public ::testing::Test {
 protected:
  /// Every `step`-th verb of the script: before it, and torn in two ways.
  void DieAtEveryVerb(const Scenario& scenario, uint64_t step = 1) {
    CrashWorld world(scenario);
    const uint64_t verbs = world.ScriptVerbs();
    uint64_t runs = 0;
    for (uint64_t verb = 0; verb <= verbs; verb += step) {
      for (const uint64_t tear : {0, 1, 2}) {
        SCOPED_TRACE(scenario.name + ": dies at verb " + std::to_string(verb) + " of " +
                     std::to_string(verbs) + ", tear seed " + std::to_string(tear));
        world.Run({verb, tear == 0 ? 0 : verb * 2 + tear}, std::nullopt);
        ++runs;
        ASSERT_FALSE(HasFailure());
      }
    }
    std::printf("%s: %lu verbs, %lu runs, %lu locks taken over\n", scenario.name.c_str(), verbs,
                runs, world.takeovers());
  }
  /// Every `step`-th verb of the script, and every `step_again`-th of the recovery.
  void DieTwice(const Scenario& scenario, uint64_t step, uint64_t step_again) {
    CrashWorld world(scenario);
    const uint64_t verbs = world.ScriptVerbs();
    uint64_t runs = 0;
    for (uint64_t verb = 0; verb <= verbs; verb += step) {
      for (uint64_t again = verb % step_again, last = UINT64_MAX; again <= last;
           again += step_again) {
        const Death first{verb, verb % 2 == 0 ? 0 : verb}, second{again, again % 3};
        SCOPED_TRACE(scenario.name + ": dies at verb " + std::to_string(verb) + " of " +
                     std::to_string(verbs) + ", then at verb " + std::to_string(again));
        const uint64_t ran = world.Run(first, second);
        if (ran < again) last = 0;  // the recovery was through before
        ++runs;
        ASSERT_FALSE(HasFailure());
      }
    }
    std::printf("%s, twice: %lu verbs, %lu runs, %lu locks taken over\n", scenario.name.c_str(),
                verbs, runs, world.takeovers());
  }
};

inline Scenario Updates(const Geometry& geometry) {
  Scenario scenario{"updates", geometry, {}, 2, Inserts(geometry, 0, 40), {}};
  for (uint64_t i : {3, 17, 30}) {
    scenario.script.push_back({Number(geometry, i), Value(geometry, i + 7)});
    scenario.script.push_back({Number(geometry, i + 100), Value(geometry, i)});
    scenario.script.push_back({Number(geometry, i + 1), std::nullopt});
  }
  return scenario;
}
inline Scenario LeafSplits(const Geometry& geometry) {
  // Dense inserts between what is there; the pages alternate between the servers after a while.
  Scenario scenario{"leaf splits", geometry, {}, 2, Inserts(geometry, 0, 60, 4), {}};
  scenario.script = Inserts(geometry, 1, 60, 4);
  return scenario;
}
inline Scenario Growth(const Geometry& geometry, uint64_t keys = 260) {
  Scenario scenario{"growth", geometry, {}, 2, {}, Inserts(geometry, 0, keys)};
  return scenario;
}
inline Scenario Shrinking(const Geometry& geometry, uint64_t keys = 300) {
  Scenario scenario{"shrinking", geometry, {}, 2, Inserts(geometry, 0, keys), {}};
  scenario.tree.merge_below = 0.45;
  scenario.tree.merge_up_to = 0.9;
  scenario.script = Deletes(geometry, 0, keys);
  return scenario;
}
/// The same where leaves can be looked at, and values replaced, in place.
inline Scenario Mapped(Scenario scenario) {
  scenario.name += ", mapped";
  scenario.memory = dsm::CrashMemory::kMapped;
  return scenario;
}
/// Values that take blocks of their own.
inline Scenario LargeValues() {
  Scenario scenario{"large values", kBytes, {}, 2, Inserts(kBytes, 0, 20), {}};
  for (uint64_t i = 0; i < 20; i += 2) scenario.before[i].value = Value(kBytes, i, 150);
  for (uint64_t i = 0; i < 20; i += 3) {
    scenario.script.push_back({Number(kBytes, i), Value(kBytes, i, 200)});
    scenario.script.push_back({Number(kBytes, i), Value(kBytes, i, 90)});
    scenario.script.push_back({Number(kBytes, i + 50), Value(kBytes, i, 100)});
    scenario.script.push_back({Number(kBytes, i), std::nullopt});
  }
  return scenario;
}

}  // namespace farleaf::index
