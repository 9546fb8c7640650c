#include "index/range_index.h"

namespace farleaf::index {

namespace {
// Captures of up to 16 bytes stay inside std::function: one reference to the value.
ModifyFunction WriteIf(bool wanted_present, bool wanted_absent, const std::string_view& value) {
  struct Rule {
    const std::string_view* value;
    bool if_present, if_absent;
  } rule{&value, wanted_present, wanted_absent};
  return [rule](std::optional<std::string_view> current, std::string* replacement) {
    if (current ? !rule.if_present : !rule.if_absent) return ModifyAction::kKeep;
    replacement->assign(*rule.value);
    return ModifyAction::kWrite;
  };
}
}  // namespace

Task<Status> RangeIndex::VisitValues(OpContext& op, std::span<const std::string_view> keys,
                                     ValueVisitor& visitor) {
  std::vector<std::optional<std::string>> values;
  Status got = co_await MultiGet(op, keys, &values);
  if (!got.ok()) co_return got;
  for (size_t i = 0; i < values.size(); ++i) {
    visitor.Visit(i, values[i] ? std::optional<std::string_view>(*values[i]) : std::nullopt);
  }
  co_return got;
}

Task<size_t> RangeIndex::ModifyTogether(OpContext& /*op*/,
                                        std::span<const std::string_view> /*keys*/,
                                        CurrentValue /*use*/, KeyChanges& /*changes*/) {
  co_return 0;
}

Task<Status> RangeIndex::DeleteRange(OpContext& /*op*/, std::string_view /*start*/,
                                     std::string_view /*end*/) {
  co_return Status::Unimplemented("deleting a range at once");
}

Task<Result<bool>> RangeIndex::Insert(OpContext& op, std::string_view key, std::string_view value) {
  const ModifyFunction modify = WriteIf(false, true, value);
  auto result = co_await Modify(op, key, modify, CurrentValue::kPresenceOnly);
  if (!result.ok()) co_return result.status();
  co_return !result->existed;
}

Task<Result<bool>> RangeIndex::Put(OpContext& op, std::string_view key, std::string_view value) {
  const ModifyFunction modify = WriteIf(true, true, value);
  auto result = co_await Modify(op, key, modify, CurrentValue::kPresenceOnly);
  if (!result.ok()) co_return result.status();
  co_return !result->existed;
}

Task<Status> RangeIndex::BlindPut(OpContext& op, std::string_view key, std::string_view value) {
  auto stored = co_await Put(op, key, value);
  co_return stored.status();
}

Task<Result<bool>> RangeIndex::Update(OpContext& op, std::string_view key, std::string_view value) {
  const ModifyFunction modify = WriteIf(true, false, value);
  auto result = co_await Modify(op, key, modify, CurrentValue::kMustExist);
  if (!result.ok()) co_return result.status();
  co_return result->existed;
}

Task<Result<bool>> RangeIndex::Delete(OpContext& op, std::string_view key) {
  const ModifyFunction modify = [](std::optional<std::string_view> current, std::string*) {
    return current ? ModifyAction::kDelete : ModifyAction::kKeep;
  };
  auto result = co_await Modify(op, key, modify, CurrentValue::kMustExist);
  if (!result.ok()) co_return result.status();
  co_return result->existed;
}

Task<Result<DeleteIfResult>> RangeIndex::DeleteIf(OpContext& op, std::string_view key,
                                                  std::string_view expected) {
  const std::string_view* wanted = &expected;
  const ModifyFunction modify = [wanted](std::optional<std::string_view> current, std::string*) {
    return current == *wanted ? ModifyAction::kDelete : ModifyAction::kKeep;
  };
  auto result = co_await ReadModifyWrite(op, key, modify);
  if (!result.ok()) co_return result.status();
  if (!result->existed) co_return DeleteIfResult::kAbsent;
  co_return result->action == ModifyAction::kDelete ? DeleteIfResult::kDeleted
                                                    : DeleteIfResult::kDifferent;
}

}  // namespace farleaf::index
