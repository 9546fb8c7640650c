// MapIndex: a RangeIndex over std::map and a mutex. It is the reference model that the contract and
// model tests compare every index with, and stands in for the tree in front-end tests.
//
// `before` of an operation, if set, is awaited first: tests use it to hold operations up.
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "index/range_index.h"

namespace farleaf::test {

class MapIndex final : public index::RangeIndex {
 public:
  struct Limits {
    bool fixed8 = false;
    size_t key_bytes_max = 1024;
    size_t value_bytes_max = size_t{16} << 20;
  };
  using Before = std::function<index::Task<Status>(index::OpContext&)>;

  MapIndex() = default;
  explicit MapIndex(Limits limits) : limits_(limits) {}
  /// REQUIRES: no operation is running.
  void set_before(Before before) { before_ = std::move(before); }

  index::Task<Result<bool>> Get(index::OpContext& op, std::string_view key,
                                std::string* value) override;

  index::Task<Status> MultiGet(index::OpContext& op, std::span<const std::string_view> keys,
                               std::vector<std::optional<std::string>>* values) override;

  index::Task<Result<index::ModifyResult>> Modify(index::OpContext& op, std::string_view key,
                                                  const index::ModifyFunction& modify,
                                                  index::CurrentValue /*current*/) override;

  index::Task<Status> Scan(index::OpContext& op, index::ScanRange range,
                           std::vector<index::KeyValue>* rows) override;

  index::Task<Status> Upkeep(index::OpContext&) override;
  /// How often it was called.
  uint64_t upkeeps() const { return upkeeps_.load(); }
  /// So often it fails from here on.
  void set_upkeeps_left(uint64_t upkeeps) { upkeeps_left_.store(upkeeps); }

  size_t size() const;
  std::map<std::string, std::string, std::less<>> Content() const;

 private:
  index::Task<Status> Begin(index::OpContext& op);
  Status CheckKey(std::string_view key) const;
  Status CheckValue(std::string_view value) const;

  const Limits limits_;
  Before before_;
  std::atomic<uint64_t> upkeeps_{0}, upkeeps_left_{0};
  mutable std::mutex mutex_;  // guards map_
  std::map<std::string, std::string, std::less<>> map_;
};

}  // namespace farleaf::test
