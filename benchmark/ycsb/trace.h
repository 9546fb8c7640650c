// Traces: a file of operations to replay, one a line, and how its lines are dealt to threads.
//
//   # comment                         empty lines and comments say nothing
//   READ KEY
//   UPDATE KEY [BYTES]                of the value; else fieldcount x fieldlength
//   INSERT KEY [BYTES]
//   SCAN KEY ROWS                     the first ROWS rows from KEY on
//   RMW KEY [BYTES]                   or READ-MODIFY-WRITE
//   @MICROSECONDS READ KEY            due so long after the start; all lines have a time or none,
//                                     and none is before the line above
//
// What stands in a line is separated by blanks or tabs. A KEY of byte strings is its text, where
// \xNN is the byte NN and \\ a backslash; blanks and control characters have to be written so. A
// key of fixed8 is a decimal number, stored as its 8 bytes, big-endian: key number N of
// insertorder=ordered.
//
// A key's lines all belong to one thread, so that they stay in the file's order.
// Thread rule: a TraceReader has one owner; the rest are values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <istream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "benchmark/ycsb/workload.h"
#include "dsm/base/result.h"

namespace farleaf::ycsb {

inline constexpr uint64_t kTraceLineBytesMax = 64 << 10;
inline constexpr uint64_t kTraceKeyBytesMax = 4096;
inline constexpr uint64_t kTraceValueBytesMax = 16 << 20;
inline constexpr uint64_t kTraceRowsMax = 1'000'000;
inline constexpr uint64_t kTraceTimeUsMax = 1'000'000'000'000'000;  ///< 31 years

struct TraceFormat {
  KeyLayout key_layout = KeyLayout::kFixed8;
  uint64_t value_bytes = 8;  ///< where a line does not tell
};

struct TracedOperation {
  OpKind kind = OpKind::kRead;
  std::string key;           ///< as it is stored
  uint64_t value_bytes = 0;  ///< UPDATE, INSERT, READ-MODIFY-WRITE
  uint64_t rows = 0;         ///< SCAN
  std::optional<uint64_t> at_us;
  // Filled in by TraceReader:
  uint64_t line = 0;   ///< from 1 on
  uint64_t index = 0;  ///< of the file's operations, from 0 on
};

/// False: the line says nothing. InvalidArgument tells what was expected and found.
Result<bool> ParseTraceLine(std::string_view line, const TraceFormat& format,
                            TracedOperation* operation);

/// Reads a trace from its beginning to its end, holding a block of it.
class TraceReader {
 public:
  /// NotFound: no file that can be read more than once has that name.
  static Result<std::unique_ptr<TraceReader>> Open(const std::string& path,
                                                   const TraceFormat& format);
  /// `source` stands in messages.
  TraceReader(std::unique_ptr<std::istream> text, std::string source, const TraceFormat& format);

  /// False at the end. InvalidArgument names source and line. REQUIRES: no call before it failed.
  Result<bool> Next(TracedOperation* operation);
  const std::string& source() const { return source_; }

 private:
  /// nullopt at the end; valid until the next call.
  Result<std::optional<std::string_view>> NextLine();
  Status CheckTime(const TracedOperation& operation);
  Status At(std::string_view problem) const;

  std::unique_ptr<std::istream> text_;
  const std::string source_;
  const TraceFormat format_;
  std::string block_;  ///< text from begin_ on is still to be read
  size_t begin_ = 0;
  uint64_t line_ = 0, operations_ = 0;
  bool timed_ = false;
  uint64_t last_at_us_ = 0;
};

/// The hash that decides a key's thread, and tells keys apart.
uint64_t TraceKeyHash(std::string_view key);
inline uint64_t TraceThread(uint64_t key_hash, uint64_t threads) {
  return (key_hash >> 32) % threads;
}

/// What a trace holds, found by reading all of it once.
struct TraceSummary {
  std::string file;
  TraceFormat format;
  uint64_t operations = 0;
  std::array<uint64_t, kOpKinds> of_kind{};
  std::vector<uint64_t> of_thread;  ///< element i: operations that fall to thread i
  bool timed = false;
  uint64_t last_at_us = 0;
};
/// Asked every few thousand lines, so that a long trace can be left.
using TraceInterrupted = std::function<bool()>;
/// Fails as TraceReader does, and if there is no operation. Unavailable: interrupted.
Result<TraceSummary> SummarizeTrace(TraceReader& reader, uint64_t threads,
                                    const TraceInterrupted& interrupted = {});
Result<TraceSummary> SummarizeTraceFile(const std::string& path, const TraceFormat& format,
                                        uint64_t threads,
                                        const TraceInterrupted& interrupted = {});

}  // namespace farleaf::ycsb
