#include "index/lsm/memtable.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/random.h"
#include "index/lsm/commit_order.h"

namespace farleaf::index::lsm {
namespace {

struct MemtableTest : ::testing::Test {
  Memtable memtable;

  void Put(const std::string& key, Sequence sequence, const std::string& value) {
    memtable.Insert({.key = key, .sequence = sequence, .kind = EntryKind::kValue, .value = value});
  }
  static std::string Text(const Entry& entry) {
    const std::string at = std::string(entry.key) + "@" + std::to_string(entry.sequence);
    if (entry.kind == EntryKind::kDeleted) return at + " deleted";
    if (entry.kind == EntryKind::kPointer) {
      return at + " -> " + std::to_string(storage::Number(entry.pointer.segment));
    }
    return at + "=" + std::string(entry.value);
  }
  std::string Get(const std::string& key, Sequence max = kSequenceMax) {
    const auto found = memtable.Find(key, max);
    return found ? Text(*found) : "none";
  }
  std::string Scan() {
    std::string text;
    Memtable::Cursor cursor(&memtable);
    for (cursor.SeekFirst(); cursor.valid(); cursor.Next()) text += Text(cursor.entry()) + " ";
    return text;
  }
};

TEST_F(MemtableTest, EmptyHoldsNothing) {
  EXPECT_EQ(Get("a"), "none");
  EXPECT_EQ(Scan(), "");
  EXPECT_TRUE(memtable.empty());
  Memtable::Cursor cursor(&memtable);
  cursor.SeekLast();
  EXPECT_FALSE(cursor.valid());
}

TEST_F(MemtableTest, FindsTheNewestThatIsNotTooNew) {
  Put("a", 3, "x");
  Put("a", 7, "y");
  Put("b", 5, "z");
  EXPECT_EQ(Get("a"), "a@7=y");
  EXPECT_EQ(Get("a", 7), "a@7=y");
  EXPECT_EQ(Get("a", 6), "a@3=x");
  EXPECT_EQ(Get("a", 2), "none");
  EXPECT_EQ(Get("aa"), "none");
  EXPECT_EQ(memtable.NewestSequence("b"), 5u);
  EXPECT_EQ(memtable.NewestSequence("c"), 0u);
  EXPECT_EQ(Scan(), "a@7=y a@3=x b@5=z ");
}

TEST_F(MemtableTest, KeepsAllThatAnEntryHas) {
  const ValuePointer pointer{static_cast<SegmentId>(9), 100, 50, 20};
  memtable.Insert({.key = "p",
                   .sequence = 1,
                   .kind = EntryKind::kPointer,
                   .pointer = pointer,
                   .expires_ms = 77});
  memtable.Insert(
      {.key = "", .sequence = 2, .kind = EntryKind::kValue, .value = "", .expires_ms = 78});
  memtable.Insert({.key = "d", .sequence = 3, .kind = EntryKind::kDeleted});
  const auto found = memtable.Find("p", kSequenceMax);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->pointer, pointer);
  EXPECT_EQ(found->expires_ms, 77u);
  EXPECT_EQ(memtable.Find("", kSequenceMax)->expires_ms, 78u);
  EXPECT_EQ(Get("d"), "d@3 deleted");
}

TEST_F(MemtableTest, ARangeDeletesWhatIsOlder) {
  Put("b", 1, "x");
  Put("c", 5, "y");
  memtable.InsertRange("a", "c", 3);
  EXPECT_EQ(Get("b"), "b@3 deleted");
  EXPECT_EQ(Get("b", 2), "b@1=x");
  EXPECT_EQ(Get("aa"), "aa@3 deleted") << "it may be in a table";
  EXPECT_EQ(Get("c"), "c@5=y") << "the end is not in it";
  Put("b", 4, "z");
  EXPECT_EQ(Get("b"), "b@4=z");
  EXPECT_EQ(memtable.NewestSequence("bb"), 3u);
}

TEST_F(MemtableTest, AnyNumberOfRangesDeletesWhatAListOfThemWould) {
  Random random(7);
  std::vector<RangeDelete> all;
  const auto key = [](uint64_t number) { return std::to_string(100 + number); };
  for (Sequence sequence = 1; sequence <= 3000; ++sequence) {
    const uint64_t start = random.Below(800), bytes = 1 + random.Below(99);
    all.push_back({key(start), key(start + bytes), sequence});
    memtable.InsertRange(all.back().start, all.back().end, sequence);
    if (sequence % 37 != 0) continue;
    for (int look = 0; look < 20; ++look) {
      const std::string sought = key(random.Below(900));
      const Sequence max = random.Below(4) == 0 ? random.Below(sequence + 1) : kSequenceMax;
      Sequence expected = 0;
      for (const RangeDelete& each : all) {
        if (each.Covers(sought) && each.sequence <= max) expected = each.sequence;
      }
      ASSERT_EQ(memtable.CoveredAt(sought, max), expected) << sought << " at " << max;
    }
  }
  EXPECT_EQ(memtable.Ranges().size(), all.size());
  EXPECT_LT(memtable.Fullness(uint64_t{1} << 40), 1);
  for (uint32_t i = 0; i < Memtable::kRangesFull; ++i) memtable.InsertRange("x", "y", 4000);
  EXPECT_GE(memtable.Fullness(uint64_t{1} << 40), 1);
}

TEST_F(MemtableTest, CountsItsMemory) {
  const uint64_t before = memtable.bytes();
  for (Sequence i = 1; i <= 1000; ++i) Put(std::to_string(i), i, std::string(1000, 'v'));
  EXPECT_GE(memtable.bytes() - before, 1000u * 1000);
  EXPECT_LE(memtable.bytes() - before, 1000u * 1100 + 2 * Arena::kChunkBytes);
  EXPECT_EQ(memtable.entries(), 1000u);
}

/// Keys that share much, are prefixes of one another, or hold zeros.
std::string AwkwardKey(Random& random) {
  static const char* const kBegin[] = {"", "user", "user00000000",
                                       "\xff\xff\xff\xff\xff\xff\xff\xff\xff"};
  std::string key = kBegin[random.Below(4)];
  for (uint64_t n = random.Below(12); n > 0; --n) {
    key.push_back(random.OneIn(3) ? '\0' : static_cast<char>('0' + random.Below(3)));
  }
  return key;
}

TEST_F(MemtableTest, AgreesWithAMapOfVersions) {
  const uint64_t seed = ::testing::UnitTest::GetInstance()->random_seed() + 1;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  // (key, descending sequence) -> value
  std::map<std::pair<std::string, Sequence>, std::string> model;
  for (Sequence i = 1; i <= 20'000; ++i) {
    const std::string key = random.OneIn(10) ? "hot" : AwkwardKey(random);
    const std::string value = std::to_string(i);
    Put(key, i, value);
    model[{key, kSequenceMax - i}] = value;
    if (i % 4 != 0) continue;
    const std::string wanted = AwkwardKey(random);
    const Sequence max = random.OneIn(2) ? kSequenceMax : random.Below(i + 1);
    const auto found = memtable.Find(wanted, max);
    const auto expected = model.lower_bound({wanted, kSequenceMax - max});
    const bool there = expected != model.end() && expected->first.first == wanted;
    ASSERT_EQ(found.has_value(), there) << wanted;
    if (there) {
      ASSERT_EQ(found->value, expected->second);
    }
    if (i % 1000 != 0) continue;
    Memtable::Cursor cursor(&memtable);
    cursor.SeekFirst();
    for (const auto& [at, text] : model) {
      ASSERT_TRUE(cursor.valid());
      ASSERT_EQ(cursor.entry().key, at.first);
      ASSERT_EQ(cursor.entry().value, text);
      cursor.Next();
    }
    ASSERT_FALSE(cursor.valid());
    cursor.SeekLast();
    for (auto at = model.rbegin(); at != model.rend(); ++at) {
      ASSERT_TRUE(cursor.valid());
      ASSERT_EQ(cursor.entry().value, at->second);
      cursor.Previous();
    }
    ASSERT_FALSE(cursor.valid());
  }
}

TEST_F(MemtableTest, ACursorTurnsAroundAnywhere) {
  for (Sequence i = 1; i <= 1000; ++i) Put(std::to_string(1000 + i), i, "v");
  Memtable::Cursor cursor(&memtable);
  Random random(1);
  int at = 500;
  cursor.Seek("1500", kSequenceMax);
  for (int step = 0; step < 20'000; ++step) {
    ASSERT_TRUE(cursor.valid());
    ASSERT_EQ(cursor.entry().key, std::to_string(1000 + at));
    const bool forward = at == 1 || (at < 1000 && random.Below(100) < 50);
    forward ? cursor.Next() : cursor.Previous();
    at += forward ? 1 : -1;
  }
}

TEST_F(MemtableTest, ThreadsInsertWhileOthersRead) {
  constexpr uint64_t kEach = 20'000, kWriters = 2;
  std::atomic<uint64_t> done{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kWriters; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEach; ++i) {
        const Sequence sequence = i * kWriters + t + 1;
        const std::string key = "user" + std::to_string(Mix64(sequence % 5000));
        Put(key, sequence, key);
        ASSERT_EQ(memtable.Find(key, sequence)->sequence, sequence) << "one's own write is there";
      }
      done.fetch_add(1);
    });
  }
  threads.emplace_back([&] {
    while (done.load() < kWriters) {
      Memtable::Cursor cursor(&memtable);
      std::string last;
      Sequence last_sequence = 0;
      for (cursor.SeekFirst(); cursor.valid(); cursor.Next()) {
        const Entry entry = cursor.entry();
        ASSERT_EQ(entry.key, entry.value);
        ASSERT_TRUE(last < entry.key || (last == entry.key && entry.sequence < last_sequence));
        last = entry.key;
        last_sequence = entry.sequence;
      }
    }
  });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(memtable.entries(), kEach * kWriters);
  uint64_t seen = 0;
  Memtable::Cursor cursor(&memtable);
  for (cursor.SeekLast(); cursor.valid(); cursor.Previous()) ++seen;
  EXPECT_EQ(seen, kEach * kWriters);
}

TEST_F(MemtableTest, ASnapshotHoldsEveryCommitUpToItsSequence) {
  constexpr uint64_t kEach = 5'000, kWriters = 3;
  CommitOrder order;
  SpinLock lock;
  Sequence next = 1;  // guarded by lock
  std::atomic<uint64_t> done{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kWriters; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEach; ++i) {
        CommitOrder::Slot slot(&order, t);
        lock.lock();
        const Sequence mine = next++;
        slot.Announce(mine);
        lock.unlock();
        Put(std::to_string(mine), mine, "v");
      }
      done.fetch_add(1);
    });
  }
  while (done.load() < kWriters) {
    lock.lock();
    const Sequence last = next - 1;
    lock.unlock();
    order.AwaitUpTo(last);
    for (Sequence i = last > 50 ? last - 50 : 1; i <= last; ++i) {
      ASSERT_TRUE(memtable.Find(std::to_string(i), last)) << i << " of " << last;
    }
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace farleaf::index::lsm
