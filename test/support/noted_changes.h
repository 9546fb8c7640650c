// NotedChanges: what is to become of some keys, whatever they have, and how it came to that.
//
// Thread rule: one owner.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "index/range_index.h"

namespace farleaf::test {

class NotedChanges final : public index::KeyChanges {
 public:
  /// By key number; nullopt: it is deleted.
  using Wanted = std::vector<std::optional<std::string>>;
  explicit NotedChanges(Wanted wanted) : KeyChanges(&room_), wanted_(std::move(wanted)) {}

  std::vector<size_t> decided;  ///< numbers, in their order
  std::vector<size_t> done;     ///< likewise
  std::vector<Result<index::ModifyResult>> results;
  std::vector<std::optional<std::string>> found;  ///< by whoever decided

  index::ModifyAction Decide(size_t number, std::optional<std::string_view> current,
                             std::string* replacement) override {
    decided.push_back(number);
    found.push_back(current ? std::optional(std::string(*current)) : std::nullopt);
    if (!wanted_[number]) return index::ModifyAction::kDelete;
    *replacement = *wanted_[number];
    return index::ModifyAction::kWrite;
  }
  void Done(size_t number, const Result<index::ModifyResult>& result) override {
    done.push_back(number);
    results.push_back(result);
  }

 private:
  const Wanted wanted_;
  std::string room_;
};

}  // namespace farleaf::test
