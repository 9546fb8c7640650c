#include "index/prefixed_index.h"

#include <algorithm>
#include <array>
#include <utility>

#include "dsm/base/check.h"

namespace farleaf::index {

namespace {

std::array<char, PrefixedIndex::kPrefixBytes> PrefixOf(uint16_t number) {
  return {static_cast<char>(number >> 8), static_cast<char>(number & 0xff)};
}

Status WrongFixed8(size_t value_bytes) {
  return Status::InvalidArgument("a value of " + std::to_string(value_bytes) +
                                 " bytes; a fixed8 tree takes 8");
}

/// Hands on what one key of many has.
class OneOfMany final : public ValueVisitor {
 public:
  explicit OneOfMany(ValueVisitor* many) : many_(many) {}
  void Visit(size_t, std::optional<std::string_view> value) override {
    many_->Visit(number, value);
  }
  size_t number = 0;

 private:
  ValueVisitor* const many_;
};

/// A modification whose new value has to have 8 bytes.
struct Fixed8Rule {
  const ModifyFunction* modify;
  std::optional<size_t> wrong_bytes = {};

  ModifyAction Decide(std::optional<std::string_view> current, std::string* replacement) {
    wrong_bytes.reset();
    const ModifyAction action = (*modify)(current, replacement);
    if (action != ModifyAction::kWrite || replacement->size() == 8) return action;
    wrong_bytes = replacement->size();
    return ModifyAction::kKeep;
  }
};

}  // namespace

PrefixedIndex::PrefixedIndex(RangeIndex* whole, uint16_t number, Limits limits)
    : whole_(whole), number_(number), limits_(limits) {
  FARLEAF_CHECK(number < kNumberEnd && limits.key_bytes_max <= kKeyBytesMax, number,
                limits.key_bytes_max);
}

std::string PrefixedIndex::Whole(std::string_view key) const {
  const auto prefix = PrefixOf(number_);
  std::string whole;
  whole.reserve(prefix.size() + key.size());
  return whole.append(prefix.data(), prefix.size()).append(key);
}

Status PrefixedIndex::CheckKey(std::string_view key) const {
  if (limits_.sizes == Sizes::kFixed8 && key.size() != 8) {
    return Status::InvalidArgument("a key of " + std::to_string(key.size()) +
                                   " bytes; a fixed8 tree takes 8");
  }
  if (!key.empty() && key.size() <= limits_.key_bytes_max) return Status::Ok();
  return Status::InvalidArgument("a key of " + std::to_string(key.size()) + " bytes; 1 to " +
                                 std::to_string(limits_.key_bytes_max) + " are allowed");
}

Task<Result<bool>> PrefixedIndex::Get(OpContext& op, std::string_view key, std::string* value) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckKey(key));
  const std::string whole = Whole(key);
  auto found = co_await whole_->Get(op, whole, value);
  co_return found;
}

Task<Status> PrefixedIndex::MultiGet(OpContext& op, std::span<const std::string_view> keys,
                                     std::vector<std::optional<std::string>>* values) {
  values->clear();
  std::vector<std::string> whole;
  whole.reserve(keys.size());
  for (const std::string_view key : keys) {
    FARLEAF_CO_RETURN_IF_ERROR(CheckKey(key));
    whole.push_back(Whole(key));
  }
  const std::vector<std::string_view> views(whole.begin(), whole.end());
  Status got = co_await whole_->MultiGet(op, views, values);
  co_return got;
}

size_t PrefixedIndex::VisitAtOnce(OpContext& op, std::span<const std::string_view> keys,
                                  ValueVisitor& visitor) {
  std::array<char, kPrefixBytes + kKeyBytesMax> bytes;  // of one key after the other
  const auto prefix = PrefixOf(number_);
  std::copy(prefix.begin(), prefix.end(), bytes.begin());
  OneOfMany one(&visitor);
  for (; one.number < keys.size(); ++one.number) {
    const std::string_view key = keys[one.number];
    if (!CheckKey(key).ok()) break;
    std::copy(key.begin(), key.end(), bytes.begin() + kPrefixBytes);
    const std::string_view whole(bytes.data(), kPrefixBytes + key.size());
    if (whole_->VisitAtOnce(op, {&whole, 1}, one) == 0) break;
  }
  return one.number;
}

