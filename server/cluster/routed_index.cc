#include "server/cluster/routed_index.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "dsm/together.h"
#include "index/lsm/wary_cursor.h"

namespace farleaf::server::cluster {

using dsm::OpContext;
using dsm::Task;
using index::CurrentValue;
using index::KeyValue;
using index::ModifyFunction;
using index::ModifyResult;
using index::PrefixedIndex;
using index::RangeIndex;
using index::ScanDirection;
using index::ScanRange;

namespace {

constexpr uint64_t kRoutePauseNsMin = kNsPerMs, kRoutePauseNsMax = 20 * kNsPerMs;
/// Of a scan, at one store in one piece: a region's move waits for it.
constexpr uint64_t kScanPieceBytes = 1 << 20;

const Status& StatusOf(const Status& status) { return status; }
template <typename T>
Status StatusOf(const Result<T>& result) {
  return result.status();
}

/// Nothing was done, and another route may do. (An operation that may have happened ends with Unknown, and with nothing else.)
bool RoutesAnew(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kFenced;
}

}  // namespace

// ---- Where keys are

/// What one look at the table, and at the store that it leads to, says of some keys. While it is held, and they are here, they stay here.
class RoutedIndex::Place {
 public:
  /// Nowhere: no map is known.
  Place() = default;
  /// At another node than `self`, or nowhere.
  Place(std::shared_ptr<const RouteTable> table, const Route* route, NodeId self)
      : table_(std::move(table)),
        route_(route),
        elsewhere_(route->primary != membership::kNoNode && route->primary != self &&
                   !route->url.empty()) {}
  /// Here. REQUIRES: the store is open.
  Place(std::shared_ptr<const RouteTable> table, const Route* route, StoreUse use)
      : table_(std::move(table)), route_(route), use_(std::move(use)), keys_(use_.served()) {}
  /// Here, in a copy that is so old. REQUIRES: it is open.
  Place(std::shared_ptr<const RouteTable> table, const Route* route, CopyUse copy,
        uint64_t staleness_ns)
      : table_(std::move(table)),
        route_(route),
        copy_(std::move(copy)),
        keys_(copy_.served()),
        staleness_ns_(staleness_ns) {}
  Place(Place&&) = default;

  bool here() const { return keys_ != nullptr; }
  bool is_copy() const { return copy_.served() != nullptr; }
  bool elsewhere() const { return elsewhere_; }
  bool somewhere() const { return here() || elsewhere(); }

  // REQUIRES of these two: here.
  RangeIndex* index() const {
    if (is_copy()) return copy_.served()->reader.get();
    return use_.served()->store;
  }
  uint64_t staleness_ns() const { return staleness_ns_; }
  /// REQUIRES of these two: elsewhere.
  const std::string& url() const { return route_->url; }
  uint32_t view() const { return table_->view; }
  // REQUIRES of these three: somewhere.
  /// Keys from here...
  const std::string& start() const { return here() ? keys_->start : route_->start; }
  /// ...up to there, exclusive, are in this place. Empty: there is no last key.
  const std::string& end() const { return here() ? keys_->end : route_->end; }
  /// Whether the key is in the same store, or at the same node.
  bool HasToo(std::string_view key) const {
    return here() ? keys_->Covers(key) : table_->Find(key).url == route_->url;
  }

  std::string Name() const {
    if (route_ == nullptr) return "the map of regions is not known yet";
    return "region " + std::to_string(static_cast<uint32_t>(route_->region));
  }
  Status Nowhere() const {
    if (route_ == nullptr) return Status::Unavailable("no key can be looked up");
    if (route_->primary == membership::kNoNode) return Status::Unavailable("it has no primary");
    return Status::Unavailable("node " + std::to_string(route_->primary) + " does not serve it");
  }

