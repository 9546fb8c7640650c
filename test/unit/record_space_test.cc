// What has expired, was overwritten or deleted, whatever it was, costs the pool nothing any more within two turns of
// the sweep and half a minute: pages that are freed wait until nobody can be looking at them.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "index/blink/check.h"
#include "test/support/record_servers.h"
#include "test/support/redis_peer.h"
#include "test/support/text_client.h"

namespace farleaf::test {
namespace {

using server::NativeServerOptions;

/// What README.md of server states: turns of the sweep, and for pages that somebody may be looking at.
constexpr uint64_t kStatedTurns = 2, kStatedBesideNs = 30 * kNsPerSecond;
uint64_t StatedNs(const NativeServerOptions& options) {
  return kStatedTurns * options.expiry_sweep_s * kNsPerSecond + kStatedBesideNs;
}
/// What is stated counts from turns: a machine so busy that these take longer has until then.
constexpr uint64_t kSpacePatienceNs = 120 * kNsPerSecond;

class RecordSpaceTest : public ::testing::Test {
 protected:
  /// Of all memory servers. Beside the sweeps, what is found wrong may be what is about to be done.
  index::CheckReport Look() {
    dsm::Pool& pool = all_.pool(0);
    auto worker = pool.OpenWorker();
    FARLEAF_CHECK(worker.ok(), worker.status());
    dsm::FabricCounts counts;
    dsm::OpContext op{**worker, counts};
    auto report = (*worker)->Run(index::CheckPool(op, pool, {}));
    FARLEAF_CHECK(report.ok(), report.status());
    return std::move(*report);
  }
  /// Pages, blocks and extents in use.
  uint64_t PagesInUse() {
    uint64_t pages = 0;
    const index::CheckReport report = Look();
    for (const index::ServerReport& server : report.servers) {
      for (const index::PageCounts& kind : server.pages) pages += kind.in_use;
    }
    return pages;
  }
  /// That both servers have made, at least.
  uint64_t SweepTurns() const {
    uint64_t turns = UINT64_MAX;
    for (const auto& server : all_.servers) {
      const std::string text = server->StatsText(), name = "records.sweep_turns ";
      turns = std::min<uint64_t>(turns, std::stoull(text.substr(text.find(name) + name.size())));
    }
    return turns;
  }
  static void Sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

  static NativeServerOptions Options() {
    NativeServerOptions options;
    options.expiry_sweep_s = 1;
    return options;
  }
  TwoComputeServers all_{Options(), 0};
};

TEST_F(RecordSpaceTest, PoolsUseIsWhatItWasWithinTwoTurnsOfTheSweep) {
  constexpr uint64_t kSlackPages = 8;  // leaves that are not full enough, and search pages
  TextClient redis(all_.redis_url(0)), memcached(all_.memcached_url(1));
  EXPECT_EQ(redis.AskRedis("SET stays x\r\n"), "+OK\r\n");
  const uint64_t before = PagesInUse();
  std::string sets, fields, gone;
  for (int i = 0; i < 600; ++i) {
    const std::string n = std::to_string(i), large(i % 20 == 0 ? 100'000 : 300, 'v');
    sets += "set expires" + n + " 0 50 " + std::to_string(large.size()) + " noreply\r\n" + large +
            "\r\nset deleted" + n + " 0 0 300 noreply\r\n" + std::string(300, 'd') + "\r\n";
    fields += Request({"HSET", "expiring.hash", "f" + n, large}) +
              Request({"HSET", "deleted.hash", "f" + n, large}) +
              Request({"ZADD", "overwritten.set", n, "m" + n}) +
              Request({"SET", "overwritten", large});
    gone += "DEL deleted" + n + "\r\n";
  }
  EXPECT_EQ(memcached.Ask(sets), "");
  redis.AskRedis(fields + "EXPIRE expiring.hash 50\r\n");
  EXPECT_GT(PagesInUse(), before + 1'000);
  redis.AskRedis(gone +
                 "DEL deleted.hash\r\nSET overwritten.set x\r\nDEL overwritten.set\r\nSET "
                 "overwritten x\r\n");
  all_.wall.AdvanceNs(60 * kNsPerSecond);
  const uint64_t turns = SweepTurns(), patience_end_ns = all_.clock.NowNs() + kSpacePatienceNs;
  uint64_t end_ns = all_.clock.NowNs() + StatedNs(Options());
  const auto whats_left = [&] {
    const uint64_t pages = PagesInUse();
    const std::string keys = redis.AskRedis("DBSIZE\r\n");
    return pages > before + kSlackPages || keys != ":2\r\n"
               ? std::to_string(pages) + " pages in use, " + std::to_string(before) +
                     " before; keys " + keys
               : "";
  };
  for (; !whats_left().empty(); Sleep()) {
    const uint64_t now_ns = all_.clock.NowNs();
    if (now_ns < end_ns) continue;
    // The turn under way has met some of it before its end, and does not count.
    const bool turning = SweepTurns() < turns + kStatedTurns + 1;
    if (!turning || now_ns > patience_end_ns) break;
    end_ns = now_ns + kStatedBesideNs;
  }
  EXPECT_EQ(whats_left(), "");
  const index::CheckReport end = Look();
  for (const index::Finding& finding : end.findings.described()) {
    ADD_FAILURE() << finding.address << ": " << finding.text;
  }
}

}  // namespace
}  // namespace farleaf::test
