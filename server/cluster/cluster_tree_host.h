// ClusterTreeHost: the trees of a cluster, as each of its nodes serves them: whichever keys are whose, any node serves any key, since it asks
// the one that has it (routed_index.h).
//
// Trees are entries of the membership: `/trees/NAME`, NAME in hexadecimal digits, with the bytes of a catalog's entry (server/lsm/catalog_entry.h).
// Numbers come from the counter `/next_tree`, so that none is ever used twice, and a tree has the same at all nodes.
//
// The map of ranges that clients are told has a range for each run of regions of one primary, with the URL of that node; where nobody serves, or the
// URL is not known, it is empty: whoever was asked, which any node is that the client likes: it waits for who comes to serve, and forwards.
//
// Thread rule: thread-safe. What it is given outlives it, and it whatever runs on it; it is destroyed when nothing of it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/cluster/peer_client.h"
#include "server/cluster/region_routes.h"
#include "server/cluster/routed_index.h"
#include "server/frontend/tree_host.h"
#include "server/membership/membership.h"

namespace farleaf::server::cluster {

class ClusterTreeHost final : public TreeHost {
 public:
  using MakeWorker = std::function<Result<std::unique_ptr<dsm::Worker>>()>;
  struct Deps {
    membership::Membership* session = nullptr;
    RegionRoutes* routes = nullptr;
    const Clock* clock = nullptr;  ///< of the workers
    MakeWorker open_worker;
  };
  struct Options {
    RoutingOptions routing;
    PeerOptions peers;
  };
  static constexpr const char* kTreesPath = "/trees";
  static constexpr const char* kNextTreePath = "/next_tree";
  /// Of a tree's name: twice as many are a name of an entry.
  static constexpr size_t kNameBytesMax = 127;

  ClusterTreeHost(Deps deps, Options options);

  /// 1 until a map is known.
  uint32_t view() const override;
  void GetRangeMap(uint32_t* view, std::vector<protocol::ServedRange>* ranges) const override;
  Result<std::unique_ptr<dsm::Worker>> OpenWorker() override { return deps_.open_worker(); }
  Status CheckDurability(WriteDurability) const override { return Status::Ok(); }

  // Beside what they say, these end with what the membership's calls end with.
  /// Finds what Create has made at any node, once that has ended.
  dsm::Task<Result<HostedTree>> Open(dsm::OpContext& op, std::string_view name) override;
  /// Page sizes of the geometry mean nothing here. Also InvalidArgument: the name is too long; ResourceExhausted: there were 65,534 trees. With
  /// Unknown the tree may have been made.
  dsm::Task<Result<HostedTree>> Create(dsm::OpContext& op, const NewTree& tree) override;
  /// As this node's session sees them, perhaps without what others have made a moment ago.
  dsm::Task<Result<std::vector<protocol::TreeInfo>>> List(dsm::OpContext& op) override;
  HostedTree Find(uint32_t id) override;
  dsm::Task<Status> Upkeep(dsm::OpContext& op) override {
    return UpkeepOfStores(*deps_.routes, op);
  }
  void AppendStats(std::string* text) const override;
  void AppendMetrics(MetricsText* out) const override;

 private:
  struct Tree {
    protocol::TreeInfo info;
    std::unique_ptr<RoutedIndex> index;
  };

  HostedTree FindName(std::string_view name);
  /// The entry's bytes; NotFound.
  dsm::Task<Result<std::string>> ReadEntry(dsm::Worker& worker, std::string path);
  dsm::Task<Result<uint16_t>> TakeNumber(dsm::Worker& worker);
  /// The tree behind an entry.
  Result<HostedTree> Keep(std::string_view name, std::string_view entry);

  const Deps deps_;
  const Options options_;
  PeerClient peers_;
  mutable std::mutex mutex_;        // guards the two below; the trees in them stay
  std::map<uint32_t, Tree> trees_;  // by number
  std::map<std::string, uint32_t, std::less<>> numbers_;
};

}  // namespace farleaf::server::cluster
