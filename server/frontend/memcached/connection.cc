#include "server/frontend/memcached/connection.h"

#include <algorithm>
#include <utility>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"

namespace farleaf::server::memcached {

using dsm::Task;

namespace {
constexpr char kBinaryMagic = '\x80';
constexpr size_t kGatheredKeysMax = 256;

/// Whether a value that is too large would have replaced what the key has.
bool Overwrites(const Command& command) {
  const MetaFlags& meta = command.meta;
  if (command.verb == Verb::kSet) return true;
  return command.verb == Verb::kMetaSet && !meta.has('b') && !meta.has('M') && !meta.has('C');
}
}  // namespace

// ---- Input ----

size_t Connection::BytesWanted() const {
  // A long line comes in blocks that double, so that it is not moved for every few bytes of it.
  return std::max(bytes_wanted_, std::min(2 * line_searched_, line_bytes_max() + 1));
}

bool Connection::TakeInput() {
  if (authenticated_) return OrderedConnection::TakeInput();
  return !ended() && TakeCredentials();
}

bool Connection::TakeCredentials() {
  if (!TakeNext()) {
    SayLastWords();
    return false;
  }
  const Command& command = next_;
  const bool login = command.verb == Verb::kSet && command.refusal.empty();
  const size_t space = command.value.find(' ');
  if (command.verb == Verb::kQuit) {
    AnswerByItself(command);
  } else if (login && space != std::string_view::npos &&
             environment_->authenticator().Accepts(command.value.substr(space + 1))) {
    authenticated_ = true;
    AppendLine("STORED", &out());
  } else {
    const std::string_view answer =
        login ? "CLIENT_ERROR authentication failure\r\n" : "CLIENT_ERROR unauthenticated\r\n";
    if (++attempts_ < Authenticator::kAttemptsMax) {
      out().append(answer);
    } else {
      RefusePeerAtOnce(answer, Status::InvalidArgument("the peer does not know the password"));
    }
  }
  return true;
}

std::string_view Connection::GuessKey(std::string_view text) const {
  // "set mykey 0 0 5\r\n": the second word of any command.
  text = text.substr(0, kKeyBytesMax + 16);
  TakeWord(&text);
  const std::string_view key = TakeWord(&text);
  return text.empty() ? std::string_view() : key.substr(0, key.find('\r'));
}

bool Connection::TakeSkipped() {
  const size_t skipped = std::min(skip_, unparsed().size());
  Consume(skipped);
  skip_ -= skipped;
  return skip_ == 0;
}

bool Connection::TakeNext() {
  if (!TakeSkipped()) return false;
  const std::string_view text = AsChars(unparsed());
  if (text.empty() || text.size() < bytes_wanted_) return false;
  if (text[0] == kBinaryMagic) {
    RefusePeer(
        "CLIENT_ERROR the binary protocol is not spoken here; use the text or meta protocol\r\n",
        Status::Corruption("the peer speaks memcached's binary protocol"));
    return false;
  }
  const size_t end = text.find('\n', line_searched_);
  if (end == std::string_view::npos ? text.size() > line_bytes_max() : end > line_bytes_max()) {
    RefusePeer(
        "CLIENT_ERROR line too long\r\n",
        Status::Corruption("a line of more than " + std::to_string(line_bytes_max()) + " bytes"));
    return false;
  }
  if (end == std::string_view::npos) {
    line_searched_ = text.size();
    return false;
  }
  const bool cr = end > 0 && text[end - 1] == '\r';
  next_ = ParseCommand(text.substr(0, end - (cr ? 1 : 0)), {value_bytes_max()});
  line_searched_ = 0;
  if (!TakeValue(text.substr(end + 1), end + 1, &next_)) return false;
  bytes_wanted_ = 0;
  return true;
}

bool Connection::TakeValue(std::string_view behind_line, size_t line_bytes, Command* command) {
  constexpr std::string_view kLineEnd = "\r\n";
  if (!command->value_bytes) {
    Consume(line_bytes);
    return true;
  }
  const size_t bytes = *command->value_bytes, all = bytes + kLineEnd.size();
  if (!command->refusal.empty()) {
    Consume(line_bytes);
    skip_ = all;
    return true;
  }
  if (behind_line.size() < all) {
    bytes_wanted_ = line_bytes + all;
    return false;
  }
  command->value = behind_line.substr(0, bytes);
  if (behind_line.substr(bytes, kLineEnd.size()) != kLineEnd) {
    command->refusal = "CLIENT_ERROR bad data chunk";
  }
  Consume(line_bytes + all);
  return true;
}

// ---- Commands ----

bool Connection::NextIsRetrieval() const {
  return (next_.verb == Verb::kGet || next_.verb == Verb::kGets) && next_.refusal.empty();
}

bool Connection::GatherRetrievals(size_t* count) {
  wanted_.clear();
  bool took_another = false;
  do {
    Counters::Add(environment_->counters().commands[static_cast<size_t>(next_.verb)]);
    const bool with_cas = next_.verb == Verb::kGets;
    std::string_view rest = next_.more_keys;
    for (std::string_view key = next_.key; !key.empty(); key = TakeWord(&rest)) {
      wanted_.push_back({key, with_cas, false});
    }
    wanted_.back().ends = true;
    took_another = wanted_.size() < kGatheredKeysMax && TakeAnother();
  } while (took_another && NextIsRetrieval());
  *count = wanted_.size();
  return took_another;
}

void Connection::AnswerWanted(size_t i, const Record* record) {
  const Wanted& wanted = wanted_[i];
  // What is no string is none of memcached's items.
  if (record != nullptr && record->type != RecordType::kString) record = nullptr;
  Counters& counters = environment_->counters();
  Counters::Add(counters.keys_got);
  Counters::Add(record != nullptr ? counters.get_hits : counters.get_misses);
  if (record != nullptr) AppendValue(wanted.key, *record, {wanted.with_cas}, &out());
  if (!wanted.ends) return;
  NoteEnded(static_cast<size_t>(wanted.with_cas ? Verb::kGets : Verb::kGet), retrieval_failure());
  if (retrieval_failure().ok()) {
    out().append("END\r\n");
  } else {
    Counters::Add(counters.failed);
    AppendFailure(std::exchange(retrieval_failure(), Status::Ok()), &out());
  }
}

bool Connection::GatherSets(size_t max, size_t* count) {
  sets_.clear();
  bool took_another = false;
  do {
    Stored& set = sets_.emplace_back();
    set.key = next_.key;
    set.exptime = next_.exptime;
    set.quiet = next_.quiet;
    set.rule.flags = next_.flags;
    set.rule.data = next_.value;
    set.rule.data_bytes_max = limits_.value_bytes_max;
    took_another = sets_.size() < max && TakeAnother();
  } while (took_another && NextIsSet());
  Counters::Add(environment_->counters().commands[static_cast<size_t>(Verb::kSet)], sets_.size());
  *count = sets_.size();
  return took_another;
}

RecordRule& Connection::RuleOfSet(size_t i) {
  Stored& set = sets_[i];
  if (set.exptime != 0) set.rule.expiry_ms = ExpiryMs(set.exptime, environment_->store().NowMs());
  return set.rule;
}

void Connection::AnswerSet(size_t i, const Status& status) {
  NoteEnded(static_cast<size_t>(Verb::kSet), status);
  if (!status.ok()) Counters::Add(environment_->counters().failed);
  if (sets_[i].quiet) return;
  if (!status.ok()) return AppendFailure(status, &out());
  AppendLine(StoreAnswer(sets_[i].rule.outcome), &out());
}

Call Connection::CallOf(dsm::OpContext& op) {
  return {op,    environment_->store(),  environment_->counters(), key_, value_,
          out(), limits_.value_bytes_max};
}

Task<void> Connection::RunNext(dsm::OpContext& op) {
  Counters& counters = environment_->counters();
  Counters::Add(counters.commands[static_cast<size_t>(next_.verb)]);
  const Status status = co_await Execute(op, next_);
  NoteEnded(static_cast<size_t>(next_.verb), status);
  if (status.ok()) co_return;
  Counters::Add(counters.failed);
  const bool meta = next_.verb >= Verb::kMetaGet && next_.verb <= Verb::kMetaNoop;
  if (meta || !next_.quiet) AppendFailure(status, &out());
}

Task<Status> Connection::Execute(dsm::OpContext& op, const Command& command) {
  Call call = CallOf(op);
  if (environment_->thread().stopping() && command.verb != Verb::kQuit) {
    co_return Status::Unavailable("the server is stopping");
  }
  if (!command.refusal.empty()) {
    const bool told = !command.quiet || command.verb == Verb::kMetaSet;
    if (told) AppendLine(command.refusal, &out());
    if (command.refusal != kTooLarge || !Overwrites(command)) co_return Status::Ok();
    const Status deleted = co_await DeleteOutdated(call, command);
    co_return told ? Status::Ok() : deleted;
  }
  switch (command.verb) {
    case Verb::kGat:
    case Verb::kGats: {
      const Status status = co_await ExecuteGetAndTouch(call, command);
      co_return status;
    }
    case Verb::kMetaGet:
    case Verb::kMetaSet:
    case Verb::kMetaDelete:
    case Verb::kMetaArithmetic:
    case Verb::kMetaDebug: {
      const Status status = co_await ExecuteMeta(call, command);
      co_return status;
    }
    case Verb::kFlushAll: {
      const Status status = co_await environment_->FlushAll(command.exptime);
      if (status.ok() && !command.quiet) AppendLine("OK", &out());
      co_return status;
    }
    case Verb::kStats:
    case Verb::kVersion:
    case Verb::kVerbosity:
    case Verb::kMetaNoop:
    case Verb::kQuit:
      AnswerByItself(command);
      co_return Status::Ok();
    default: {
      const Status status = co_await ExecuteWrite(call, command);
      co_return status;
    }
  }
}

void Connection::AnswerByItself(const Command& command) {
  switch (command.verb) {
    case Verb::kStats:
      if (environment_->AppendStats(command.argument, &out())) {
        AppendLine("END", &out());
      } else {
        AppendLine(kError, &out());
      }
      break;
    case Verb::kVersion:
      out().append("VERSION ");
      AppendLine(VersionText(), &out());
      break;
    case Verb::kVerbosity:
      if (!command.quiet) AppendLine("OK", &out());
      break;
    case Verb::kMetaNoop:
      AppendLine("MN", &out());
      break;
    default:  // quit
      Quit();
      break;
  }
}

}  // namespace farleaf::server::memcached
