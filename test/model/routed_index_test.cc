// A tree over regions of several nodes, through any of them, while regions are split and moved: it does what a map does, in order, and concurrent
// histories of it are linearizable.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/random.h"
#include "test/support/linearizability.h"
#include "test/support/routed_nodes.h"
#include "test/support/test_scale.h"
#include "test/support/text_client.h"

namespace farleaf::test {
namespace {

using index::CurrentValue;
using index::KeyValue;
using index::ModifyAction;
using index::RangeIndex;
using index::ScanContent;
using index::ScanDirection;
using index::ScanRange;
using Content = std::map<std::string, std::string>;

constexpr uint64_t kKeys = 300;
constexpr size_t kRegionsAtMost = 10;

std::string KeyAt(uint64_t i) {
  std::string key = "k" + std::to_string(1000 + i);
  // Prefixes of one another, and bytes at both ends.
  if (i % 7 == 0) key.append(i % 3, '\0');
  if (i % 11 == 0) key = "\xff" + key;
  return key;
}

/// Operations through one node, from one thread, on keys that nobody else uses; each is compared with what the map says.
class ComparedClient {
 public:
  /// Of all keys, those whose number is `part` modulo `parts`.
  ComparedClient(RoutedNodes* nodes, uint64_t seed, uint64_t part, uint64_t parts)
      : random_(seed), part_(part), parts_(parts), worker_(nodes->OpenWorker()) {
    for (size_t i = 0; i < nodes->size(); ++i) trees_.push_back(&nodes->Tree(i, "t"));
  }

  void Step() {
    tree_ = trees_[random_.Below(trees_.size())];
    const std::string key = DrawKey();
    switch (random_.Below(16)) {
      case 0:
        Expect(
            "get", [&](auto& op) { return tree_->Get(op, key, &value_); }, Has(key));
        EXPECT_TRUE(!Has(key) || value_ == content_[key]);
        return;
      case 1:
      case 2: {
        const bool is_new = !Has(key);
        content_[key] = DrawValue();
        return Expect(
            "put", [&](auto& op) { return tree_->Put(op, key, content_[key]); }, is_new);
      }
      case 3: {
        const std::string value = DrawValue();
        const bool inserts = content_.emplace(key, value).second;
        return Expect(
            "insert", [&](auto& op) { return tree_->Insert(op, key, value); }, inserts);
      }
      case 4: {
        const std::string value = DrawValue();
        const bool there = Has(key);
        if (there) content_[key] = value;
        return Expect(
            "update", [&](auto& op) { return tree_->Update(op, key, value); }, there);
      }
      case 5: {
        const bool there = content_.erase(key) > 0;
        return Expect(
            "delete", [&](auto& op) { return tree_->Delete(op, key); }, there);
      }
      case 6: {
        const bool same = random_.OneIn(2) && Has(key);
        const std::string expected = same ? content_[key] : "another";
        auto outcome = index::DeleteIfResult::kDifferent;
        if (!Has(key)) outcome = index::DeleteIfResult::kAbsent;
        if (same) outcome = index::DeleteIfResult::kDeleted;
        if (same) content_.erase(key);
        return Expect(
            "delete_if", [&](auto& op) { return tree_->DeleteIf(op, key, expected); }, outcome);
      }
      case 7:
        content_[key] = DrawValue();
        return ExpectOk("blind put",
                        [&](auto& op) { return tree_->BlindPut(op, key, content_[key]); });
      case 8:
        return Append(key);
      case 9:
        return WriteOneOrTheOther(key);
      case 10:
        return MultiGet();
      case 11:
        return VisitAtOnce();
      case 12:
        return DeleteSome();
      default:
        return Scan();
    }
  }
  uint64_t visited() const { return visited_; }  ///< at once
  void ScanAll() {
    for (RangeIndex* each : trees_) {
      tree_ = each;
      ScanOf({}, ScanDirection::kForward);
      ScanOf({}, ScanDirection::kReverse);
    }
  }

 private:
  template <typename Call>
  auto Run(Call call) {
    dsm::FabricCounts counts;
    dsm::OpContext op{*worker_, counts};
    return worker_->Run(call(op));
  }
  template <typename Call, typename T>
  void Expect(const char* what, Call call, const T& wanted) {
    const auto result = Run(call);
    ASSERT_TRUE(result.ok()) << what << ": " << result.status();
    EXPECT_EQ(*result, wanted) << what;
  }
  template <typename Call>
  void ExpectOk(const char* what, Call call) {
    const Status done = Run(call);
    ASSERT_TRUE(done.ok()) << what << ": " << done;
  }
  bool Has(const std::string& key) const { return content_.contains(key); }
  std::string DrawKey() { return KeyAt(part_ + parts_ * random_.Below(kKeys / parts_)); }
  bool IsOwn(const std::string& key) const { return own_.contains(key); }
  std::string DrawValue() {
    // Some in the value log, some that make a piece of a scan with a few others.
    const size_t bytes = random_.OneIn(20) ? 100'000 : random_.OneIn(3) ? 200 : 10;
    return std::to_string(++values_) + std::string(bytes, 'v');
  }

