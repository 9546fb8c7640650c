#include "server/frontend/ordered_connection.h"

#include <algorithm>
#include <utility>

namespace farleaf::server {

using dsm::Task;

// ---- Input ----

bool OrderedConnection::TakeInput() {
  if (pumping_ || quit_) return false;
  if (!TakeCommand()) {
    SayLastWords();
    return false;
  }
  Gathered gathered;
  if (RunAtOnce(&gathered)) return true;
  pumping_ = true;
  environment_->thread().Serve(*this, Pump(gathered));
  return true;
}

void OrderedConnection::OutputHasRoom() {
  // Not at once: the worker has to see its coroutines end.
  if (waiting_) environment_->thread().worker().ResumeSoon(std::exchange(waiting_, {}));
}

void OrderedConnection::RefusePeer(std::string_view answer, Status why) {
  last_words_ = answer;
  end_ = std::move(why);
}

void OrderedConnection::SayLastWords() {
  if (end_.ok() || !failure().ok()) return;
  out().append(last_words_);
  Refuse(end_);
}

void OrderedConnection::RefusePeerAtOnce(std::string_view answer, Status why) {
  RefusePeer(answer, std::move(why));
  SayLastWords();
}

void OrderedConnection::Quit() {
  quit_ = true;
  InputEnded();
}

void OrderedConnection::GiveBackRoom() {
  if (pumping_) return;
  Free(&key_, &value_, &keys_bytes_, &ended_, &keys_, &expired_);
  FreeOwnRoom();
  Connection::GiveBackRoom();
}

// ---- Commands ----

bool OrderedConnection::RunAtOnce(Gathered* gathered) {
  ServingThread& thread = environment_->thread();
  while (!thread.stopping() && !output_full() && (NextIsSet() || NextIsRetrieval())) {
    gathered->what = NextIsSet() ? KeyOf::kSet : KeyOf::kWanted;
    gathered->begin_ns = std::max(thread.arrival_ns(), ended_ns_);
    dsm::OpContext op{thread.worker(), gathered->spent, UINT64_MAX};  // nothing is waited for
    ended_.clear();
    if (gathered->what == KeyOf::kSet) {
      DoAllSetsAtOnce(op, gathered);
    } else {
      RetrieveAtOnce(op, gathered);
    }
    CountEnded(&gathered->begin_ns, &gathered->spent, gathered->what);
    if (abandoned()) out().clear();
    if (gathered->done < gathered->count || !expired_.empty()) return false;
    const bool took_next = gathered->took_next;
    *gathered = {};
    if (!took_next) return true;
  }
  return false;
}

void OrderedConnection::DoAllSetsAtOnce(dsm::OpContext& op, Gathered* sets) {
  GatherAllSets(sets);
  first_ended_set_ = 0;
  while (sets->done < sets->count && !sets->waits) DoSomeSets(op, sets);
}

void OrderedConnection::RetrieveAtOnce(dsm::OpContext& op, Gathered* wanted) {
  wanted->took_next = GatherRetrievals(&wanted->count);
  while (wanted->done < wanted->count && !output_full()) {
    const size_t end = std::min(wanted->done + batch_keys_, wanted->count);
    MakeKeys(KeyOf::kWanted, wanted->done, end);
    Answerer answerer(this, wanted->done);
    const size_t expired_before = expired_.size();
    const size_t answered = environment_->store().VisitAtOnce(op, keys_, answerer, &expired_);
    for (size_t& number : std::span(expired_).subspan(expired_before)) number += wanted->done;
    wanted->done += answered;
    if (wanted->done < end) return;
    NoteBatch(answerer.bytes());
  }
}

Task<void> OrderedConnection::Pump(Gathered begun) {
  ServingThread& thread = environment_->thread();
  dsm::FabricCounts counts = begun.spent;
  dsm::OpContext op{thread.worker(), counts, UINT64_MAX};
  Running running(&op);
  thread.Link(running);
  // What the next command looks at, and what those do that were gathered behind it: where input went on in another
  // block, this is not the same.
  InputBlockRef kept = block(), gathered = kept;
  const uint64_t now_ns = thread.worker().clock().NowNs();
  uint64_t begin_ns = begun.count > 0 ? begun.begin_ns : now_ns, deadline_set_ns = 0;
  Gathered sets = begun.what == KeyOf::kSet ? begun : Gathered{},
           wanted = begun.what == KeyOf::kWanted ? begun : Gathered{};
  for (bool more = true; more;) {
    // Of commands that begin within a millisecond the deadline is the same: reading the clock is not free.
    if (begin_ns - deadline_set_ns >= kNsPerMs) {
      op.deadline_ns = environment_->DeadlineNs();
      deadline_set_ns = begin_ns;
    }
    bool took_next = false;
    ended_.clear();
    KeyOf key_of = KeyOf::kNext;
    if (sets.done == sets.count && wanted.count == 0 && NextIsSet() && !thread.stopping()) {
      gathered = block();
      GatherAllSets(&sets);
    }
    if (sets.done < sets.count) {
      key_of = KeyOf::kSet;
      if (thread.stopping()) {
        RefuseSets(&sets);
      } else if (sets.waits) {
        co_await RunWaitingSets(op, &sets);
      } else {
        DoSomeSets(op, &sets);
      }
      took_next = sets.done < sets.count || sets.took_next;
      if (sets.done == sets.count) sets = {};
    } else if (wanted.count > 0 || (NextIsRetrieval() && !thread.stopping())) {
      if (wanted.count == 0) {
        gathered = block();
        wanted.took_next = GatherRetrievals(&wanted.count);
      }
      took_next = wanted.took_next;
      key_of = KeyOf::kWanted;
      co_await RunRetrievals(op, wanted.done, wanted.count);
      wanted = {};
    } else {
      ExpectFollowing(op);
      co_await RunNext(op);
    }
    CountEnded(&begin_ns, &counts, key_of);
    if (abandoned()) out().clear();
    thread.Flush(*this);
    // A command that was taken behind those that were gathered is in their block, and has to be run.
    if (sets.count == 0) kept = gathered;
    if (took_next) continue;
    more = !quit_ && failure().ok() && !output_full() && TakeCommand();
    if (more) kept = gathered = block();
  }
  SayLastWords();
  pumping_ = false;
  thread.Served(*this);
}

void OrderedConnection::ExpectFollowing(dsm::OpContext& op) {
  const std::string_view guess = GuessKey(AsChars(unparsed()));
  if (guess.empty()) return;
  key_.assign(1, kUserKeySpace).append(guess);
  environment_->store().tree().Expect(op, key_);
}

void OrderedConnection::NoteEnded(size_t command, const Status& status) {
  const auto outcome = status.ok() ? CommandStats::Outcome::kOk : CommandStats::Outcome::kFailed;
  if (ended_.empty() || ended_.back().command != command || ended_.back().outcome != outcome) {
    ended_.push_back({command, outcome, 0});
  }
  ++ended_.back().times;
}

void OrderedConnection::CountEnded(uint64_t* begin_ns, dsm::FabricCounts* spent, KeyOf key_of) {
  if (ended_.empty()) return;  // what was tried in vain counts with what it was for
  const uint64_t now_ns = environment_->thread().worker().clock().NowNs();
  RecordCounters& counters = environment_->record_counters();
  RecordCounters::Add(counters.round_trips, spent->round_trips);
  const SlowLog* const slow_log = environment_->slow_log();
  if (slow_log != nullptr && slow_log->IsSlow(now_ns - *begin_ns)) {
    NoteSlow(now_ns - *begin_ns, spent->round_trips, key_of);
  }
  for (const Ended& ended : ended_) {
    counters.stats.Record(ended.command, ended.outcome, now_ns - *begin_ns, *spent, ended.times);
    *spent = {};  // those that end together share it, so that it counts once
  }
  *spent = {};
  *begin_ns = ended_ns_ = now_ns;
}

void OrderedConnection::NoteSlow(uint64_t duration_ns, uint64_t round_trips, KeyOf key_of) {
  SlowRequest slow;
  slow.time_ms = environment_->store().NowMs();
  slow.duration_us = duration_ns / 1'000;
  slow.round_trips = round_trips;
  slow.protocol = ProtocolName();
  slow.command = CommandName(ended_.front().command);
  if (key_of == KeyOf::kNext) {
    slow.key = KeyOfNext();
  } else {
    slow.key = key_of == KeyOf::kWanted ? WantedKey(0) : SetKey(first_ended_set_);
  }
  slow.client = environment_->thread().PeerName(*this);
  slow.failed = ended_.front().outcome == CommandStats::Outcome::kFailed;
  environment_->slow_log()->Add(std::move(slow));
}

Task<void> OrderedConnection::RunRetrievals(dsm::OpContext& op, size_t begin, size_t count) {
  if (!expired_.empty()) co_await DeleteExpired(op);
  while (begin < count) {
    const size_t end = std::min(begin + batch_keys_, count);
    if (end - begin == 1) {
      co_await RetrieveOneByOne(op, begin, end);
    } else {
      co_await RetrieveTogether(op, begin, end);
    }
    begin = end;
    if (abandoned()) out().clear();
    co_await Room{this};
    op.deadline_ns = environment_->DeadlineNs();
  }
}

Task<void> OrderedConnection::DeleteExpired(dsm::OpContext& op) {
  for (const size_t number : expired_) {
    key_.assign(1, kUserKeySpace).append(WantedKey(number));
    const bool deleted = co_await environment_->store().DeleteInPassing(op, key_);
    if (!deleted) break;
  }
  expired_.clear();
}

void OrderedConnection::MakeKeys(KeyOf what, size_t begin, size_t end) {
  keys_.clear();
  size_t bytes = 0;
  for (size_t i = begin; i < end; ++i) {
    keys_.push_back(what == KeyOf::kSet ? SetKey(i) : WantedKey(i));
    bytes += 1 + keys_.back().size();
  }
  if (keys_bytes_.size() < bytes) keys_bytes_.resize(bytes);
  char* at = keys_bytes_.data();
  for (std::string_view& key : keys_) {
    *at = kUserKeySpace;
    key = {at, 1 + key.copy(at + 1, key.size())};
    at += key.size();
  }
}

void OrderedConnection::GatherAllSets(Gathered* sets) {
  sets->took_next = GatherSets(kGatheredSetsMax, &sets->count);
  MakeKeys(KeyOf::kSet, 0, sets->count);
}

void OrderedConnection::DoSomeSets(dsm::OpContext& op, Gathered* sets) {
  first_ended_set_ = sets->done;
  const RecordStore& store = environment_->store();
  const auto left = std::span(keys_).subspan(sets->done, sets->count - sets->done);
  const auto tried = left.first(std::min(sets_together_.count(), left.size()));
  if (tried.size() == 1 && left.size() > 1) store.tree().Expect(op, left[1]);
  SetAnswerer answerer(this, sets->done);
  const size_t done = store.UpdateAtOnce(op, tried, answerer);
  sets_together_.Note(tried.size(), done);
  sets->done += done;
  sets->waits = done < tried.size();
}

void OrderedConnection::RefuseSets(Gathered* sets) {
  first_ended_set_ = sets->done;
  while (sets->done < sets->count) {
    AnswerSet(sets->done++, Status::Unavailable("the server is stopping"));
  }
  sets->waits = false;
}

Task<void> OrderedConnection::RunWaitingSets(dsm::OpContext& op, Gathered* sets) {
  first_ended_set_ = sets->done;
  op.deadline_ns = environment_->DeadlineNs();
  const RecordStore& store = environment_->store();
  sets->waits = false;
  const auto left = std::span(keys_).subspan(sets->done, sets->count - sets->done);
  if (left.size() > 1) {
    SetAnswerer answerer(this, sets->done);
    const size_t done = co_await store.UpdateTogether(op, left, answerer);
    sets->done += done;
    if (done > 0) co_return;
  }
  const auto updated = co_await store.Update(op, left.front(), RuleOfSet(sets->done));
  AnswerSet(sets->done, updated.ok() ? Status::Ok() : updated.status());
  ++sets->done;
}

Task<void> OrderedConnection::RetrieveTogether(dsm::OpContext& op, size_t begin, size_t end) {
  MakeKeys(KeyOf::kWanted, begin, end);
  Answerer answerer(this, begin);
  const Status got = co_await environment_->store().Visit(op, keys_, answerer);
  if (!got.ok()) {
    // One memory server that is lost is no reason to fail the keys of others.
    co_await RetrieveOneByOne(op, answerer.next(), end);
    co_return;
  }
  NoteBatch(answerer.bytes());
}

void OrderedConnection::NoteBatch(size_t bytes) {
  // What one batch holds in memory at once is to be a part of what may wait to be sent.
  const bool large = bytes > out_bytes_max_ / 4;
  batch_keys_ =
      large ? std::max<size_t>(batch_keys_ / 2, 2) : std::min(batch_keys_ * 2, kBatchKeysMax);
}

Task<void> OrderedConnection::RetrieveOneByOne(dsm::OpContext& op, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    Record record;
    bool found = false;
    if (retrieval_failure_.ok()) {  // otherwise this command has failed, and goes to its end
      key_.assign(1, kUserKeySpace).append(WantedKey(i));
      const auto got = co_await environment_->store().Get(op, key_, &value_, &record);
      if (got.ok()) {
        found = *got;
      } else {
        retrieval_failure_ = got.status();
      }
    }
    AnswerWanted(i, found ? &record : nullptr);
  }
}

}  // namespace farleaf::server
