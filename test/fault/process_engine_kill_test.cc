// compute_server --engine lsm, killed with SIGKILL at random moments: while it serves, with flushes, merges and collection under way,
// while it opens the store, and while it closes it. What is there then is, of each client's changes, what the first so many of them make:
// all that were acknowledged, with `synced`; with `local` all that were acknowledged `lsm_flush_ms` before the end.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "test/support/engine_process.h"
#include "test/support/prefix_load.h"
#include "test/support/test_scale.h"
#include "test/support/text_client.h"

namespace farleaf {
namespace {

constexpr uint64_t kFlushMs = 100;
/// By so much a busy machine may be late with what is due. What was lost without it is printed.
constexpr uint64_t kLateMs = 5'000;

class EngineKillTest : public test::EngineProcess {
 protected:
  static constexpr uint64_t kSeed = 20'263;
  enum class Durability : uint8_t { kLocal, kSynced };

  void Run(Durability durability, uint64_t kills) {
    SCOPED_TRACE("seed " + std::to_string(kSeed));
    durability_ = durability;
    load_ = std::make_unique<test::PrefixLoad>(test::PrefixLoad::Options{.seed = random_.Next()});
    for (uint64_t life = 0; life < kills && !HasFailure(); ++life) {
      SCOPED_TRACE("life " + std::to_string(life));
      while (life > 0 && random_.OneIn(3)) KillWhileItOpens();
      Live(life);
    }
    ComputeServerProcess server = StartServer(DrawFlags());
    auto client = ConnectTo(server, kPatienceMs);
    Judge(*client);
    EXPECT_EQ(Terminate(server).code, 0);
    std::printf(
        "%s, seed %lu: %lu kills while it served and %lu while it opened, %lu shutdowns of which "
        "%lu were killed; %lu operations acknowledged, %lu changes lost, the oldest %lu ms before "
        "the end; "
        "%lu flushes, %lu KiB merged, %lu segments collected\n",
        is_synced() ? "synced" : "local", kSeed, kills_, opening_kills_, shutdowns_, closing_kills_,
        load_->acknowledged(), lost_.changes, lost_.oldest_ns / kNsPerMs, flushes_, merged_ >> 10,
        collected_);
    if (kills < 3) return;
    EXPECT_GT(flushes_, 0u);
    if (kills < 10) return;
    EXPECT_GT(flushes_, kills);
    EXPECT_GT(merged_, 0u);
    EXPECT_GT(collected_, kills);
    EXPECT_GT(opening_kills_, 0u);
    EXPECT_GT(closing_kills_, 0u);
  }
  const test::PrefixLoad::Lost& lost() const { return lost_; }

 private:
  bool is_synced() const { return durability_ == Durability::kSynced; }

  /// Of each process anew: what others wrote is read with any of them.
  std::vector<std::string> DrawFlags() {
    const char* const compressions[] = {"none", "lz4", "zstd"};
    return {"--durability",
            is_synced() ? "synced" : "local",
            "--lsm-flush-ms",
            std::to_string(kFlushMs),
            "--lsm-growth-factor",
            "4",
            "--lsm-table-bytes-max",
            "4MiB",
            "--lsm-value-separation-bytes",
            std::to_string(64u << 3 * random_.Below(3)),
            "--lsm-compression",
            compressions[random_.Below(3)]};
  }

  /// So long, at most, unless it ends by itself.
  void Kill(ComputeServerProcess& server, uint64_t in_ms, Ended* ended) {
    *ended = cluster.WaitFor(*server.process, static_cast<int>(in_ms));
    crash_.at_ns = load_->now_ns();
    if (ended->code != Ended::kStillRunning) return;
    server.process->Signal(SIGKILL);
    *ended = cluster.WaitFor(*server.process);
  }

  void KillWhileItOpens() {
    const uint64_t crashed_at_ns = crash_.at_ns;
    ComputeServerProcess server = BeginServer(DrawFlags());
    Ended ended;
    Kill(server, random_.Below(opening_ms_ + 1), &ended);
    crash_.at_ns = crashed_at_ns;  // nothing was changed since
    EXPECT_EQ(ended.code, kKilled) << ended.output;
    opening_kills_ += !ended.says("serving redis://");
  }

