// RoutedIndex: one tree over all regions: each operation is done where its keys are, in a store of this node or, as a RemoteTree, at the
// node that serves them.
//
// An operation on a key is done at one store at one moment. A store is used only while a StoreUse of it is held, and asked only for keys that it
// serves then (README.md, "Routing"). A MultiGet asks all places of its keys at once; what spans regions (Scan, DeleteRange) is done region by region.
//
// A read that may be stale (OpContext::max_staleness_ns) is done in this node's copy, if that is no older, and else as any other.
//
// Where nobody serves a key, or who does answers that nothing was done (Unavailable, Fenced), the operation waits and looks at the table
// again, until Options::wait_ms are over: then it ends with Unavailable, which names the region. All else is passed on as it comes.
//
// Thread rule: that of RangeIndex. Routes and peers outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "index/prefixed_index.h"
#include "index/range_index.h"
#include "server/cluster/peer_client.h"
#include "server/cluster/region_routes.h"
#include "server/cluster/remote_tree.h"

namespace farleaf::server::cluster {

struct RoutingOptions {
  uint64_t wait_ms = 10'000;  ///< for somebody who serves a key
};

/// RangeIndex::Upkeep of all stores of this node. What a store that was lost meanwhile had left is for others.
dsm::Task<Status> UpkeepOfStores(RegionRoutes& routes, dsm::OpContext& op);

class RoutedIndex final : public index::RangeIndex {
 public:
  struct Tree {
    std::string name;     ///< at all nodes
    uint16_t number = 0;  ///< likewise
    index::PrefixedIndex::Limits limits;
  };
  RoutedIndex(RegionRoutes* routes, PeerClient* peers, Tree tree, RoutingOptions options)
      : routes_(*routes), peers_(*peers), tree_(std::move(tree)), options_(options) {}

  dsm::Task<Result<bool>> Get(dsm::OpContext& op, std::string_view key,
                              std::string* value) override;
  dsm::Task<Status> MultiGet(dsm::OpContext& op, std::span<const std::string_view> keys,
                             std::vector<std::optional<std::string>>* values) override;
  dsm::Task<Result<index::ModifyResult>> Modify(dsm::OpContext& op, std::string_view key,
                                                const index::ModifyFunction& modify,
                                                index::CurrentValue current) override;
  dsm::Task<Status> BlindPut(dsm::OpContext& op, std::string_view key,
                             std::string_view value) override;
  /// Leading keys that are served here.
  size_t VisitAtOnce(dsm::OpContext& op, std::span<const std::string_view> keys,
                     index::ValueVisitor& visitor) override;
  /// Of those that are in one store here; 0: the first one is elsewhere.
  dsm::Task<size_t> ModifyTogether(dsm::OpContext& op, std::span<const std::string_view> keys,
                                   index::CurrentValue use, index::KeyChanges& changes) override;
  dsm::Task<Status> Scan(dsm::OpContext& op, index::ScanRange range,
                         std::vector<index::KeyValue>* rows) override;
  /// Not at one moment: what is stored meanwhile may stay.
  dsm::Task<Status> DeleteRange(dsm::OpContext& op, std::string_view start,
                                std::string_view end) override;
  dsm::Task<Status> Upkeep(dsm::OpContext& op) override { return UpkeepOfStores(routes_, op); }

 private:
  class Place;
  class Patience;
  class Numbered;
  class RestOfScan;
  struct Part;

  /// Where the key is.
  Place Locate(const dsm::OpContext& op, std::string_view key);
  /// Where the keys right below `end` are; nullopt: the largest keys.
  Place LocateBelow(const dsm::OpContext& op, const std::optional<std::string>& end);
  template <typename Covers>
  Place At(const dsm::OpContext& op, std::shared_ptr<const RouteTable> table, const Route& route,
           Covers covers);
  index::PrefixedIndex LocalTree(const Place& place) const;
  RemoteTree TreeAt(const Place& place) const;
  /// Notes how old what was read at the place is; true: it is to be read elsewhere.
  static bool LeavesCopies(dsm::OpContext& op, const Place& place, const Status& status);

  /// Has `run`, a function of a RangeIndex&, do the operation wherever the key is.
  template <typename R, typename Run>
  dsm::Task<R> AtKey(dsm::OpContext& op, std::string_view key, Run run);
  /// The same at `place`, once. Unavailable if that is nowhere.
  template <typename Run>
  dsm::Task<Status> RunAt(dsm::OpContext& op, const Place& place, Run run);
  /// Of `keys` those with these numbers.
  std::vector<Part> PartsOf(const dsm::OpContext& op, std::span<const std::string_view> keys,
                            std::span<const size_t> numbers);
  /// Asks for it, once.
  dsm::Task<Status> GetPart(dsm::OpContext& op, Part& part);

  RegionRoutes& routes_;
  PeerClient& peers_;
  const Tree tree_;
  const RoutingOptions options_;
};

}  // namespace farleaf::server::cluster
