// Gets.
#include <algorithm>
#include <functional>

#include "index/lsm/multi_get.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

Task<Result<bool>> LsmStore::Find(OpContext& op, LookupPlaces places, std::string_view key,
                                  Sequence snapshot, Wanted wanted, Found* found) {
  return FindInView(op, places, {key, snapshot, wanted}, found,
                    [this]() -> const ReadView& { return View(); });
}

Task<Result<bool>> LsmStore::Get(OpContext& op, std::string_view key, std::string* value) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckKey(key));
  Found found;
  Missing missing;
  const auto outcome =
      LookUp(View(), Places(), key, kSequenceMax, Wanted::kValue, &found, &missing);
  bool present = outcome == LookupOutcome::kFound;
  if (outcome == LookupOutcome::kMissing) {
    auto there = co_await Find(op, Places(), key, kSequenceMax, Wanted::kValue, &found);
    if (!there.ok()) co_return there;
    present = *there;
  }
  if (present) value->assign(found.entry.value);
  if (deps_.mirror != nullptr) {
    Status answerable = co_await AwaitAnswerable(op, key);
    if (!answerable.ok()) co_return answerable;
  }
  co_return present;
}

Task<Status> LsmStore::AwaitAnswerable(OpContext& op) {
  if (options_.durability != Durability::kLocal) {
    Status safe = co_await logs_->Replicate(op.worker, logs_->ends());
    if (!safe.ok()) co_return safe;
  }
  co_return deps_.mirror->MayAnswer();
}

Task<Status> LsmStore::AwaitAnswerable(OpContext& op, std::string_view key) {
  if (IsSafe(key)) co_return deps_.mirror->MayAnswer();
  Status answerable = co_await AwaitAnswerable(op);
  co_return answerable;
}

Task<Result<std::optional<uint64_t>>> LsmStore::FindExpiry(OpContext& op, LookupPlaces places,
                                                           std::string_view key,
                                                           Sequence snapshot) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckKey(key));
  Found found;
  auto there = co_await Find(op, places, key, snapshot, Wanted::kPresence, &found);
  if (!there.ok()) co_return there.status();
  std::optional<uint64_t> expires_ms;
  if (*there) expires_ms = found.entry.expires_ms;
  if (deps_.mirror != nullptr) {
    Status answerable = co_await AwaitAnswerable(op, key);
    if (!answerable.ok()) co_return answerable;
  }
  co_return expires_ms;
}

Task<Result<std::optional<uint64_t>>> LsmStore::ExpiryOf(OpContext& op, std::string_view key) {
  return FindExpiry(op, Places(), key, kSequenceMax);
}

Task<Status> LsmStore::MultiGet(OpContext& op, std::span<const std::string_view> keys,
                                std::vector<std::optional<std::string>>* values) {
  const std::function<const ReadView&()> view_of = [this]() -> const ReadView& { return View(); };
  Status found = co_await FindValues(op, Places(), keys, view_of, values);
  // Of one key after it was read, so of all now: what was read of it is no newer than what is asked about.
  if (found.ok() && deps_.mirror != nullptr) {
    const bool safe = std::ranges::all_of(keys, [this](auto key) { return IsSafe(key); });
    if (safe) {
      found = deps_.mirror->MayAnswer();
    } else {
      found = co_await AwaitAnswerable(op);
    }
  }
  if (!found.ok()) values->clear();
  co_return found;
}

size_t LsmStore::VisitAtOnce(OpContext& /*op*/, std::span<const std::string_view> keys,
                             ValueVisitor& visitor) {
  const ReadView& view = View();
  Found found;
  Missing missing;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!CheckKey(keys[i]).ok()) return i;
    const auto outcome =
        LookUp(view, Places(), keys[i], kSequenceMax, Wanted::kValue, &found, &missing);
    if (outcome == LookupOutcome::kMissing) return i;
    // Of what was seen: others write meanwhile.
    if (deps_.mirror != nullptr && !(IsSafe(keys[i]) && deps_.mirror->MayAnswer().ok())) return i;
    if (outcome == LookupOutcome::kFound) {
      visitor.Visit(i, found.entry.value);
    } else {
      visitor.Visit(i, std::nullopt);
    }
  }
  return keys.size();
}

Task<Status> LsmStore::Upkeep(OpContext& /*op*/) {
  std::lock_guard lock(status_mutex_);
  for (const Status& status : background_status_) {
    if (!status.ok()) co_return Status::Unavailable(status.ToString());
  }
  co_return Status::Ok();
}

}  // namespace farleaf::index::lsm
