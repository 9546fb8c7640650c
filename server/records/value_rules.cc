#include "server/records/value_rules.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace farleaf::server {

namespace {

/// What is there, as the next record; or a new one.
void Continue(const Record* current, Record* next) {
  if (current != nullptr) *next = *current;
  next->cas = 0;
  next->stale = next->won = false;
}

}  // namespace

bool ParseSigned(std::string_view text, int64_t* number) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || (digits[0] == '0' && text.size() > 1)) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

bool ParseLongDouble(std::string_view text, long double* number) {
  constexpr size_t kBytesMax = 256;
  if (text.empty() || text.size() > kBytesMax || text.front() <= ' ') return false;
  if (text.find('\0') != std::string_view::npos) return false;
  const std::string terminated(text);
  char* end = nullptr;
  *number = std::strtold(terminated.c_str(), &end);
  return end == terminated.c_str() + terminated.size() && !std::isnan(*number);
}

std::string LongDoubleText(long double number) {
  constexpr int kDigitsBehindPoint = 17;
  const int bytes = std::snprintf(nullptr, 0, "%.*Lf", kDigitsBehindPoint, number);
  std::string text(static_cast<size_t>(std::max(bytes, 0)) + 1, '\0');
  std::snprintf(text.data(), text.size(), "%.*Lf", kDigitsBehindPoint, number);
  text.pop_back();
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

RecordAction SetRule::Decide(const Record* current, Record* next, std::string_view*) {
  outcome = RuleOutcome::kDone;
  existed = current != nullptr;
  old.clear();
  if (fetch && IsOther(current)) {
    outcome = RuleOutcome::kWrongType;
    return RecordAction::kKeep;
  }
  if (fetch && current) old.assign(current->data);
  if ((when == When::kAbsent && existed) || (when == When::kPresent && !existed)) {
    outcome = RuleOutcome::kNotStored;
    return RecordAction::kKeep;
  }
  next->expiry_ms = keep_expiry && current ? current->expiry_ms : expiry_ms;
  next->data = data;
  return RecordAction::kWrite;
}

RecordAction IncrementRule::Decide(const Record* current, Record* next, std::string_view*) {
  outcome = RuleOutcome::kDone;
  int64_t number = 0;
  if (IsOther(current)) {
    outcome = RuleOutcome::kWrongType;
  } else if (current && !ParseSigned(current->data, &number)) {
    outcome = RuleOutcome::kNotANumber;
  } else if (__builtin_add_overflow(number, delta, &result)) {
    outcome = RuleOutcome::kTooLarge;
  }
  if (outcome != RuleOutcome::kDone) return RecordAction::kKeep;
  Continue(current, next);
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, result);
  next->data = {digits, static_cast<size_t>(end - digits)};
  return RecordAction::kWrite;
}

RecordAction IncrementFloatRule::Decide(const Record* current, Record* next, std::string_view*) {
  outcome = RuleOutcome::kDone;
  long double number = 0;
  if (IsOther(current)) {
    outcome = RuleOutcome::kWrongType;
  } else if (current && !ParseLongDouble(current->data, &number)) {
    outcome = RuleOutcome::kNotANumber;
  } else if (!std::isfinite(number + delta)) {
    outcome = RuleOutcome::kTooLarge;
  }
  if (outcome != RuleOutcome::kDone) return RecordAction::kKeep;
  Continue(current, next);
  result = LongDoubleText(number + delta);
  next->data = result;
  return RecordAction::kWrite;
}

RecordAction SpliceRule::Decide(const Record* current, Record* next, std::string_view*) {
  outcome = RuleOutcome::kDone;
  if (IsOther(current)) {
    outcome = RuleOutcome::kWrongType;
    return RecordAction::kKeep;
  }
  const std::string_view before = current ? current->data : std::string_view();
  stored_bytes = before.size();
  if (data.empty()) return RecordAction::kKeep;
  if (offset > data_bytes_max || data.size() > data_bytes_max - offset) {
    outcome = RuleOutcome::kTooLarge;
    return RecordAction::kKeep;
  }
  buffer.assign(before);
  buffer.resize(std::max<size_t>(before.size(), offset + data.size()), '\0');
  std::copy(data.begin(), data.end(), buffer.begin() + static_cast<std::ptrdiff_t>(offset));
  stored_bytes = buffer.size();
  Continue(current, next);
  next->data = buffer;
  return RecordAction::kWrite;
}

RecordAction TakeRule::Decide(const Record* current, Record*, std::string_view*) {
  outcome = RuleOutcome::kDone;
  data.clear();
  if (!current || IsOther(current)) {
    outcome = current ? RuleOutcome::kWrongType : RuleOutcome::kNotFound;
    return RecordAction::kKeep;
  }
  data.assign(current->data);
  return RecordAction::kDelete;
}

RecordAction ExpiryRule::Decide(const Record* current, Record* next, std::string_view*) {
  done = false;
  if (!current) return RecordAction::kKeep;
  const uint64_t before = current->expiry_ms;
  if ((only_without && before != 0) || (only_with && before == 0)) return RecordAction::kKeep;
  if (only_later && (before == 0 || expiry_ms <= before)) return RecordAction::kKeep;
  if (only_sooner && before != 0 && expiry_ms >= before) return RecordAction::kKeep;
  done = true;
  *next = *current;
  next->expiry_ms = expiry_ms;
  return RecordAction::kWrite;
}

}  // namespace farleaf::server
