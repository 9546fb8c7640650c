// A channel on memory whose every batch the test rules (ScriptedFabric), with the backup's end on the same worker: what a call costs, and
// what becomes of it when replies are torn, messages damaged, batches fail, or nobody answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/replication/channel.h"
#include "server/replication/channel_server.h"
#include "test/support/scripted_fabric.h"

namespace farleaf::server::replication {
namespace {

using dsm::Batch;
using dsm::FabricCounts;
using dsm::RunVerbs;
using dsm::Task;
using dsm::VerbKind;
using dsm::Worker;

constexpr uint64_t kArea = 1 << 20;
constexpr uint64_t kToken = 0x1234'5678'9abc'def0;

class ChannelTest : public ::testing::Test {
 protected:
  ManualClock clock;
  dsm::BatchScript script;
  dsm::EpochDomain epochs;
  const AreaLayout layout = *AreaLayout::For({2, 8'192, 0});
  std::unique_ptr<dsm::LocalFabric> memory = std::move(
      *dsm::LocalFabric::Create({.region_bytes = 8 << 20, .hugepages = dsm::Hugepages::kNever}));
  dsm::ScriptedFabric fabric{memory.get(), &clock, &script};
  Worker worker{{std::move(*fabric.OpenTransport()), &epochs, &clock}};
  ChannelServer server{area(), layout, {}};
  std::unique_ptr<Channel> channel;
  // What the handler was given, and what it does with that.
  std::vector<std::string> executed;
  uint64_t handler_ns = 0;
  std::function<Reply(const ReceivedMessage&)> answer = [](const ReceivedMessage&) {
    return Reply();
  };
  FabricCounts counts;
  bool serving = false;

  ~ChannelTest() override {
    server.Stop();
    worker.RunUntilIdle();
  }
  std::span<std::byte> area() { return memory->region_bytes(0).subspan(kArea, layout.bytes()); }
  std::byte& ByteAt(uint64_t offset) { return memory->region_bytes(0)[kArea + offset]; }

  Task<Reply> Handle(Worker& on, const ReceivedMessage& message) {
    if (handler_ns > 0) co_await on.Sleep(handler_ns);
    executed.push_back(std::to_string(message.kind) + ":" + message.head + ":" +
                       std::string(AsChars(message.payload)));
    co_return answer(message);
  }
  void Serve() {
    serving = true;
    worker.Spawn(server.Serve(worker, [this](Worker& on, const ReceivedMessage& message) {
      return Handle(on, message);
    }));
  }
  Result<std::unique_ptr<Channel>> TryOpen(ChannelAddress address, ChannelOptions options = {}) {
    return worker.Run(Channel::Open(worker, address, std::move(options), counts));
  }
  /// The server looks twice before the channel does.
  void Open(uint64_t token = kToken) {
    worker.Run(server.Reset(token));
    auto opened =
        TryOpen({0, kArea, token}, {.look_ns_min = 3 * kNsPerMs, .look_ns_max = 3 * kNsPerMs});
    ASSERT_TRUE(opened.ok()) << opened.status();
    channel = std::move(*opened);
    if (!serving) Serve();
    counts = {};
  }
  Result<Reply> Call(const Message& message) {
    return worker.Run(channel->Call(worker, message, counts));
  }
  static Task<void> CallInto(Channel* on, Worker* worker, Message message, FabricCounts* counts,
                             std::optional<Result<Reply>>* result) {
    Result<Reply> reply = co_await on->Call(*worker, message, *counts);
    result->emplace(std::move(reply));
  }
  /// So many calls at a time, of kinds 1, 2, 3…
  std::vector<Result<Reply>> CallAll(size_t calls, std::span<const std::byte> payload = {}) {
    std::vector<std::optional<Result<Reply>>> results(calls);
    for (size_t i = 0; i < calls; ++i) {
      worker.Spawn(CallInto(channel.get(), &worker,
                            {.kind = static_cast<uint8_t>(i + 1), .payload = payload}, &counts,
                            &results[i]));
    }
    worker.Run(WaitFor(&worker, &results));
    std::vector<Result<Reply>> all;
    for (auto& result : results) all.push_back(std::move(*result));
    return all;
  }
  static Task<void> WaitFor(Worker* worker, std::vector<std::optional<Result<Reply>>>* results) {
    const auto missing = [](const auto& result) { return !result.has_value(); };
    while (std::any_of(results->begin(), results->end(), missing)) {
      co_await worker->Sleep(kNsPerMs);
    }
  }
  Task<void> WaitNs(uint64_t ns) { co_await worker.Sleep(ns); }
  static bool Reads(const Batch& batch) { return batch.verbs()[0].kind == VerbKind::kRead; }
};

TEST_F(ChannelTest, ACallCostsARoundTripOfThreeWritesAndALook) {
  answer = [](const ReceivedMessage& message) {
    return Reply{.code = StatusCode::kNotFound, .values = message.arguments, .text = "no such"};
  };
  Open();
  const std::string payload(8'192, 'p');
  auto reply = Call(
      {.kind = 7, .arguments = {4, 3, 2, 1}, .head = "0123456789", .payload = AsBytes(payload)});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->code, StatusCode::kNotFound);
  EXPECT_EQ(reply->values, (Arguments{4, 3, 2, 1}));
  EXPECT_EQ(reply->text, "no such");
  EXPECT_EQ(executed, std::vector<std::string>{"7:0123456789:" + payload});
  // Header without the word 64, head 10 in whole words 16, payload, word; a reply slot.
  EXPECT_EQ(counts, (FabricCounts{.round_trips = 2,
                                  .reads = 1,
                                  .writes = 3,
                                  .bytes_read = 256,
                                  .bytes_written = 64 + 16 + 8'192 + 8}));
}

TEST_F(ChannelTest, AMessageWithoutPayloadIsTwoWritesAndARestOfAWordOneMore) {
  Open();
  ASSERT_TRUE(Call({.kind = 1}).ok());
  EXPECT_EQ(
      counts,
      (FabricCounts{
          .round_trips = 2, .reads = 1, .writes = 2, .bytes_read = 256, .bytes_written = 72}));
  counts = {};
  ASSERT_TRUE(Call({.kind = 2, .payload = AsBytes("eight by and five")}).ok());
  EXPECT_EQ(counts.writes, 4u);
  EXPECT_EQ(counts.bytes_written, 64u + 16 + 8 + 8);
  counts = {};
  ASSERT_TRUE(Call({.kind = 3, .payload = AsBytes("five.")}).ok());
  EXPECT_EQ(counts.writes, 3u);
  EXPECT_EQ(executed, (std::vector<std::string>{"1::", "2::eight by and five", "3::five."}));
}

TEST_F(ChannelTest, AReplysPayloadCostsOneReadMore) {
  std::string inventory;
  for (int i = 0; i < 8'191; ++i) inventory += std::to_string(10'000'000 + i);
  inventory.resize(65'533);
  answer = [&](const ReceivedMessage&) { return Reply{.payload = inventory}; };
  Open();
  auto reply = Call({.kind = 1});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->payload == inventory);
  EXPECT_EQ(counts.round_trips, 3u);
  EXPECT_EQ(counts.reads, 2u);
  EXPECT_EQ(counts.bytes_read, 256u + 65'536);
}

TEST_F(ChannelTest, OneReadLooksForAllThatAreOutstanding) {
  handler_ns = 10 * kNsPerMs;
  Open();
  for (const auto& reply : CallAll(2)) EXPECT_TRUE(reply.ok()) << reply.status();
  // 20 ms of handlers, and a look every 3 ms by whoever looks, not two of them.
  EXPECT_LE(counts.reads, 9u);
  EXPECT_GE(counts.reads, 6u);
  EXPECT_EQ(counts.writes, 4u);
}

TEST_F(ChannelTest, MoreCallsThanSlotsAreExecutedInTheirOrder) {
  answer = [](const ReceivedMessage& message) {
    return Reply{.values = {message.kind, message.sequence}};
  };
  Open();
  const auto replies = CallAll(50);
  for (size_t i = 0; i < replies.size(); ++i) {
    ASSERT_TRUE(replies[i].ok()) << replies[i].status();
    EXPECT_EQ(replies[i]->values, (Arguments{i + 1, i + 1}));
    EXPECT_EQ(executed[i], std::to_string(i + 1) + "::");
  }
  EXPECT_EQ(server.statistics().messages, 50u);
}

TEST_F(ChannelTest, AMessageLongerThanASlotIsRefusedAndTheChannelGoesOn) {
  Open();
  const std::string payload(8'193, 'p'), head(4'025, 'h');
  EXPECT_EQ(Call({.kind = 1, .payload = AsBytes(payload)}).status().ToString(),
            "invalid argument: a message's payload of 8193 bytes; at most 8192");
  EXPECT_EQ(Call({.kind = 1, .head = head}).status().ToString(),
            "invalid argument: a message's head of 4025 bytes; at most 4024");
  EXPECT_EQ(counts, FabricCounts());
  EXPECT_TRUE(Call({.kind = 1, .head = std::string_view(head).substr(1)}).ok());
  EXPECT_EQ(executed.size(), 1u);
}

TEST_F(ChannelTest, ATornReplyIsReadAgainAtOnce) {
  answer = [](const ReceivedMessage&) { return Reply{.text = "whole"}; };
  Open();
  int torn = 0;
  uint64_t torn_at_ns = 0, read_again_ns = 0;
  script.rule = [&](const Batch& batch, const RunVerbs& run) {
    run(dsm::kAllVerbs);
    if (!Reads(batch)) return Status::Ok();
    if (torn == 0) {  // the word's cache line has come later than the text's
      batch.verbs()[0].local[kHeaderBytes] = std::byte{'W'};
      torn_at_ns = clock.NowNs();
    } else if (torn == 1) {
      read_again_ns = clock.NowNs();
    }
    ++torn;
    return Status::Ok();
  };
  auto reply = Call({.kind = 1});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text, "whole");
  EXPECT_EQ(counts.reads, 2u);
  EXPECT_EQ(read_again_ns, torn_at_ns);
}

TEST_F(ChannelTest, AReplyThatStaysDamagedEndsTheChannel) {
  Open();
  script.rule = [&](const Batch& batch, const RunVerbs& run) {
    run(dsm::kAllVerbs);
    if (Reads(batch)) batch.verbs()[0].local[40] ^= std::byte{1};
    return Status::Ok();
  };
  auto reply = Call({.kind = 1});
  EXPECT_EQ(
      reply.status().ToString(),
      "corruption: the backup at memory server 0: a reply: number 1 fails its header's checksum");
  EXPECT_EQ(counts.reads, 2u);
}

TEST_F(ChannelTest, ADamagedReplyPayloadEndsTheChannel) {
  answer = [](const ReceivedMessage&) { return Reply{.payload = "a payload"}; };
  Open();
  script.rule = [&](const Batch& batch, const RunVerbs& run) {
    run(dsm::kAllVerbs);
    if (Reads(batch) && batch.verbs()[0].length == 16) {
      batch.verbs()[0].local[8] ^= std::byte{1};
    }
    return Status::Ok();
  };
  EXPECT_EQ(Call({.kind = 1}).status().ToString(),
            "corruption: the backup at memory server 0: number 1 fails its payload's checksum");
}

TEST_F(ChannelTest, ADamagedMessageAndAllBehindItAreRefusedUntilAReset) {
  for (const uint64_t damaged : {layout.MessageOffset(1) + 24, layout.MessageOffset(1) + 45,
                                 layout.MessageOffset(1) + 16, layout.PayloadOffset(1) + 3}) {
    executed.clear();
    const uint64_t refused = server.statistics().refused;
    Open(kToken + damaged);
    script.rule = [&](const Batch& batch, const RunVerbs& run) {
      if (!Reads(batch) && batch.verbs()[0].offset == kArea + layout.MessageOffset(1) + 8) {
        run(batch.verbs().size() - 1);
        ByteAt(damaged) ^= std::byte{1};
      }
      run(dsm::kAllVerbs);
      return Status::Ok();
    };
    for (const auto& reply : CallAll(2, AsBytes("eight by"))) {
      EXPECT_EQ(reply.status().code(), StatusCode::kCorruption) << reply.status();
      EXPECT_TRUE(reply.status().message().starts_with(
          "the backup at memory server 0 refused a message: number "))
          << reply.status();
    }
    EXPECT_TRUE(executed.empty()) << executed[0];
    worker.Run(WaitNs(10 * kNsPerMs));
    EXPECT_EQ(server.statistics().refused, refused + 2) << damaged;
    script.rule = nullptr;
    Open(kToken);
    EXPECT_TRUE(Call({.kind = 9}).ok());
    EXPECT_EQ(executed, std::vector<std::string>{"9::"});
  }
}

TEST_F(ChannelTest, AFailedBatchEndsTheChannelForAllAndNothingIsPostedBehindIt) {
  for (const VerbKind kind : {VerbKind::kWrite, VerbKind::kRead}) {
    Open(kToken + static_cast<uint64_t>(kind));
    handler_ns = 10 * kNsPerMs;
    int batches = 0;
    script.rule = [&](const Batch& batch, const RunVerbs& run) {
      if (batch.verbs()[0].kind != kind || ++batches < 2) {
        run(dsm::kAllVerbs);
        return Status::Ok();
      }
      return Status::Unavailable("memory server 0 lost");
    };
    size_t failed = 0;
    for (const auto& reply : CallAll(5)) {
      if (reply.ok()) continue;
      ++failed;
      EXPECT_EQ(reply.status().ToString(),
                "unavailable: the backup at memory server 0: memory server 0 lost");
    }
    EXPECT_EQ(failed, 5u);
    counts = {};
    EXPECT_EQ(Call({.kind = 1}).status().ToString(), channel->failure().ToString());
    EXPECT_EQ(counts, FabricCounts());
    script.rule = nullptr;
    handler_ns = 0;
    worker.Run(WaitNs(100 * kNsPerMs));
  }
}

TEST_F(ChannelTest, WhoHasNoReplyInTimeEndsTheChannelForAll) {
  serving = true;  // but nobody does
  Open();
  const uint64_t before_ns = clock.NowNs();
  for (const auto& reply : CallAll(5)) {
    EXPECT_EQ(
        reply.status().ToString(),
        "deadline exceeded: the backup at memory server 0 has not answered message 1 for 10000 ms");
  }
  EXPECT_GE(clock.NowNs() - before_ns, 10 * kNsPerSecond);
  EXPECT_LE(clock.NowNs() - before_ns, 10 * kNsPerSecond + 10 * kNsPerMs);
  counts = {};
  EXPECT_EQ(Call({.kind = 1}).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(counts, FabricCounts());
}

TEST_F(ChannelTest, LooksAreFurtherApartTheLongerNothingComes) {
  serving = true;
  worker.Run(server.Reset(kToken));
  channel = std::move(*TryOpen({0, kArea, kToken}, {.call_timeout_ms = 100}));
  counts = {};
  EXPECT_EQ(Call({.kind = 1}).status().code(), StatusCode::kDeadlineExceeded);
  // 20, 60, 140, 300, 620, 1,260 us, then every ms up to 100 ms, and at its end.
  EXPECT_EQ(counts.reads, 6u + 99);
}

TEST_F(ChannelTest, NothingOfAnEarlierPrimaryIsTakenForANewOnes) {
  uint64_t token = kToken;
  for (const uint8_t before : {1, 2, 7}) {  // the last one's slots have gone around
    Open(token++);
    for (uint8_t i = 1; i <= before; ++i) {
      ASSERT_TRUE(Call({.kind = i, .payload = AsBytes("the old")}).ok());
    }
    executed.clear();
    Open(token++);
    worker.Run(WaitNs(100 * kNsPerMs));
    EXPECT_TRUE(executed.empty()) << executed[0];
    EXPECT_EQ(server.statistics().refused, 0u);
    for (uint8_t i = 1; i <= 5; ++i) {
      ASSERT_TRUE(Call({.kind = i, .payload = AsBytes("the new")}).ok());
    }
    EXPECT_EQ(executed[0], "1::the new");
    EXPECT_EQ(executed.size(), 5u);
  }
}

TEST_F(ChannelTest, AResetWaitsForTheHandlerThatRuns) {
  Open();
  handler_ns = 50 * kNsPerMs;
  std::optional<Result<Reply>> result;
  worker.Spawn(CallInto(channel.get(), &worker, {.kind = 1}, &counts, &result));
  worker.Run(WaitNs(20 * kNsPerMs));
  EXPECT_TRUE(executed.empty());
  worker.Run(server.Reset(kToken + 1));
  EXPECT_EQ(executed, std::vector<std::string>{"1::"});
  handler_ns = 0;
  std::unique_ptr<Channel> old = std::move(channel);
  Open(kToken + 2);
  EXPECT_TRUE(Call({.kind = 2}).ok());
  worker.Run(WaitNs(11 * kNsPerSecond));
  EXPECT_TRUE(result.has_value());
}

TEST_F(ChannelTest, OpeningTellsWhatIsWrongWithTheArea) {
  EXPECT_EQ(TryOpen({0, kArea, kToken}).status().ToString(),
            "corruption: the backup at memory server 0, offset 1048576: there is no area");
  EXPECT_EQ(TryOpen({0, kArea + 8, kToken}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TryOpen({0, kArea, 0}).status().code(), StatusCode::kInvalidArgument);
  worker.Run(server.Reset(kToken));
  EXPECT_EQ(TryOpen({0, kArea, kToken + 1}, {.backup = "backup 4"}).status().ToString(),
            "unavailable: backup 4 serves another channel in the area at offset 1048576");
  ByteAt(8) = std::byte{9};
  EXPECT_EQ(TryOpen({0, kArea, kToken}).status().ToString(),
            "unimplemented: the backup at memory server 0, offset 1048576: an area of format 9; "
            "this build knows 1");
  ByteAt(8) = std::byte{1};
  ByteAt(24) ^= std::byte{1};
  EXPECT_EQ(TryOpen({0, kArea, kToken}).status().code(), StatusCode::kCorruption);
}

}  // namespace
}  // namespace farleaf::server::replication
