// A merge changes nothing that a reader can see: at any open snapshot, or at the newest state.
#include "index/lsm/merge_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dsm/base/random.h"

namespace farleaf::index::lsm {
namespace {

struct Stored {
  std::string key;
  Sequence sequence;
  EntryKind kind;
  std::string value;
  uint64_t expires_ms = 0;
};

// What is in one place: versions in the order of a merge, and range deletes.
struct Source {
  std::vector<Stored> versions;
  std::vector<RangeDelete> deletes;
};

constexpr uint64_t kNowMs = 1000;

// Looks at all.
const RangeDelete* Covering(const std::vector<RangeDelete>& deletes, const std::string& key,
                            Sequence snapshot) {
  const RangeDelete* newest = nullptr;
  for (const RangeDelete& each : deletes) {
    if (each.sequence > snapshot || !each.Covers(key)) continue;
    if (!newest || each.sequence > newest->sequence) newest = &each;
  }
  return newest;
}

// As a reader goes from place to place, the newest first, to whom it is `now_ms`.
std::optional<std::string> Read(const std::vector<const Source*>& places, const std::string& key,
                                Sequence snapshot, uint64_t now_ms = kNowMs) {
  for (const Source* place : places) {
    const RangeDelete* covering = Covering(place->deletes, key, snapshot);
    for (const Stored& version : place->versions) {
      if (version.key != key || version.sequence > snapshot) continue;
      if (covering && covering->sequence > version.sequence) return std::nullopt;
      const bool expired = version.expires_ms != 0 && version.expires_ms <= now_ms;
      if (version.kind == EntryKind::kDeleted || expired) return std::nullopt;
      return version.value;
    }
    if (covering) return std::nullopt;
  }
  return std::nullopt;
}

// `sources`: the newest first.
Source Merge(const std::vector<Source>& sources, MergeRule::Setting setting,
             size_t* dropped = nullptr) {
  struct From {
    const Stored* version;
    size_t source;
  };
  std::vector<From> all;
  for (size_t i = 0; i < sources.size(); ++i) {
    setting.range_deletes.push_back(sources[i].deletes);
    for (const Stored& version : sources[i].versions) all.push_back({&version, i});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const From& a, const From& b) { return a.version->key < b.version->key; });
  MergeRule rule(setting);
  Source merged;
  for (const auto& [version, source] : all) {
    Entry entry{.key = version->key,
                .sequence = version->sequence,
                .kind = version->kind,
                .value = version->value,
                .pointer = {},
                .expires_ms = version->expires_ms};
    if (rule.Keep(&entry, source)) {
      merged.versions.push_back({std::string(entry.key), entry.sequence, entry.kind,
                                 std::string(entry.value), entry.expires_ms});
    } else if (dropped) {
      ++*dropped;
    }
  }
  merged.deletes = rule.RangeDeletesOfResult();
  return merged;
}

// What is in front of the key, or from it on.
enum class Side : uint8_t { kFront, kBehind };
Source Part(Source source, Side side, const std::string& key) {
  const bool front = side == Side::kFront;
  std::erase_if(source.versions, [&](const Stored& each) { return (each.key < key) != front; });
  source.deletes = front ? Clip(source.deletes, {}, key) : Clip(source.deletes, key, {});
  return source;
}

// Merges so many neighbours; or begins to, and is interrupted when all in front of a key is done: what it has done so far is in the
// last one of them, and what it has not stands where it stood.
void MergeInStack(Random& random, MergeRule::Setting setting, std::vector<Source>* stack,
                  size_t* dropped) {
  const size_t at = random.Below(stack->size());
  const size_t count = 1 + random.Below(std::min<size_t>(stack->size() - at, 5));
  setting.bottom = at + count == stack->size();
  const auto begin = stack->begin() + static_cast<ptrdiff_t>(at);
  const auto last = begin + static_cast<ptrdiff_t>(count) - 1;
  Source merged = Merge({begin, last + 1}, std::move(setting), dropped);
  if (random.Below(3) != 0) {
    *last = std::move(merged);
    stack->erase(begin, last);
    return;
  }
  const std::string key(1, static_cast<char>('a' + random.Below(5)));
  merged = Part(std::move(merged), Side::kFront, key);
  for (auto each = begin; each <= last; ++each) *each = Part(std::move(*each), Side::kBehind, key);
  last->versions.insert(last->versions.begin(), merged.versions.begin(), merged.versions.end());
  last->deletes.insert(last->deletes.begin(), merged.deletes.begin(), merged.deletes.end());
}

Source RandomSource(Random& random, Sequence* sequence) {
  Source source;
  for (uint64_t changes = random.Below(12); changes > 0; --changes) {
    const std::string key(1, static_cast<char>('a' + random.Below(4)));
    ++*sequence;
    if (random.Below(8) == 0) {
      source.deletes.push_back({key, std::string(1, static_cast<char>('e')), *sequence});
    } else {
      const bool deleted = random.Below(4) == 0;
      source.versions.push_back({key, *sequence, deleted ? EntryKind::kDeleted : EntryKind::kValue,
                                 deleted ? "" : std::to_string(*sequence),
                                 random.Below(6) == 0 ? kNowMs - random.Below(400) : 0});
    }
  }
  std::sort(source.versions.begin(), source.versions.end(), [](const auto& a, const auto& b) {
    return a.key < b.key || (a.key == b.key && a.sequence > b.sequence);
  });
  return source;
}

std::vector<Sequence> RandomSnapshots(Random& random, const std::vector<Sequence>& before,
                                      Sequence newest) {
  std::set<Sequence> open;
  for (const Sequence snapshot : before) {
    if (random.Below(3) != 0) open.insert(snapshot);
  }
  for (uint64_t more = random.Below(3); more > 0; --more) open.insert(newest);
  return {open.begin(), open.end()};
}

// Sources come one after the other and are merged in random order of neighbours, while snapshots come and go.
void RunOnce(uint64_t seed, size_t* dropped) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  std::vector<Source> stack;  // the newest first
  std::vector<Source> truth;  // never merged
  std::vector<Sequence> snapshots;
  std::map<Sequence, uint64_t> taken_ms;
  Sequence sequence = 0;
  uint64_t now_ms = kNowMs - 300, latest_ms = 0;
  for (int step = 0; step < 12; ++step) {
    Source source = RandomSource(random, &sequence);
    truth.insert(truth.begin(), source);
    stack.insert(stack.begin(), source);
    now_ms += random.Below(50);
    if (random.Below(20) == 0) now_ms -= 100;  // the clock was set back
    latest_ms = std::max(latest_ms, now_ms);
    snapshots = RandomSnapshots(random, snapshots, sequence);
    std::erase_if(taken_ms, [&](const auto& each) {
      return std::ranges::find(snapshots, each.first) == snapshots.end();
    });
    std::vector<uint64_t> snapshots_ms;
    for (const Sequence each : snapshots) {
      snapshots_ms.push_back(taken_ms.try_emplace(each, latest_ms).first->second);
    }
    while (random.Below(2) == 0) {
      const MergeRule::Setting setting{snapshots, false, now_ms, {}, snapshots_ms};
      MergeInStack(random, setting, &stack, dropped);
    }
    std::vector<const Source*> merged, original;
    for (const Source& each : stack) merged.push_back(&each);
    for (const Source& each : truth) original.push_back(&each);
    std::vector<Sequence> readers = snapshots;
    readers.push_back(kSequenceMax);
    for (const Sequence reader : readers) {
      const uint64_t reads_ms = reader == kSequenceMax ? latest_ms : taken_ms[reader];
      for (const char* key : {"a", "b", "c", "d"}) {
        ASSERT_EQ(Read(merged, key, reader, reads_ms), Read(original, key, reader, reads_ms))
            << "key " << key << ", snapshot " << reader << ", step " << step;
      }
    }
  }
}

