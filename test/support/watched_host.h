// WatchedHost: a TreeHost of which a test sees on which threads the operations of whom are run: an operation says whose it
// is by its key, in which two characters in front of an '@' name them.
//
// Thread rule: thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "test/support/host_decorator.h"

namespace farleaf::test {

/// Which threads have been at something of each name.
class ThreadsByName {
 public:
  void Note(std::string_view key);
  std::map<std::string, std::set<std::thread::id>> Seen() const;

 private:
  mutable std::mutex mutex_;  // guards seen_
  std::map<std::string, std::set<std::thread::id>> seen_;
};

/// Notes the thread in front of each operation, where it goes on behind a wait of its own, and behind it. (What a pure
/// function of the key decides is not looked at: a tree may let any thread that has the leaf run it.)
class WatchedIndex final : public index::RangeIndex {
 public:
  /// Both outlive it.
  WatchedIndex(index::RangeIndex* index, ThreadsByName* threads)
      : index_(*index), threads_(*threads) {}

  index::Task<Result<bool>> Get(index::OpContext& op, std::string_view key,
                                std::string* value) override;
  index::Task<Status> MultiGet(index::OpContext& op, std::span<const std::string_view> keys,
                               std::vector<std::optional<std::string>>* values) override;
  index::Task<Result<index::ModifyResult>> Modify(index::OpContext& op, std::string_view key,
                                                  const index::ModifyFunction& modify,
                                                  index::CurrentValue current) override;
  index::Task<Status> Scan(index::OpContext& op, index::ScanRange range,
                           std::vector<index::KeyValue>* rows) override;
  index::Task<Status> Upkeep(index::OpContext& op) override { return index_.Upkeep(op); }
  size_t VisitAtOnce(index::OpContext& op, std::span<const std::string_view> keys,
                     index::ValueVisitor& visitor) override;
  size_t ModifyAtOnce(index::OpContext& op, std::span<const std::string_view> keys,
                      index::CurrentValue use, index::KeyChanges& changes) override;

 private:
  /// Lets others run in between.
  index::Task<void> Begin(index::OpContext& op, std::string_view key);

  index::RangeIndex& index_;
  ThreadsByName& threads_;
};

class WatchedHost final : public HostDecorator {
 public:
  using HostDecorator::HostDecorator;

  std::map<std::string, std::set<std::thread::id>> ThreadsSeen() const { return threads_.Seen(); }

 protected:
  std::unique_ptr<index::RangeIndex> Decorate(index::RangeIndex* index) override {
    return std::make_unique<WatchedIndex>(index, &threads_);
  }

 private:
  ThreadsByName threads_;
};

}  // namespace farleaf::test