Task<Result<ModifyResult>> PrefixedIndex::Modify(OpContext& op, std::string_view key,
                                                 const ModifyFunction& modify,
                                                 CurrentValue current) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckKey(key));
  const std::string whole = Whole(key);
  if (limits_.sizes == Sizes::kAny) {
    auto modified = co_await whole_->Modify(op, whole, modify, current);
    co_return modified;
  }
  Fixed8Rule rule{&modify};
  const ModifyFunction checked = [&rule](std::optional<std::string_view> value,
                                         std::string* replacement) {
    return rule.Decide(value, replacement);
  };
  auto modified = co_await whole_->Modify(op, whole, checked, current);
  if (modified.ok() && rule.wrong_bytes) {
    co_return WrongFixed8(*rule.wrong_bytes);
  }
  co_return modified;
}

Task<size_t> PrefixedIndex::ModifyTogether(OpContext& op, std::span<const std::string_view> keys,
                                           CurrentValue use, KeyChanges& changes) {
  if (limits_.sizes == Sizes::kFixed8) co_return 0;
  std::vector<std::string> whole;
  whole.reserve(keys.size());
  for (const std::string_view key : keys) {
    if (!CheckKey(key).ok()) break;
    whole.push_back(Whole(key));
  }
  const std::vector<std::string_view> views(whole.begin(), whole.end());
  const size_t done = co_await whole_->ModifyTogether(op, views, use, changes);
  co_return done;
}

Task<Status> PrefixedIndex::BlindPut(OpContext& op, std::string_view key, std::string_view value) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckKey(key));
  if (limits_.sizes == Sizes::kFixed8 && value.size() != 8) co_return WrongFixed8(value.size());
  const std::string whole = Whole(key);
  Status stored = co_await whole_->BlindPut(op, whole, value);
  co_return stored;
}

// The whole index counts prefixes as bytes, too: it is asked for a little more, and again where rows are so small that this was not
// enough.
Task<Status> PrefixedIndex::DeleteRange(OpContext& op, std::string_view start,
                                        std::string_view end) {
  const std::string from = Whole(start), to = Whole(end);
  Status deleted = co_await whole_->DeleteRange(op, from, to);
  co_return deleted;
}

Task<Status> PrefixedIndex::Scan(OpContext& op, ScanRange range, std::vector<KeyValue>* rows) {
  std::string start = Whole(range.start);
  const auto behind = PrefixOf(static_cast<uint16_t>(number_ + 1));
  std::string end = range.end ? Whole(*range.end) : std::string(behind.data(), behind.size());
  uint64_t rows_left = range.limit, bytes_left = range.bytes_max;
  rows->clear();
  std::vector<KeyValue> piece;
  for (;;) {
    range.start = start;
    range.end = end;
    range.limit = rows_left;
    range.bytes_max = bytes_left > UINT64_MAX / 2 ? UINT64_MAX : bytes_left + bytes_left / 8 + 16;
    Status scanned = co_await whole_->Scan(op, range, &piece);
    uint64_t whole_bytes = 0;
    for (KeyValue& row : piece) {
      whole_bytes += row.key.size() + row.value.size();
      if (bytes_left == 0) break;
      row.key.erase(0, kPrefixBytes);
      const uint64_t bytes = row.key.size() + row.value.size();
      bytes_left -= std::min(bytes_left, bytes);
      --rows_left;
      rows->push_back(std::move(row));
    }
    const bool ended = whole_bytes < range.bytes_max;
    if (!scanned.ok() || ended || rows_left == 0 || bytes_left == 0) co_return scanned;
    if (range.direction == ScanDirection::kForward) {
      start = Whole(rows->back().key).append(1, '\0');
    } else {
      end = Whole(rows->back().key);
    }
  }
}

}  // namespace farleaf::index
