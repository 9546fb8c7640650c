// What operations at a time on one compute server share of READs and round trips, counted over the fabrics with connections,
// where a worker goes on while its verbs are under way. What it comes to hangs on how long they are: sharing_test.cc and combining_test.cc
// have the same in virtual time, to the digit.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "benchmark/ycsb/distributions.h"
#include "dsm/pool.h"
#include "index/blink/catalog.h"
#include "index/blink/tree.h"
#include "test/support/fabric_under_test.h"
#include "test/support/test_scale.h"
#include "test/support/tested_fabrics.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

using dsm::FabricKind;

class NetworkSharingTest : public testing::TestWithParam<FabricKind> {
 protected:
  enum class Kind : uint8_t { kGet, kUpdate };
  struct Load {
    Kind kind = Kind::kUpdate;
    uint64_t clients = 64, operations = 0;  ///< of each client
    uint64_t keys = 0;
  };

  void Open(uint64_t keys, Geometry geometry = Geometry::Parted()) {
    // Some 35 bytes a key of fixed8; the keys of byte strings that are stored here are few.
    const uint64_t region_bytes = std::max(uint64_t{64} << 20, RoundUp(keys * 32, 1 << 20));
    servers_ = std::make_unique<dsm::FabricUnderTest>(
        GetParam(), dsm::FabricUnderTest::Options{.region_bytes = region_bytes});
    auto pool = dsm::Pool::Join(servers_->Connect(), {.seed = 1}, &servers_->clock());
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = std::move(*pool);
    auto worker = pool_->OpenWorker();
    ASSERT_TRUE(worker.ok()) << worker.status();
    worker_ = std::move(*worker);
    OpContext op{*worker_, counts_};
    auto info = worker_->Run(CreateTree(op, *pool_, "test", geometry));
    ASSERT_TRUE(info.ok()) << info.status();
    layout_ = geometry.layout;
    tree_ = std::make_unique<BlinkTree>(pool_.get(), *info, TreeOptions{});
    constexpr uint64_t kLoaders = 1'024;  // more than there are redo slots
    for (uint64_t first = 0; first < std::min(keys, kLoaders); ++first) {
      worker_->Spawn(Store(first, keys, kLoaders));
    }
    worker_->RunUntilIdle();
  }
  void TearDown() override {
    tree_.reset();
    worker_.reset();
    if (pool_) {
      Status left = pool_->Leave();
      EXPECT_TRUE(left.ok()) << left;
    }
  }

  void Run(const Load& load) {
    counts_ = {};
    done_ = 0;
    const ycsb::ScrambledZipfian zipfian(0, load.keys, ycsb::ZipfianRanks::kRecords);
    for (uint64_t client = 0; client < load.clients; ++client) {
      worker_->Spawn(Client(load, zipfian, client));
    }
    worker_->RunUntilIdle();
    EXPECT_EQ(done_, load.clients * load.operations);
    std::printf("%s, %lu in flight: %.4f round trips, %.4f READs an operation\n",
                load.kind == Kind::kGet ? "get" : "update",
                static_cast<unsigned long>(load.clients), RoundTrips(), Reads());
  }
  double RoundTrips() const {
    return static_cast<double>(counts_.round_trips) / static_cast<double>(done_);
  }
  double Reads() const { return static_cast<double>(counts_.reads) / static_cast<double>(done_); }

 private:
  std::string Key(uint64_t number) const {
    const std::string key = Fixed(Mix64(number));
    return layout_ == Layout::kBytes ? key + Fixed(Mix64(number + 1)) + Fixed(number) : key;
  }
  std::string Value(uint64_t number) const {
    return Fixed(number) + std::string(layout_ == Layout::kBytes ? 92 : 0, 'v');
  }
  dsm::Task<void> Store(uint64_t first, uint64_t keys, uint64_t step) {
    for (uint64_t number = first; number < keys; number += step) {
      OpContext op{*worker_, counts_};
      const std::string key = Key(number), value = Value(number);
      auto inserted = co_await tree_->Insert(op, key, value);
      EXPECT_TRUE(inserted.ok() && *inserted) << inserted.status();
    }
  }
  dsm::Task<void> Client(const Load& load, const ycsb::ScrambledZipfian& zipfian, uint64_t client) {
    Random random(1 + client);
    for (uint64_t i = 0; i < load.operations; ++i) {
      const uint64_t number = zipfian.Next(random);
      const std::string key = Key(number), value = Value(number);
      OpContext op{*worker_, counts_};
      if (load.kind == Kind::kGet) {
        std::string found;
        auto got = co_await tree_->Get(op, key, &found);
        EXPECT_TRUE(got.ok() && *got && found == value) << got.status();
      } else {
        auto updated = co_await tree_->Update(op, key, value);
        EXPECT_TRUE(updated.ok() && *updated) << updated.status();
      }
      ++done_;
    }
  }

  std::unique_ptr<dsm::FabricUnderTest> servers_;
  std::unique_ptr<dsm::Pool> pool_;
  std::unique_ptr<dsm::Worker> worker_;
  std::unique_ptr<BlinkTree> tree_;
  Layout layout_ = Layout::kFixed8;
  dsm::FabricCounts counts_;
  uint64_t done_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Fabrics, NetworkSharingTest, testing::ValuesIn(dsm::NetworkFabrics()),
                         [](const auto& test) { return dsm::FabricKindName(test.param); });

TEST_P(NetworkSharingTest, UpdatesOfOneLeafNeedATenthOfARoundTripEach) {
  Open(20);
  Run({.operations = 200, .keys = 20});
  EXPECT_LE(RoundTrips(), 0.1);
}

TEST_P(NetworkSharingTest, UpdatesOfOneLeafOfByteStringsNeedATenthOfARoundTripEach) {
  Open(20, Geometry::Bytes());
  Run({.operations = 200, .keys = 20});
  EXPECT_LE(RoundTrips(), 0.1);
}

/// Long tests have the 10 M keys that the bounds are for; the fewer there are, the more popular is each.
TEST_P(NetworkSharingTest, ZipfianGetsAndUpdatesKeepTheirBounds) {
  const uint64_t keys = test::Amount{20'000, 100'000, 10'000'000};
  const uint64_t operations = test::Amount{20'000, 100'000, 1'000'000};
  Open(keys);
  // Until what is popular has been met.
  Run({.kind = Kind::kGet, .operations = operations / 64, .keys = keys});
  for (const auto& [clients, gets, updates] :
       {std::tuple{uint64_t{64}, 0.95, 1.85}, std::tuple{uint64_t{1'024}, 0.82, 1.55}}) {
    Run({.kind = Kind::kGet, .clients = clients, .operations = operations / clients, .keys = keys});
    EXPECT_LE(Reads(), gets);
    Run({.clients = clients, .operations = operations / clients, .keys = keys});
    EXPECT_LE(RoundTrips(), updates);
  }
}

}  // namespace
}  // namespace farleaf::index