 private:
  std::shared_ptr<const RouteTable> table_;
  const Route* route_ = nullptr;  // in table_
  StoreUse use_;
  CopyUse copy_;
  const ServedKeys* keys_ = nullptr;  // of the one that is open
  uint64_t staleness_ns_ = 0;
  bool elsewhere_ = false;
};

/// `covers` says whether the store that is served has the keys that are wanted: it may have been opened, or closed and opened, behind or before
/// what the table says.
template <typename Covers>
RoutedIndex::Place RoutedIndex::At(const OpContext& op, std::shared_ptr<const RouteTable> table,
                                   const Route& route, Covers covers) {
  const NodeId self = routes_.self();
  if (route.primary == self) {
    StoreUse use = routes_.Use(route.region);
    if (use.served() != nullptr && covers(*use.served())) {
      return Place(std::move(table), &route, std::move(use));
    }
  } else if (op.max_staleness_ns > 0) {
    CopyUse copy = routes_.UseCopy(route.region);
    if (copy.served() != nullptr && covers(*copy.served())) {
      const std::optional<uint64_t> staleness_ns = copy.served()->staleness_ns();
      if (staleness_ns && *staleness_ns <= op.max_staleness_ns) {
        return Place(std::move(table), &route, std::move(copy), *staleness_ns);
      }
    }
  }
  return Place(std::move(table), &route, self);
}

RoutedIndex::Place RoutedIndex::Locate(const OpContext& op, std::string_view key) {
  auto table = routes_.Now();
  if (table == nullptr) return Place();
  const Route& route = table->Find(key);
  return At(op, std::move(table), route,
            [key](const ServedKeys& served) { return served.Covers(key); });
}

RoutedIndex::Place RoutedIndex::LocateBelow(const OpContext& op,
                                            const std::optional<std::string>& end) {
  auto table = routes_.Now();
  if (table == nullptr) return Place();
  auto behind = table->routes.end();
  if (end) {
    // Something is below it, or the scan were over: the first route starts before it.
    behind = std::lower_bound(
        table->routes.begin(), behind, *end,
        [](const Route& route, const std::string& wanted) { return route.start < wanted; });
  }
  const Route& route = *std::prev(behind);
  return At(op, std::move(table), route, [&end](const ServedKeys& served) {
    if (!end) return served.end.empty();
    return served.start < *end && (served.end.empty() || *end <= served.end);
  });
}

PrefixedIndex RoutedIndex::LocalTree(const Place& place) const {
  return PrefixedIndex(place.index(), tree_.number, tree_.limits);
}

RemoteTree RoutedIndex::TreeAt(const Place& place) const {
  return RemoteTree(&peers_, {place.url(), place.view(), tree_.name});
}

/// What was read of a copy is as old as that. What cannot be read of it the primary is asked for, and all else of the operation.
bool RoutedIndex::LeavesCopies(OpContext& op, const Place& place, const Status& status) {
  if (!place.is_copy()) return false;
  if (status.ok()) op.staleness_ns = std::max(op.staleness_ns, place.staleness_ns());
  if (!RoutesAnew(status) && !index::lsm::IsUnreadable(status)) return false;
  op.max_staleness_ns = 0;
  return true;
}

// ---- Waiting

/// How long one operation waits in all for somebody who serves its keys.
class RoutedIndex::Patience {
 public:
  Patience(OpContext* op, const RoutingOptions& options)
      : op_(*op), wait_ns_(options.wait_ms * kNsPerMs) {}

  /// From here on time counts. Not before something is waited for: a clock costs as much as a lookup.
  void Begin() {
    if (end_ns_ == 0) end_ns_ = op_.worker.clock().NowNs() + wait_ns_;
  }
  /// Something was done meanwhile: it is not over yet.
  void Renew() { end_ns_ = 0; }

  /// Ok: another look may say more.
  Task<Status> Wait(const std::string& region, const Status& why) {
    Begin();
    const uint64_t now_ns = op_.worker.clock().NowNs();
    if (op_.expired()) {
      co_return Status::DeadlineExceeded(region + ": " + std::string(why.message()) +
                                         "; nothing was done");
    }
    if (now_ns >= end_ns_) {
      co_return Status::Unavailable(region + ": " + std::string(why.message()) +
                                    "; nothing was done");
    }
    const uint64_t left_ns = std::min(end_ns_, op_.deadline_ns) - now_ns;
    co_await op_.worker.Sleep(std::min(pause_ns_, left_ns));
    pause_ns_ = std::min(2 * pause_ns_, kRoutePauseNsMax);
    co_return Status::Ok();
  }

