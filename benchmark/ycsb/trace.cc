#include "benchmark/ycsb/trace.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "benchmark/ycsb/kv_mix.h"
#include "benchmark/ycsb/record.h"
#include "dsm/base/bytes.h"

namespace farleaf::ycsb {

namespace {

constexpr size_t kTraceBlockBytes = 256 << 10;
static_assert(kTraceBlockBytes > kTraceLineBytesMax);
constexpr uint64_t kInterruptedEvery = 8192;
constexpr uint64_t kTraceHashSeed = 0x7472616365;
constexpr std::string_view kBlanks = " \t";

/// Takes the first word off `rest`; empty if there is none.
std::string_view TakeWord(std::string_view* rest) {
  rest->remove_prefix(std::min(rest->find_first_not_of(kBlanks), rest->size()));
  const std::string_view word = rest->substr(0, rest->find_first_of(kBlanks));
  rest->remove_prefix(word.size());
  return word;
}

/// `expected` ends a message that says what stands there instead.
Status Unexpected(std::string expected, std::string_view found) {
  return Status::InvalidArgument("expected " + std::move(expected) + ", found " +
                                 (found.empty() ? "the end of the line" : Printable(found)));
}

std::optional<uint64_t> ParseNumber(std::string_view word, uint64_t min, uint64_t max) {
  uint64_t number = 0;
  const char* const end = word.data() + word.size();
  const auto [stopped, error] = std::from_chars(word.data(), end, number);
  const bool whole = error == std::errc() && stopped == end && !word.empty();
  return whole && number >= min && number <= max ? std::optional(number) : std::nullopt;
}

std::optional<OpKind> TracedKind(std::string_view word) {
  return word == "RMW" ? OpKind::kReadModifyWrite : OpKindNamed(word);
}

/// The text with its escapes replaced; false: one of them is none, or a byte should be one.
bool Unescape(std::string_view word, std::string* text) {
  text->clear();
  while (!word.empty()) {
    const char c = word.front();
    size_t taken = 1;
    char byte = c;
    if (c == '\\') {
      unsigned code = 0;
      const bool hex =
          word.size() >= 4 && word[1] == 'x' &&
          std::from_chars(word.data() + 2, word.data() + 4, code, 16).ptr == word.data() + 4;
      if (!hex && !word.starts_with("\\\\")) return false;
      taken = hex ? 4 : 2;
      if (hex) byte = static_cast<char>(code);
    } else if (static_cast<unsigned char>(c) < ' ' || c == 127) {
      return false;
    }
    text->push_back(byte);
    word.remove_prefix(taken);
  }
  return true;
}

Status ParseKey(std::string_view word, KeyLayout layout, std::string* key) {
  if (layout == KeyLayout::kFixed8) {
    const auto number = ParseNumber(word, 0, UINT64_MAX);
    if (!number) return Unexpected("a key of fixed8, a decimal number of 64 bits", word);
    key->resize(8);
    StoreBig64(key->data(), *number);
    return Status::Ok();
  }
  if (word.empty()) return Unexpected("a key", word);
  if (!Unescape(word, key)) {
    return Unexpected(
        "a key whose blanks and control characters are \\xNN and whose backslashes "
        "are \\\\",
        word);
  }
  if (key->size() > kTraceKeyBytesMax) {
    return Status::InvalidArgument("expected a key of at most " +
                                   std::to_string(kTraceKeyBytesMax) + " bytes, found one of " +
                                   std::to_string(key->size()));
  }
  return Status::Ok();
}

Status ParseValueBytes(std::string_view word, const TraceFormat& format, uint64_t* bytes) {
  *bytes = format.value_bytes;
  if (word.empty()) return Status::Ok();
  const bool fixed8 = format.key_layout == KeyLayout::kFixed8;
  const auto number = ParseNumber(word, fixed8 ? 8 : 0, fixed8 ? 8 : kTraceValueBytesMax);
  if (!number) {
    return Unexpected(fixed8 ? "8 bytes, as every value of fixed8 has"
                             : "a value's bytes, from 0 to " + std::to_string(kTraceValueBytesMax),
                      word);
  }
  *bytes = *number;
  return Status::Ok();
}

}  // namespace

Result<bool> ParseTraceLine(std::string_view line, const TraceFormat& format,
                            TracedOperation* operation) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::string_view word = TakeWord(&line);
  if (word.empty() || word.front() == '#') return false;
  operation->at_us.reset();
  if (word.front() == '@') {
    operation->at_us = ParseNumber(word.substr(1), 0, kTraceTimeUsMax);
    if (!operation->at_us) {
      return Unexpected("@ and microseconds from 0 to " + std::to_string(kTraceTimeUsMax), word);
    }
    word = TakeWord(&line);
  }
  const auto kind = TracedKind(word);
  if (!kind) return Unexpected("READ, UPDATE, INSERT, SCAN or RMW", word);
  operation->kind = *kind;
  FARLEAF_RETURN_IF_ERROR(ParseKey(TakeWord(&line), format.key_layout, &operation->key));
  operation->value_bytes = operation->rows = 0;
  if (*kind == OpKind::kScan) {
    word = TakeWord(&line);
    const auto rows = ParseNumber(word, 1, kTraceRowsMax);
    if (!rows) return Unexpected("the rows, from 1 to " + std::to_string(kTraceRowsMax), word);
    operation->rows = *rows;
  } else if (*kind != OpKind::kRead) {
    FARLEAF_RETURN_IF_ERROR(ParseValueBytes(TakeWord(&line), format, &operation->value_bytes));
  }
  word = TakeWord(&line);
  if (!word.empty()) return Unexpected("the end of the line", word);
  return true;
}