TEST(MergeRuleTest, NoReaderSeesThatSomethingWasMerged) {
  size_t dropped = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    RunOnce(seed, &dropped);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(dropped, 10'000u);
}

TEST(MergeRuleTest, WithoutSnapshotsOneVersionAKeyIsLeftAndNoDeletesAtTheBottom) {
  const Source newer{{{"a", 9, EntryKind::kDeleted, ""}, {"b", 8, EntryKind::kValue, "8"}}, {}};
  const Source older{{{"a", 4, EntryKind::kValue, "4"},
                      {"b", 3, EntryKind::kValue, "3"},
                      {"c", 2, EntryKind::kValue, "2"}},
                     {}};
  const Source merged = Merge({newer, older}, {{}, true, kNowMs});
  ASSERT_EQ(merged.versions.size(), 2u);
  EXPECT_EQ(merged.versions[0].value, "8");
  EXPECT_EQ(merged.versions[0].sequence, 0u);
  EXPECT_EQ(merged.versions[1].value, "2");
}

TEST(MergeRuleTest, ADeleteStaysWhileSomethingLiesBelow) {
  const Source newer{{{"a", 9, EntryKind::kDeleted, ""}}, {}};
  EXPECT_EQ(Merge({newer}, {{}, false, kNowMs}).versions.size(), 1u);
}

TEST(MergeRuleTest, ASnapshotKeepsTheVersionThatItSees) {
  const Source newer{{{"a", 9, EntryKind::kDeleted, ""}, {"a", 7, EntryKind::kValue, "7"}}, {}};
  const Source older{{{"a", 4, EntryKind::kValue, "4"}, {"a", 2, EntryKind::kValue, "2"}}, {}};
  const Source merged = Merge({newer, older}, {{5}, true, kNowMs});
  ASSERT_EQ(merged.versions.size(), 2u);
  EXPECT_EQ(merged.versions[0].kind, EntryKind::kDeleted);
  EXPECT_EQ(merged.versions[0].sequence, 9u);
  EXPECT_EQ(merged.versions[1].value, "4");
  EXPECT_EQ(merged.versions[1].sequence, 0u);
}

}  // namespace
}  // namespace farleaf::index::lsm
