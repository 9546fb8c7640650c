// YCSB's property files: `name=value` lines in Java's format, later settings replacing earlier
// ones.
//
// PropertyReader turns them into checked values: it keeps the first failure, and knows which names
// nobody asked for.
// Thread rule: value types, one owner.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/result.h"

namespace farleaf::ycsb {

class Properties {
 public:
  /// NotFound if there is no such file; InvalidArgument with file and line otherwise.
  Status LoadFile(const std::string& path);
  /// `source` stands in messages. Comments (# or !), `name=value`, `name: value`, and lines that
  /// end in a backslash go on in the next.
  Status LoadText(std::string_view text, std::string_view source);
  /// One `name=value` of a command line.
  Status Assign(std::string_view assignment);
  void Set(std::string name, std::string value) { values_[std::move(name)] = std::move(value); }

  const std::map<std::string, std::string>& values() const { return values_; }

 private:
  std::map<std::string, std::string> values_;
};

class PropertyReader {
 public:
  explicit PropertyReader(const Properties& properties) : values_(properties.values()) {}

  bool Has(const std::string& name) const { return values_.contains(name); }
  /// An integer in [min, max].
  uint64_t Integer(const std::string& name, uint64_t fallback, uint64_t min, uint64_t max);
  /// A number in [min, max].
  double Number(const std::string& name, double fallback, double min, double max);
  /// A number in [0, 1].
  double Proportion(const std::string& name, double fallback);
  bool Flag(const std::string& name, bool fallback);
  /// One of `choices`.
  std::string Choice(const std::string& name, std::string_view fallback,
                     std::span<const std::string_view> choices);
  std::string Text(const std::string& name, std::string_view fallback);
  /// Refuses `name` for a reason that is not its own value alone.
  void Refuse(const std::string& name, std::string_view reason);

  /// The first failure.
  const Status& status() const { return status_; }
  /// Names that were set but never asked for.
  std::vector<std::string> Unknown() const;

 private:
  const std::string* Find(const std::string& name);
  std::map<std::string, std::string> values_;
  std::set<std::string> asked_;
  Status status_;
};

}  // namespace farleaf::ycsb
