// IndexHost: one index and several compute servers that use it, whatever the index. Model tests and
// history tests run against each kind of it.
//
// Each compute server ("member") of a tree has a Pool, a BlinkTree and thus a search-layer cache of
// its own, so that what one does makes the others' caches stale. All share the memory servers.
// Thread rule: thread-safe once made; a Worker belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/pool.h"
#include "dsm/shm/local_fabric.h"
#include "index/blink/tree.h"
#include "test/support/fabric_under_test.h"
#include "test/support/map_index.h"
#include "test/support/options_off.h"
#include "test/support/shared_fabric.h"

namespace farleaf::test {

class IndexHost {
 public:
  virtual ~IndexHost() = default;
  virtual size_t members() const = 0;
  virtual index::RangeIndex& index(size_t member) = 0;
  virtual std::unique_ptr<dsm::Worker> OpenWorker(size_t member) = 0;
};

/// An index to test, and what keys and values it takes.
struct IndexKind {
  std::string name;
  bool fixed8 = false;
  size_t key_bytes_max = 8;
  size_t inline_value_bytes_max = 8;  ///< values around this size are interesting
  size_t value_bytes_max = 8;
  std::function<std::unique_ptr<IndexHost>()> make;
};
void PrintTo(const IndexKind& kind, std::ostream* out);

/// The reference model itself: shows that the tests ask for nothing that it does not do.
class MapHost final : public IndexHost {
 public:
  explicit MapHost(MapIndex::Limits limits);
  size_t members() const override { return 1; }
  index::RangeIndex& index(size_t) override { return map_; }
  std::unique_ptr<dsm::Worker> OpenWorker(size_t) override;

 private:
  MonotonicClock clock_;
  dsm::EpochDomain epochs_;
  std::unique_ptr<dsm::LocalFabric> fabric_;
  MapIndex map_;
};

class TreeMembers final : public IndexHost {
 public:
  struct Options {
    index::Geometry geometry = index::Geometry::Fixed8(256);
    index::TreeOptions tree;
    size_t members = 2;
    dsm::FabricKind fabric = dsm::FabricKind::kLocal;
    uint64_t defer_seed = 0;  ///< as in SharedFabric: not 0 makes verbs of kLocal suspend
    uint64_t region_bytes = uint64_t{32} << 20;
    uint32_t servers = 2;
  };

  explicit TreeMembers(Options options);
  ~TreeMembers() override;

  size_t members() const override { return members_.size(); }
  index::RangeIndex& index(size_t member) override { return *members_[member].tree; }
  index::BlinkTree& tree(size_t member) { return *members_[member].tree; }
  dsm::FabricUnderTest& servers() { return servers_; }
  dsm::Pool& pool(size_t member) { return *members_[member].pool; }
  const Clock& clock() const { return servers_.clock(); }
  std::unique_ptr<dsm::Worker> OpenWorker(size_t member) override;

  /// Chunks of all memory servers that are in use for pages of the tree.
  size_t ChunksInUse();

 private:
  struct Member {
    std::unique_ptr<dsm::Pool> pool;
    std::unique_ptr<index::BlinkTree> tree;
  };
  void Open(const Options& options, size_t i);

  dsm::FabricUnderTest servers_;  // outlives the members
  std::vector<Member> members_;
};

IndexKind MapKind(std::string name, bool fixed8);

IndexKind TreeKind(std::string name, TreeMembers::Options options);

/// The map and the trees, with pages small enough that splits and merges are frequent; trees on each
/// of the fabrics between processes too, where byte strings stand for all sorted leaves.
std::vector<IndexKind> MapAndTreeKinds();

}  // namespace farleaf::test
