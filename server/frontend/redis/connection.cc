#include "server/frontend/redis/connection.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "dsm/base/bytes.h"
#include "server/frontend/redis/commands.h"

namespace farleaf::server::redis {

using dsm::Task;

namespace {
constexpr size_t kGatheredKeysMax = 256;
constexpr size_t kKeptReplyBytesMax = 1 << 20;
}  // namespace

Connection::Connection(Environment* environment, Limits limits, uint64_t id)
    : OrderedConnection(environment, limits.out_bytes_max),
      environment_(environment),
      limits_(limits),
      reader_({kLoginBytesMax, kLoginBytesMax}) {
  client_.id = id;
  client_.authenticated = !environment->authenticator().required();
  reader_.set_limits(RequestLimitsNow());
}

RequestLimits Connection::RequestLimitsNow() const {
  if (!client_.authenticated) return {kLoginBytesMax, kLoginBytesMax};
  return {limits_.value_bytes_max, limits_.request_bytes_max};
}

void Connection::RefuseAtOnce(Status why) {
  RefusePeerAtOnce("-ERR max number of clients reached\r\n", std::move(why));
}

// ---- Input ----

size_t Connection::BytesWanted() const {
  // A long request comes in blocks that double, so that it is not moved for every few bytes of it.
  return std::max(reader_.bytes_wanted(),
                  std::min(2 * reader_.position(), limits_.request_bytes_max));
}

std::string_view Connection::KeyOfNext() const {
  const auto& arguments = reader_.arguments();
  if (next_command_ == nullptr || next_command_->first_key <= 0) return {};
  const auto at = static_cast<size_t>(next_command_->first_key);
  return at < arguments.size() ? arguments[at] : std::string_view();
}

std::string_view Connection::GuessKey(std::string_view text) const {
  // "*3\r\n$3\r\nSET\r\n$5\r\nmykey\r\n": the second argument of any command.
  constexpr size_t kHeadBytesMax = 64;
  if (text.empty() || text[0] != '*') return {};
  size_t at = text.substr(0, kHeadBytesMax).find('$');
  for (int i = 0; i < 2 && at < text.size() && text[at] == '$'; ++i) {
    size_t bytes = 0;
    const std::string_view number = text.substr(at + 1, kHeadBytesMax);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bytes);
    const size_t begin = static_cast<size_t>(end - text.data()) + 2;
    if (error != std::errc() || begin > text.size() || bytes > text.size() - begin) return {};
    if (i == 1) return text.substr(begin, bytes);
    at = begin + bytes + 2;
  }
  return {};
}

void Connection::CutOff(std::string error) {
  const Status why = Status::Corruption(error);
  last_error_.clear();
  Reply(&last_error_, client_.version).Error("ERR " + error);
  RefusePeer(last_error_, why);
}

void Connection::FindNextCommand() {
  // Most often the one of before, spelled alike.
  const std::string_view name = reader_.arguments()[0];
  if (found_command_ == nullptr || name != found_name_) {
    found_command_ = FindCommand(name);
    if (found_command_ != nullptr) found_name_ = name;
  }
  next_command_ = found_command_;
}

bool Connection::TakeNext() {
  for (;;) {
    const std::string_view text = AsChars(unparsed());
    if (text.empty()) return false;
    const auto outcome = reader_.Read(text);
    Consume(reader_.consumed());
    switch (outcome) {
      case RequestReader::Outcome::kIncomplete:
        return false;
      case RequestReader::Outcome::kMalformed:
        CutOff(reader_.error());
        return false;
      case RequestReader::Outcome::kTooLarge:
        next_is_too_large_ = true;
        next_command_ = nullptr;
        return true;
      case RequestReader::Outcome::kRequest:
        if (reader_.arguments().empty()) continue;
        next_is_too_large_ = false;
        FindNextCommand();
        // Not a client of ours, but a browser that was made to send this.
        if (next_command_ == nullptr &&
            (IsWord(reader_.arguments()[0], "post") || IsWord(reader_.arguments()[0], "host:"))) {
          CutOff("this is not HTTP");
          return false;
        }
        return true;
    }
  }
}

// ---- Commands ----

bool Connection::NextIsRetrieval() const {
  return client_.authenticated && next_command_ != nullptr && next_command_->run == nullptr &&
         next_command_->first_key > 0 && reader_.arguments().size() == 2;
}

bool Connection::Stays(std::string_view argument) const {
  // Of an inline command the reader's room is written over by the next. And the block may have been given back meanwhile, or
  // be another one.
  const auto bytes = block() ? AsChars(block()->bytes()) : std::string_view();
  return argument.data() >= bytes.data() && argument.data() < bytes.data() + bytes.size();
}

