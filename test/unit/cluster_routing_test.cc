// The trees of a cluster at each of its nodes, and what an operation costs, waits for and ends with when its keys are at another node, on their way, or
// nowhere.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "test/support/noted_changes.h"
#include "test/support/routed_nodes.h"
#include "test/support/scripted_native_server.h"

namespace farleaf::test {
namespace {

using index::CurrentValue;
using index::KeyValue;
using index::ModifyAction;
using index::RangeIndex;
using index::ScanRange;
using server::HostedTree;
using server::NewTree;
using server::cluster::ClusterTreeHost;
using server::protocol::Opcode;
using server::protocol::Request;
using server::protocol::Response;
using server::protocol::ServedRange;
using server::protocol::TreeInfo;
using server::protocol::TreeLayout;

struct ClusterRoutingTest : ::testing::Test {
  std::unique_ptr<RoutedNodes> nodes;
  std::unique_ptr<dsm::Worker> worker;
  dsm::FabricCounts counts;  ///< of the last call
  uint64_t read_attempt_ms = server::cluster::PeerOptions().read_attempt_ms;

  void Start(uint64_t wait_ms = 60'000) {
    RoutedNodes::Options options;
    options.host.routing.wait_ms = wait_ms;
    options.host.peers.read_attempt_ms = read_attempt_ms;
    options.host.peers.session.deadline_ms = 60'000;
    nodes = std::make_unique<RoutedNodes>(options);
    worker = nodes->OpenWorker();
  }
  void TearDown() override {
    worker.reset();
    nodes.reset();
  }
  /// Keys up to "m" are at node 0, the rest is at node 1.
  void StartDivided(uint64_t wait_ms = 60'000) {
    Start(wait_ms);
    nodes->Found(0);
    ASSERT_TRUE(nodes->Split("m"));
    nodes->Move("m", 1);
  }

