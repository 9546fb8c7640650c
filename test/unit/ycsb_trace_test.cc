// Traces: what a line may say, what is told when it does not, and what a replay sends and measures.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "benchmark/ycsb/command.h"
#include "benchmark/ycsb/trace.h"
#include "benchmark/ycsb/trace_values.h"
#include "dsm/base/bytes.h"
#include "test/support/test_scale.h"
#include "test/unit/map_target.h"

namespace farleaf::ycsb {
namespace {

constexpr TraceFormat kByteFormat{.key_layout = KeyLayout::kBytes, .value_bytes = 1000};
constexpr TraceFormat kFixed8Format{.key_layout = KeyLayout::kFixed8, .value_bytes = 8};

// --- lines ---

std::string Number(uint64_t number) {
  std::string key(8, '\0');
  StoreBig64(key.data(), number);
  return key;
}

/// What a line says, in one word after another: kind, key, value's bytes, rows, time.
std::string Told(std::string_view line, const TraceFormat& format = kByteFormat) {
  TracedOperation operation;
  const auto parsed = ParseTraceLine(line, format, &operation);
  if (!parsed.ok()) return std::string(parsed.status().message());
  if (!*parsed) return "nothing";
  return std::string(OpKindName(operation.kind)) + " '" + operation.key + "' " +
         std::to_string(operation.value_bytes) + " " + std::to_string(operation.rows) +
         (operation.at_us ? " @" + std::to_string(*operation.at_us) : "");
}

TEST(TraceLineTest, SaysItsOperation) {
  EXPECT_EQ(Told("READ user1"), "READ 'user1' 0 0");
  EXPECT_EQ(Told("UPDATE user1"), "UPDATE 'user1' 1000 0");
  EXPECT_EQ(Told("UPDATE user1 0"), "UPDATE 'user1' 0 0");
  EXPECT_EQ(Told("INSERT user1 16777216"), "INSERT 'user1' 16777216 0");
  EXPECT_EQ(Told("SCAN user1 100"), "SCAN 'user1' 0 100");
  EXPECT_EQ(Told("RMW user1 7"), "READ-MODIFY-WRITE 'user1' 7 0");
  EXPECT_EQ(Told("READ-MODIFY-WRITE user1"), "READ-MODIFY-WRITE 'user1' 1000 0");
  EXPECT_EQ(Told("@0 READ a"), "READ 'a' 0 0 @0");
  EXPECT_EQ(Told(" \t@1234\tSCAN  a \t5 \r"), "SCAN 'a' 0 5 @1234");
}

TEST(TraceLineTest, CommentsAndEmptyLinesSayNothing) {
  for (const char* line : {"", " \t ", "\r", "# READ a", "  #"}) EXPECT_EQ(Told(line), "nothing");
  EXPECT_EQ(Told("READ #a"), "READ '#a' 0 0");
}

TEST(TraceLineTest, KeysOfByteStringsHaveEscapes) {
  EXPECT_EQ(Told("READ a\\x20b\\x0Ac\\\\d\\xfF"), "READ 'a b\nc\\d\xff' 0 0");
  EXPECT_EQ(Told("READ \xc3\xbc"), "READ '\xc3\xbc' 0 0");
  EXPECT_EQ(Told("READ " + std::string(4096, 'k')), "READ '" + std::string(4096, 'k') + "' 0 0");
}

TEST(TraceLineTest, KeysOfFixed8AreNumbers) {
  EXPECT_EQ(Told("READ 0", kFixed8Format), "READ '" + Number(0) + "' 0 0");
  EXPECT_EQ(Told("UPDATE 258 8", kFixed8Format), "UPDATE '" + Number(258) + "' 8 0");
  EXPECT_EQ(Told("RMW 18446744073709551615", kFixed8Format),
            "READ-MODIFY-WRITE '" + Number(UINT64_MAX) + "' 8 0");
}

struct BadLine {
  std::string line, message;
  TraceFormat format = kByteFormat;
};
struct BadLineTest : ::testing::TestWithParam<BadLine> {};

TEST_P(BadLineTest, ToldWithExpectedAndFound) {
  EXPECT_EQ(Told(GetParam().line, GetParam().format), GetParam().message);
}

const std::string kEnd = "found the end of the line";
const std::string kEscapes =
    "expected a key whose blanks and control characters are \\xNN and whose backslashes are \\\\, ";

INSTANTIATE_TEST_SUITE_P(
    Trace, BadLineTest,
    ::testing::Values(
        BadLine{"DELETE a", "expected READ, UPDATE, INSERT, SCAN or RMW, found 'DELETE'"},
        BadLine{"read a", "expected READ, UPDATE, INSERT, SCAN or RMW, found 'read'"},
        BadLine{"@5", "expected READ, UPDATE, INSERT, SCAN or RMW, " + kEnd},
        BadLine{"READ", "expected a key, " + kEnd},
        BadLine{"READ a 10", "expected the end of the line, found '10'"},
        BadLine{"READ a # why", "expected the end of the line, found '#'"},
        BadLine{"UPDATE a 1k", "expected a value's bytes, from 0 to 16777216, found '1k'"},
        BadLine{"INSERT a 16777217",
                "expected a value's bytes, from 0 to 16777216, found '16777217'"},
        BadLine{"RMW a -1", "expected a value's bytes, from 0 to 16777216, found '-1'"},
        BadLine{"UPDATE a 10 10", "expected the end of the line, found '10'"},
        BadLine{"SCAN a", "expected the rows, from 1 to 1000000, " + kEnd},
        BadLine{"SCAN a 0", "expected the rows, from 1 to 1000000, found '0'"},
        BadLine{"@ READ a", "expected @ and microseconds from 0 to 1000000000000000, found '@'"},
        BadLine{"@1.5 READ a",
                "expected @ and microseconds from 0 to 1000000000000000, found '@1.5'"},
        BadLine{"@1000000000000001 READ a",
                "expected @ and microseconds from 0 to 1000000000000000, found "
                "'@1000000000000001'"},
        BadLine{"READ a\\x2", kEscapes + "found 'a\\x2'"},
        BadLine{"READ \\xg0", kEscapes + "found '\\xg0'"},
        BadLine{"READ a\\", kEscapes + "found 'a\\'"},
        BadLine{"READ a\\n", kEscapes + "found 'a\\n'"},
        BadLine{"READ a\x01", kEscapes + "found 'a.'"},
        BadLine{"READ " + std::string(4097, 'k'),
                "expected a key of at most 4096 bytes, found one of 4097"},
        BadLine{"READ user1",
                "expected a key of fixed8, a decimal number of 64 bits, found 'user1'",
                kFixed8Format},
        BadLine{"READ 18446744073709551616",
                "expected a key of fixed8, a decimal number of 64 bits, found "
                "'18446744073709551616'",
                kFixed8Format},
        BadLine{"READ", "expected a key of fixed8, a decimal number of 64 bits, " + kEnd,
                kFixed8Format},
        BadLine{"UPDATE 1 9", "expected 8 bytes, as every value of fixed8 has, found '9'",
                kFixed8Format}));

// --- files ---

TraceReader ReaderOf(const std::string& text, const TraceFormat& format = kByteFormat) {
  return {std::make_unique<std::istringstream>(text), "t.trace", format};
}

/// Every operation's line, index and key, or what was told instead.
std::string ReadAll(const std::string& text) {
  TraceReader reader = ReaderOf(text);
  TracedOperation operation;
  std::string all;
  while (true) {
    const auto more = reader.Next(&operation);
    if (!more.ok()) return all + std::string(more.status().message());
    if (!*more) return all;
    all += std::to_string(operation.line) + ":" + std::to_string(operation.index) + ":" +
           operation.key + " ";
  }
}

TEST(TraceReaderTest, CountsLinesAndOperations) {
  EXPECT_EQ(ReadAll("# head\n\nREAD a\r\n  \nREAD b\nREAD c"), "3:0:a 5:1:b 6:2:c ");
  EXPECT_EQ(ReadAll(""), "");
  EXPECT_EQ(ReadAll("\n\n#"), "");
  EXPECT_EQ(ReadAll("READ a\n\nREAD\n"), "1:0:a t.trace line 3: expected a key, " + kEnd);
}

TEST(TraceReaderTest, TimesAreOfAllLinesAndNeverGoBack) {
  EXPECT_EQ(ReadAll("@5 READ a\n@5 READ b\n@9 READ c\n"), "1:0:a 2:1:b 3:2:c ");
  EXPECT_EQ(ReadAll("@5 READ a\n@4 READ b\n"),
            "1:0:a t.trace line 2: expected a time not before @5 of the operation above, found @4");
  EXPECT_EQ(ReadAll("@5 READ a\nREAD b\n"),
            "1:0:a t.trace line 2: expected a time, @MICROSECONDS, as the operations above have");
  EXPECT_EQ(ReadAll("READ a\n@5 READ b\n"),
            "1:0:a t.trace line 2: expected no time, as the operations above have none");
}

TEST(TraceReaderTest, LinesAcrossBlocksAreWhole) {
  // Of all lengths, so that a block ends everywhere in a line.
  std::string text;
  std::vector<std::string> keys;
  for (size_t i = 0; text.size() < 3 << 20; ++i) {
    keys.push_back(std::to_string(i) + std::string(i * 7 % 3'000, 'k'));
    text += "READ " + keys.back() + "\n";
  }
  TraceReader reader = ReaderOf(text);
  TracedOperation operation;
  for (const std::string& key : keys) {
    const auto more = reader.Next(&operation);
    ASSERT_TRUE(more.ok() && *more) << more.status();
    ASSERT_EQ(operation.key, key);
  }
  const auto more = reader.Next(&operation);
  EXPECT_TRUE(more.ok() && !*more);
}

TEST(TraceReaderTest, LineWithoutEndIsRefusedAndNotHeld) {
  const std::string longest = "#" + std::string(kTraceLineBytesMax - 1, 'x');
  EXPECT_EQ(ReadAll(longest + "\nREAD a\n"), "2:0:a ");
  const std::string refused = "t.trace line 1: expected at most 65536 bytes, found more";
  EXPECT_EQ(ReadAll(longest + "x\nREAD a\n"), refused);
  EXPECT_EQ(ReadAll(std::string(5 << 20, 'x')), refused);
}

TEST(TraceReaderTest, RandomTextIsReadOrRefused) {
  // Bytes of all kinds, words of the format among them.
  constexpr uint64_t kSeed = 4711;
  const std::vector<std::string> words = {"READ", "UPDATE", "INSERT", "SCAN",   "RMW",  "@",
                                          "@12",  " ",      " ",      "\n",     "\n",   "#",
                                          "\\x",  "\\",     "1",      "999999", "user", "\r"};
  Random random(kSeed);
  uint64_t read = 0, refused = 0;
  const uint64_t rounds = test::Amount{5'000, 30'000};
  for (uint64_t round = 0; round < rounds; ++round) {
    std::string text;
    for (uint64_t left = random.Below(30); left > 0; --left) {
      if (random.OneIn(8)) {
        text.push_back(static_cast<char>(random.Next()));
      } else {
        text += words[random.Below(words.size())];
      }
      if (random.OneIn(2)) text += " ";
    }
    TraceReader reader = ReaderOf(text, random.OneIn(2) ? kByteFormat : kFixed8Format);
    auto summary = SummarizeTrace(reader, 3);
    if (summary.ok()) {
      ++read;
      ASSERT_GT(summary->operations, 0u) << text;
    } else {
      ++refused;
      ASSERT_EQ(summary.status().code(), StatusCode::kInvalidArgument) << text;
      ASSERT_TRUE(summary.status().message().starts_with("t.trace")) << summary.status();
    }
  }
  EXPECT_GT(read, rounds / 3'000) << "seed " << kSeed;
  EXPECT_GT(refused, 1'000u);
}

TEST(TraceSummaryTest, CountsByKindAndThread) {
  std::string text = "# keys\n";
  for (int i = 0; i < 3'000; ++i) {
    text += "@" + std::to_string(i * 10) + (i % 3 == 0 ? " UPDATE k" : " READ k") +
            std::to_string(i) + "\n";
  }
  TraceReader reader = ReaderOf(text);
  const auto summary = SummarizeTrace(reader, 3);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->operations, 3'000u);
  EXPECT_EQ(summary->of_kind, (std::array<uint64_t, kOpKinds>{2'000, 1'000, 0, 0, 0}));
  EXPECT_TRUE(summary->timed);
  EXPECT_EQ(summary->last_at_us, 29'990u);
  uint64_t sum = 0;
  for (uint64_t operations : summary->of_thread) {
    sum += operations;
    EXPECT_GT(operations, 800u);  // keys are scattered
  }
  EXPECT_EQ(sum, 3'000u);
}

// --- replay ---

struct Executed {
  uint64_t thread = 0;
  OpKind kind = OpKind::kRead;
  std::string key;
  uint64_t line = 0, value_bytes = 0, rows = 0, due_ns = 0, start_ns = 0;
};

/// Keeps what it is told to do. Operations of a session run at a time and end in random order; each
/// begins when it is due and takes `take_ns` of a clock that only this moves.
class RecordingTarget final : public Target {
 public:
  struct Journal {
    std::mutex mutex;  // guards what follows
    std::vector<Executed> executed;
    uint64_t sessions = 0;
    uint64_t overlaps = 0;  ///< operations of a key that began before another of it had ended
    uint64_t blocked = 0;
    uint64_t take_ns = 0;
    std::string answer;  ///< the value of every key; empty: none is there
  };
  RecordingTarget(Journal* journal, ManualClock* clock) : journal_(*journal), clock_(*clock) {}

  Result<std::unique_ptr<Session>> OpenSession() override {
    std::lock_guard lock(journal_.mutex);
    return std::unique_ptr<Session>(
        std::make_unique<Recorder>(&journal_, &clock_, journal_.sessions++));
  }
  bool counts_fabric() const override { return false; }
  Result<uint64_t> PoolBytesUsed() override { return uint64_t{0}; }
  Status Close() override { return Status::Ok(); }

 private:
  class Recorder final : public Session {
   public:
    Recorder(Journal* journal, ManualClock* clock, uint64_t thread)
        : journal_(*journal), clock_(*clock), thread_(thread), random_(thread) {}

    Status Run(OperationSource& source, uint64_t in_flight) override {
      std::vector<Operation> slots(in_flight);
      std::vector<Operation*> idle, waiting, running;
      for (Operation& slot : slots) idle.push_back(&slot);
      do {
        for (Operation* slot : std::exchange(idle, {})) {
          if (source.Next(slot)) waiting.push_back(slot);
        }
        // The latest first: order is the source's affair.
        std::vector<Operation*> still;
        for (; !waiting.empty(); waiting.pop_back()) {
          Operation* const slot = waiting.back();
          if (source.Blocked(*slot)) {
            still.push_back(slot);
            std::lock_guard lock(journal_.mutex);
            ++journal_.blocked;
          } else if (Begin(source, slot, running)) {
            running.push_back(slot);
          }
        }
        waiting.assign(still.rbegin(), still.rend());
        if (running.empty()) continue;
        std::swap(running[random_.Below(running.size())], running.back());
        clock_.AdvanceNs(journal_.take_ns);
        source.Done(*running.back());
        idle.push_back(running.back());
        running.pop_back();
      } while (!idle.empty() || !waiting.empty() || !running.empty());
      return Status::Ok();
    }

   private:
    bool Begin(OperationSource& source, Operation* operation,
               const std::vector<Operation*>& running) {
      const uint64_t now_ns = clock_.NowNs();
      if (operation->due_ns > now_ns) clock_.AdvanceNs(operation->due_ns - now_ns);
      if (!source.Begin(operation)) return false;
      std::lock_guard lock(journal_.mutex);
      for (const Operation* other : running) journal_.overlaps += other->key == operation->key;
      operation->status = Status::Ok();
      operation->found = !journal_.answer.empty();
      operation->found_value = journal_.answer;
      operation->rows.clear();
      journal_.executed.push_back({thread_, operation->kind, operation->key, operation->trace_line,
                                   operation->value.size(), operation->scan_length,
                                   operation->due_ns, operation->start_ns});
      return true;
    }

    Journal& journal_;
    ManualClock& clock_;
    const uint64_t thread_;
    Random random_;
  };

  Journal& journal_;
  ManualClock& clock_;
};

struct TraceTest : ::testing::Test {
  ManualClock clock;
  RecordingTarget::Journal journal;
  std::ostringstream out, error;
  int interrupt_fd = -1;
  const std::string file =
      (std::filesystem::path(::testing::TempDir()) /
       (std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + ".trace"))
          .string();

  void Trace(const std::string& text) {
    std::ofstream stream(file, std::ios::binary);
    stream << text;
    ASSERT_TRUE(stream.flush().good());
  }
  int Replay(std::vector<std::string> more = {}) {
    out.str("");
    error.str("");
    std::vector<std::string> arguments = {"-p", "farleaf.trace=" + file, "-p", "farleaf.keys=bytes",
                                          "--target", "recording:", "--status-interval", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments,
                      {.open_target = [this](const std::string&, const TargetOptions&, const Clock*)
                           -> Result<std::unique_ptr<Target>> {
                         return std::unique_ptr<Target>(
                             std::make_unique<RecordingTarget>(&journal, &clock));
                       },
                       .clock = &clock,
                       .out = &out,
                       .error = &error,
                       .interrupt_fd = interrupt_fd});
  }
  double Figure(const std::string& line) const {
    const size_t at = out.str().rfind(line + ", ");
    EXPECT_NE(at, std::string::npos) << line << " in " << out.str();
    return at == std::string::npos ? -1 : std::stod(out.str().substr(at + line.size() + 2));
  }
  bool Complained(std::string_view text) const {
    return error.str().find(text) != std::string::npos;
  }
};

TEST_F(TraceTest, OperationsAreThoseOfTheFile) {
  Trace("# six\nREAD a\nUPDATE b 40\nINSERT c\n\nSCAN d\\x20 5\nRMW e 0\nREAD-MODIFY-WRITE a 24\n");
  ASSERT_EQ(Replay({"-p", "fieldcount=3", "-p", "fieldlength=10"}), kExitOk) << error.str();
  struct Want {
    OpKind kind;
    std::string key;
    uint64_t line, value_bytes, rows;
  };
  const std::vector<Want> wanted = {{OpKind::kRead, "a", 2, 0, 0},
                                    {OpKind::kUpdate, "b", 3, 40, 0},
                                    {OpKind::kInsert, "c", 4, 30, 0},
                                    {OpKind::kScan, "d ", 6, 0, 5},
                                    {OpKind::kReadModifyWrite, "e", 7, 0, 0},
                                    {OpKind::kReadModifyWrite, "a", 8, 24, 0}};
  ASSERT_EQ(journal.executed.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Executed& executed = journal.executed[i];
    EXPECT_EQ(executed.kind, wanted[i].kind) << i;
    EXPECT_EQ(executed.key, wanted[i].key) << i;
    EXPECT_EQ(executed.line, wanted[i].line) << i;
    EXPECT_EQ(executed.value_bytes, wanted[i].value_bytes) << i;
    EXPECT_EQ(executed.rows, wanted[i].rows) << i;
    EXPECT_EQ(executed.due_ns, 0u) << i;
  }
  // Nothing is there, and that is no failure.
  EXPECT_EQ(Figure("[READ], Return=NOT_FOUND"), 1);
  EXPECT_EQ(Figure("[UPDATE], Return=NOT_FOUND"), 1);
  EXPECT_EQ(Figure("[INSERT], Return=OK"), 1);
  EXPECT_EQ(Figure("[READ-MODIFY-WRITE], Return=NOT_FOUND"), 2);
  EXPECT_EQ(Figure("[OVERALL], Errors"), 0);
  EXPECT_EQ(error.str(), "");
}

TEST_F(TraceTest, KeysKeepTheFilesOrderWithManyThreadsAndInFlight) {
  constexpr uint64_t kLines = 4'000, kKeys = 37;
  std::string text;
  Random random(9);
  for (uint64_t i = 0; i < kLines; ++i) {
    text += (random.OneIn(2) ? "READ k" : "UPDATE k") + std::to_string(random.Below(kKeys)) + "\n";
  }
  Trace(text);
  ASSERT_EQ(Replay({"--threads", "3", "--in-flight", "8"}), kExitOk) << error.str();
  ASSERT_EQ(journal.executed.size(), kLines);
  std::map<std::string, Executed> last;
  std::vector<bool> seen(kLines + 1);
  std::set<uint64_t> threads;
  for (const Executed& executed : journal.executed) {
    ASSERT_FALSE(seen.at(executed.line)) << executed.line;
    seen[executed.line] = true;
    threads.insert(executed.thread);
    const auto [it, first] = last.emplace(executed.key, executed);
    if (!first) {
      ASSERT_EQ(executed.thread, it->second.thread) << executed.key;
      ASSERT_GT(executed.line, it->second.line) << executed.key;
      it->second = executed;
    }
  }
  EXPECT_EQ(threads.size(), 3u);
  EXPECT_EQ(journal.overlaps, 0u);
  EXPECT_GT(journal.blocked, 100u);  // or the test would show nothing
}

TEST_F(TraceTest, AThreadWithoutKeysEndsAtOnce) {
  Trace("UPDATE only\nREAD only\n");
  ASSERT_EQ(Replay({"--threads", "8"}), kExitOk) << error.str();
  EXPECT_EQ(journal.executed.size(), 2u);
  EXPECT_EQ(journal.sessions, 8u);
}

TEST_F(TraceTest, TimesAreDueTimesAndLatenciesCountFromThem) {
  // Each takes 3 ms: the second ends 5 ms after its time, the third waits for its own.
  journal.take_ns = 3 * kNsPerMs;
  Trace("@1000 READ a\n@2000 READ a\n@50000 READ b\n");
  const uint64_t start_ns = clock.NowNs();
  ASSERT_EQ(Replay(), kExitOk) << error.str();
  ASSERT_EQ(journal.executed.size(), 3u);
  const std::vector<uint64_t> due_us = {1'000, 2'000, 50'000};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(journal.executed[i].due_ns, start_ns + due_us[i] * kNsPerUs);
    EXPECT_EQ(journal.executed[i].start_ns, journal.executed[i].due_ns);
  }
  EXPECT_NEAR(Figure("[READ], MinLatency(us)"), 3'000, 30);
  EXPECT_NEAR(Figure("[READ], MaxLatency(us)"), 5'000, 50);
  EXPECT_EQ(Figure("[OVERALL], RunTime(ms)"), 53);
  EXPECT_NE(out.str().find("open loop"), std::string::npos) << out.str();
}

TEST_F(TraceTest, RateSpacesTheFilesOperations) {
  Trace("READ a\nREAD b\n# c\nREAD c\nREAD d\nREAD e\nREAD f\n");
  const uint64_t start_ns = clock.NowNs();
  ASSERT_EQ(Replay({"--rate", "100", "--threads", "2"}), kExitOk) << error.str();
  ASSERT_EQ(journal.executed.size(), 6u);
  for (const Executed& executed : journal.executed) {
    const uint64_t index = static_cast<uint64_t>(executed.key.front() - 'a');
    EXPECT_EQ(executed.due_ns, start_ns + index * 10 * kNsPerMs) << executed.key;
  }
}

TEST_F(TraceTest, ForeignValuesAreCountedAndDamagedOnesFail) {
  Trace("READ a\nREAD b\nRMW b\nUPDATE b\n");
  journal.answer = std::string(100, 'x');
  EXPECT_EQ(Replay(), kExitOk) << error.str();
  EXPECT_EQ(Figure("[OVERALL], UnverifiedValues"), 3);
  EXPECT_EQ(Replay({"-p", "farleaf.trace_own_values=true"}), kExitFailed);
  EXPECT_TRUE(Complained("READ of key 'a' (" + file + " line 1): expected")) << error.str();

  const RecordCodec codec(KeyLayout::kBytes, InsertOrder::kHashed, 1, 1000);
  const TraceValues values(&codec);
  values.Make("b", 7, 100, &journal.answer);
  Trace("READ b\nRMW b\n");
  EXPECT_EQ(Replay({"-p", "farleaf.trace_own_values=true"}), kExitOk) << error.str();
  EXPECT_EQ(out.str().find("UnverifiedValues"), std::string::npos);
  Trace("READ b\n\nREAD a\n");  // where b's value stands
  EXPECT_EQ(Replay(), kExitFailed);
  EXPECT_TRUE(Complained("READ of key 'a' (" + file + " line 3): expected checksum"))
      << error.str();
}

TEST_F(TraceTest, WorkloadFileBesideItChangesNothing) {
  Trace("READ a\nUPDATE a\n");
  for (const char* letter : {"a", "d", "e"}) {
    journal.executed.clear();
    ASSERT_EQ(Replay({"-P", std::string(FARLEAF_WORKLOADS) + "/workload" + letter}), kExitOk)
        << error.str();
    EXPECT_EQ(journal.executed.size(), 2u);
  }
}

TEST_F(TraceTest, ReportNamesTheTrace) {
  Trace("@1 READ a\n@7 READ a\n@8 UPDATE a\n@9 READ a\n");
  const std::string json_file = file + ".json";
  ASSERT_EQ(Replay({"--json", json_file}), kExitOk) << error.str();
  std::ifstream stream(json_file);
  const auto json = nlohmann::json::parse(stream);
  const auto& configuration = json["configuration"];
  EXPECT_EQ(configuration["trace"]["file"], file);
  EXPECT_EQ(configuration["trace"]["timed"], true);
  EXPECT_EQ(configuration["trace"]["last_at_us"], 9);
  EXPECT_EQ(configuration["request_distribution"], "trace");
  EXPECT_EQ(configuration["operation_count"], 4);
  EXPECT_EQ(configuration["loop"], "open");
  EXPECT_EQ(configuration["proportions"]["READ"], 0.75);
  EXPECT_EQ(configuration["proportions"]["UPDATE"], 0.25);
}

TEST_F(TraceTest, FaultsAreToldBeforeAnythingRuns) {
  Trace("READ a\nUPDATE a lots\n");
  EXPECT_EQ(Replay(), kExitUsage);
  EXPECT_TRUE(Complained("property farleaf.trace: " + file +
                         " line 2: expected a value's bytes, from 0 to 16777216, found 'lots'"))
      << error.str();
  Trace("# nothing\n");
  EXPECT_EQ(Replay(), kExitUsage);
  EXPECT_TRUE(Complained(file + ": expected operations, found none")) << error.str();
  EXPECT_EQ(Replay({"-p", "farleaf.trace=/nowhere/t"}), kExitUsage);
  EXPECT_TRUE(Complained("trace '/nowhere/t' cannot be read")) << error.str();
  EXPECT_EQ(Replay({"-p", "farleaf.trace=/"}), kExitUsage);
  EXPECT_TRUE(Complained("trace '/' cannot be read")) << error.str();
  EXPECT_EQ(Replay({"-p", "farleaf.trace="}), kExitUsage);
  EXPECT_TRUE(Complained("property farleaf.trace=: expected a file's name")) << error.str();
  EXPECT_EQ(journal.sessions, 0u);
}

TEST_F(TraceTest, WhatDoesNotGoWithATraceIsRefused) {
  Trace("@1 READ a\n");
  EXPECT_EQ(Replay({"--rate", "10"}), kExitUsage);
  EXPECT_TRUE(Complained("--rate: the operations of " + file + " have times")) << error.str();
  EXPECT_EQ(Replay({"--warmup", "10"}), kExitUsage);
  EXPECT_TRUE(Complained("recordcount is not set: --warmup")) << error.str();
  for (const char* phases : {"load", "load,run"}) {
    EXPECT_EQ(Replay({"--phase", phases}), kExitUsage);
    EXPECT_TRUE(Complained("recordcount is not set: the load phase")) << error.str();
  }
  EXPECT_EQ(Replay({"-p", "farleaf.kvmix=sd"}), kExitUsage);
  EXPECT_TRUE(Complained("farleaf.kvmix=sd: farleaf.trace tells")) << error.str();
  EXPECT_EQ(journal.sessions, 0u);
}

// A file that changes between the check and the replay.

TEST_F(TraceTest, FileThatBecameShorterFailsTheRun) {
  Trace("READ a\nREAD a\n");
  const auto summary = SummarizeTraceFile(file, kByteFormat, 1);
  ASSERT_TRUE(summary.ok()) << summary.status();
  Trace("READ a\n");
  const RecordCodec codec(KeyLayout::kBytes, InsertOrder::kHashed, 1, 1000);
  TracePlayer player(&*summary, &codec, {});
  Operation operation;
  const auto first = player.Next(0, &operation);
  EXPECT_TRUE(first.ok() && *first) << first.status();
  EXPECT_EQ(player.Next(0, &operation).status().message(),
            "trace " + file + " has changed since it was checked");
}

TEST_F(TraceTest, StopEndsTheSearchForLinesOfAThread) {
  Trace("READ a\nREAD a\n");
  const auto summary = SummarizeTraceFile(file, kByteFormat, 1);
  ASSERT_TRUE(summary.ok()) << summary.status();
  const RecordCodec codec(KeyLayout::kBytes, InsertOrder::kHashed, 1, 1000);
  std::atomic<bool> stop{false};
  TracePlayer player(&*summary, &codec, {.stop = &stop});
  Operation operation;
  auto made = player.Next(0, &operation);
  EXPECT_TRUE(made.ok() && *made);
  stop.store(true);
  made = player.Next(0, &operation);
  EXPECT_TRUE(made.ok() && !*made);
}

TEST_F(TraceTest, CheckOfALongTraceCanBeInterrupted) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "READ a\n";
  Trace(text);
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  ASSERT_EQ(::write(fds[1], "x", 1), 1);
  interrupt_fd = fds[0];
  EXPECT_EQ(Replay(), kExitInterrupted);
  EXPECT_EQ(error.str(), "ycsb: property farleaf.trace: " + file +
                             ": interrupted while it was checked\n");
  EXPECT_EQ(journal.sessions, 0u);
  ::close(fds[0]);
  ::close(fds[1]);
}

// --- on an index, with the loop that real targets use ---

TEST_F(TraceTest, LastWriteOfAKeyInTheFileIsItsValue) {
  // Operations take random times, so that sixteen in flight would overtake each other.
  constexpr uint64_t kLines = 3'000;
  std::string text;
  std::map<std::string, uint64_t> bytes;
  Random random(3);
  for (uint64_t i = 0; i < kLines; ++i) {
    const std::string key = "k" + std::to_string(random.Below(20));
    const uint64_t size = 24 + random.Below(500);
    const bool is_new = !bytes.contains(key);
    const std::string kind = is_new ? "INSERT " : random.OneIn(2) ? "UPDATE " : "RMW ";
    text += kind + key + " " + std::to_string(size) + "\n";
    bytes[key] = size;
  }
  Trace(text);
  test::MapIndex map;
  Random delays(8);
  map.set_before([&delays](index::OpContext& op) -> index::Task<Status> {
    co_await op.worker.Sleep(delays.Below(20'000));
    co_return Status::Ok();
  });
  const MonotonicClock real;
  const std::vector<std::string> arguments = {
      "-p", "farleaf.trace=" + file, "-p", "farleaf.keys=bytes", "-p",
      "farleaf.trace_own_values=true", "--target", "map:", "--in-flight", "16",
      "--status-interval", "0"};
  ASSERT_EQ(RunCommand(arguments,
                       {.open_target = [&](const std::string&, const TargetOptions&, const Clock* c)
                            -> Result<std::unique_ptr<Target>> {
                          return std::unique_ptr<Target>(std::make_unique<MapTarget>(&map, c));
                        },
                        .clock = &real,
                        .out = &out,
                        .error = &error}),
            kExitOk)
      << error.str();
  for (const auto& [key, value] : map.Content()) EXPECT_EQ(value.size(), bytes.at(key)) << key;
  EXPECT_EQ(map.size(), bytes.size());
  EXPECT_EQ(Figure("[INSERT], Return=OK"), static_cast<double>(bytes.size()));
  EXPECT_EQ(out.str().find("NOT_FOUND"), std::string::npos) << out.str();
}

}  // namespace
}  // namespace farleaf::ycsb
