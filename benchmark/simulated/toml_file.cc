#include "benchmark/simulated/toml_file.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <sstream>

namespace farleaf::ycsb {

Result<std::string> ReadTextFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Status::NotFound("file " + path + " cannot be read");
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return Status::IoError("file " + path + " cannot be read");
  return text.str();
}

Result<toml::table> ParseTomlText(std::string_view text, const std::string& source) {
  toml::parse_result parsed = toml::parse(text, source);
  if (parsed) return std::move(parsed).table();
  const toml::parse_error& error = parsed.error();
  return Status::InvalidArgument(source + ", line " + std::to_string(error.source().begin.line) +
                                 ": " + std::string(error.description()));
}

std::string TextOf(const toml::node& node) {
  if (const auto* text = node.as_string()) return "'" + text->get() + "'";
  if (const auto* integer = node.as_integer()) return std::to_string(integer->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* boolean = node.as_boolean()) return boolean->get() ? "true" : "false";
  std::ostringstream type;
  type << "of type " << node.type();
  return type.str();
}

Status TomlPlace::Wrong(const toml::node& node, const std::string& wrong) const {
  return Status::InvalidArgument(source + ", line " + std::to_string(node.source().begin.line) +
                                 ": " + key + ": " + TextOf(node) + " " + wrong);
}

Result<double> NumberOf(const TomlPlace& place, const toml::node& node, double min, double max,
                        bool whole) {
  const std::string expected =
      fmt::format("is not {} from {} to {}", whole ? "a whole number" : "a number", min, max);
  double number = 0;
  if (const auto* integer = node.as_integer()) {
    number = static_cast<double>(integer->get());
  } else if (const auto* real = node.as_floating_point(); real != nullptr && !whole) {
    number = real->get();
  } else {
    return place.Wrong(node, expected);
  }
  if (!std::isfinite(number) || number < min || number > max) return place.Wrong(node, expected);
  return number;
}

}  // namespace farleaf::ycsb