 private:
  OpContext& op_;
  const uint64_t wait_ns_;
  uint64_t end_ns_ = 0;  // 0: it has not begun
  uint64_t pause_ns_ = kRoutePauseNsMin;
};

// ---- One key

template <typename R, typename Run>
Task<R> RoutedIndex::AtKey(OpContext& op, std::string_view key, Run run) {
  Patience patience(&op, options_);
  for (;;) {
    std::string region;
    Status why;
    {
      const Place place = Locate(op, key);
      if (place.here()) {
        PrefixedIndex here = LocalTree(place);
        R result = co_await run(here);
        if (LeavesCopies(op, place, StatusOf(result))) continue;
        if (!RoutesAnew(StatusOf(result))) co_return result;
        why = StatusOf(result);
      } else if (place.elsewhere()) {
        patience.Begin();
        RemoteTree there = TreeAt(place);
        R result = co_await run(there);
        if (!RoutesAnew(StatusOf(result))) co_return result;
        why = StatusOf(result);
      } else {
        why = place.Nowhere();
      }
      region = place.Name();
    }  // whoever waits lets the region go
    Status waited = co_await patience.Wait(region, why);
    if (!waited.ok()) co_return waited;
  }
}

Task<Result<bool>> RoutedIndex::Get(OpContext& op, std::string_view key, std::string* value) {
  return AtKey<Result<bool>>(
      op, key, [&op, key, value](RangeIndex& tree) { return tree.Get(op, key, value); });
}

Task<Result<ModifyResult>> RoutedIndex::Modify(OpContext& op, std::string_view key,
                                               const ModifyFunction& modify, CurrentValue current) {
  return AtKey<Result<ModifyResult>>(op, key, [&op, key, &modify, current](RangeIndex& tree) {
    return tree.Modify(op, key, modify, current);
  });
}

Task<Status> RoutedIndex::BlindPut(OpContext& op, std::string_view key, std::string_view value) {
  return AtKey<Status>(
      op, key, [&op, key, value](RangeIndex& tree) { return tree.BlindPut(op, key, value); });
}

// ---- Several keys

// Its region stays until they all are acknowledged, as for one.
Task<size_t> RoutedIndex::ModifyTogether(OpContext& op, std::span<const std::string_view> keys,
                                         CurrentValue use, index::KeyChanges& changes) {
  if (keys.empty()) co_return 0;
  const Place place = Locate(op, keys.front());
  if (!place.here() || place.is_copy()) co_return 0;
  const auto behind =
      std::ranges::find_if_not(keys, [&place](auto key) { return place.HasToo(key); });
  const auto here = keys.first(static_cast<size_t>(behind - keys.begin()));
  PrefixedIndex tree = LocalTree(place);
  const size_t done = co_await tree.ModifyTogether(op, here, use, changes);
  co_return done;
}

template <typename Run>
Task<Status> RoutedIndex::RunAt(OpContext&, const Place& place, Run run) {
  Status status;
  if (place.here()) {
    PrefixedIndex here = LocalTree(place);
    status = co_await run(here);
  } else if (place.elsewhere()) {
    RemoteTree there = TreeAt(place);
    status = co_await run(there);
  } else {
    status = place.Nowhere();
  }
  co_return status;
}

/// Of the keys of a MultiGet those of one store, or of one node. Stays where it is while it is asked for.
struct RoutedIndex::Part {
  std::optional<Place>
      place;  ///< until it has answered: a region that is to move does not wait for others
  std::vector<size_t> numbers;  ///< among all
  std::vector<std::string_view> keys;
  std::vector<std::optional<std::string>> values;
  Status status;
  std::string region;        ///< as Place::Name
  bool left_copies = false;  ///< as LeavesCopies
};

/// Those that have to travel come first. Keys that are nowhere are one part, which is named after the first of them.
std::vector<RoutedIndex::Part> RoutedIndex::PartsOf(const OpContext& op,
                                                    std::span<const std::string_view> keys,
                                                    std::span<const size_t> numbers) {
  std::vector<Part> elsewhere, rest;
  const auto find = [&](const auto& takes) -> Part* {
    for (std::vector<Part>* parts : {&elsewhere, &rest}) {
      const auto at = std::ranges::find_if(*parts, takes);
      if (at != parts->end()) return &*at;
    }
    return nullptr;
  };
  for (const size_t number : numbers) {
    Part* part = find(
        [&](const Part& one) { return one.place->somewhere() && one.place->HasToo(keys[number]); });
    if (part == nullptr) {
      Place place = Locate(op, keys[number]);
      if (!place.somewhere()) part = find([](const Part& one) { return !one.place->somewhere(); });
      if (part == nullptr) {
        part = &(place.elsewhere() ? elsewhere : rest).emplace_back();
        part->place.emplace(std::move(place));
      }
    }
    part->numbers.push_back(number);
    part->keys.push_back(keys[number]);
  }
  std::ranges::move(rest, std::back_inserter(elsewhere));
  return elsewhere;
}

Task<Status> RoutedIndex::GetPart(OpContext& op, Part& part) {
  Status status = co_await RunAt(op, *part.place, [&op, &part](RangeIndex& tree) {
    return tree.MultiGet(op, part.keys, &part.values);
  });
  part.left_copies = LeavesCopies(op, *part.place, status);
  part.region = part.place->Name();
  part.place.reset();
  co_return status;
}

// What is asked for of several places is asked for at once: one round trip, however many there are.
Task<Status> RoutedIndex::MultiGet(OpContext& op, std::span<const std::string_view> keys,
                                   std::vector<std::optional<std::string>>* values) {
  values->assign(keys.size(), std::nullopt);
  std::vector<size_t> left(keys.size());
  std::iota(left.begin(), left.end(), size_t{0});
  Patience patience(&op, options_);
  while (!left.empty()) {
    patience.Begin();
    std::vector<Part> parts = PartsOf(op, keys, left);
    const uint64_t round_trips = op.counts.round_trips;
    dsm::Together together(op.worker);
    for (Part& part : parts) together.Start(GetPart(op, part), &part.status);
    co_await together.All();

    op.counts.round_trips = std::min(op.counts.round_trips, round_trips + 1);  // it was one wait

    left.clear();
    const Part* nowhere = nullptr;
    Status failure;
    for (Part& part : parts) {
      if (part.status.ok()) {
        for (size_t i = 0; i < part.numbers.size(); ++i) {
          (*values)[part.numbers[i]] = std::move(part.values[i]);
        }
        patience.Renew();
        continue;
      }
      left.insert(left.end(), part.numbers.begin(), part.numbers.end());
      if (part.left_copies) continue;
      if (RoutesAnew(part.status)) {
        nowhere = &part;
      } else if (failure.ok()) {
        failure = part.status;
      }
    }
    if (failure.ok() && nowhere) {
      failure = co_await patience.Wait(nowhere->region, nowhere->status);
    }
    if (!failure.ok()) {
      values->clear();
      co_return failure;
    }
  }
  co_return Status::Ok();
}

/// Tells whoever has asked for many keys of some of them.
class RoutedIndex::Numbered final : public index::ValueVisitor {
 public:
  Numbered(index::ValueVisitor* many, size_t first) : many_(*many), first_(first) {}
  void Visit(size_t number, std::optional<std::string_view> value) override {
    many_.Visit(first_ + number, value);
  }

