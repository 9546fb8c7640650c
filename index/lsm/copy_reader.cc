#include "index/lsm/copy_reader.h"

#include <mutex>
#include <utility>

#include "index/lsm/multi_get.h"
#include "index/lsm/wary_cursor.h"

namespace farleaf::index::lsm {

namespace {

Status ReadOnly() {
  return Status::InvalidArgument("a backup's copy is only read: its primary takes changes");
}

}  // namespace

CopyReader::CopyReader(Deps deps)
    : deps_(deps),
      nothing_(std::make_shared<Memtable>()),
      no_remover_(std::make_shared<SegmentRemover>(nullptr)) {}

CopyReader::ShownPtr CopyReader::Newest() const {
  std::lock_guard lock(lock_);
  return newest_;
}

// What was shown before may go with it: not under the lock.
void CopyReader::Replace(ShownPtr shown) {
  std::lock_guard lock(lock_);
  std::swap(newest_, shown);
}

void CopyReader::Show(const StoreState& state) {
  const ShownPtr before = Newest();
  // Of another store the same numbers name other segments.
  const bool same_store = cache_ && cache_epoch_ == state.epoch;
  if (!same_store) {
    cache_ = std::make_shared<BlockCache>(deps_.cache_bytes);
    cache_epoch_ = state.epoch;
  }
  const bool goes_on = before && before->epoch == state.epoch;
  auto view = std::make_shared<ReadView>();
  view->active = nothing_;
  view->version = Version::Of(state, goes_on ? before->view->version.get() : nullptr, deps_.storage,
                              no_remover_);
  cache_->Reserve(view->version->memory_bytes);
  auto shown = std::make_shared<Shown>();
  *shown = {.epoch = state.epoch, .cache = cache_, .view = std::move(view)};
  Replace(std::move(shown));
  shows_.fetch_add(1, std::memory_order_relaxed);
}

void CopyReader::Hide() { Replace(nullptr); }

LookupPlaces CopyReader::PlacesOf(const Shown& shown) const {
  return {.cache = shown.cache.get(),
          .value_log = nullptr,
          .wall = deps_.wall,
          .epoch = shown.epoch,
          .storage = deps_.storage};
}

template <typename Read>
Task<Status> CopyReader::ReadNewest(Read read) {
  reads_.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t tries = 0; tries < kTriesMax; ++tries) {
    const ShownPtr shown = Newest();
    if (!shown) {
      co_return Status::Unavailable("there is no copy here that may be read, or not yet");
    }
    Status status = co_await read(shown);
    if (!IsUnreadable(status)) co_return status;
    // All of the newest is there.
    if (Newest() == shown) co_return status;
    begun_again_.fetch_add(1, std::memory_order_relaxed);
  }
  given_up_.fetch_add(1, std::memory_order_relaxed);
  co_return Status::Unavailable("the copy changes faster than it is read");
}

Task<Status> CopyReader::GetFrom(OpContext& op, ShownPtr shown,
                                 std::span<const std::string_view> keys,
                                 std::vector<std::optional<std::string>>* values) {
  const ReadView* const view = shown->view.get();
  const std::function<const ReadView&()> view_of = [view]() -> const ReadView& { return *view; };
  Status found = co_await FindValues(op, PlacesOf(*shown), keys, view_of, values);
  co_return found;
}

Task<Status> CopyReader::MultiGet(OpContext& op, std::span<const std::string_view> keys,
                                  std::vector<std::optional<std::string>>* values) {
  values->clear();
  for (const std::string_view key : keys) FARLEAF_CO_RETURN_IF_ERROR(CheckLookupKey(key));
  Status read = co_await ReadNewest(
      [this, &op, keys, values](ShownPtr shown) { return GetFrom(op, shown, keys, values); });
  co_return read;
}

Task<Result<bool>> CopyReader::Get(OpContext& op, std::string_view key, std::string* value) {
  std::vector<std::optional<std::string>> values;
  Status read = co_await MultiGet(op, {&key, 1}, &values);
  if (!read.ok()) co_return read;
  const bool present = values[0].has_value();
  if (present) *value = std::move(*values[0]);
  co_return present;
}

Task<Status> CopyReader::ScanFrom(OpContext& op, ShownPtr shown, ScanRange range,
                                  std::vector<KeyValue>* rows) {
  const LookupPlaces places = PlacesOf(*shown);
  ReadPoint point{shown->view, kSequenceMax};
  Status scanned = co_await ScanView(op, places, std::move(point), range, rows);
  co_return scanned;
}

Task<Status> CopyReader::Scan(OpContext& op, ScanRange range, std::vector<KeyValue>* rows) {
  rows->clear();
  ScanRange whole = range;
  whole.damage = ScanDamage::kFail;
  Status scanned = co_await ReadNewest(
      [this, &op, whole, rows](ShownPtr shown) { return ScanFrom(op, shown, whole, rows); });
  if (range.damage == ScanDamage::kFail || !IsUnreadable(scanned)) co_return scanned;
  scanned = co_await ReadNewest(
      [this, &op, range, rows](ShownPtr shown) { return ScanFrom(op, shown, range, rows); });
  co_return scanned;
}

Task<Result<ModifyResult>> CopyReader::Modify(OpContext& /*op*/, std::string_view /*key*/,
                                              const ModifyFunction& /*modify*/,
                                              CurrentValue /*use*/) {
  co_return ReadOnly();
}

Task<Status> CopyReader::BlindPut(OpContext& /*op*/, std::string_view /*key*/,
                                  std::string_view /*value*/) {
  co_return ReadOnly();
}

Task<Status> CopyReader::DeleteRange(OpContext& /*op*/, std::string_view /*start*/,
                                     std::string_view /*end*/) {
  co_return ReadOnly();
}

}  // namespace farleaf::index::lsm