Result<std::unique_ptr<TraceReader>> TraceReader::Open(const std::string& path,
                                                       const TraceFormat& format) {
  // What can be read but once, such as a pipe, would be empty for the threads.
  std::error_code ignored;
  auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
  if (!std::filesystem::is_regular_file(path, ignored) || !*file) {
    return Status::NotFound("trace '" + path + "' cannot be read: name a file that is there");
  }
  return std::make_unique<TraceReader>(std::move(file), path, format);
}

TraceReader::TraceReader(std::unique_ptr<std::istream> text, std::string source,
                         const TraceFormat& format)
    : text_(std::move(text)), source_(std::move(source)), format_(format) {}

Result<bool> TraceReader::Next(TracedOperation* operation) {
  while (true) {
    auto line = NextLine();
    if (!line.ok()) return line.status();
    if (!*line) return false;
    auto parsed = ParseTraceLine(**line, format_, operation);
    if (!parsed.ok()) return At(parsed.status().message());
    if (!*parsed) continue;
    FARLEAF_RETURN_IF_ERROR(CheckTime(*operation));
    operation->line = line_;
    operation->index = operations_++;
    return true;
  }
}

Result<std::optional<std::string_view>> TraceReader::NextLine() {
  size_t end = block_.find('\n', begin_);
  if (end == std::string::npos && *text_) {
    block_.erase(0, begin_);
    begin_ = 0;
    const size_t kept = block_.size();
    block_.resize(kTraceBlockBytes);
    text_->read(block_.data() + kept, static_cast<std::streamsize>(kTraceBlockBytes - kept));
    block_.resize(kept + static_cast<size_t>(text_->gcount()));
    if (text_->bad()) return Status::IoError("trace " + source_ + ": reading it failed");
    end = block_.find('\n', kept);
  }
  if (begin_ == block_.size()) return std::optional<std::string_view>();
  ++line_;
  end = std::min(end, block_.size());
  const std::string_view line(block_.data() + begin_, end - begin_);
  if (line.size() > kTraceLineBytesMax) {
    return At("expected at most " + std::to_string(kTraceLineBytesMax) + " bytes, found more");
  }
  begin_ = std::min(end + 1, block_.size());
  return std::optional(line);
}

Status TraceReader::CheckTime(const TracedOperation& operation) {
  const bool timed = operation.at_us.has_value();
  if (operations_ == 0) timed_ = timed;
  if (timed != timed_) {
    return At(timed ? "expected no time, as the operations above have none"
                    : "expected a time, @MICROSECONDS, as the operations above have");
  }
  if (!timed) return Status::Ok();
  if (*operation.at_us < last_at_us_) {
    return At("expected a time not before @" + std::to_string(last_at_us_) +
              " of the operation above, found @" + std::to_string(*operation.at_us));
  }
  last_at_us_ = *operation.at_us;
  return Status::Ok();
}

Status TraceReader::At(std::string_view problem) const {
  return Status::InvalidArgument(source_ + " line " + std::to_string(line_) + ": " +
                                 std::string(problem));
}

uint64_t TraceKeyHash(std::string_view key) { return HashKey(key, kTraceHashSeed); }

Result<TraceSummary> SummarizeTrace(TraceReader& reader, uint64_t threads,
                                    const TraceInterrupted& interrupted) {
  TraceSummary summary;
  summary.of_thread.resize(threads);
  TracedOperation operation;
  while (true) {
    auto more = reader.Next(&operation);
    if (!more.ok()) return more.status();
    if (!*more) break;
    if (++summary.operations % kInterruptedEvery == 0 && interrupted && interrupted()) {
      return Status::Unavailable(reader.source() + ": interrupted while it was checked");
    }
    ++summary.of_kind[static_cast<size_t>(operation.kind)];
    ++summary.of_thread[TraceThread(TraceKeyHash(operation.key), threads)];
    summary.timed = operation.at_us.has_value();
    summary.last_at_us = operation.at_us.value_or(0);
  }
  if (summary.operations == 0) {
    return Status::InvalidArgument(reader.source() + ": expected operations, found none");
  }
  return summary;
}

Result<TraceSummary> SummarizeTraceFile(const std::string& path, const TraceFormat& format,
                                        uint64_t threads, const TraceInterrupted& interrupted) {
  auto reader = TraceReader::Open(path, format);
  if (!reader.ok()) return reader.status();
  auto summary = SummarizeTrace(**reader, threads, interrupted);
  if (!summary.ok()) return summary;
  summary->file = path;
  summary->format = format;
  return summary;
}

}  // namespace farleaf::ycsb
