// PrefixedHost: a tree that is a part of a map, between two others whose keys begin with the numbers beside its own.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "index/prefixed_index.h"
#include "test/support/index_host.h"

namespace farleaf::test {

class PrefixedHost final : public IndexHost {
 public:
  PrefixedHost() {
    auto worker = map_.OpenWorker(0);
    dsm::FabricCounts counts;
    dsm::OpContext op{*worker, counts};
    for (const uint16_t number : {uint16_t{0x0101}, uint16_t{0x0103}}) {
      index::PrefixedIndex neighbour(&map_.index(0), number, {});
      for (const std::string& key : {std::string(1, '\0'), std::string(1024, '\xff')}) {
        FARLEAF_CHECK(worker->Run(neighbour.Put(op, key, "a neighbour's")).ok());
      }
    }
  }

  size_t members() const override { return 1; }
  index::RangeIndex& index(size_t) override { return tree_; }
  std::unique_ptr<dsm::Worker> OpenWorker(size_t member) override {
    return map_.OpenWorker(member);
  }

 private:
  MapHost map_{MapIndex::Limits{false, 1026, 200'000}};
  index::PrefixedIndex tree_{&map_.index(0), 0x0102, {}};
};

inline IndexKind PrefixedKind() {
  return {"Prefixed", false, 1024, 64, 200'000, [] { return std::make_unique<PrefixedHost>(); }};
}

}  // namespace farleaf::test
