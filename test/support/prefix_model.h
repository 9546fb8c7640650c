// PrefixModel: what a store may hold of one client's operations after a crash: those up to some one, all of them, and at least what
// was acknowledged.
//
// Clients have keys of their own, named by KeyOf; a value says by its first bytes which operation wrote it (ValueOf).
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "index/range_index.h"

namespace farleaf::test {

inline std::string KeyPrefixOf(size_t client) { return "c" + std::to_string(client) + "k"; }
inline constexpr uint64_t kFirstKeyNumber = 100;  ///< so that keys stand in the order of numbers
inline std::string KeyOf(size_t client, uint64_t number) {
  return KeyPrefixOf(client) + std::to_string(kFirstKeyNumber + number);
}

/// Said by its first bytes; the rest follows from them.
inline std::string ValueOf(uint64_t operation, size_t bytes) {
  std::string value = std::to_string(operation) + "/";
  while (value.size() < bytes) value += static_cast<char>('a' + (operation + value.size()) % 23);
  return value;
}

/// One operation of a client: what it makes of its keys, all of it or nothing.
struct Operation {
  std::map<uint64_t, std::optional<std::string>> changes;  ///< by key's number; nothing: deleted
};

/// Operations one after the other: each is committed in front of the next one.
struct PrefixModel {
  std::vector<Operation> operations;
  size_t durable = 0;  ///< so many of them, at least, are there after a crash

  using Content = std::map<uint64_t, std::string>;
  /// What the rows have of the client's keys.
  static Content ContentOf(size_t client, const std::vector<index::KeyValue>& rows) {
    const std::string prefix = KeyPrefixOf(client);
    Content there;
    for (const index::KeyValue& row : rows) {
      if (row.key.starts_with(prefix)) {
        there[std::stoull(row.key.substr(prefix.size())) - kFirstKeyNumber] = row.value;
      }
    }
    return there;
  }
  /// The most operations, `least` of them or more, which make this; nullopt: none do.
  std::optional<size_t> MostThatMake(const Content& there, size_t least) const {
    std::optional<size_t> most;
    Content content;
    for (size_t count = 0;; ++count) {
      if (count >= least && content == there) most = count;
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

  /// Whether a read may have seen that of the key which was invoked when the first `least` operations were there, and has ended now. As each key has
  /// one writer, this is linearizability, decided on the spot.
  bool Explains(uint64_t key, const std::optional<std::string>& seen, size_t least) const {
    std::optional<std::string> state;
    for (size_t count = 0;; ++count) {
      if (count >= least && state == seen) return true;
      if (count == operations.size()) return false;
      const auto change = operations[count].changes.find(key);
      if (change != operations[count].changes.end()) state = change->second;
    }
  }

  /// That what is there of the client is such a prefix, which is all that there is of it from then on.
  void Check(size_t client, const std::vector<index::KeyValue>& rows) {
    const std::optional<size_t> count = MostThatMake(ContentOf(client, rows), durable);
    EXPECT_TRUE(count) << "client " << client << ": of " << operations.size()
                       << " operations, of which " << durable
                       << " are to be there, what is there is no prefix";
    if (!count) return;
    operations.resize(*count);
    // What was read back is there from now on.
    durable = *count;
  }
};

}  // namespace farleaf::test
