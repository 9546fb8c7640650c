// PrefixModel: what a store may hold of one client's operations after a crash: those up to some one, all of them, and at least what
// was acknowledged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace farleaf::test {

/// One operation of a client: what it makes of its keys, all of it or nothing.
struct Operation {
  std::map<uint64_t, std::optional<std::string>> changes;  ///< by key's number; nothing: deleted
};

/// Operations one after the other: each is committed in front of the next one.
struct PrefixModel {
  std::vector<Operation> operations;
  size_t durable = 0;  ///< so many of them, at least, are there after a crash

  using Content = std::map<uint64_t, std::string>;
  /// The most operations, of those that are durable at least, which make this; nullopt: none do.
  std::optional<size_t> MostThatMake(const Content& there) const {
    std::optional<size_t> most;
    Content content;
    for (size_t count = 0;; ++count) {
      if (count >= durable && content == there) most = count;
      if (count == operations.size()) return most;
      for (const auto& [key, value] : operations[count].changes) {
        if (value) {
          content[key] = *value;
        } else {
          content.erase(key);
        }
      }
    }
  }
};

}  // namespace farleaf::test
