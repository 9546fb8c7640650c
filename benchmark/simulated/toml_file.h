// What reading a model file and reading a program file have in common.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "dsm/base/result.h"
#include "server/toml.h"

namespace farleaf::ycsb {

Result<std::string> ReadTextFile(const std::string& path);
Result<toml::table> ParseTomlText(std::string_view text, const std::string& source);
/// `node` as the file has it.
std::string TextOf(const toml::node& node);

/// One value of a file, for messages.
struct TomlPlace {
  const std::string& source;
  std::string key;
  /// InvalidArgument: "FILE, line 7: KEY: VALUE WRONG".
  Status Wrong(const toml::node& node, const std::string& wrong) const;
};

/// A whole number or a number, within [min, max].
Result<double> NumberOf(const TomlPlace& place, const toml::node& node, double min, double max,
                        bool whole);

}  // namespace farleaf::ycsb
