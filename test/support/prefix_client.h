// What clients of a PrefixModel (prefix_model.h) do to a store.
#pragma once

#include <string>
#include <vector>

#include "dsm/base/random.h"
#include "index/lsm/store.h"
#include "test/support/prefix_model.h"

namespace farleaf::test {

inline constexpr uint64_t kPrefixKeysEach = 40;

/// Of one to three keys; small values, larger ones, and now and then one that takes a part of a log's segment.
inline Operation DrawOperation(Random& random, uint64_t number) {
  Operation operation;
  for (uint64_t n = random.OneIn(5) ? 3 : 1; n > 0; --n) {
    const size_t bytes = random.OneIn(2)    ? 30
                         : random.OneIn(15) ? random.Below(100'000)
                                            : random.Below(1000);
    auto& change = operation.changes[random.Below(kPrefixKeysEach)];
    change = random.OneIn(5) ? std::nullopt : std::optional(ValueOf(number, bytes));
  }
  return operation;
}

/// `tree`: what all keys begin with.
inline dsm::Task<Status> WriteOperation(dsm::OpContext& op, index::lsm::LsmStore& store,
                                        size_t client, Operation operation, std::string tree = {}) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : operation.changes) keys.push_back(tree + KeyOf(client, key));
  std::vector<index::lsm::Change> changes;
  size_t i = 0;
  for (const auto& [key, value] : operation.changes) {
    index::lsm::Change change{
        .kind = value ? index::lsm::ChangeKind::kPut : index::lsm::ChangeKind::kDelete,
        .key = keys[i++]};
    if (value) change.value = *value;
    changes.push_back(change);
  }
  Status written = co_await store.Write(op, changes);
  co_return written;
}

}  // namespace farleaf::test
