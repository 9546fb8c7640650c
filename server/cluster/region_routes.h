// RegionRoutes: who serves which keys, as far as this node knows, and the stores that it serves itself.
//
// What is in a table is what was so at some moment: a store is used only as long as a StoreUse of it is held, and then this node is the region's primary
// for as long as its lease runs (which the store looks at itself: Mirror::MayAnswer).
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "index/lsm/store.h"
#include "server/membership/region_map.h"

namespace farleaf::server::cluster {

using membership::NodeId;
using membership::RegionId;

struct Route {
  RegionId region = RegionId::kNone;
  std::string start;
  std::string end;                       ///< exclusive; empty: there is no last key
  NodeId primary = membership::kNoNode;  ///< kNoNode: nobody, for now
  std::string url;                       ///< of its native protocol; empty: it is not there
};

/// All keys, each once, in their order. Never changed once it is made.
struct RouteTable {
  uint32_t view = 0;  ///< RegionMap::view: tables of one view have the same regions and primaries
  std::vector<Route> routes;
  const Route& Find(std::string_view key) const;
};

/// Who may use a region's store, and who waits for those who do.
class RegionGate {
 public:
  /// The store from now on.
  void Open(index::lsm::LsmStore* store) { store_.store(store); }
  /// Nobody comes in any more. Behind it, whoever closes waits for idle().
  void Close() { store_.store(nullptr); }
  bool idle() const { return users_.load() == 0; }

  /// null: it is closed. Otherwise Leave follows.
  index::lsm::LsmStore* Enter() {
    users_.fetch_add(1);
    index::lsm::LsmStore* const store = store_.load();
    if (store == nullptr) users_.fetch_sub(1);
    return store;
  }
  void Leave() { users_.fetch_sub(1); }

 private:
  std::atomic<index::lsm::LsmStore*> store_{nullptr};
  std::atomic<uint64_t> users_{0};
};

/// A store that stays open as long as this is held: for one operation, since a region's move waits for it.
class StoreUse {
 public:
  StoreUse() = default;
  explicit StoreUse(RegionGate* gate) : gate_(gate), store_(gate->Enter()) {}
  StoreUse(StoreUse&& other) noexcept
      : gate_(other.gate_), store_(std::exchange(other.store_, nullptr)) {}
  StoreUse& operator=(StoreUse&&) = delete;
  ~StoreUse() {
    if (store_ != nullptr) gate_->Leave();
  }
  /// null: this node does not serve the region now.
  index::lsm::LsmStore* store() const { return store_; }

 private:
  RegionGate* gate_ = nullptr;
  index::lsm::LsmStore* store_ = nullptr;
};

class RegionRoutes {
 public:
  virtual ~RegionRoutes() = default;
  virtual NodeId self() const = 0;
  /// null: no map is known yet.
  virtual std::shared_ptr<const RouteTable> Now() const = 0;
  virtual StoreUse Use(RegionId region) = 0;
};

}  // namespace farleaf::server::cluster
