#include "test/support/map_index.h"

#include <utility>

namespace farleaf::test {

index::Task<Result<bool>> MapIndex::Get(index::OpContext& op, std::string_view key,
                                        std::string* value) {
  Status begun = co_await Begin(op);
  if (!begun.ok()) co_return begun;
  FARLEAF_CO_RETURN_IF_ERROR(CheckKey(key));
  std::lock_guard lock(mutex_);
  auto it = map_.find(key);
  if (it == map_.end()) co_return false;
  *value = it->second;
  co_return true;
}

index::Task<Status> MapIndex::MultiGet(index::OpContext& op, std::span<const std::string_view> keys,
                                       std::vector<std::optional<std::string>>* values) {
  values->assign(keys.size(), std::nullopt);
  for (size_t i = 0; i < keys.size(); ++i) {
    std::string value;
    auto found = co_await Get(op, keys[i], &value);
    if (!found.ok()) {
      values->clear();
      co_return found.status();
    }
    if (*found) (*values)[i] = std::move(value);
  }
  co_return Status::Ok();
}

index::Task<Result<index::ModifyResult>> MapIndex::Modify(index::OpContext& op,
                                                          std::string_view key,
                                                          const index::ModifyFunction& modify,
                                                          index::CurrentValue /*current*/) {
  Status begun = co_await Begin(op);
  if (!begun.ok()) co_return begun;
  FARLEAF_CO_RETURN_IF_ERROR(CheckKey(key));
  std::lock_guard lock(mutex_);
  auto it = map_.find(key);
  index::ModifyResult result;
  result.existed = it != map_.end();
  std::string replacement;
  result.action = modify(
      result.existed ? std::optional<std::string_view>(it->second) : std::nullopt, &replacement);
  if (result.action == index::ModifyAction::kWrite) {
    FARLEAF_CO_RETURN_IF_ERROR(CheckValue(replacement));
    map_.insert_or_assign(std::string(key), std::move(replacement));
  } else if (result.action == index::ModifyAction::kDelete && result.existed) {
    map_.erase(it);
  }
  co_return result;
}

index::Task<Status> MapIndex::Scan(index::OpContext& op, index::ScanRange range,
                                   std::vector<index::KeyValue>* rows) {
  rows->clear();
  Status begun = co_await Begin(op);
  if (!begun.ok()) co_return begun;
  if (!range.start.empty()) FARLEAF_CO_RETURN_IF_ERROR(CheckKey(range.start));
  if (range.end && !range.end->empty()) FARLEAF_CO_RETURN_IF_ERROR(CheckKey(*range.end));
  std::lock_guard lock(mutex_);
  auto first = map_.lower_bound(range.start);
  auto last = range.end ? map_.lower_bound(*range.end) : map_.end();
  if (range.end && *range.end <= range.start) last = first;
  uint64_t bytes = 0;
  while (first != last && rows->size() < range.limit && bytes < range.bytes_max) {
    const auto& [key, value] =
        range.direction == index::ScanDirection::kForward ? *first++ : *--last;
    rows->push_back({key, value});
    bytes += key.size() + value.size();
  }
  co_return Status::Ok();
}

index::Task<Status> MapIndex::Upkeep(index::OpContext&) {
  upkeeps_.fetch_add(1);
  if (upkeeps_left_.load() == 0) co_return Status::Ok();
  upkeeps_left_.fetch_sub(1);
  co_return Status::Unavailable("the test leaves something to be done");
}

size_t MapIndex::size() const {
  std::lock_guard lock(mutex_);
  return map_.size();
}

std::map<std::string, std::string, std::less<>> MapIndex::Content() const {
  std::lock_guard lock(mutex_);
  return map_;
}

index::Task<Status> MapIndex::Begin(index::OpContext& op) {
  if (before_) {
    Status status = co_await before_(op);
    co_return status;
  }
  co_return Status::Ok();
}

Status MapIndex::CheckKey(std::string_view key) const {
  if (limits_.fixed8 && key.size() != 8) {
    return Status::InvalidArgument("a key of " + std::to_string(key.size()) +
                                   " bytes; a fixed8 tree takes 8");
  }
  if (key.empty() || key.size() > limits_.key_bytes_max) {
    return Status::InvalidArgument("a key of " + std::to_string(key.size()) + " bytes; 1 to " +
                                   std::to_string(limits_.key_bytes_max) + " are allowed");
  }
  return Status::Ok();
}

Status MapIndex::CheckValue(std::string_view value) const {
  if (limits_.fixed8 ? value.size() != 8 : value.size() > limits_.value_bytes_max) {
    return Status::InvalidArgument("a value of " + std::to_string(value.size()) +
                                   " bytes does not fit this tree");
  }
  return Status::Ok();
}

}  // namespace farleaf::test
