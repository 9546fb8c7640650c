#include "server/records/string_rules.h"

#include <algorithm>
#include <charconv>

namespace farleaf::server {

namespace {

bool IsStorable(StoreMode mode, bool present) {
  switch (mode) {
    case StoreMode::kSet:
      return true;
    case StoreMode::kAdd:
      return !present;
    default:
      return present;
  }
}

/// Digits, and spaces or anything behind a space after them: memcached pads what it counts down.
bool ParseCount(std::string_view text, uint64_t* count) {
  constexpr size_t kDigitsMax = 20;
  if (text.empty()) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *count);
  if (error != std::errc() || static_cast<size_t>(end - text.data()) > kDigitsMax) return false;
  return end == text.data() + text.size() || *end == ' ';
}

}  // namespace

RecordAction StoreRule::Decide(const Record* current, Record* next, std::string_view* tail) {
  outcome = RuleOutcome::kDone;
  bool stale = false;
  const bool joins = mode == StoreMode::kAppend || mode == StoreMode::kPrepend;
  if ((compare_cas || joins) && IsOther(current)) {
    outcome = RuleOutcome::kWrongType;
    return RecordAction::kKeep;
  }
  if (compare_cas && !current) {
    outcome = RuleOutcome::kNotFound;
    return RecordAction::kKeep;
  }
  if (compare_cas && current->cas != *compare_cas) {
    if (!accept_older || *compare_cas > current->cas) {
      outcome = RuleOutcome::kExists;
      return RecordAction::kKeep;
    }
    stale = true;
  }
  const bool creates = joins && !current && create_expiry_ms;
  if (!creates && !IsStorable(mode, current != nullptr)) {
    outcome = RuleOutcome::kNotStored;
    return RecordAction::kKeep;
  }
  if (joins && current) {
    if (current->data.size() + data.size() > data_bytes_max) {
      outcome = RuleOutcome::kTooLarge;
      return RecordAction::kKeep;
    }
    *next = *current;
    const bool behind = mode == StoreMode::kAppend;
    next->data = behind ? current->data : data;
    *tail = behind ? data : current->data;
  } else {
    next->flags = flags;
    next->expiry_ms = creates ? *create_expiry_ms : expiry_ms;
    next->data = data;
  }
  next->cas = next_cas;
  next->stale = stale;
  next->won = false;
  stored_bytes = next->data.size() + tail->size();
  return RecordAction::kWrite;
}

RecordAction CountRule::Decide(const Record* current, Record* next, std::string_view*) {
  outcome = RuleOutcome::kDone;
  if (!current && !create_expiry_ms) {
    outcome = RuleOutcome::kNotFound;
    return RecordAction::kKeep;
  }
  uint64_t count = initial;
  if (IsOther(current)) {
    outcome = RuleOutcome::kWrongType;
    return RecordAction::kKeep;
  }
  if (current) {
    if (compare_cas && current->cas != *compare_cas) {
      outcome = RuleOutcome::kExists;
      return RecordAction::kKeep;
    }
    if (!ParseCount(current->data, &count)) {
      outcome = RuleOutcome::kNotANumber;
      return RecordAction::kKeep;
    }
    count = down ? count - std::min(count, delta) : count + delta;
    *next = *current;
    if (expiry_ms) next->expiry_ms = *expiry_ms;
  } else {
    next->expiry_ms = *create_expiry_ms;
  }
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, count);
  digit_count = static_cast<size_t>(end - digits);
  next->data = result();
  next->cas = next_cas;
  stored = *next;
  return RecordAction::kWrite;
}

RecordAction DeleteRule::Decide(const Record* current, Record* next, std::string_view*) {
  outcome = RuleOutcome::kDone;
  if (!current) {
    outcome = RuleOutcome::kNotFound;
    return RecordAction::kKeep;
  }
  if ((compare_cas || invalidate) && IsOther(current)) {
    outcome = RuleOutcome::kWrongType;
    return RecordAction::kKeep;
  }
  if (compare_cas && current->cas != *compare_cas) {
    outcome = RuleOutcome::kExists;
    return RecordAction::kKeep;
  }
  if (!invalidate) return RecordAction::kDelete;
  *next = *current;
  next->stale = true;
  next->won = false;
  next->cas = next_cas;
  if (expiry_ms) next->expiry_ms = *expiry_ms;
  return RecordAction::kWrite;
}

RecordAction FetchRule::Decide(const Record* current, Record* next, std::string_view*) {
  outcome = RuleOutcome::kDone;
  created = won = won_before = false;
  data.clear();
  if (!current && !create_expiry_ms) {
    outcome = RuleOutcome::kNotFound;
    return RecordAction::kKeep;
  }
  if (IsOther(current)) {
    outcome = RuleOutcome::kWrongType;
    return RecordAction::kKeep;
  }
  if (!current) {
    created = won = true;
    next->expiry_ms = *create_expiry_ms;
    next->won = true;
    next->cas = next_cas;
    found = *next;
    return RecordAction::kWrite;
  }
  *next = *current;
  won_before = current->won;
  const bool ends_soon =
      renew_before_ms && current->expiry_ms != 0 && current->expiry_ms < *renew_before_ms;
  won = !won_before && (current->stale || ends_soon);
  if (won) next->won = true;
  if (expiry_ms) next->expiry_ms = *expiry_ms;
  found = *next;
  if (with_data) data.assign(current->data);
  found.data = data;
  const bool changes = won || next->expiry_ms != current->expiry_ms;
  return changes ? RecordAction::kWrite : RecordAction::kKeep;
}

bool NeedsWrite(const FetchRule& rule, const Record& record) {
  if (rule.expiry_ms) return true;
  if (record.won) return false;
  return record.stale || (rule.renew_before_ms && record.expiry_ms != 0 &&
                          record.expiry_ms < *rule.renew_before_ms);
}

}  // namespace farleaf::server
