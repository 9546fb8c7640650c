// Concurrent clients of every index: their histories must be linearizable per key, and each scan
// explained by them.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "dsm/base/random.h"
#include "test/support/index_kinds.h"
#include "test/support/linearizability.h"
#include "test/support/test_scale.h"

namespace farleaf::test {
namespace {

using index::OpContext;

struct Load {
  size_t threads = 4;
  size_t clients = 6;  ///< coroutines a thread
  uint64_t operations = 150;
  uint64_t keys = 60;
  uint64_t scan_percent = 3;
  uint64_t seed = 1;
};

/// What a client coroutine needs; outlives it.
struct Client {
  RecordingClient recorder;
  Random random;
  std::string name;  ///< in the values it writes
  const IndexKind* kind;
  const Load* load;
  std::string failure;
};

std::string KeyOf(const IndexKind& kind, uint64_t number) {
  std::string key(8, '\0');
  StoreBig64(key.data(), number * 3);
  return kind.fixed8 ? key : "key/" + std::to_string(number % 7) + "/" + std::to_string(number);
}

/// Never the same twice: whoever reads it knows who wrote it.
std::string UniqueValue(Client& client, uint64_t i) {
  std::string value = client.name + std::to_string(i);
  if (client.kind->fixed8) {
    value.resize(8, '.');
  } else if (client.random.OneIn(10)) {
    value.resize(client.kind->inline_value_bytes_max + 10, '.');
  }
  return value;
}

ScanRecord RandomScan(Client& client) {
  ScanRecord scan;
  const uint64_t keys = client.load->keys;
  if (!client.random.OneIn(4)) scan.start = KeyOf(*client.kind, client.random.Below(keys));
  if (!client.random.OneIn(4)) scan.end = KeyOf(*client.kind, client.random.Below(keys));
  if (client.random.OneIn(2)) scan.limit = 1 + client.random.Below(20);
  if (client.random.OneIn(2)) scan.direction = index::ScanDirection::kReverse;
  return scan;
}

index::Task<void> RunClient(dsm::Worker& worker, Client& client) {
  dsm::FabricCounts counts;
  for (uint64_t i = 0; i < client.load->operations; ++i) {
    OpContext op{worker, counts, worker.clock().NowNs() + 60 * kNsPerSecond};
    const std::string key = KeyOf(*client.kind, client.random.Below(client.load->keys));
    const std::string value = UniqueValue(client, i);
    const uint64_t dice = client.random.Below(100);
    Status status;
    if (dice < client.load->scan_percent) {
      status = co_await client.recorder.Scan(op, RandomScan(client));
    } else if (dice < 35) {
      status = co_await client.recorder.Get(op, key);
    } else if (dice < 40) {
      std::vector<std::string> keys{key, KeyOf(*client.kind, client.random.Below(3))};
      status = co_await client.recorder.MultiGet(op, std::move(keys));
    } else if (dice < 55) {
      status = co_await client.recorder.Insert(op, key, value);
    } else if (dice < 60) {
      status = co_await client.recorder.Put(op, key, value);
    } else if (dice < 65) {
      status = co_await client.recorder.BlindPut(op, key, value);
    } else if (dice < 75) {
      status = co_await client.recorder.Update(op, key, value);
    } else if (dice < 90) {
      status = co_await client.recorder.Delete(op, key);
    } else if (client.kind->fixed8) {
      // Values of 8 bytes cannot be appended to.
      status = co_await client.recorder.DeleteIf(op, key, value);
    } else {
      const auto change = client.random.OneIn(2) ? RecordingClient::Change::kAppend
                                                 : RecordingClient::Change::kAppendOrDelete;
      status = co_await client.recorder.Modify(op, key, value, change);
    }
    if (!status.ok()) {
      client.failure = status.ToString();
      co_return;
    }
  }
}

class ConcurrentHistoryTest : public ::testing::TestWithParam<IndexKind> {
 protected:
  void RunAndCheck(const Load& load) {
    SCOPED_TRACE("seed " + std::to_string(load.seed));
    std::unique_ptr<IndexHost> host = GetParam().make();
    HistoryClock clock;
    std::vector<std::vector<Client>> clients(load.threads);
    Random seeds(load.seed);
    for (size_t t = 0; t < load.threads; ++t) {
      for (size_t c = 0; c < load.clients; ++c) {
        const std::string name{static_cast<char>('A' + t), static_cast<char>('a' + c % 26), '-'};
        clients[t].push_back({RecordingClient(&host->index(t % host->members()), &clock),
                              Random(seeds.Next()), name, &GetParam(), &load, ""});
      }
    }
    std::barrier start(static_cast<std::ptrdiff_t>(load.threads));
    std::vector<std::thread> threads;
    for (size_t t = 0; t < load.threads; ++t) {
      threads.emplace_back([&, t] {
        auto worker = host->OpenWorker(t % host->members());
        start.arrive_and_wait();
        for (Client& client : clients[t]) worker->Spawn(RunClient(*worker, client));
        worker->RunUntilIdle();
      });
    }
    for (std::thread& thread : threads) thread.join();

    History history;
    for (auto& of_thread : clients) {
      for (Client& client : of_thread) {
        EXPECT_EQ(client.failure, "");
        history.Add(std::move(client.recorder.history()));
      }
    }
    EXPECT_GE(history.operations.size() + history.scans.size(),
              load.threads * load.clients * load.operations);
    const Verdict order = CheckLinearizable(history);
    EXPECT_TRUE(order.ok) << order.why;
    const Verdict scans = CheckScans(history);
    EXPECT_TRUE(scans.ok) << scans.why;
  }
};

TEST_P(ConcurrentHistoryTest, ManyKeysAreLinearizableAndScansExplained) {
  const uint64_t seeds = Amount{.small = 1, .usual = 4};
  const uint64_t operations = Amount{.small = 60, .usual = 600};
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    RunAndCheck({.operations = operations, .keys = 500, .seed = seed});
  }
}

TEST_P(ConcurrentHistoryTest, HotKeysAreLinearizable) {
  const uint64_t seeds = Amount{.small = 1, .usual = 3};
  const uint64_t operations = Amount{.small = 40, .usual = 300};
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    RunAndCheck({.threads = 3,
                 .clients = 4,
                 .operations = operations,
                 .keys = 4,
                 .scan_percent = 1,
                 .seed = seed});
  }
}

TEST_P(ConcurrentHistoryTest, TinyTreesThatGrowAndShrinkAreLinearizable) {
  const uint64_t seeds = Amount{.small = 1, .usual = 30};
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    RunAndCheck({.clients = 8, .operations = 30, .keys = 30, .scan_percent = 6, .seed = seed});
  }
}

INSTANTIATE_TEST_SUITE_P(Indexes, ConcurrentHistoryTest, ::testing::ValuesIn(AllIndexKinds()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace farleaf::test
