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
constexpr size_t kBatchKeysMax = 256;

bool IsRetrieval(const Command& command) {
  return (command.verb == Verb::kGet || command.verb == Verb::kGets) && command.refusal.empty();
}

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
  if (pumping_ || quit_) return false;
  if (!authenticated_) return TakeCredentials();
  if (!TakeCommand(&next_)) {
    SayLastWords();
    return false;
  }
  pumping_ = true;
  environment_->thread().Serve(*this, Pump());
  return true;
}

bool Connection::TakeCredentials() {
  Command command;
  if (!TakeCommand(&command)) {
    SayLastWords();
    return false;
  }
  const bool login = command.verb == Verb::kSet && command.refusal.empty();
  const size_t space = command.value.find(' ');
  if (command.verb == Verb::kQuit) {
    AnswerByItself(command);
  } else if (login && space != std::string_view::npos &&
             environment_->authenticator()->Accepts(command.value.substr(space + 1))) {
    authenticated_ = true;
    AppendLine("STORED", &out());
  } else {
    const std::string_view answer =
        login ? "CLIENT_ERROR authentication failure" : "CLIENT_ERROR unauthenticated";
    if (++attempts_ < Authenticator::kAttemptsMax) {
      AppendLine(answer, &out());
    } else {
      RefusePeer(answer, Status::InvalidArgument("the peer does not know the password"));
      SayLastWords();
    }
  }
  return true;
}

void Connection::OutputHasRoom() {
  // Not at once: the worker has to see its coroutines end.
  if (waiting_) environment_->thread().worker().ResumeSoon(std::exchange(waiting_, {}));
}

bool Connection::TakeSkipped() {
  const size_t skipped = std::min(skip_, unparsed().size());
  Consume(skipped);
  skip_ -= skipped;
  return skip_ == 0;
}

void Connection::RefusePeer(std::string_view answer, Status why) {
  last_words_ = answer;
  end_ = std::move(why);
}

void Connection::SayLastWords() {
  if (end_.ok() || !failure().ok()) return;
  AppendLine(last_words_, &out());
  Refuse(end_);
}

void Connection::RefuseAtOnce(std::string_view answer, Status why) {
  RefusePeer(answer, std::move(why));
  SayLastWords();
}

