// LsmTreeHost: the trees of an LSM store on this machine's disk, as a front end serves them. Each is the part of the store that
// begins with its number (index/prefixed_index.h); number 0 is the catalog:
//
//   "F"       -> "farleaf trees 1"                                          what the store is, and which form this is
//   "I"       -> u64, big-endian                                            the number that was given last
//   "N" name  -> u16 number | u8 layout | u32 key_bytes_max, little-endian  a tree
//
// A store without "F" that is not empty was made by another program, which does not share its keys among trees: it is refused.
//
// Thread rule: thread-safe; Load by one thread, before the rest. The store outlives it, and it whatever runs on it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "index/lsm/store.h"
#include "index/prefixed_index.h"
#include "server/frontend/tree_host.h"

namespace farleaf::server {

class LsmTreeHost final : public TreeHost {
 public:
  using MakeWorker = std::function<Result<std::unique_ptr<dsm::Worker>>()>;
  struct Deps {
    index::lsm::LsmStore* store = nullptr;
    index::storage::Storage* storage = nullptr;
    std::string place;  ///< where the store is, for whoever looks at statistics
    MakeWorker open_worker;
  };

  /// Reads the catalog, or begins it in an empty store. InvalidArgument: another program's store.
  static Result<std::unique_ptr<LsmTreeHost>> Load(Deps deps);

  uint32_t view() const override { return 1; }
  Result<std::unique_ptr<dsm::Worker>> OpenWorker() override { return deps_.open_worker(); }
  dsm::Task<Result<HostedTree>> Open(dsm::OpContext& op, std::string_view name) override;
  /// Page sizes of the geometry mean nothing here. Also ResourceExhausted: there are 65,534 trees.
  dsm::Task<Result<HostedTree>> Create(dsm::OpContext& op, const NewTree& tree) override;
  dsm::Task<Result<std::vector<protocol::TreeInfo>>> List(dsm::OpContext& op) override;
  HostedTree Find(uint32_t id) override;
  Status CheckDurability(WriteDurability wanted) const override {
    if (wanted != WriteDurability::kReplicated) return Status::Ok();
    return Status::InvalidArgument(
        "this server's store has no copies: a write can be asked to be synced, not replicated");
  }
  dsm::Task<Status> Upkeep(dsm::OpContext& op) override { return deps_.store->Upkeep(op); }
  void AppendStats(std::string* text) const override;
  void AppendMetrics(MetricsText* out) const override;

  /// Why writing to disk does not get on; Ok: it does.
  Status Health() const;

 private:
  struct Tree {
    std::unique_ptr<index::PrefixedIndex> index;
    protocol::TreeInfo info;
  };

  LsmTreeHost(Deps deps, std::unique_ptr<dsm::Worker> observer);
  dsm::Task<Status> ReadCatalog(dsm::OpContext& op);
  dsm::Task<Status> BeginCatalog(dsm::OpContext& op);
  dsm::Task<Result<uint16_t>> TakeNumber(dsm::OpContext& op);
  /// The tree behind an entry of the catalog.
  Result<HostedTree> Keep(std::string_view name, std::string_view entry);

  const Deps deps_;
  index::PrefixedIndex catalog_;
  mutable std::mutex observer_mutex_;  // guards observer_
  /// On which those look at the store who have no worker of their own.
  const std::unique_ptr<dsm::Worker> observer_;
  mutable std::mutex mutex_;        // guards trees_; the trees in it stay
  std::map<uint32_t, Tree> trees_;  // by number
};

}  // namespace farleaf::server
