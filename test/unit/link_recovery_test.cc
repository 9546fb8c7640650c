#include "dsm/link_recovery.h"

#include <gtest/gtest.h>

#include <list>

namespace farleaf::dsm {
namespace {

using Server = LinkRecovery::Server;

/// A link in words: batches that are doomed or wait, and how they ended.
struct LinkRecoveryTest : ::testing::Test {
  static constexpr LinkRecoveryOptions kOptions{
      .connect_timeout_ms = 1'000, .backoff_ms_min = 10, .backoff_ms_max = 80};
  ManualClock clock;
  LinkRecovery link{"memory server 3", kOptions, &clock};
  std::list<Batch> batches;
  RoundTripState outstanding;

  Batch& NewBatch() {
    Batch& batch = batches.emplace_back(ServerId{3});
    outstanding.AddBatch();
    batch.set_round_trip(&outstanding);
    return batch;
  }
  Batch& Doomed() {
    Batch& batch = NewBatch();
    link.Doom(&batch);
    return batch;
  }
  void AdvanceMs(uint64_t ms) { clock.AdvanceNs(ms * kNsPerMs); }
  /// An attempt that takes `ms` and fails.
  void FailAttempt(Server server, uint64_t ms = 0, Status why = Status::Unavailable("no answer")) {
    link.AttemptStarted();
    AdvanceMs(ms);
    link.AttemptFailed(std::move(why), server);
  }
};

TEST_F(LinkRecoveryTest, BeforeTheFirstAttemptTheFailureSaysSo) {
  EXPECT_EQ(link.failure().ToString(), "unavailable: memory server 3 was never connected");
  EXPECT_FALSE(link.lost_for_good());
  EXPECT_FALSE(link.holds_batches());
  EXPECT_EQ(link.retry_due_ns(), UINT64_MAX);
}

TEST_F(LinkRecoveryTest, AnAttemptIsOverdueAfterTheConnectTimeout) {
  link.AttemptStarted();
  EXPECT_EQ(link.attempt_deadline_ns(), clock.NowNs() + 1'000 * kNsPerMs);
  AdvanceMs(999);
  EXPECT_FALSE(link.attempt_overdue());
  AdvanceMs(1);
  EXPECT_TRUE(link.attempt_overdue());
}

TEST_F(LinkRecoveryTest, ARestoredConnectionEndsTheDoomedAndHandsBackTheWaiting) {
  Batch& doomed = Doomed();
  link.Broke("cable pulled");
  Batch& first = NewBatch();
  Batch& second = NewBatch();
  link.AttemptStarted();
  EXPECT_FALSE(link.Wait(first, true));
  EXPECT_FALSE(link.Wait(second, true));
  EXPECT_TRUE(link.holds_batches());
  EXPECT_EQ(link.Restored(), (std::deque<Batch*>{&first, &second}));
  EXPECT_EQ(
      doomed.status().ToString(),
      "unavailable: memory server 3: the connection broke (cable pulled) and was restored; the "
      "effect of this batch is unknown");
  EXPECT_TRUE(first.in_flight() && second.in_flight());
  EXPECT_FALSE(link.holds_batches());
  EXPECT_TRUE(link.has_completed());
  EXPECT_EQ(link.TakeCompleted(), 1u);
  EXPECT_EQ(link.TakeCompleted(), 0u);
}

TEST_F(LinkRecoveryTest, WhereNobodyListensEverythingEndsAtOnce) {
  Batch& doomed = Doomed();
  link.Broke("connection reset");
  Batch& waiting = NewBatch();
  link.AttemptStarted();
  EXPECT_FALSE(link.Wait(waiting, true));
  link.AttemptFailed(Status::NotFound("nobody listens"), Server::kGone);
  // Not NotFound: to whoever posted a batch, a server that is away is unavailable.
  const std::string lost = "unavailable: memory server 3 lost: connection reset; nobody listens";
  EXPECT_EQ(doomed.status().ToString(), lost);
  EXPECT_EQ(waiting.status().ToString(), lost);
  EXPECT_EQ(link.failure().ToString(), lost);
  EXPECT_TRUE(outstanding.done());
  EXPECT_EQ(link.TakeCompleted(), 2u);
  EXPECT_FALSE(link.lost_for_good());
}

TEST_F(LinkRecoveryTest, DoomedBatchesAreKeptThroughAttemptsUntilTheDeadlineAndThenAreUnknown) {
  Batch& doomed = Doomed();
  link.Broke("timeout");
  Batch& waiting = NewBatch();
  link.AttemptStarted();
  EXPECT_FALSE(link.Wait(waiting, true));
  for (uint64_t past_ms = 0; past_ms + 100 < 1'000; past_ms += 100) {
    FailAttempt(Server::kMaybeThere, 100);
    ASSERT_FALSE(outstanding.done());
    ASSERT_TRUE(doomed.in_flight() && waiting.in_flight());
    ASSERT_LE(link.retry_due_ns(), clock.NowNs() + 80 * kNsPerMs);
  }
  FailAttempt(Server::kMaybeThere, 100);
  EXPECT_EQ(doomed.status().ToString(),
            "unknown outcome: memory server 3 lost: timeout; no answer; it does not answer, so the "
            "outcome is unknown");
  // Nothing of it was sent: its outcome is known.
  EXPECT_EQ(waiting.status().ToString(), "unavailable: memory server 3 lost: timeout; no answer");
  EXPECT_TRUE(outstanding.done());
}

TEST_F(LinkRecoveryTest, AnAttemptFollowsAfterABackoffThatDoublesUpToItsBound) {
  Doomed();
  link.Broke("timeout");
  for (const uint64_t backoff_ms : {10, 20, 40, 80, 80}) {
    FailAttempt(Server::kMaybeThere);
    EXPECT_EQ(link.retry_due_ns(), clock.NowNs() + backoff_ms * kNsPerMs);
    AdvanceMs(backoff_ms - 1);
    EXPECT_FALSE(link.retry_due()) << backoff_ms;
    AdvanceMs(1);
    EXPECT_TRUE(link.retry_due()) << backoff_ms;
  }
  link.Restored();
  EXPECT_FALSE(link.retry_due());
  Doomed();
  link.Broke("again");
  FailAttempt(Server::kMaybeThere);
  EXPECT_EQ(link.retry_due_ns(), clock.NowNs() + 10 * kNsPerMs) << "success resets the backoff";
}

TEST_F(LinkRecoveryTest, WithNothingDoomedNobodyRetriesButTheNextBatch) {
  FailAttempt(Server::kMaybeThere);
  AdvanceMs(100'000);
  EXPECT_FALSE(link.retry_due());
  EXPECT_EQ(link.retry_due_ns(), UINT64_MAX);
  EXPECT_TRUE(link.Wait(NewBatch(), false)) << "the caller starts an attempt";
}

TEST_F(LinkRecoveryTest, ABatchPostedJustAfterAFailureFailsWithItAtOnce) {
  FailAttempt(Server::kGone, 0, Status::Unavailable("nobody listens on 10.0.0.1:7"));
  Batch& early = NewBatch();
  EXPECT_FALSE(link.Wait(early, false));
  EXPECT_EQ(early.status().ToString(),
            "unavailable: memory server 3 lost: nobody listens on 10.0.0.1:7");
  EXPECT_EQ(link.TakeCompleted(), 0u) << "it was complete when Post returned";
  AdvanceMs(10);
  Batch& later = NewBatch();
  EXPECT_TRUE(link.Wait(later, false));
  EXPECT_TRUE(later.in_flight());
}

TEST_F(LinkRecoveryTest, ABatchPostedWhileAnAttemptRunsWaitsForIt) {
  FailAttempt(Server::kMaybeThere);
  link.AttemptStarted();
  Batch& batch = NewBatch();
  link.Wait(batch, true);
  EXPECT_TRUE(batch.in_flight());
  link.AttemptFailed(Status::Unavailable("no answer"), Server::kMaybeThere);
  EXPECT_EQ(batch.status().ToString(), "unavailable: memory server 3 lost: no answer");
}

TEST_F(LinkRecoveryTest, ABatchPostedBesideDoomedOnesWaitsThroughTheBackoff) {
  Doomed();
  link.Broke("timeout");
  FailAttempt(Server::kMaybeThere);
  Batch& batch = NewBatch();
  EXPECT_FALSE(link.Wait(batch, false)) << "retry_due starts the attempt";
  EXPECT_TRUE(batch.in_flight());
  EXPECT_EQ(link.Restored(), std::deque<Batch*>{&batch});
}

TEST_F(LinkRecoveryTest, LostForGoodIsTheEndOfEveryBatch) {
  Batch& doomed = Doomed();
  link.Broke("connection reset");
  Batch& waiting = NewBatch();
  link.AttemptStarted();
  link.Wait(waiting, true);
  link.LoseForGood(Status::Fenced("compute server 5 was cut off"));
  EXPECT_TRUE(link.lost_for_good());
  EXPECT_EQ(link.TakeCompleted(), 2u);
  AdvanceMs(100'000);
  Batch& later = NewBatch();
  EXPECT_FALSE(link.Wait(later, false));
  for (const Batch* batch : {&doomed, &waiting, &later}) {
    EXPECT_EQ(batch->status().ToString(), "fenced: compute server 5 was cut off");
  }
  EXPECT_FALSE(link.retry_due());
  EXPECT_TRUE(outstanding.done());
}

}  // namespace
}  // namespace farleaf::dsm