  void Live(uint64_t life) {
    const uint64_t begun_ns = load_->now_ns();
    ComputeServerProcess server = StartServer(DrawFlags());
    opening_ms_ = (load_->now_ns() - begun_ns) / kNsPerMs;
    auto client = ConnectTo(server, kPatienceMs);
    const client::Tree tree = life == 0 ? CreateTree(*client) : Open(*client);
    if (life > 0) Judge(*client);
    test::TextClient text("memcached://" + memcached);
    if (life > 0 && is_synced()) {
      const std::string last = std::to_string(life - 1);
      EXPECT_EQ(text.Ask("get n\r\n"),
                "VALUE n 0 " + std::to_string(last.size()) + "\r\n" + last + "\r\nEND\r\n");
    }
    load_->Start(tree);
    const uint64_t operations = 1'000 + random_.Below(test::Amount{1'000, 3'000, 8'000});
    if (!load_->AwaitAcknowledged(load_->acknowledged() + operations)) {
      ADD_FAILURE() << "an operation failed with nobody killed\n" << server.process->Output();
    }
    const bool idles = !is_synced() && life % 3 == 2;  // then all is flushed, by itself
    if (idles) load_->Stop();
    flushes_ += Stat(*client, "lsm.flushes");
    merged_ += Stat(*client, "lsm.merged_bytes_written");
    collected_ += Stat(*client, "lsm.collected_segments");
    const std::string n = std::to_string(life);
    EXPECT_EQ(text.Ask("set n 0 0 " + std::to_string(n.size()) + "\r\n" + n + "\r\n"),
              "STORED\r\n");
    End(server, idles ? kFlushMs + kLateMs : 0);
    load_->AwaitFailure();
    for (const Status& failure : load_->TakeFailures()) {
      EXPECT_TRUE(failure.code() == StatusCode::kUnknown ||
                  failure.code() == StatusCode::kUnavailable)
          << failure;
    }
    EXPECT_EQ(load_->wrong(), "");
  }

  void End(ComputeServerProcess& server, uint64_t idle_ms) {
    const bool closes = random_.OneIn(5);
    Ended ended;
    EXPECT_EQ(server.process->Wait(static_cast<int>(idle_ms)), std::nullopt)
        << "it ended by itself";
    if (closes) server.process->Signal(SIGTERM);
    shutdowns_ += closes;
    Kill(server, closes ? random_.Below(300) : 0, &ended);
    const bool closed = closes && ended.code == 0;
    EXPECT_TRUE(closed || ended.code == kKilled) << ended.code << ended.output;
    kills_ += !closes;
    closing_kills_ += closes && !closed;
    const bool all = is_synced() || closed;
    crash_.promised_until_ns = all ? UINT64_MAX : crash_.at_ns - (kFlushMs + kLateMs) * kNsPerMs;
  }

  void Judge(client::Client& client) {
    const test::PrefixLoad::Lost lost = load_->JudgeAfter(crash_, Open(client));
    lost_.changes += lost.changes;
    lost_.oldest_ns = std::max(lost_.oldest_ns, lost.oldest_ns);
    for (const Status& failure : load_->TakeFailures()) ADD_FAILURE() << failure;
    EXPECT_EQ(load_->wrong(), "");
  }

  Random random_{kSeed};
  Durability durability_ = Durability::kSynced;
  std::unique_ptr<test::PrefixLoad> load_;
  test::PrefixLoad::Crash crash_;
  test::PrefixLoad::Lost lost_;
  uint64_t opening_ms_ = 0;
  uint64_t kills_ = 0, opening_kills_ = 0, shutdowns_ = 0, closing_kills_ = 0;
  /// Of all lives, as each told shortly before its end.
  uint64_t flushes_ = 0, merged_ = 0, collected_ = 0;
};

TEST_F(EngineKillTest, WhatWasAcknowledgedAsSyncedSurvivesKills) {
  Run(Durability::kSynced, test::Amount{1, 3, 100});
  EXPECT_EQ(lost().changes, 0u);
}

TEST_F(EngineKillTest, OfLocalWritesAPrefixSurvivesKillsAndAllThatAreOlderThanTheFlush) {
  Run(Durability::kLocal, test::Amount{1, 3, 100});
}

}  // namespace
}  // namespace farleaf