 private:
  index::ValueVisitor& many_;
  const size_t first_;
};

size_t RoutedIndex::VisitAtOnce(OpContext& op, std::span<const std::string_view> keys,
                                index::ValueVisitor& visitor) {
  size_t visited = 0;
  while (visited < keys.size()) {
    const Place place = Locate(op, keys[visited]);
    if (!place.here()) break;
    size_t end = visited + 1;
    while (end < keys.size() && place.HasToo(keys[end])) ++end;
    PrefixedIndex here = LocalTree(place);
    Numbered some(&visitor, visited);
    visited += here.VisitAtOnce(op, keys.subspan(visited, end - visited), some);
    if (visited < end) break;
  }
  return visited;
}

// ---- Ranges

/// What is left of a scan. Where it goes on is a key, and no region: so it does not matter how the keys are divided by then.
class RoutedIndex::RestOfScan {
 public:
  explicit RestOfScan(const ScanRange& range) : range_(range), start_(range.start) {
    if (range.end) end_ = std::string(*range.end);
  }
  bool forward() const { return range_.direction == ScanDirection::kForward; }
  const std::string& start() const { return start_; }
  const std::optional<std::string>& end() const { return end_; }
  bool done() const {
    return done_ || range_.limit == 0 || range_.bytes_max == 0 || (end_ && *end_ <= start_);
  }

