#include "dsm/cut_off_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include "dsm/handshake_listener.h"
#include "dsm/tcp/tcp_fabric.h"

namespace farleaf::dsm {
namespace {

Hello Request(MemberId target) {
  Hello hello;
  hello.kind = HelloKind::kCutOff;
  hello.server = 3;
  hello.target = {target, 1};
  return hello;
}

/// Cuts that are held up until the test lets them go.
struct HeldUp {
  std::promise<void> begun, go;
  std::shared_future<void> gone = go.get_future().share();
  std::atomic<int> runs{0};

  Status Run(const Hello&) {
    if (++runs == 1) begun.set_value();
    gone.wait();
    return Status::Ok();
  }
};

TEST(CutOffQueueTest, RequestsRunInTurnAndEachIsToldItsOwnOutcome) {
  std::vector<std::promise<std::string>> answers(20);
  std::atomic<MemberId> last{0};
  CutOffQueue queue([&](const Hello& hello) {
    EXPECT_EQ(hello.target.id, last + 1);
    last = hello.target.id;
    return hello.target.id % 2 ? Status::Ok() : Status::IoError(std::to_string(hello.target.id));
  });
  for (size_t i = 0; i < answers.size(); ++i) {
    queue.Submit(Request(static_cast<MemberId>(i + 1)),
                 [&answer = answers[i]](Status told) { answer.set_value(told.ToString()); });
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].get_future().get(),
              i % 2 == 0 ? "ok" : "i/o error: " + std::to_string(i + 1));
  }
}

TEST(CutOffQueueTest, TooManyAreRefusedAtOnce) {
  HeldUp held_up;
  std::atomic<size_t> done{0};
  CutOffQueue queue([&](const Hello& hello) { return held_up.Run(hello); });
  const auto submit = [&] { queue.Submit(Request(1), [&](Status told) { done += told.ok(); }); };
  submit();
  held_up.begun.get_future().wait();
  for (size_t i = 0; i < CutOffQueue::kWaitingMax; ++i) submit();
  std::string refusal;
  queue.Submit(Request(1), [&](Status told) { refusal = told.ToString(); });
  EXPECT_EQ(refusal,
            "resource exhausted: memory server 3 has 64 compute servers to cut off already; ask "
            "again");
  held_up.go.set_value();
  while (done < CutOffQueue::kWaitingMax + 1) std::this_thread::yield();
}

TEST(CutOffQueueTest, WhoeverWaitsWhenItEndsIsToldSo) {
  HeldUp held_up;
  std::vector<std::string> answers;  // the queue's thread and then the destructor, never both
  auto queue =
      std::make_unique<CutOffQueue>([&](const Hello& hello) { return held_up.Run(hello); });
  for (int i = 0; i < 5; ++i) {
    queue->Submit(Request(1), [&](Status told) { answers.push_back(told.ToString()); });
  }
  held_up.begun.get_future().wait();
  auto ended = std::async(std::launch::async, [&] { queue.reset(); });
  held_up.go.set_value();
  ended.get();
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_EQ(answers.front(), "ok");
  for (size_t i = 1; i < answers.size(); ++i) {  // some may have run, before it was to end
    EXPECT_TRUE(answers[i] == "ok" || answers[i] == "unavailable: memory server 3 is shutting down")
        << answers[i];
    EXPECT_TRUE(answers[i] != "ok" || answers[i - 1] == "ok") << "out of turn";
  }
}

// As when a process takes its time to die.
TEST(CutOffQueueTest, ACutThatTakesLongHoldsUpNoHandshakeAndIsWaitedForWithABound) {
  const MonotonicClock clock;
  const ServerIdentity identity{"tested", {0, 1 << 20, 5}};
  HeldUp held_up;
  auto listening = Listen(*ResolveTcp("127.0.0.1:0"));
  ASSERT_TRUE(listening.ok()) << listening.status();
  const std::string endpoint = "tcp:" + *LocalTcpAddress(listening->get());
  HandshakeListener listener(
      std::move(*listening), {.identity = identity}, &clock,
      [&](UniqueFd fd, const Hello&) { SendLastWelcome(fd.get(), identity.region, Status::Ok()); },
      [&](const Hello& hello) { return held_up.Run(hello); });
  const TcpLinkOptions impatient{.recovery = {.connect_timeout_ms = 100}};
  const auto connect = [&](const TcpLinkOptions& options) {
    return TcpFabric::Connect({{0, endpoint, 0, 0}}, "tested", options, &clock);
  };
  // A busy machine may take longer than that for any handshake.
  auto fabric = connect({.recovery = {.connect_timeout_ms = 60'000}});
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  Result<std::unique_ptr<TcpFabric>> asking = connect(impatient);
  while (!asking.ok()) asking = connect(impatient);
  const Status cut = (*asking)->CutOff(0, {5, 1});
  EXPECT_EQ(cut.code(), StatusCode::kUnavailable) << cut;
  EXPECT_TRUE(cut.message().ends_with("does not answer within 100 ms")) << cut;
  auto meanwhile = connect({.recovery = {.connect_timeout_ms = 60'000}});
  EXPECT_TRUE(meanwhile.ok()) << meanwhile.status();
  held_up.go.set_value();
  Status again = (*fabric)->CutOff(0, {5, 1});
  EXPECT_TRUE(again.ok()) << again;
}

}  // namespace
}  // namespace farleaf::dsm
