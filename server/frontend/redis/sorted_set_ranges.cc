// Commands on ranges of sorted sets: by score, by member or by place.
#include <algorithm>

#include "server/frontend/redis/collections.h"
#include "server/frontend/redis/commands.h"
#include "server/records/sorted_set.h"

namespace farleaf::server::redis {

using dsm::Task;

namespace {

enum class By : uint8_t { kPlace, kScore, kMember };

struct RangeRequest {
  By by = By::kPlace;
  bool reverse = false;
  bool with_scores = false;
  bool counts = false;  ///< only how many
  std::string_view low, high;
  int64_t first = 0, last = 0;     ///< by place
  int64_t offset = 0, limit = -1;  ///< a negative limit: all
};

/// What the command's name says.
void ParseName(const Call& call, RangeRequest* request) {
  const std::string name = LowerCase(call.at(0));
  request->reverse = name.starts_with("zrev");
  request->counts = name.ends_with("count");
  if (name == "zlexcount" || name.ends_with("bylex")) request->by = By::kMember;
  if (name == "zcount" || name.ends_with("byscore")) request->by = By::kScore;
}

/// Empty if all is well.
std::string_view ParseOptions(const Call& call, RangeRequest* request) {
  const bool is_zrange = IsWord(call.at(0), "zrange");
  bool limited = false;
  for (size_t i = 4; i < call.count(); ++i) {
    const std::string_view word = call.at(i);
    if (is_zrange && IsWord(word, "byscore")) {
      request->by = By::kScore;
    } else if (is_zrange && IsWord(word, "bylex")) {
      request->by = By::kMember;
    } else if (is_zrange && IsWord(word, "rev")) {
      request->reverse = true;
    } else if (IsWord(word, "withscores")) {
      request->with_scores = true;
    } else if (!IsWord(word, "limit") || i + 2 >= call.count()) {
      return kSyntaxError;
    } else if (!ParseInteger(call.at(i + 1), &request->offset) ||
               !ParseInteger(call.at(i + 2), &request->limit)) {
      return kNotAnInteger;
    } else {
      limited = true;
      i += 2;
    }
  }
  if (limited && request->by == By::kPlace) {
    return "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
  }
  if (request->with_scores && request->by == By::kMember) {
    return "ERR syntax error, WITHSCORES not supported in combination with BYLEX";
  }
  request->low = call.at(request->reverse && request->by != By::kPlace ? 3 : 2);
  request->high = call.at(request->reverse && request->by != By::kPlace ? 2 : 3);
  if (request->by == By::kPlace &&
      (!ParseInteger(call.at(2), &request->first) || !ParseInteger(call.at(3), &request->last))) {
    return kNotAnInteger;
  }
  return {};
}

/// The smallest key of a range that begins at `bound`, or the smallest behind one that ends there. False: it is none.
enum class Side : uint8_t { kLow, kHigh };
bool ScoreBound(std::string_view bound, Side side, const std::string& prefix, std::string* key) {
  const bool excludes = bound.starts_with('(');
  double score = 0;
  if (!ParseDouble(excludes ? bound.substr(1) : bound, &score)) return false;
  *key = prefix + ScoreBytes(score);
  if (excludes == (side == Side::kLow)) *key = EndOfPrefix(*key);
  return true;
}

bool MemberBound(std::string_view bound, Side side, const std::string& prefix, std::string* key) {
  if (bound == "-" || bound == "+") {
    *key = bound == "-" ? prefix : EndOfPrefix(prefix);
    return true;
  }
  if (!bound.starts_with('(') && !bound.starts_with('[')) return false;
  *key = prefix + std::string(bound.substr(1));
  if (bound.starts_with('(') == (side == Side::kLow)) *key = KeyBehind(*key);
  return true;
}

/// Entries to walk. Empty if all is well.
std::string_view MakeBounds(const Call& call, const RangeRequest& request, uint64_t generation,
                            PieceScan::Range* range) {
  const EntryKind kind = request.by == By::kMember ? EntryKind::kMember : EntryKind::kScore;
  const std::string prefix = MemberPrefix(call.at(1), generation, kind);
  *range = EntriesOf(call.at(1), generation, kind);
  range->rows_of_piece = 128;
  if (request.reverse) range->direction = index::ScanDirection::kReverse;
  if (request.by == By::kScore && (!ScoreBound(request.low, Side::kLow, prefix, &range->start) ||
                                   !ScoreBound(request.high, Side::kHigh, prefix, &range->end))) {
    return "ERR min or max is not a float";
  }
  if (request.by == By::kMember && (!MemberBound(request.low, Side::kLow, prefix, &range->start) ||
                                    !MemberBound(request.high, Side::kHigh, prefix, &range->end))) {
    return "ERR min or max not valid string range item";
  }
  return {};
}

/// Places counted from the end become places from the front.
Task<Status> ResolvePlaces(Call call, uint64_t generation, RangeRequest* request) {
  if (request->first < 0 || request->last < 0) {
    const auto counted =
        co_await CountEntries(call, EntriesOf(call.at(1), generation, EntryKind::kMember));
    if (!counted.ok()) co_return counted.status();
    if (request->first < 0) request->first = std::max<int64_t>(request->first + *counted, 0);
    if (request->last < 0) request->last += *counted;
  }
  request->offset = request->first;
  request->limit = std::max<int64_t>(request->last - request->first + 1, 0);
  co_return Status::Ok();
}

void AppendMember(const ScoredMember& member, bool with_score, Reply* reply) {
  if (with_score && reply->version() == RespVersion::k3) reply->Array(2);
  reply->Bulk(member.member);
  if (with_score) reply->Double(member.score);
}

Task<Status> Walk(Call call, const RangeRequest& request, uint64_t generation,
                  PieceScan::Range range) {
  const CollectionStore collections(&call.store());
  const SortedSetStore sets(&collections);
  const size_t at = call.reply.size(),
               prefix = MemberPrefix(call.at(1), generation, EntryKind::kMember).size();
  PieceScan scan(&call.store().tree(), std::move(range));
  std::vector<ScoredMember> members;
  int64_t met = 0, taken = 0;
  const bool nothing = request.offset < 0;
  while (!nothing && !scan.done() && taken != request.limit &&
         call.reply.size() <= call.limits.reply_bytes_max) {
    const Status scanned = co_await NextPiece(call, &scan);
    if (!scanned.ok()) co_return scanned;
    if (request.by == By::kMember) {
      members.clear();
      for (const index::KeyValue& row : scan.rows()) members.push_back({row.key.substr(prefix), 0});
    } else {
      const Status verified =
          co_await sets.Verify(call.op, call.at(1), generation, scan.rows(), &members);
      if (!verified.ok()) co_return verified;
    }
    for (const ScoredMember& member : members) {
      if (met++ < request.offset) continue;
      if (taken == request.limit) break;
      ++taken;
      if (!request.counts) AppendMember(member, request.with_scores, &call.reply);
    }
  }
  if (request.counts) {
    call.reply.Integer(taken);
  } else {
    const bool flat = request.with_scores && call.reply.version() == RespVersion::k2;
    call.reply.Head(Reply::Kind::kArray, at, static_cast<size_t>(taken) * (flat ? 2 : 1));
  }
  co_return Status::Ok();
}

}  // namespace

Task<Status> SortedSetRange(Call call) {
  RangeRequest request;
  ParseName(call, &request);
  std::string_view wrong = ParseOptions(call, &request);
  PieceScan::Range range;
  if (wrong.empty()) wrong = MakeBounds(call, request, 0, &range);
  if (!wrong.empty()) {
    call.reply.Error(wrong);
    co_return Status::Ok();
  }
  const auto opened = co_await OpenCollection(call, RecordType::kSortedSet);
  if (!opened.ok()) co_return opened.status();
  if (opened->presence == Presence::kOther) co_return Status::Ok();
  if (opened->presence == Presence::kAbsent) {
    if (request.counts) {
      call.reply.Integer(0);
    } else {
      call.reply.Array(0);
    }
    co_return Status::Ok();
  }
  if (request.by == By::kPlace) {
    const Status resolved = co_await ResolvePlaces(call, opened->generation, &request);
    if (!resolved.ok()) co_return resolved;
  }
  MakeBounds(call, request, opened->generation, &range);
  const Status walked = co_await Walk(call, request, opened->generation, std::move(range));
  co_return walked;
}

}  // namespace farleaf::server::redis
