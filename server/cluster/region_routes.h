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

/// A store that is served, of the keys in [start, end): none but these may be asked for, since what a table says of a region's keys may be of
/// before or behind a split.
struct ServedStore {
  index::lsm::LsmStore* store = nullptr;
  index::storage::Storage* storage = nullptr;  ///< where it is
  std::string start;
  std::string end;       ///< empty: there is no last key
  uint64_t opening = 0;  ///< of the gate, from 1
  bool Covers(std::string_view key) const { return key >= start && (end.empty() || key < end); }
};

/// Who may use a region's store, and who waits for those who do.
class RegionGate {
 public:
  /// Served from now on. REQUIRES: it is closed, and idle.
  void Open(ServedStore served) {
    const uint64_t opening = kept_.opening + 1;
    kept_ = std::move(served);
    kept_.opening = opening;
    served_.store(&kept_);
  }
  /// Nobody comes in any more. Behind it, whoever closes waits for idle().
  void Close() { served_.store(nullptr); }
  bool idle() const { return users_.load() == 0; }

  /// null: it is closed. Otherwise Leave follows, until which it stays.
  const ServedStore* Enter() {
    users_.fetch_add(1);
    const ServedStore* const served = served_.load();
    if (served == nullptr) users_.fetch_sub(1);
    return served;
  }
  void Leave() { users_.fetch_sub(1); }

 private:
  ServedStore kept_;
  std::atomic<const ServedStore*> served_{nullptr};
  std::atomic<uint64_t> users_{0};
};

/// A store that stays open as long as this is held: for one operation, since a region's move waits for it.
class StoreUse {
 public:
  StoreUse() = default;
  explicit StoreUse(RegionGate* gate) : gate_(gate), served_(gate->Enter()) {}
  StoreUse(StoreUse&& other) noexcept
      : gate_(other.gate_), served_(std::exchange(other.served_, nullptr)) {}
  StoreUse& operator=(StoreUse&&) = delete;
  ~StoreUse() {
    if (served_ != nullptr) gate_->Leave();
  }
  /// null: this node does not serve the region now. Otherwise look whether it covers the key.
  const ServedStore* served() const { return served_; }
  RegionGate* gate() const { return gate_; }

 private:
  RegionGate* gate_ = nullptr;
  const ServedStore* served_ = nullptr;
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