bool Connection::GatherRetrievals(size_t* count) {
  wanted_.clear();
  wanted_command_ = IndexOf(*next_command_);
  bool took_another = false;
  do {
    const std::string_view key = reader_.arguments()[1];
    const bool stays = Stays(key);
    wanted_.push_back(key);
    if (!stays && wanted_.size() == 1) break;
    if (!stays) {
      wanted_.pop_back();
      took_another = true;
      break;
    }
    took_another = wanted_.size() < kGatheredKeysMax && TakeAnother();
  } while (took_another && NextIsRetrieval());
  *count = wanted_.size();
  return took_another;
}

bool Connection::NextIsSet() const {
  return client_.authenticated && next_command_ != nullptr && next_command_->run == Set &&
         reader_.arguments().size() == 3;
}

bool Connection::GatherSets(size_t max, size_t* count) {
  sets_.clear();
  set_command_ = IndexOf(*next_command_);
  bool took_another = false;
  do {
    const std::string_view key = reader_.arguments()[1], value = reader_.arguments()[2];
    const bool stays = Stays(key) && Stays(value);
    if (!stays && !sets_.empty()) {  // by itself
      took_another = true;
      break;
    }
    Stored& set = sets_.emplace_back();
    set.key = key;
    set.rule.data = value;
    took_another = stays && sets_.size() < max && TakeAnother();
  } while (took_another && NextIsSet());
  *count = sets_.size();
  return took_another;
}

RecordRule& Connection::RuleOfSet(size_t i) { return sets_[i].rule; }

void Connection::AnswerSet(size_t, const Status& status) {
  NoteEnded(set_command_, status);
  if (!status.ok()) return AnswerFailure(status);
  OutReply().Ok();
}

void Connection::AnswerWanted(size_t, const Record* record) {
  Counters& counters = environment_->counters();
  Reply reply = OutReply();
  NoteEnded(wanted_command_, retrieval_failure());
  if (!retrieval_failure().ok()) {
    AnswerFailure(std::exchange(retrieval_failure(), Status::Ok()));
    return;
  }
  Counters::Add(record != nullptr ? counters.key_hits : counters.key_misses);
  if (record == nullptr) {
    reply.Null();
  } else if (record->type != RecordType::kString) {
    reply.Error(kWrongType);
  } else {
    reply.Bulk(record->data);
  }
}

void Connection::AnswerFailure(const Status& failure) {
  Counters::Add(environment_->counters().failed);
  OutReply().Error("ERR " + failure.ToString());
}

std::string Connection::WrongWith() {
  // Before anything else is told of the server.
  const bool admitted =
      client_.authenticated ||
      (next_command_ != nullptr && (next_command_->run == Auth || next_command_->run == Hello ||
                                    next_command_->name == "quit"));
  if (!admitted) return "NOAUTH Authentication required.";
  if (next_is_too_large_) return "ERR " + reader_.error();
  const auto& arguments = reader_.arguments();
  if (next_command_ == nullptr) return RefusalOf(arguments);
  const auto count = static_cast<int>(arguments.size());
  const int arity = next_command_->arity;
  if (arity > 0 ? count == arity : count >= -arity) return {};
  return "ERR wrong number of arguments for '" + std::string(next_command_->name) + "' command";
}

Task<void> Connection::RunNext(dsm::OpContext& op) {
  Counters& counters = environment_->counters();
  if (const std::string wrong = WrongWith(); !wrong.empty()) {
    if (next_command_ == nullptr) Counters::Add(counters.refused);
    OutReply().Error(wrong);
    co_return;
  }
  if (next_command_->run == nullptr && next_command_->first_key == 0) {  // quit
    OutReply().Ok();
    Quit();
    co_return;
  }
  if (environment_->thread().stopping()) {
    AnswerFailure(Status::Unavailable("the server is stopping"));
    co_return;
  }
  reply_.clear();
  Call call{
      op,   *environment_, client_, limits_, reader_.arguments(), Reply(&reply_, client_.version),
      key_, value_};
  const Status status = co_await next_command_->run(call);
  NoteEnded(IndexOf(*next_command_), status);
  reader_.set_limits(RequestLimitsNow());
  if (!status.ok()) {
    AnswerFailure(status);
  } else if (reply_.size() > limits_.reply_bytes_max) {
    OutReply().Error(kReplyTooLarge);
  } else {
    out().append(reply_);
  }
  if (client_.attempts >= Authenticator::kAttemptsMax && !client_.authenticated) {
    RefusePeer({}, Status::InvalidArgument("the peer does not know the password"));
  }
  if (reply_.capacity() > kKeptReplyBytesMax) std::string().swap(reply_);
}

}  // namespace farleaf::server::redis
