#include "benchmark/ycsb/properties.h"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <sstream>

namespace farleaf::ycsb {

namespace {

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\f";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

/// Whether `text` is a number as a whole.
template <typename T>
bool Parse(std::string_view text, T* value) {
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stopped == end;
}

}  // namespace

Status Properties::LoadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return Status::NotFound("workload file '" + path +
                            "' cannot be read: name a file that is there");
  }
  return LoadText(text.str(), path);
}

Status Properties::LoadText(std::string_view text, std::string_view source) {
  size_t line_number = 0;
  std::string joined;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = Trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (joined.empty() && (line.empty() || line.front() == '#' || line.front() == '!')) continue;
    if (line.ends_with('\\')) {
      joined += line.substr(0, line.size() - 1);
      continue;
    }
    joined += line;
    const size_t split = joined.find_first_of("=:");
    const std::string_view name = Trim(std::string_view(joined).substr(0, split));
    if (split == std::string::npos || name.empty()) {
      return Status::InvalidArgument(std::string(source) + " line " + std::to_string(line_number) +
                                     ": '" + joined + "' is not NAME=VALUE");
    }
    Set(std::string(name), std::string(Trim(std::string_view(joined).substr(split + 1))));
    joined.clear();
  }
  return Status::Ok();
}

Status Properties::Assign(std::string_view assignment) {
  const size_t split = assignment.find('=');
  if (split == std::string_view::npos || split == 0) {
    return Status::InvalidArgument("-p " + std::string(assignment) + ": expected NAME=VALUE");
  }
  Set(std::string(Trim(assignment.substr(0, split))),
      std::string(Trim(assignment.substr(split + 1))));
  return Status::Ok();
}

const std::string* PropertyReader::Find(const std::string& name) {
  asked_.insert(name);
  const auto it = values_.find(name);
  return it == values_.end() ? nullptr : &it->second;
}

void PropertyReader::Refuse(const std::string& name, std::string_view reason) {
  if (!status_.ok()) return;
  const auto it = values_.find(name);
  const std::string shown = it == values_.end() ? "property " + name + " is not set"
                                                : "property " + name + "=" + it->second;
  status_ = Status::InvalidArgument(shown + ": " + std::string(reason));
}

uint64_t PropertyReader::Integer(const std::string& name, uint64_t fallback, uint64_t min,
                                 uint64_t max) {
  const std::string* text = Find(name);
  if (!text) return fallback;
  uint64_t value = 0;
  if (Parse(*text, &value) && value >= min && value <= max) return value;
  Refuse(name, "expected an integer from " + std::to_string(min) + " to " + std::to_string(max));
  return fallback;
}

double PropertyReader::Proportion(const std::string& name, double fallback) {
  return Number(name, fallback, 0, 1);
}

double PropertyReader::Number(const std::string& name, double fallback, double min, double max) {
  const std::string* text = Find(name);
  if (!text) return fallback;
  double value = 0;
  if (Parse(*text, &value) && value >= min && value <= max) return value;
  Refuse(name, fmt::format("expected a number from {} to {}", min, max));
  return fallback;
}

bool PropertyReader::Flag(const std::string& name, bool fallback) {
  constexpr std::string_view kChoices[] = {"true", "false"};
  return Choice(name, fallback ? "true" : "false", kChoices) == "true";
}

std::string PropertyReader::Choice(const std::string& name, std::string_view fallback,
                                   std::span<const std::string_view> choices) {
  const std::string* text = Find(name);
  if (!text) return std::string(fallback);
  std::string listed;
  for (std::string_view choice : choices) {
    if (*text == choice) return *text;
    listed += (listed.empty() ? "" : ", ") + std::string(choice);
  }
  Refuse(name, "expected one of " + listed);
  return std::string(fallback);
}

std::string PropertyReader::Text(const std::string& name, std::string_view fallback) {
  const std::string* text = Find(name);
  return text ? *text : std::string(fallback);
}

std::vector<std::string> PropertyReader::Unknown() const {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : values_) {
    if (!asked_.contains(name)) unknown.push_back(name);
  }
  return unknown;
}

}  // namespace farleaf::ycsb
