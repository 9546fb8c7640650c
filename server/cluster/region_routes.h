// RegionRoutes: who serves which keys, as far as this node knows, and the stores that it serves itself.
//
// What is in a table is what was so at some moment: a store is used only as long as a StoreUse of it is held, and then this node is the region's primary
// for as long as its lease runs (which the store looks at itself: Mirror::MayAnswer). A copy says itself how old it is.
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "index/lsm/copy_reader.h"
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

/// What is served, of the keys in [start, end): none but these may be asked for, since what a table says of a region's keys may be of
/// before or behind a split.
struct ServedKeys {
  std::string start;
  std::string end;       ///< empty: there is no last key
  uint64_t opening = 0;  ///< of the gate, from 1
  bool Covers(std::string_view key) const { return key >= start && (end.empty() || key < end); }
};
/// The store, at the region's primary.
struct ServedStore : ServedKeys {
  index::lsm::LsmStore* store = nullptr;
  index::storage::Storage* storage = nullptr;  ///< where it is
};
/// What a backup has in its tables.
struct ServedCopy : ServedKeys {
  std::shared_ptr<index::lsm::CopyReader> reader;
  /// How old what is read from here on may be, by any thread; nullopt: it cannot be read now.
  std::function<std::optional<uint64_t>()> staleness_ns;
};

/// Who may use what a node has of a region, and who waits for those who do.
template <typename Served>
class Gate {
 public:
  /// Served from now on. REQUIRES: it is closed, and idle.
  void Open(Served served) {
    const uint64_t opening = kept_.opening + 1;
    kept_ = std::move(served);
    kept_.opening = opening;
    served_.store(&kept_);
  }
  /// Nobody comes in any more. Behind it, whoever closes waits for idle().
  void Close() { served_.store(nullptr); }
  bool idle() const { return users_.load() == 0; }

  /// null: it is closed. Otherwise Leave follows, until which it stays.
  const Served* Enter() {
    users_.fetch_add(1);
    const Served* const served = served_.load();
    if (served == nullptr) users_.fetch_sub(1);
    return served;
  }
  void Leave() { users_.fetch_sub(1); }

 private:
  Served kept_;
  std::atomic<const Served*> served_{nullptr};
  std::atomic<uint64_t> users_{0};
};
/// Of one region at one node. At most one of them is open.
struct RegionGates {
  Gate<ServedStore> store;
  Gate<ServedCopy> copy;
};

/// What stays open as long as this is held: for one operation, since a region's move waits for it.
template <typename Served>
class GateUse {
 public:
  GateUse() = default;
  explicit GateUse(Gate<Served>* gate) : gate_(gate), served_(gate->Enter()) {}
  GateUse(GateUse&& other) noexcept
      : gate_(other.gate_), served_(std::exchange(other.served_, nullptr)) {}
  GateUse& operator=(GateUse&&) = delete;
  ~GateUse() {
    if (served_ != nullptr) gate_->Leave();
  }
  /// null: this node does not serve that of the region now. Otherwise look whether it covers the key.
  const Served* served() const { return served_; }
  Gate<Served>* gate() const { return gate_; }

 private:
  Gate<Served>* gate_ = nullptr;
  const Served* served_ = nullptr;
};
using StoreUse = GateUse<ServedStore>;
using CopyUse = GateUse<ServedCopy>;

class RegionRoutes {
 public:
  virtual ~RegionRoutes() = default;
  virtual NodeId self() const = 0;
  /// null: no map is known yet.
  virtual std::shared_ptr<const RouteTable> Now() const = 0;
  virtual StoreUse Use(RegionId region) = 0;
  virtual CopyUse UseCopy(RegionId region) = 0;
};

}  // namespace farleaf::server::cluster