  /// Of it, what is in the place, but no more than a piece. Views are into this and the place.
  ScanRange PieceOf(const Place& place) const {
    ScanRange piece = range_;
    piece.start = std::max<std::string_view>(start_, place.start());
    piece.end = end_;
    if (!place.end().empty() && (!end_ || place.end() < *end_)) piece.end = place.end();
    piece.bytes_max = std::min(range_.bytes_max, kScanPieceBytes);
    return piece;
  }
  /// Takes the first rows of a piece over. `whole`: unless the piece was full, it had no more.
  void Take(const Place& place, std::vector<KeyValue>* piece, bool whole,
            std::vector<KeyValue>* rows) {
    uint64_t bytes = 0;
    for (KeyValue& row : *piece) {
      bytes += row.key.size() + row.value.size();
      rows->push_back(std::move(row));
    }
    const bool full = bytes >= std::min(range_.bytes_max, kScanPieceBytes);
    range_.limit -= piece->size();
    range_.bytes_max -= std::min(range_.bytes_max, bytes);
    if (whole && !full) {
      GoBehind(place);
    } else if (!piece->empty() && forward()) {
      start_ = rows->back().key + '\0';
    } else if (!piece->empty()) {
      end_ = rows->back().key;
    }
  }

 private:
  void GoBehind(const Place& place) {
    if (forward()) {
      done_ = place.end().empty();
      start_ = place.end();
    } else {
      done_ = place.start().empty();
      end_ = place.start();
    }
  }

  ScanRange range_;  // limit and bytes_max are what is left; the bounds are below
  std::string start_;
  std::optional<std::string> end_;
  bool done_ = false;
};

Task<Status> RoutedIndex::Scan(OpContext& op, ScanRange range, std::vector<KeyValue>* rows) {
  rows->clear();
  RestOfScan rest(range);
  std::vector<KeyValue> piece;
  Patience patience(&op, options_);
  while (!rest.done()) {
    std::string region;
    Status status;
    {
      const Place place = rest.forward() ? Locate(op, rest.start()) : LocateBelow(op, rest.end());
      piece.clear();
      patience.Begin();
      if (place.somewhere()) range = rest.PieceOf(place);
      status = co_await RunAt(op, place, [&op, &range, &piece](RangeIndex& tree) {
        return tree.Scan(op, range, &piece);
      });
      if (LeavesCopies(op, place, status)) continue;
      if (!piece.empty() || status.ok()) patience.Renew();
      if (place.somewhere()) rest.Take(place, &piece, status.ok(), rows);
      region = place.Name();
    }
    if (RoutesAnew(status)) status = co_await patience.Wait(region, status);
    if (!status.ok()) co_return status;
  }
  co_return Status::Ok();
}

Task<Status> RoutedIndex::DeleteRange(OpContext& op, std::string_view start, std::string_view end) {
  std::string from(start);
  Patience patience(&op, options_);
  while (from < end) {
    std::string region;
    Status status;
    {
      const Place place = Locate(op, from);
      patience.Begin();
      std::string to(end);
      if (place.somewhere() && !place.end().empty()) to = std::min(to, place.end());
      status = co_await RunAt(op, place, [&op, &from, &to](RangeIndex& tree) {
        return tree.DeleteRange(op, from, to);
      });
      if (status.ok()) {
        from = std::move(to);
        patience.Renew();
      }
      region = place.Name();
    }
    if (RoutesAnew(status)) status = co_await patience.Wait(region, status);
    if (!status.ok()) co_return status;
  }
  co_return Status::Ok();
}

Task<Status> UpkeepOfStores(RegionRoutes& routes, OpContext& op) {
  const auto table = routes.Now();
  Status all;
  for (size_t i = 0; table != nullptr && i < table->routes.size(); ++i) {
    const Route& route = table->routes[i];
    if (route.primary != routes.self()) continue;
    const StoreUse use = routes.Use(route.region);
    if (use.served() == nullptr) continue;
    Status kept = co_await use.served()->store->Upkeep(op);
    if (all.ok() && kept.code() != StatusCode::kFenced) all = std::move(kept);
  }
  co_return all;
}

}  // namespace farleaf::server::cluster
