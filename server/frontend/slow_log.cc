#include "server/frontend/slow_log.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace farleaf::server {

namespace {

/// Of printable text.
void AppendJsonText(std::string_view name, std::string_view text, std::string* out) {
  fmt::format_to(std::back_inserter(*out), ", \"{}\": \"", name);
  for (const char c : text) {
    if (c == '"' || c == '\\') out->push_back('\\');
    out->push_back(c);
  }
  out->push_back('"');
}

}  // namespace

std::string PrintablePrefix(std::string_view bytes, size_t bytes_max) {
  std::string text;
  for (const char c : bytes.substr(0, bytes_max)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == '\\') {
      text += "\\\\";
    } else if (byte >= 0x20 && byte < 0x7f) {
      text += c;
    } else {
      fmt::format_to(std::back_inserter(text), "\\x{:02x}", byte);
    }
  }
  if (bytes.size() > bytes_max) text += "…";
  return text;
}

void SlowLog::Add(SlowRequest request) {
  request.key = PrintablePrefix(request.key, kKeyBytesMax);
  request.client = PrintablePrefix(request.client, kKeyBytesMax);
  std::lock_guard lock(mutex_);
  request.id = ++count_;
  if (options_.entries == 0) return;
  if (entries_.size() >= options_.entries) entries_.pop_back();
  entries_.push_front(std::move(request));
}

std::vector<SlowRequest> SlowLog::Entries() const {
  std::lock_guard lock(mutex_);
  return {entries_.begin(), entries_.end()};
}

uint64_t SlowLog::count() const {
  std::lock_guard lock(mutex_);
  return count_;
}

void SlowLog::Clear() {
  std::lock_guard lock(mutex_);
  entries_.clear();
}

std::string SlowLog::ToJson() const {
  std::string json = "[";
  for (const SlowRequest& each : Entries()) {
    fmt::format_to(std::back_inserter(json),
                   "{}{{\"id\": {}, \"time_ms\": {}, \"duration_us\": {}, \"round_trips\": {}, "
                   "\"failed\": {}",
                   json.size() == 1 ? "" : ",\n ", each.id, each.time_ms, each.duration_us,
                   each.round_trips, each.failed);
    AppendJsonText("protocol", each.protocol, &json);
    AppendJsonText("command", each.command, &json);
    AppendJsonText("key", each.key, &json);
    AppendJsonText("client", each.client, &json);
    json += "}";
  }
  return json + "]\n";
}

}  // namespace farleaf::server
