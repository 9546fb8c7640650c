#include "server/frontend/redis/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>

namespace farleaf::server::redis {

namespace {
constexpr std::pair<std::string_view, Counters::Count Counters::*> kNamed[] = {
    {"refused", &Counters::refused},         {"failed", &Counters::failed},
    {"key_hits", &Counters::key_hits},       {"key_misses", &Counters::key_misses},
    {"round_trips", &Counters::round_trips},
};

char Lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }
}  // namespace

void Counters::AddTo(Counters* sum) const {
  for (const auto& [name, count] : kNamed) Add(sum->*count, (this->*count).load());
}

void Counters::AppendTo(std::string* text) const {
  auto out = std::back_inserter(*text);
  for (const auto& [name, count] : kNamed) {
    fmt::format_to(out, "redis.{} {}\n", name, (this->*count).load());
  }
}

void Counters::AppendMetrics(MetricsText* out) const {
  constexpr std::string_view kLookups = "farleaf_redis_lookups_total";
  constexpr std::string_view kHelp = "Keys that GET and MGET looked for.";
  out->Counter(kLookups, kHelp, {{"outcome", "hit"}}, static_cast<double>(key_hits.load()));
  out->Counter(kLookups, kHelp, {{"outcome", "miss"}}, static_cast<double>(key_misses.load()));
  out->Counter("farleaf_redis_refused_total", "Commands that are unknown, or not served.", {},
               static_cast<double>(refused.load()));
}

bool IsWord(std::string_view text, std::string_view word) {
  return text.size() == word.size() && std::equal(text.begin(), text.end(), word.begin(),
                                                  [](char a, char b) { return Lower(a) == b; });
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), Lower);
  return lower;
}

bool ParseInteger(std::string_view text, int64_t* number) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || (digits[0] == '0' && text.size() > 1)) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

bool ParseDouble(std::string_view text, double* number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text[0] == '+') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size() && !std::isnan(*number);
}

void MakeTreeKey(std::string_view key, std::string* buffer) {
  buffer->assign(1, kUserKeySpace).append(key);
}

std::string_view TypeName(RecordType type) {
  switch (type) {
    case RecordType::kString:
      return "string";
    case RecordType::kHash:
      return "hash";
    case RecordType::kSortedSet:
      return "zset";
  }
  return "none";
}

std::optional<uint64_t> ExpiryMs(int64_t time, TimeForm form, uint64_t now_ms) {
  int64_t ms = time;
  if (form.in_seconds && __builtin_mul_overflow(time, int64_t{1'000}, &ms)) return std::nullopt;
  if (!form.absolute && __builtin_add_overflow(ms, static_cast<int64_t>(now_ms), &ms)) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(std::max<int64_t>(ms, 1));  // 0 would be never
}

dsm::Task<Status> ForEachElement(Call call, Elements elements, Repeated repeated,
                                 const NumberedStep& each) {
  constexpr size_t kLanes = 16;
  std::vector<std::string_view> names;
  for (size_t i = elements.first; i < call.count(); i += elements.step) names.push_back(call.at(i));
  const size_t count = names.size();
  size_t lanes = kLanes;
  if (repeated == Repeated::kInOrder) {
    std::sort(names.begin(), names.end());
    if (std::adjacent_find(names.begin(), names.end()) != names.end()) lanes = 1;
  }
  const NumberedStep* const step = &each;
  const NumberedStep at_argument = [step, &call, elements](size_t i) {
    // A stop has cut it.
    if (!call.environment.thread().stopping()) {
      call.op.deadline_ns = call.environment.DeadlineNs();
    }
    return (*step)(elements.first + i * elements.step);
  };
  const Status done = co_await RunSideBySide(call.op, count, lanes, at_argument);
  co_return done;
}

}  // namespace farleaf::server::redis