  template <typename Call>
  auto Run(Call call, uint64_t deadline_ms = 0) {
    counts = {};
    dsm::OpContext op{*worker, counts};
    if (deadline_ms > 0) op.deadline_ns = nodes->clock().NowNs() + deadline_ms * kNsPerMs;
    return worker->Run(call(op));
  }
  Result<HostedTree> Create(size_t node, const std::string& name,
                            TreeLayout layout = TreeLayout::kBytes, uint32_t key_bytes_max = 0) {
    NewTree tree{.name = name, .layout = layout};
    tree.geometry.key_bytes_max = key_bytes_max;
    return Run([&](auto& op) { return nodes->host(node).Create(op, tree); });
  }
  Result<HostedTree> OpenAt(size_t node, const std::string& name) {
    return Run([&](auto& op) { return nodes->host(node).Open(op, name); });
  }
  std::vector<std::string> NamesAt(size_t node) {
    const auto list = Run([&](auto& op) { return nodes->host(node).List(op); });
    EXPECT_TRUE(list.ok()) << list.status();
    std::vector<std::string> names;
    for (const TreeInfo& info : *list) names.push_back(info.name);
    return names;
  }
  Status Put(RangeIndex& tree, std::string_view key, std::string_view value) {
    return Run([&](auto& op) { return tree.Put(op, key, value); }).status();
  }
  std::optional<std::string> Get(RangeIndex& tree, std::string_view key) {
    std::string value;
    const auto found = Run([&](auto& op) { return tree.Get(op, key, &value); });
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() && *found ? std::optional(value) : std::nullopt;
  }
  /// Of that kind, at the node's server: it counts them a moment after it has answered.
  void ExpectRequests(size_t node, Opcode opcode, uint64_t wanted) {
    while (nodes->server(node).Stats().count(opcode) < wanted) std::this_thread::yield();
    EXPECT_EQ(nodes->server(node).Stats().count(opcode), wanted) << OpcodeName(opcode);
  }
  /// Requests that the node has sent to others.
  uint64_t Forwarded(size_t node) {
    constexpr std::string_view kLine = "\nforwarded ";
    std::string text = "\n";
    nodes->host(node).AppendStats(&text);
    return std::stoull(text.substr(text.find(kLine) + kLine.size()));
  }
};

// ---- Trees

TEST_F(ClusterRoutingTest, TreesAreTheSameAtAllNodes) {
  Start();
  EXPECT_TRUE(NamesAt(1).empty());
  EXPECT_EQ(OpenAt(1, "b").status().ToString(), "not found: tree \"b\" does not exist");
  const std::string odd("\0/\xff b", 5), longest(ClusterTreeHost::kNameBytesMax, 'n');
  std::vector<TreeInfo> made;
  for (const std::string& name : {std::string("b"), odd, longest}) {
    const auto tree = Create(made.size(), name);
    ASSERT_TRUE(tree.ok()) << tree.status();
    made.push_back(tree->info);
    EXPECT_EQ(tree->info.name, name);
    EXPECT_EQ(tree->info.id, made.size());
    for (size_t node = 0; node < nodes->size(); ++node) {
      const auto opened = OpenAt(node, name);
      ASSERT_TRUE(opened.ok()) << opened.status();
      EXPECT_EQ(opened->info, tree->info);
      EXPECT_EQ(OpenAt(node, name)->index, opened->index);
      EXPECT_EQ(nodes->host(node).Find(tree->info.id).index, opened->index);
      EXPECT_EQ(Create(node, name).status().code(), StatusCode::kAlreadyExists);
    }
  }
  for (size_t node = 0; node < nodes->size(); ++node) {
    EXPECT_EQ(NamesAt(node), (std::vector<std::string>{odd, "b", longest}));
  }
  EXPECT_EQ(nodes->host(0).Find(99).index, nullptr);
  // The names that were taken have cost no number.
  EXPECT_EQ(Create(0, "another")->info.id, made.size() + 1);
}

TEST_F(ClusterRoutingTest, TreesThatCannotBeAreRefused) {
  Start();
  const std::string too_long(ClusterTreeHost::kNameBytesMax + 1, 'n');
  EXPECT_EQ(Create(0, too_long).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Create(0, "").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenAt(0, too_long).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Create(0, "t", TreeLayout::kBytes, 4095).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Create(0, "t", TreeLayout::kFixed8, 9).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Create(0, "t")->info.id, 1u) << "what was refused has cost a number";
}

TEST_F(ClusterRoutingTest, OfNodesThatCreateATreeAtOnceOneDoes) {
  Start();
  constexpr int kNames = 20;
  std::atomic<int> made{0}, refused{0};
  {
    std::vector<std::jthread> threads;
    for (size_t node = 0; node < nodes->size(); ++node) {
      threads.emplace_back([&, node] {
        const auto own = nodes->OpenWorker();
        dsm::FabricCounts own_counts;
        dsm::OpContext op{*own, own_counts};
        for (int i = 0; i < kNames; ++i) {
          const NewTree tree{.name = "tree " + std::to_string(i)};
          const auto created = own->Run(nodes->host(node).Create(op, tree));
          made += created.ok();
          refused += created.status().code() == StatusCode::kAlreadyExists;
        }
      });
    }
  }
  EXPECT_EQ(made, kNames);
  EXPECT_EQ(made + refused, kNames * static_cast<int>(nodes->size()));
  std::set<uint32_t> ids;
  for (int i = 0; i < kNames; ++i) {
    const std::string name = "tree " + std::to_string(i);
    ids.insert(OpenAt(0, name)->info.id);
    EXPECT_EQ(OpenAt(0, name)->info, OpenAt(1, name)->info);
  }
  EXPECT_EQ(ids.size(), static_cast<size_t>(kNames));
}

TEST_F(ClusterRoutingTest, KeysAndValuesThatDoNotFitAreRefusedEverywhere) {
  StartDivided();
  ASSERT_TRUE(Create(0, "numbers", TreeLayout::kFixed8).ok());
  for (size_t node = 0; node < nodes->size(); ++node) {
    RangeIndex& numbers = *OpenAt(node, "numbers")->index;
    EXPECT_TRUE(Put(numbers, "12345678", "12345678").ok());
    EXPECT_TRUE(Put(numbers, "z2345678", "12345678").ok());
    EXPECT_EQ(Put(numbers, "1234567", "12345678").code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(Put(numbers, "z234567", "12345678").code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(Put(numbers, "z2345678", "1234567").code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(Put(numbers, "", "12345678").code(), StatusCode::kInvalidArgument);
    RangeIndex& bytes = nodes->Tree(node, "bytes");
    const std::string too_large((1 << 20) + 1, 'v');
    EXPECT_EQ(Put(bytes, "z", too_large).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(Put(bytes, std::string(1025, 'z'), "v").code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(ClusterRoutingTest, MapThatClientsAreToldHasARangeForEachRunOfRegionsOfOneNode) {
  Start();
  uint32_t view = 0;
  std::vector<ServedRange> ranges;
  nodes->host(2).GetRangeMap(&view, &ranges);
  EXPECT_EQ(view, 1u);
  EXPECT_EQ(ranges, (std::vector<ServedRange>{{}}));
  EXPECT_EQ(nodes->host(2).view(), 1u);
  nodes->Found(0);
  for (const char* key : {"c", "f", "m", "t"}) ASSERT_TRUE(nodes->Split(key));
  nodes->Move("m", 1);
  nodes->Depose("t");
  const auto url = [&](size_t node) { return nodes->server(node).urls().front(); };
  for (size_t node = 0; node < nodes->size(); ++node) {
    nodes->host(node).GetRangeMap(&view, &ranges);
    EXPECT_EQ(view, nodes->view());
    EXPECT_EQ(nodes->host(node).view(), nodes->view());
    EXPECT_EQ(ranges, (std::vector<ServedRange>{{"", url(0)}, {"m", url(1)}, {"t", ""}}));
  }
}

// ---- What operations cost

TEST_F(ClusterRoutingTest, OperationHereAsksNobodyAndOneElsewhereIsOneRequest) {
  StartDivided();
  RangeIndex& tree = nodes->Tree(0, "t");
  ASSERT_TRUE(Put(tree, "z", "1").ok());  // opens the tree there
  const auto none = [&](const Status& done) {
    EXPECT_TRUE(done.ok()) << done;
    EXPECT_EQ(counts.round_trips, 0u);
  };
  const auto one = [&](const Status& done) {
    EXPECT_TRUE(done.ok()) << done;
    EXPECT_EQ(counts.round_trips, 1u);
  };
  none(Put(tree, "a", "1"));
  EXPECT_EQ(Get(tree, "a"), "1");
  EXPECT_EQ(counts.round_trips, 0u);
  EXPECT_EQ(Get(tree, "z"), "1");
  EXPECT_EQ(counts.round_trips, 1u);
  one(Put(tree, "z", "2"));
  one(Run([&](auto& op) { return tree.BlindPut(op, "z", "3"); }));
  one(Run([&](auto& op) { return tree.Insert(op, "z", "4"); }).status());
  one(Run([&](auto& op) { return tree.Update(op, "z", "5"); }).status());
  one(Run([&](auto& op) { return tree.Delete(op, "z"); }).status());
  const std::vector<std::string_view> keys = {"p", "q", "r", "s"};
  std::vector<std::optional<std::string>> values;
  one(Run([&](auto& op) { return tree.MultiGet(op, keys, &values); }));
  std::vector<KeyValue> rows;
  const ScanRange all;
  one(Run([&](auto& op) { return tree.Scan(op, all, &rows); }));
  EXPECT_EQ(rows, (std::vector<KeyValue>{{"a", "1"}}));
  ExpectRequests(1, Opcode::kGet, 1);
  ExpectRequests(1, Opcode::kPut, 3);
  ExpectRequests(1, Opcode::kInsert, 1);
  ExpectRequests(1, Opcode::kUpdate, 1);
  ExpectRequests(1, Opcode::kDelete, 1);
  ExpectRequests(1, Opcode::kMultiGet, 1);
  ExpectRequests(1, Opcode::kScan, 1);
  ExpectRequests(1, Opcode::kOpenTree, 1);
  ExpectRequests(2, Opcode::kGet, 0);
}

TEST_F(ClusterRoutingTest, ModifyByValueElsewhereIsAReadAndAnExchange) {
  StartDivided();
  RangeIndex& tree = nodes->Tree(0, "t");
  const auto modify = [&](std::string_view key, ModifyAction action) {
    const index::ModifyFunction decide = [&, action](std::optional<std::string_view> current,
                                                     std::string* replacement) {
      *replacement = std::string(current.value_or("")) + "+";
      return action;
    };
    return Run([&](auto& op) { return tree.ReadModifyWrite(op, key, decide); });
  };
  ASSERT_TRUE(modify("z", ModifyAction::kWrite).ok());  // absent: it is inserted
  EXPECT_EQ(counts.round_trips, 2u);
  ASSERT_TRUE(modify("z", ModifyAction::kWrite).ok());
  EXPECT_EQ(counts.round_trips, 2u);
  EXPECT_EQ(Get(tree, "z"), "++");
  const auto kept = modify("z", ModifyAction::kKeep);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(counts.round_trips, 1u);
  EXPECT_TRUE(kept->existed);
  ASSERT_TRUE(modify("z", ModifyAction::kDelete).ok());
  EXPECT_EQ(counts.round_trips, 2u);
  EXPECT_EQ(Get(tree, "z"), std::nullopt);
  const auto nothing = modify("z", ModifyAction::kDelete);
  ASSERT_TRUE(nothing.ok());
  EXPECT_FALSE(nothing->existed);
  EXPECT_EQ(counts.round_trips, 1u);
}

TEST_F(ClusterRoutingTest, ModifyByValueElsewhereIsDecidedAnewWhereSomebodyWasFaster) {
  StartDivided();
  RangeIndex& tree = nodes->Tree(0, "t");
  RangeIndex& there = nodes->Tree(1, "t");
  ASSERT_TRUE(Put(tree, "z", "1").ok());
  const auto others = nodes->OpenWorker();
  dsm::FabricCounts others_counts;
  dsm::OpContext others_op{*others, others_counts};
  std::vector<std::optional<std::string>> seen;
  const index::ModifyFunction append = [&](std::optional<std::string_view> current,
                                           std::string* replacement) {
    seen.emplace_back(current);
    if (seen.size() == 2) {
      EXPECT_TRUE(others->Run(there.Delete(others_op, "z")).ok());
    } else if (seen.size() < 4) {
      EXPECT_TRUE(others->Run(there.Put(others_op, "z", std::to_string(seen.size() + 1))).ok());
    }
    *replacement = std::string(current.value_or("")) + "+";
    return ModifyAction::kWrite;
  };
  ASSERT_TRUE(Run([&](auto& op) { return tree.ReadModifyWrite(op, "z", append); }).ok());
  EXPECT_EQ(seen, (std::vector<std::optional<std::string>>{"1", "2", std::nullopt, "4"}));
  EXPECT_EQ(Get(tree, "z"), "4+");
}

// ---- What they wait for

/// An operation beside the test's thread.
class Waiting {
 public:
  template <typename Call>
  Waiting(RoutedNodes* nodes, Call call)
      : thread_([this, nodes, call] {
          const auto worker = nodes->OpenWorker();
          dsm::FabricCounts counts;
          dsm::OpContext op{*worker, counts};
          status_ = worker->Run(call(op));
          ended_ = true;
        }) {}
  bool ended() const { return ended_; }
  Status Await() {
    thread_.join();
    return status_;
  }

 private:
  Status status_;
  std::atomic<bool> ended_{false};
  std::jthread thread_;
};

TEST_F(ClusterRoutingTest, OperationWaitsForTheMapForTheStoreAndForAPrimary) {
  Start();
  RangeIndex& tree = nodes->Tree(0, "t");
  const auto put = [&tree](dsm::OpContext& op) { return tree.BlindPut(op, "k", "v"); };
  Waiting for_map(nodes.get(), put);
  nodes->Found(0);
  EXPECT_TRUE(for_map.Await().ok());
  nodes->CloseGate("k");
  Waiting for_store(nodes.get(), put);
  EXPECT_FALSE(for_store.ended());
  nodes->OpenGate("k");
  EXPECT_TRUE(for_store.Await().ok());
  nodes->Depose("k");
  Waiting for_primary(nodes.get(), put);
  nodes->Move("k", 2);
  EXPECT_TRUE(for_primary.Await().ok());
  EXPECT_EQ(Get(tree, "k"), "v");
}

TEST_F(ClusterRoutingTest, OperationForwardedToWhoHandsOverFollowsTheRegion) {
  StartDivided();
  RangeIndex& tree = nodes->Tree(0, "t");
  ASSERT_TRUE(Put(tree, "z", "1").ok());
  nodes->CloseGate("z");
  const uint64_t forwarded = Forwarded(0);
  Waiting waiting(nodes.get(), [&tree](dsm::OpContext& op) { return tree.BlindPut(op, "z", "2"); });
  while (Forwarded(0) == forwarded) std::this_thread::yield();
  nodes->Move("z", 0);  // to whoever asked
  EXPECT_TRUE(waiting.Await().ok());
  EXPECT_EQ(Get(tree, "z"), "2");
  EXPECT_EQ(counts.round_trips, 0u);
}

TEST_F(ClusterRoutingTest, AMultiGetAsksAllPlacesAtOnceAndHoldsNoneThatHasAnswered) {
  read_attempt_ms = 600'000;  // nobody is given up
  StartDivided();
  ASSERT_TRUE(nodes->Split("t"));
  nodes->Move("t", 2);
  RangeIndex& tree = nodes->Tree(0, "t");
  for (const char* key : {"a", "n", "z"}) ASSERT_TRUE(Put(tree, key, key).ok());
  const std::vector<std::string_view> keys = {"n", "z", "a", "b", "o", "y"};
  const std::vector<std::optional<std::string>> expected = {
      "n", "z", "a", std::nullopt, std::nullopt, std::nullopt};
  std::vector<std::optional<std::string>> values;
  ASSERT_TRUE(Run([&](auto& op) { return tree.MultiGet(op, keys, &values); }).ok());
  EXPECT_EQ(values, expected);
  EXPECT_EQ(counts.round_trips, 1u);
  ExpectRequests(1, Opcode::kMultiGet, 1);
  ExpectRequests(2, Opcode::kMultiGet, 1);

  nodes->CloseGate("n");  // node 1 does not answer
  Waiting waiting(nodes.get(),
                  [&](dsm::OpContext& op) { return tree.MultiGet(op, keys, &values); });
  ExpectRequests(2, Opcode::kMultiGet, 2);
  nodes->Move("a", 2);  // waits for whoever uses the store
  EXPECT_FALSE(waiting.ended());
  nodes->OpenGate("n");
  ASSERT_TRUE(waiting.Await().ok());
  EXPECT_EQ(values, expected);
}

TEST_F(ClusterRoutingTest, ChangesAreMadeTogetherAsFarAsTheyAreInOneStoreHere) {
  StartDivided();
  const std::vector<std::string_view> keys = {"a", "b", "z", "c"};
  for (const size_t node : {0, 1}) {
    NotedChanges changes({"1", "2", "3", "4"});
    RangeIndex& tree = nodes->Tree(node, "t");
    const size_t done = Run([&](auto& op) {
      return tree.ModifyTogether(op, keys, index::CurrentValue::kRead, changes);
    });
    EXPECT_EQ(done, node == 0 ? 2u : 0u);
    EXPECT_EQ(changes.done.size(), done);
    EXPECT_EQ(counts.round_trips, 0u);
  }
  EXPECT_EQ(Get(nodes->Tree(1, "t"), "b"), "2");
  EXPECT_EQ(Get(nodes->Tree(1, "t"), "z"), std::nullopt);
}

TEST_F(ClusterRoutingTest, AMultiGetAsksAgainOnlyForWhatWasNotAnswered) {
  StartDivided();
  RangeIndex& tree = nodes->Tree(0, "t");
  for (const char* key : {"a", "z"}) ASSERT_TRUE(Put(tree, key, key).ok());
  const std::vector<std::string_view> keys = {"z", "c", "a"};
  std::vector<std::optional<std::string>> values;
  nodes->Depose("a");
  Waiting waiting(nodes.get(),
                  [&](dsm::OpContext& op) { return tree.MultiGet(op, keys, &values); });
  ExpectRequests(1, Opcode::kMultiGet, 1);
  nodes->Move("a", 2);
  ASSERT_TRUE(waiting.Await().ok());
  EXPECT_EQ(values, (std::vector<std::optional<std::string>>{"z", std::nullopt, "a"}));
  ExpectRequests(1, Opcode::kMultiGet, 1);
  ExpectRequests(2, Opcode::kMultiGet, 1);
}

TEST_F(ClusterRoutingTest, WhatNobodyServesEndsBehindTheWaitAndSaysWhichRegion) {
  StartDivided(30);
  RangeIndex& tree = nodes->Tree(0, "t");
  ASSERT_TRUE(Put(tree, "a", "1").ok());
  ASSERT_TRUE(Put(tree, "z", "1").ok());
  nodes->CloseGate("a");
  EXPECT_EQ(Put(tree, "a", "2").ToString(),
            "unavailable: region 1: node 1 does not serve it; nothing was done");
  nodes->Depose("z");
  EXPECT_EQ(Put(tree, "z", "2").ToString(),
            "unavailable: region 2: it has no primary; nothing was done");
  std::vector<KeyValue> rows;
  const ScanRange all;
  EXPECT_EQ(Run([&](auto& op) { return tree.Scan(op, all, &rows); }).code(),
            StatusCode::kUnavailable);
  const auto late = Run([&](auto& op) { return tree.Put(op, "z", "3"); }, 5);
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded) << late.status();
  nodes->OpenGate("a");
  nodes->Move("z", 1);
  EXPECT_EQ(Get(tree, "a"), "1");
  EXPECT_EQ(Get(tree, "z"), "1");
}

TEST_F(ClusterRoutingTest, StoreIsNotAskedForKeysThatItServesNoMore) {
  Start(30);
  nodes->Found(0);
  RangeIndex& tree = nodes->Tree(0, "t");
  ASSERT_TRUE(Put(tree, "a", "1").ok());
  ASSERT_TRUE(Put(tree, "z", "1").ok());
  nodes->StopsListening(0);
  ASSERT_TRUE(
      nodes->Split("m"));  // the old region is the left part, and its store has the key still
  EXPECT_EQ(Put(tree, "z", "2").code(), StatusCode::kUnavailable);
  EXPECT_EQ(Get(tree, "a"), "1");
  const std::vector<std::string_view> keys = {"a", "z"};
  std::vector<std::optional<std::string>> values;
  EXPECT_EQ(Run([&](auto& op) { return tree.MultiGet(op, keys, &values); }).code(),
            StatusCode::kUnavailable);
  std::vector<KeyValue> rows;
  const ScanRange all, reverse{.direction = index::ScanDirection::kReverse};
  for (const ScanRange& range : {all, reverse}) {
    EXPECT_EQ(Run([&](auto& op) { return tree.Scan(op, range, &rows); }).code(),
              StatusCode::kUnavailable);
  }
  EXPECT_TRUE(rows.empty()) << "in reverse it begins with keys that are not served";
  EXPECT_EQ(Run([&](auto& op) { return tree.DeleteRange(op, "b", "zz"); }).code(),
            StatusCode::kUnavailable);
  nodes->Listens(0);
  EXPECT_EQ(Get(tree, "z"), "1");
  EXPECT_EQ(Get(nodes->Tree(2, "t"), "z"), "1");
}

TEST_F(ClusterRoutingTest, PeerOfAnotherViewDoesNothingUntilBothHaveTheSame) {
  StartDivided();
  RangeIndex& tree = nodes->Tree(0, "t");
  ASSERT_TRUE(Put(tree, "z", "1").ok());
  ExpectRequests(1, Opcode::kPut, 1);
  nodes->StopsListening(0);
  nodes->Move("z", 2);
  const uint64_t forwarded = Forwarded(0);
  Waiting old_map(nodes.get(), [&tree](dsm::OpContext& op) { return tree.BlindPut(op, "z", "2"); });
  RangeIndex& there = nodes->Tree(2, "t");
  while (Forwarded(0) < forwarded + 3) std::this_thread::yield();  // it is refused, and tried again
  EXPECT_EQ(Get(there, "z"), "1");
  EXPECT_FALSE(old_map.ended());
  nodes->Listens(0);
  EXPECT_TRUE(old_map.Await().ok());
  EXPECT_EQ(Get(there, "z"), "2");
  ExpectRequests(1, Opcode::kPut, 1);  // who has handed over has executed none of it
}

TEST_F(ClusterRoutingTest, PeerThatIsNotThereIsWaitedForUntilAnotherServes) {
  StartDivided();
  RangeIndex& tree = nodes->Tree(0, "t");
  ASSERT_TRUE(Put(tree, "z", "1").ok());
  nodes->StopServer(1);
  Waiting write(nodes.get(), [&tree](dsm::OpContext& op) { return tree.BlindPut(op, "z", "2"); });
  Waiting read(nodes.get(), [&tree](dsm::OpContext& op) -> dsm::Task<Status> {
    std::string value;
    auto got = co_await tree.Get(op, "zz", &value);
    co_return got.status();
  });
  nodes->Move("z", 2);
  EXPECT_TRUE(write.Await().ok());
  EXPECT_TRUE(read.Await().ok());
  EXPECT_EQ(Get(tree, "z"), "2");
}

/// A peer that takes requests, and goes without an answer.
struct LostPeerTest : ClusterRoutingTest {
  std::string path = std::filesystem::temp_directory_path() /
                     ("farleaf-lost-peer-" + std::to_string(::getpid()) + ".sock");
  std::atomic<int> taken{0};
  std::unique_ptr<ScriptedNativeServer> peer;

  void TearDown() override {
    peer.reset();
    std::filesystem::remove(path);
    ClusterRoutingTest::TearDown();
  }
  void StartLost() {
    StartDivided();
    peer = std::make_unique<ScriptedNativeServer>(path, [this](const Request&, std::string*) {
      ++taken;
      return ScriptedNativeServer::Then::kClose;
    });
    nodes->set_url(1, peer->url());
    nodes->Move("z", 1);  // so that all hear of it
    peer->set_view(nodes->view());
  }
};

TEST_F(LostPeerTest, WriteThatWasSentAndNotAnsweredIsInDoubtAndNotSentAgain) {
  StartLost();
  RangeIndex& tree = nodes->Tree(0, "t");
  EXPECT_EQ(Put(tree, "z", "1").code(), StatusCode::kUnknown);
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(Run([&](auto& op) { return tree.DeleteRange(op, "a", "n"); }, 50).code(),
            StatusCode::kDeadlineExceeded);
}

TEST_F(ClusterRoutingTest, WhatAWriteIsToSurviveGoesWithItToWhereItIsDone) {
  StartDivided();
  RangeIndex& tree = nodes->Tree(0, "t");
  for (const auto* key : {"a", "z"}) {  // here, and elsewhere
    ASSERT_TRUE(Put(tree, key, "0").ok());
    const uint64_t before = nodes->syncs(key);
    ASSERT_TRUE(Put(tree, key, "1").ok());
    EXPECT_EQ(nodes->syncs(key), before) << "its store is `local`";
    const auto stored = Run([&](auto& op) {
      op.durability = WriteDurability::kSynced;
      return tree.Put(op, key, "2");
    });
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_GT(nodes->syncs(key), before) << key;
  }
}

// What it has seen would not be seen again, if that were lost.
TEST_F(ClusterRoutingTest, AChangeThatChangesNothingWaitsForWhatItHasSeen) {
  StartDivided();
  RangeIndex& tree = nodes->Tree(0, "t");
  const index::ModifyFunction keep = [](auto, std::string*) { return ModifyAction::kKeep; };
  for (const CurrentValue use : {CurrentValue::kRead, CurrentValue::kPresenceOnly}) {
    for (const std::string key : {"a", "z"}) {  // here, and elsewhere
      ASSERT_TRUE(Put(tree, key, "0").ok());
      for (const std::string& looked_at : {key, key + "absent"}) {
        ASSERT_TRUE(Put(tree, key + "other", "0").ok());
        const uint64_t before = nodes->syncs(key);
        const auto kept = Run([&](auto& op) {
          op.durability = WriteDurability::kSynced;
          return tree.Modify(op, looked_at, keep, use);
        });
        ASSERT_TRUE(kept.ok()) << kept.status();
        EXPECT_EQ(kept->existed, looked_at == key);
        EXPECT_EQ(kept->action, ModifyAction::kKeep);
        EXPECT_GT(nodes->syncs(key), before) << looked_at;
      }
    }
  }
  EXPECT_EQ(Get(tree, "z"), "0");
  EXPECT_EQ(Get(tree, "zabsent"), std::nullopt);
}

// ---- Reads that may be stale

/// Keys up to "m" are at node 0, and a copy of them at node 1: "a" was 1 then, and is 2 now, and "d" was stored behind it.
struct StaleReadsTest : ClusterRoutingTest {
  std::atomic<uint64_t> staleness_ms{2};  ///< 0: it cannot be read
  std::shared_ptr<index::lsm::CopyReader> reader;
  RangeIndex* tree = nullptr;  ///< at node 1
  uint64_t told_ms = 0;        ///< how old the last answer was

  void StartCopied(uint64_t wait_ms = 60'000) {
    StartDivided(wait_ms);
    tree = &nodes->Tree(1, "t");
    for (const auto* key : {"a", "b", "z"}) ASSERT_TRUE(Put(*tree, key, "1").ok());
    reader = nodes->OpenCopy("a", 1, [this]() -> std::optional<uint64_t> {
      const uint64_t ms = staleness_ms;
      return ms == 0 ? std::nullopt : std::optional(ms * kNsPerMs);
    });
    ASSERT_TRUE(Put(*tree, "a", "2").ok());
    ASSERT_TRUE(Put(*tree, "d", "2").ok());
    forwarded = Forwarded(1);
  }
  /// No older than 10 ms.
  template <typename Read>
  Status Stale(Read read) {
    counts = {};
    dsm::OpContext op{*worker, counts};
    op.max_staleness_ns = 10 * kNsPerMs;
    auto result = worker->Run(read(op));
    told_ms = op.staleness_ns / kNsPerMs;
    if constexpr (requires { result.status(); }) {
      return result.status();
    } else {
      return result;
    }
  }
  std::string StaleGet(std::string_view key) {
    std::string value = "absent";
    const Status got = Stale([&](auto& op) { return tree->Get(op, key, &value); });
    return got.ok() ? value : got.ToString();
  }
  /// As "a=1 b=1"; the keys in their order.
  std::string StaleScan(ScanRange range) {
    std::vector<KeyValue> rows;
    const Status scanned = Stale([&](auto& op) { return tree->Scan(op, range, &rows); });
    if (!scanned.ok()) return scanned.ToString();
    std::string text;
    for (const KeyValue& row : rows) text += row.key + "=" + row.value + " ";
    return text;
  }
  bool AskedNobody() { return Forwarded(1) == forwarded; }
  uint64_t forwarded = 0;
};

TEST_F(StaleReadsTest, AreDoneInTheCopyHereWhichSaysHowOldItIs) {
  StartCopied();
  EXPECT_EQ(StaleGet("a"), "1");
  EXPECT_EQ(told_ms, 2u);
  EXPECT_EQ(StaleGet("d"), "absent");
  EXPECT_EQ(StaleGet("z"), "1");  // of the store here
  EXPECT_EQ(told_ms, 0u);
  const std::vector<std::string_view> keys = {"z", "a", "d", "b"};
  std::vector<std::optional<std::string>> values;
  ASSERT_TRUE(Stale([&](auto& op) { return tree->MultiGet(op, keys, &values); }).ok());
  EXPECT_EQ(values, (std::vector<std::optional<std::string>>{"1", "1", std::nullopt, "1"}));
  EXPECT_EQ(told_ms, 2u);
  EXPECT_EQ(StaleScan({}), "a=1 b=1 z=1 ");
  EXPECT_EQ(told_ms, 2u);
  EXPECT_EQ(StaleScan({.direction = index::ScanDirection::kReverse}), "z=1 b=1 a=1 ");
  EXPECT_EQ(StaleScan({.start = "b", .end = "c"}), "b=1 ");
  EXPECT_TRUE(AskedNobody());
  EXPECT_EQ(reader->counts().reads, 6u);
  EXPECT_EQ(Get(*tree, "a"), "2") << "who has not said that it may be stale";
  EXPECT_FALSE(AskedNobody());
}

TEST_F(StaleReadsTest, ThePrimaryIsAskedForWhatTheCopyCannotTell) {
  StartCopied();
  for (const uint64_t ms : {uint64_t{11}, uint64_t{0}}) {
    staleness_ms = ms;
    EXPECT_EQ(StaleGet("a"), "2") << ms;
    EXPECT_EQ(told_ms, 0u);
    EXPECT_EQ(StaleScan({}), "a=2 b=1 d=2 z=1 ") << ms;
    EXPECT_EQ(told_ms, 0u);
  }
  staleness_ms = 10;
  EXPECT_EQ(StaleGet("a"), "1");
  reader->Hide();  // between the look at its age and the read
  EXPECT_EQ(StaleGet("a"), "2");
  EXPECT_EQ(StaleScan({}), "a=2 b=1 d=2 z=1 ");
  const std::vector<std::string_view> keys = {"z", "a"};
  std::vector<std::optional<std::string>> values;
  ASSERT_TRUE(Stale([&](auto& op) { return tree->MultiGet(op, keys, &values); }).ok());
  EXPECT_EQ(values, (std::vector<std::optional<std::string>>{"1", "2"}));
  EXPECT_EQ(told_ms, 0u);
  // Node 2 has no copy.
  tree = &nodes->Tree(2, "t");
  EXPECT_EQ(StaleGet("a"), "2");
}

TEST_F(StaleReadsTest, GoOnWhileNobodyServesTheKeys) {
  StartCopied(100);
  nodes->Depose("a");
  EXPECT_EQ(StaleGet("a"), "1");
  EXPECT_EQ(StaleScan({}), "a=1 b=1 z=1 ");
  staleness_ms = 11;
  EXPECT_EQ(StaleGet("a"), "unavailable: region 1: it has no primary; nothing was done");
}

TEST_F(StaleReadsTest, AreForReadsOnly) {
  StartCopied();
  EXPECT_EQ(Stale([&](auto& op) { return tree->BlindPut(op, "a", "3"); }).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Get(*tree, "a"), "2");
}

// Any server does them, whatever it knows of who serves what; a client sends them to the one that it was told.
TEST_F(StaleReadsTest, AClientIsAnsweredByItsServerWhichSaysHowOldThatIs) {
  StartCopied();
  auto client = client::Client::Connect(nodes->server(1).urls().front(), {});
  ASSERT_TRUE(client.ok()) << client.status();
  auto there = (*client)->OpenTree("t");
  ASSERT_TRUE(there.ok()) << there.status();
  uint32_t told = 77;
  const client::CallOptions stale{.max_staleness_ms = 10, .staleness_ms = &told};
  for (int moves = 0; moves < 3; ++moves) {
    const auto got = there->Get("a", stale);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, "1");
    EXPECT_EQ(told, 2u);
    const auto rows = there->Scan({}, stale);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ(rows->size(), 3u);
    EXPECT_EQ(told, 2u);
    const std::vector<std::string> keys = {"d", "a", "z"};
    const auto values = there->MultiGet(keys, stale);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(*values, (client::Values{std::nullopt, "1", "1"}));
    EXPECT_EQ(told, 2u);
    EXPECT_EQ(*there->Get("a"), "2");
    EXPECT_EQ(*there->Get("z", stale), "1");
    EXPECT_EQ(told, 0u);
    nodes->Move("z", moves == 0 ? 2 : 1);  // views change
  }
  staleness_ms = 11;
  EXPECT_EQ(*there->Get("a", stale), "2");
  EXPECT_EQ(told, 0u);
}

// To the client all keys are at one server, which is not the one that it was told.
TEST_F(StaleReadsTest, AClientIsAnsweredByItsServerAlsoWhereAnotherOneServesAllKeys) {
  Start();
  nodes->Found(0);
  ASSERT_TRUE(Put(nodes->Tree(1, "t"), "a", "1").ok());
  reader = nodes->OpenCopy("a", 1, [] { return std::optional(2 * kNsPerMs); });
  ASSERT_TRUE(Put(nodes->Tree(1, "t"), "a", "2").ok());
  auto client = client::Client::Connect(nodes->server(1).urls().front(), {});
  ASSERT_TRUE(client.ok()) << client.status();
  auto there = (*client)->OpenTree("t");
  ASSERT_TRUE(there.ok()) << there.status();
  uint32_t told = 77;
  const client::CallOptions stale{.max_staleness_ms = 10, .staleness_ms = &told};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(*there->Get("a"), "2");  // of node 0 itself
    EXPECT_EQ(*there->Get("a", stale), "1");
    EXPECT_EQ(told, 2u);
    EXPECT_EQ(there->Scan({}, stale)->front().value, "1");
  }
}

TEST_F(LostPeerTest, AChangeThatChangesNothingIsRepeatedAsAReadIs) {
  StartLost();
  RangeIndex& tree = nodes->Tree(0, "t");
  ASSERT_TRUE(Put(nodes->Tree(1, "t"), "z", "1").ok());
  const index::ModifyFunction keep = [](auto, std::string*) { return ModifyAction::kKeep; };
  Waiting kept(nodes.get(), [&tree, &keep](dsm::OpContext& op) -> dsm::Task<Status> {
    op.durability = WriteDurability::kSynced;
    auto result = co_await tree.ReadModifyWrite(op, "z", keep);
    EXPECT_TRUE(result.ok() && result->existed);
    co_return result.status();
  });
  while (taken < 3 && !kept.ended()) std::this_thread::yield();
  nodes->Move("z", 2);
  const Status status = kept.Await();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(LostPeerTest, ReadIsRepeatedUntilSomebodyAnswers) {
  StartLost();
  RangeIndex& tree = nodes->Tree(0, "t");
  ASSERT_TRUE(Put(nodes->Tree(1, "t"), "z", "1").ok());
  Waiting read(nodes.get(), [&tree](dsm::OpContext& op) -> dsm::Task<Status> {
    std::string value;
    auto got = co_await tree.Get(op, "z", &value);
    EXPECT_EQ(value, "1");
    co_return got.status();
  });
  while (taken < 3) std::this_thread::yield();
  nodes->Move("z", 2);
  EXPECT_TRUE(read.Await().ok());
}

}  // namespace
}  // namespace farleaf::test