bool Connection::TakeCommand(Command* command) {
  if (!end_.ok() || !TakeSkipped()) return false;
  const std::string_view text = AsChars(unparsed());
  if (text.empty() || text.size() < bytes_wanted_) return false;
  if (text[0] == kBinaryMagic) {
    RefusePeer("CLIENT_ERROR the binary protocol is not spoken here; use the text or meta protocol",
               Status::Corruption("the peer speaks memcached's binary protocol"));
    return false;
  }
  const size_t end = text.find('\n', line_searched_);
  if (end == std::string_view::npos ? text.size() > line_bytes_max() : end > line_bytes_max()) {
    RefusePeer(
        "CLIENT_ERROR line too long",
        Status::Corruption("a line of more than " + std::to_string(line_bytes_max()) + " bytes"));
    return false;
  }
  if (end == std::string_view::npos) {
    line_searched_ = text.size();
    return false;
  }
  const bool cr = end > 0 && text[end - 1] == '\r';
  *command = ParseCommand(text.substr(0, end - (cr ? 1 : 0)), {value_bytes_max()});
  line_searched_ = 0;
  if (!TakeValue(text.substr(end + 1), end + 1, command)) return false;
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

Task<void> Connection::Pump() {
  ServingThread& thread = environment_->thread();
  dsm::FabricCounts counts;
  dsm::OpContext op{thread.worker(), counts, UINT64_MAX};
  Running running(&op);
  thread.Link(running);
  InputBlockRef kept = block();  // what next_ looks at
  uint64_t begin_ns = thread.worker().clock().NowNs();
  for (bool more = true; more;) {
    op.deadline_ns = environment_->DeadlineNs();
    bool took_next = false;
    ended_.clear();
    if (IsRetrieval(next_) && !thread.stopping()) {
      took_next = GatherRetrievals();
      co_await RunRetrievals(op);
    } else {
      co_await Run(op, next_);
    }
    CountEnded(&begin_ns, &counts);
    if (abandoned()) out().clear();
    thread.Flush(*this);
    // A command that was taken behind retrievals is in the same block, and has to be run.
    if (took_next) continue;
    more = !quit_ && failure().ok() && !output_full() && TakeCommand(&next_);
    if (more) kept = block();
  }
  SayLastWords();
  pumping_ = false;
  thread.Served(*this);
}

void Connection::NoteEnded(Verb verb, const Status& status) {
  const auto outcome = status.ok() ? CommandStats::Outcome::kOk : CommandStats::Outcome::kFailed;
  if (ended_.empty() || ended_.back().verb != verb || ended_.back().outcome != outcome) {
    ended_.push_back({verb, outcome, 0});
  }
  ++ended_.back().times;
}

void Connection::CountEnded(uint64_t* begin_ns, dsm::FabricCounts* spent) {
  Counters& counters = environment_->counters();
  const uint64_t now_ns = environment_->thread().worker().clock().NowNs();
  Counters::Add(counters.round_trips, spent->round_trips);
  for (const Ended& ended : ended_) {
    counters.stats.Record(static_cast<size_t>(ended.verb), ended.outcome, now_ns - *begin_ns,
                          *spent, ended.times);
    *spent = {};  // those that end together share it, so that it counts once
  }
  *begin_ns = now_ns;
}

bool Connection::GatherRetrievals() {
  wanted_.clear();
  for (;;) {
    Counters::Add(environment_->counters().commands[static_cast<size_t>(next_.verb)]);
    for (std::string_view rest = next_.keys;;) {
      const std::string_view key = TakeWord(&rest);
      if (key.empty()) break;
      wanted_.push_back({key, next_.verb == Verb::kGets, false});
    }
    wanted_.back().ends = true;
    if (wanted_.size() >= kGatheredKeysMax || !TakeCommand(&next_)) return false;
    if (!IsRetrieval(next_)) return true;
  }
}

void Connection::Answer(const Wanted& wanted, const Record* record) {
  Counters& counters = environment_->counters();
  Counters::Add(counters.keys_got);
  Counters::Add(record != nullptr ? counters.get_hits : counters.get_misses);
  if (record != nullptr) AppendValue(wanted.key, *record, {wanted.with_cas}, &out());
  if (!wanted.ends) return;
  NoteEnded(wanted.with_cas ? Verb::kGets : Verb::kGet, retrieval_failure_);
  if (retrieval_failure_.ok()) {
    AppendLine("END", &out());
  } else {
    Counters::Add(counters.failed);
    AppendFailure(std::exchange(retrieval_failure_, Status::Ok()), &out());
  }
}

Task<void> Connection::RunRetrievals(dsm::OpContext& op) {
  for (size_t begin = 0; begin < wanted_.size();) {
    const size_t end = std::min(begin + batch_keys_, wanted_.size());
    if (end - begin == 1) {
      co_await RetrieveOneByOne(op, begin, end);
      begin = end;
    } else {
      keys_bytes_.clear();
      keys_.clear();
      size_t bytes = 0;
      for (size_t i = begin; i < end; ++i) bytes += wanted_[i].key.size() + 1;
      keys_bytes_.reserve(bytes);  // views into it stay valid
      for (size_t i = begin; i < end; ++i) {
        const size_t at = keys_bytes_.size();
        keys_bytes_.append(1, kMemcachedSpace).append(wanted_[i].key);
        keys_.push_back(std::string_view(keys_bytes_).substr(at));
      }
      const Status got = co_await environment_->store().MultiGet(op, keys_, &values_, &records_);
      if (got.ok()) {
        const size_t before = out().size();
        for (size_t i = begin; i < end; ++i) {
          const auto& record = records_[i - begin];
          Answer(wanted_[i], record ? &*record : nullptr);
        }
        // What one batch holds in memory at once is to be a part of what may wait to be sent.
        const bool large = out().size() - before > limits_.out_bytes_max / 4;
        batch_keys_ =
            large ? std::max<size_t>(batch_keys_ / 2, 2) : std::min(batch_keys_ * 2, kBatchKeysMax);
      } else {
        // One memory server that is lost is no reason to fail the keys of others.
        co_await RetrieveOneByOne(op, begin, end);
      }
      begin = end;
    }
    if (abandoned()) out().clear();
    co_await Room{this};
    op.deadline_ns = environment_->DeadlineNs();
  }
}

Task<void> Connection::RetrieveOneByOne(dsm::OpContext& op, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    Record record;
    bool found = false;
    if (retrieval_failure_.ok()) {  // otherwise this command has failed, and goes to its end
      MakeTreeKey(wanted_[i].key, &key_);
      const auto got = co_await environment_->store().Get(op, key_, &value_, &record);
      if (got.ok()) {
        found = *got;
      } else {
        retrieval_failure_ = got.status();
      }
    }
    Answer(wanted_[i], found ? &record : nullptr);
  }
}

Task<void> Connection::Run(dsm::OpContext& op, const Command& command) {
  Counters& counters = environment_->counters();
  Counters::Add(counters.commands[static_cast<size_t>(command.verb)]);
  const Status status = co_await Execute(op, command);
  NoteEnded(command.verb, status);
  if (status.ok()) co_return;
  Counters::Add(counters.failed);
  const bool meta = command.verb >= Verb::kMetaGet && command.verb <= Verb::kMetaNoop;
  if (meta || !command.quiet) AppendFailure(status, &out());
}

Task<Status> Connection::Execute(dsm::OpContext& op, const Command& command) {
  Call call{op,    environment_->store(),  environment_->counters(), key_, value_,
            out(), limits_.value_bytes_max};
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
      quit_ = true;
      InputEnded();
      break;
  }
}

}  // namespace farleaf::server::memcached
