#include "index/lsm/multi_get.h"

#include <algorithm>
#include <array>

#include "dsm/together.h"

namespace farleaf::index::lsm {

namespace {

/// Lives in the frame of FindValues.
struct ValuesSought {
  OpContext& op;
  const LookupPlaces places;
  const std::span<const std::string_view> keys;
  const std::function<const ReadView&()>& view_of;
  std::vector<std::optional<std::string>>& values;
  std::vector<size_t> left = {};  ///< numbers of keys of which something is to be fetched
  size_t next = 0;                ///< in `left`, that nobody looks for yet
  bool failed = false;            ///< nobody begins another one
};

SoughtKey Sought(std::string_view key) { return {key, kSequenceMax, Wanted::kValue}; }

void AnswerFromMemory(ValuesSought& sought) {
  const ReadView& view = sought.view_of();
  for (size_t i = 0; i < sought.keys.size(); ++i) {
    Found found;
    Missing missing;
    const SoughtKey key = Sought(sought.keys[i]);
    switch (LookUp(view, sought.places, key.key, key.snapshot, key.wanted, &found, &missing)) {
      case LookupOutcome::kFound:
        sought.values[i].emplace(found.entry.value);
        break;
      case LookupOutcome::kAbsent:
        break;
      case LookupOutcome::kMissing:
        sought.left.push_back(i);
        break;
    }
  }
}

/// One after another, until there are none left for it.
Task<Status> AnswerFromDevice(ValuesSought& sought) {
  while (sought.next < sought.left.size() && !sought.failed) {
    const size_t number = sought.left[sought.next++];
    Found found;
    auto there = co_await FindInView(sought.op, sought.places, Sought(sought.keys[number]), &found,
                                     sought.view_of);
    if (!there.ok()) {
      sought.failed = true;
      co_return there.status();
    }
    if (*there) sought.values[number].emplace(found.entry.value);
  }
  co_return Status::Ok();
}

}  // namespace

Task<Status> FindValues(OpContext& op, LookupPlaces places, std::span<const std::string_view> keys,
                        const std::function<const ReadView&()>& view_of,
                        std::vector<std::optional<std::string>>* values) {
  values->clear();
  for (const std::string_view key : keys) FARLEAF_CO_RETURN_IF_ERROR(CheckLookupKey(key));
  values->resize(keys.size());
  ValuesSought sought{
      .op = op, .places = places, .keys = keys, .view_of = view_of, .values = *values};
  AnswerFromMemory(sought);

  std::array<Status, kLookupsTogether> outcomes;
  dsm::Together together(op.worker);
  for (size_t i = 0; i < std::min(outcomes.size(), sought.left.size()); ++i) {
    together.Start(AnswerFromDevice(sought), &outcomes[i]);
  }
  co_await together.All();
  for (Status& outcome : outcomes) {
    if (outcome.ok()) continue;
    values->clear();
    co_return std::move(outcome);
  }
  co_return Status::Ok();
}

}  // namespace farleaf::index::lsm