  void Append(const std::string& key) {
    const std::string suffix = DrawValue();
    std::optional<std::string> seen;
    const index::ModifyFunction append = [&](std::optional<std::string_view> current,
                                             std::string* replacement) {
      seen = current;
      if (current && current->size() > 150'000) return ModifyAction::kDelete;
      if (suffix.size() % 2 == 0 && !current) return ModifyAction::kKeep;
      *replacement = std::string(current.value_or("")) + suffix;
      return ModifyAction::kWrite;
    };
    std::string wanted;
    const std::optional<std::string> before =
        Has(key) ? std::optional(content_[key]) : std::nullopt;
    const ModifyAction action = append(before, &wanted);
    const auto done = Run([&](auto& op) { return tree_->ReadModifyWrite(op, key, append); });
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(done->existed, before.has_value());
    EXPECT_EQ(done->action, action);
    EXPECT_EQ(seen, before);
    if (action == ModifyAction::kWrite) content_[key] = wanted;
    if (action == ModifyAction::kDelete) content_.erase(key);
  }
  /// What it does hangs on whether the key is there.
  void WriteOneOrTheOther(const std::string& key) {
    const std::string if_absent = DrawValue(), if_present = DrawValue();
    const bool deletes = random_.OneIn(2);
    std::optional<bool> last;
    const index::ModifyFunction modify = [&](std::optional<std::string_view> current,
                                             std::string* replacement) {
      last = current.has_value();
      if (current && deletes) return ModifyAction::kDelete;
      *replacement = current ? if_present : if_absent;
      return ModifyAction::kWrite;
    };
    const bool there = Has(key);
    const auto done =
        Run([&](auto& op) { return tree_->Modify(op, key, modify, CurrentValue::kPresenceOnly); });
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(done->existed, there);
    EXPECT_EQ(last, there);
    if (there && deletes) {
      content_.erase(key);
    } else {
      content_[key] = there ? if_present : if_absent;
    }
  }
  std::vector<std::string> DrawKeys() {
    std::vector<std::string> keys;
    for (uint64_t i = random_.Below(20); i > 0; --i) keys.push_back(DrawKey());
    return keys;
  }
  void MultiGet() {
    const std::vector<std::string> keys = DrawKeys();
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    std::vector<std::optional<std::string>> values;
    ExpectOk("multi_get", [&](auto& op) { return tree_->MultiGet(op, views, &values); });
    ASSERT_EQ(values.size(), keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_TRUE(values[i] == (Has(keys[i]) ? std::optional(content_[keys[i]]) : std::nullopt));
    }
  }
  void VisitAtOnce() {
    struct Visitor final : index::ValueVisitor {
      void Visit(size_t number, std::optional<std::string_view> value) override {
        EXPECT_EQ(number, values.size());
        values.emplace_back(value);
      }
      std::vector<std::optional<std::string>> values;
    } visitor;
    const std::vector<std::string> keys = DrawKeys();
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    dsm::FabricCounts counts;
    dsm::OpContext op{*worker_, counts};
    worker_->GoOnline();
    const size_t visited = tree_->VisitAtOnce(op, views, visitor);
    worker_->GoOffline();
    ASSERT_EQ(visited, visitor.values.size());
    visited_ += visited;
    for (size_t i = 0; i < visited; ++i) {
      EXPECT_TRUE(visitor.values[i] ==
                  (Has(keys[i]) ? std::optional(content_[keys[i]]) : std::nullopt));
    }
  }
  /// Only of one who is alone.
  void DeleteSome() {
    if (parts_ > 1) return;
    std::string start = DrawKey(), end = DrawKey();
    if (end < start) std::swap(start, end);
    content_.erase(content_.lower_bound(start), content_.lower_bound(end));
    ExpectOk("delete_range", [&](auto& op) { return tree_->DeleteRange(op, start, end); });
  }
  void Scan() {
    const std::string start = random_.OneIn(4) ? "" : DrawKey(), end = DrawKey();
    ScanRange range{.start = start};
    if (!random_.OneIn(4)) range.end = end;
    if (parts_ == 1) {  // others' rows count, too
      if (random_.OneIn(3)) range.limit = random_.Below(40);
      if (random_.OneIn(3)) {
        range.bytes_max = random_.Below(500'000);
      } else if (random_.OneIn(4)) {
        range.content = ScanContent::kKeys;
      }
    }
    ScanOf(range, random_.OneIn(2) ? ScanDirection::kForward : ScanDirection::kReverse);
  }
  void ScanOf(ScanRange range, ScanDirection direction) {
    range.direction = direction;
    std::vector<KeyValue> rows, wanted;
    ExpectOk("scan", [&](auto& op) { return tree_->Scan(op, range, &rows); });
    for (size_t i = 1; i < rows.size(); ++i) {
      const bool forward = direction == ScanDirection::kForward;
      EXPECT_TRUE(forward ? rows[i - 1].key < rows[i].key : rows[i].key < rows[i - 1].key);
    }
    if (parts_ > 1) std::erase_if(rows, [&](const KeyValue& row) { return !IsOwn(row.key); });
    const auto first = content_.lower_bound(std::string(range.start));
    for (auto at = first; at != content_.end() && (!range.end || at->first < *range.end); ++at) {
      wanted.push_back({at->first, at->second});
    }
    if (direction == ScanDirection::kReverse) std::reverse(wanted.begin(), wanted.end());
    CutTo(range, &wanted);
    ASSERT_EQ(rows.size(), wanted.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(rows[i].key, wanted[i].key);
      const bool whole = range.content == ScanContent::kRows;
      ASSERT_TRUE(!whole || rows[i].value == wanted[i].value);
    }
  }
  static void CutTo(const ScanRange& range, std::vector<KeyValue>* rows) {
    uint64_t bytes = 0;
    size_t kept = 0;
    for (; kept < rows->size() && kept < range.limit && bytes < range.bytes_max; ++kept) {
      bytes += (*rows)[kept].key.size() + (*rows)[kept].value.size();
    }
    rows->resize(kept);
  }

  Random random_;
  const uint64_t part_, parts_;
  std::unique_ptr<dsm::Worker> worker_;
  std::vector<RangeIndex*> trees_;
  RangeIndex* tree_ = nullptr;
  Content content_;
  std::set<std::string> own_ = [this] {
    std::set<std::string> own;
    for (uint64_t i = 0; i < kKeys / parts_; ++i) own.insert(KeyAt(part_ + parts_ * i));
    return own;
  }();
  std::string value_;
  uint64_t values_ = 0, visited_ = 0;
};

/// Divides, or moves, some region.
void ChangeOne(RoutedNodes& nodes, Random& random) {
  const std::string key = KeyAt(random.Below(kKeys));
  if (nodes.regions() < kRegionsAtMost && random.OneIn(4) && nodes.Split(key)) return;
  nodes.Move(key, random.Below(nodes.size()));
}

TEST(RoutedIndexTest, EachOperationThroughEachNodeIsThatOfAMap) {
  const uint64_t seeds = Amount{.small = 1, .usual = 4, .large = 40};
  for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RoutedNodes nodes({});
    nodes.Found(0);
    Random random(seed);
    ComparedClient client(&nodes, seed, 0, 1);
    for (int i = 0; i < 1'500 && !::testing::Test::HasFailure(); ++i) {
      if (random.OneIn(30)) ChangeOne(nodes, random);
      client.Step();
    }
    client.ScanAll();
    EXPECT_GT(client.visited(), 0u);
  }
}

/// Regions change, again and again, while others work.
class Changes {
 public:
  Changes(RoutedNodes* nodes, uint64_t seed)
      : thread_([nodes, seed, this] {
          Random random(seed);
          while (!stop_) {
            ChangeOne(*nodes, random);
            ++made_;
            std::this_thread::sleep_for(std::chrono::microseconds(random.Below(2'000)));
          }
        }) {}
  ~Changes() {
    stop_ = true;
    thread_.join();
  }
  uint64_t made() const { return made_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> made_{0};
  std::thread thread_;
};

TEST(RoutedIndexTest, ResultsAreThoseOfMapsWhileRegionsMove) {
  constexpr uint64_t kClients = 3;
  RoutedNodes nodes({});
  nodes.Found(0);
  std::vector<std::unique_ptr<ComparedClient>> clients;
  for (uint64_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<ComparedClient>(&nodes, 100 + i, i, kClients));
  }
  {
    Changes changes(&nodes, 7);
    std::vector<std::jthread> threads;
    for (auto& client : clients) {
      threads.emplace_back([&client, &changes] {
        const uint64_t steps = Amount{.small = 100, .usual = 1'500, .large = 20'000};
        const auto is_over = [&](uint64_t done) {
          return (done >= steps && changes.made() > 20) || ::testing::Test::HasFailure();
        };
        for (uint64_t i = 0; !is_over(i); ++i) client->Step();
      });
    }
  }
  for (auto& client : clients) client->ScanAll();
}

dsm::Task<void> RunRecorded(RecordingClient* client, dsm::Worker* worker, uint64_t seed,
                            uint64_t keys, std::string name) {
  Random random(seed);
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker, counts};
  for (int i = 0; i < 120; ++i) {
    const std::string key = KeyAt(random.Below(keys)), value = name + std::to_string(i);
    Status done;
    switch (random.Below(9)) {
      case 0:
        done = co_await client->Put(op, key, value);
        break;
      case 1:
        done = co_await client->Insert(op, key, value);
        break;
      case 2:
        done = co_await client->Update(op, key, value);
        break;
      case 3:
        done = co_await client->Delete(op, key);
        break;
      case 4:
        done = co_await client->Modify(op, key, "+" + value, RecordingClient::Change::kAppend);
        break;
      case 5:
        done =
            co_await client->Modify(op, key, "+" + value, RecordingClient::Change::kAppendOrDelete);
        break;
      case 6: {
        ScanRecord scan;
        scan.direction = random.OneIn(2) ? ScanDirection::kForward : ScanDirection::kReverse;
        done = co_await client->Scan(op, scan);
        break;
      }
      default:
        done = co_await client->Get(op, key);
    }
    EXPECT_TRUE(done.ok()) << done;
  }
}

TEST(RoutedIndexTest, HistoriesAreLinearizableWhileRegionsMove) {
  const uint64_t seeds = Amount{.small = 1, .usual = 8, .large = 60};
  for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RoutedNodes nodes({});
    nodes.Found(0);
    const uint64_t keys = seed % 2 == 0 ? 3 : 30;
    HistoryClock clock;
    std::vector<std::unique_ptr<RecordingClient>> clients;
    {
      Changes changes(&nodes, seed);
      std::vector<std::jthread> threads;
      for (size_t thread = 0; thread < nodes.size(); ++thread) {
        std::vector<RecordingClient*> own;
        for (int i = 0; i < 2; ++i) {
          clients.push_back(std::make_unique<RecordingClient>(&nodes.Tree(thread, "t"), &clock));
          own.push_back(clients.back().get());
        }
        threads.emplace_back([&nodes, own, thread, seed, keys] {
          const auto worker = nodes.OpenWorker();
          for (size_t i = 0; i < own.size(); ++i) {
            const std::string name = std::to_string(thread) + (i == 0 ? "a" : "b");
            worker->Spawn(
                RunRecorded(own[i], worker.get(), seed * 100 + thread * 10 + i, keys, name));
          }
          worker->RunUntilIdle();
        });
      }
    }
    History history;
    for (auto& client : clients) history.Add(std::move(client->history()));
    const Verdict order = CheckLinearizable(history), scans = CheckScans(history);
    EXPECT_TRUE(order.ok) << order.why;
    EXPECT_TRUE(scans.ok) << scans.why;
  }
}

TEST(RoutedIndexTest, TextProtocolsReachKeysOfOtherNodes) {
  RoutedNodes::Options options;
  options.server.memcached.listen = options.server.redis.listen = {"127.0.0.1:0"};
  RoutedNodes nodes(options);
  nodes.Found(0);
  nodes.Split("m");
  nodes.Move("a", 1);
  TextClient memcached(nodes.server(2).memcached_urls().front());
  EXPECT_EQ(memcached.Ask("set a 5 0 1\r\n1\r\n"), "STORED\r\n");
  EXPECT_EQ(memcached.Ask("set z 0 0 2\r\n22\r\n"), "STORED\r\n");
  EXPECT_EQ(memcached.Ask("add a 0 0 1\r\n2\r\n"), "NOT_STORED\r\n");
  EXPECT_EQ(memcached.Ask("incr z 5\r\n"), "27\r\n");
  EXPECT_EQ(memcached.Ask("append a 0 0 1\r\n9\r\n"), "STORED\r\n");
  for (size_t i = 0; i < nodes.size(); ++i) {
    TextClient other(nodes.server(i).memcached_urls().front());
    EXPECT_EQ(other.Ask("get a z b\r\n"), "VALUE a 5 2\r\n19\r\nVALUE z 0 2\r\n27\r\nEND\r\n");
  }
  TextClient redis(nodes.server(2).redis_urls().front());
  EXPECT_EQ(redis.AskRedis("HSET h f 1 g 2\r\n"), ":2\r\n");
  EXPECT_EQ(redis.AskRedis("INCRBY n 4\r\n"), ":4\r\n");
  TextClient other(nodes.server(0).redis_urls().front());
  EXPECT_EQ(other.AskRedis("HGET h g\r\n"), "$1\r\n2\r\n");
  EXPECT_EQ(other.AskRedis("DBSIZE\r\n"), ":4\r\n");
  EXPECT_EQ(other.AskRedis("FLUSHALL\r\n"), "+OK\r\n");
  EXPECT_EQ(redis.AskRedis("EXISTS h n\r\n"), ":0\r\n");
  EXPECT_EQ(memcached.Ask("delete a\r\n"), "NOT_FOUND\r\n");
}

}  // namespace
}  // namespace farleaf::test
