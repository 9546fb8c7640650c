// Commands that change sorted sets, or look at single members.
#include <cmath>

#include "server/frontend/redis/collections.h"
#include "server/frontend/redis/commands.h"
#include "server/records/sorted_set.h"

namespace farleaf::server::redis {

using dsm::Task;

namespace {

struct AddOptions {
  bool only_new = false, only_there = false, only_greater = false, only_less = false;
  bool counts_changed = false, increments = false;
  size_t first = 2;  ///< argument of scores and members
};

/// Empty if all is well.
std::string_view ParseAdd(const Call& call, AddOptions* options) {
  for (; options->first < call.count(); ++options->first) {
    const std::string_view word = call.at(options->first);
    bool* const option = IsWord(word, "nx")     ? &options->only_new
                         : IsWord(word, "xx")   ? &options->only_there
                         : IsWord(word, "gt")   ? &options->only_greater
                         : IsWord(word, "lt")   ? &options->only_less
                         : IsWord(word, "ch")   ? &options->counts_changed
                         : IsWord(word, "incr") ? &options->increments
                                                : nullptr;
    if (option == nullptr) break;
    *option = true;
  }
  const size_t rest = call.count() - options->first;
  if (rest == 0 || rest % 2 != 0) return kSyntaxError;
  if (options->only_new && options->only_there) {
    return "ERR XX and NX options at the same time are not compatible";
  }
  if ((options->only_greater && options->only_less) ||
      (options->only_new && (options->only_greater || options->only_less))) {
    return "ERR GT, LT, and/or NX options at the same time are not compatible";
  }
  if (options->increments && rest > 2)
    return "ERR INCR option supports a single increment-element pair";
  for (size_t i = options->first; i < call.count(); i += 2) {
    double score = 0;
    if (!ParseDouble(call.at(i), &score)) return kNotAFloat;
    if (!MemberFits(call.at(1), call.at(i + 1))) return kMemberTooLong;
  }
  return {};
}

struct Change {
  AddOptions options;
  double score = 0;
  bool is_nan = false, excluded = false;

  std::optional<double> operator()(std::optional<double> before) {
    excluded = (options.only_new && before) || (options.only_there && !before);
    is_nan = false;
    if (excluded) return std::nullopt;
    const double after = options.increments && before ? *before + score : score;
    is_nan = std::isnan(after);
    if (is_nan) return std::nullopt;
    excluded = before && ((options.only_greater && after <= *before) ||
                          (options.only_less && after >= *before));
    if (excluded) return std::nullopt;
    return after;
  }
};

Task<Result<ScoreUpdate>> Apply(Call call, std::string_view member, Change* change) {
  const CollectionStore collections(&call.store());
  const SortedSetStore sets(&collections);
  const ScoreFunction wanted = [change](std::optional<double> before) { return (*change)(before); };
  const auto updated = co_await sets.Update(call.op, call.at(1), member, wanted);
  co_return updated;
}

/// Of argument `i`, with its score before it.
Task<Status> AddMember(Call call, AddOptions options, size_t i, Tally* counted) {
  Change change{options};
  ParseDouble(call.at(i - 1), &change.score);
  const auto updated = co_await Apply(call, call.at(i), &change);
  if (!updated.ok()) co_return updated.status();
  const bool added = !updated->before && updated->after;
  counted->Add(updated->presence,
               added || (options.counts_changed && updated->before != updated->after));
  co_return Status::Ok();
}

Task<Status> RemoveMember(Call call, size_t i, Tally* removed) {
  if (!MemberFits(call.at(1), call.at(i))) co_return Status::Ok();
  const CollectionStore collections(&call.store());
  const SortedSetStore sets(&collections);
  const auto updated = co_await sets.Remove(call.op, call.at(1), call.at(i));
  if (updated.ok()) removed->Add(updated->presence, updated->before.has_value());
  co_return updated.status();
}

/// The only member is incremented, and its new score answered.
Task<Status> IncrementMember(Call call, std::string_view member, Change change) {
  const auto updated = co_await Apply(call, member, &change);
  if (!updated.ok()) co_return updated.status();
  if (updated->presence == Presence::kOther) {
    call.reply.Error(kWrongType);
  } else if (change.is_nan) {
    call.reply.Error("ERR resulting score is not a number (NaN)");
  } else if (change.excluded) {
    call.reply.Null();
  } else {
    call.reply.Double(*updated->after);
  }
  co_return Status::Ok();
}

}  // namespace

Task<Status> SortedSetAdd(Call call) {
  AddOptions options;
  if (const std::string_view wrong = ParseAdd(call, &options); !wrong.empty()) {
    call.reply.Error(wrong);
    co_return Status::Ok();
  }
  if (options.increments) {
    Change change{options};
    ParseDouble(call.at(options.first), &change.score);
    const Status incremented = co_await IncrementMember(call, call.at(options.first + 1), change);
    co_return incremented;
  }
  Tally counted;
  const NumberedStep add = [&](size_t i) { return AddMember(call, options, i, &counted); };
  const Elements members{options.first + 1, 2};
  const Status done = co_await ForEachElement(call, members, Repeated::kInOrder, add);
  if (!done.ok()) co_return done;
  counted.Answer(&call.reply);
  co_return Status::Ok();
}

Task<Status> SortedSetIncrement(Call call) {
  Change change{{.increments = true}};
  if (!ParseDouble(call.at(2), &change.score) || !MemberFits(call.at(1), call.at(3))) {
    call.reply.Error(MemberFits(call.at(1), call.at(3)) ? kNotAFloat : kMemberTooLong);
    co_return Status::Ok();
  }
  const Status incremented = co_await IncrementMember(call, call.at(3), change);
  co_return incremented;
}

Task<Status> SortedSetRemove(Call call) {
  Tally removed;
  const NumberedStep remove = [&](size_t i) { return RemoveMember(call, i, &removed); };
  const Status done = co_await ForEachElement(call, {2}, Repeated::kAnyOrder, remove);
  if (!done.ok()) co_return done;
  removed.Answer(&call.reply);
  co_return Status::Ok();
}

Task<Status> SortedSetScore(Call call) {
  const auto opened = co_await OpenCollection(call, RecordType::kSortedSet);
  if (!opened.ok()) co_return opened.status();
  if (opened->presence == Presence::kOther) co_return Status::Ok();
  std::optional<double> score;
  if (opened->presence == Presence::kHere && MemberFits(call.at(1), call.at(2))) {
    const CollectionStore collections(&call.store());
    const SortedSetStore sets(&collections);
    const auto found = co_await sets.Score(call.op, call.at(1), opened->generation, call.at(2));
    if (!found.ok()) co_return found.status();
    score = *found;
  }
  if (score) {
    call.reply.Double(*score);
  } else {
    call.reply.Null();
  }
  co_return Status::Ok();
}

}  // namespace farleaf::server::redis
