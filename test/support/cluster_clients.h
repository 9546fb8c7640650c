// ClusterClients: clients of a SimulatedCluster, and what has to be true of what they did: at whoever comes to serve
// there is of each one's operations a prefix with all that was acknowledged to it, or seen by another one; nobody
// else acknowledges or answers anything; reads are linearizable; and copies are no older than they say.
//
// Each client has keys of its own, and writes to the store that serves them.
//
// Thread rule: one thread. The cluster outlives it, and does not run any more when it is gone.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "test/support/prefix_model.h"
#include "test/support/simulated_cluster.h"

namespace farleaf::server::cluster {

class ClusterClients {
 public:
  static constexpr size_t kCount = 3;
  struct Counts {
    uint64_t acknowledged = 0;
    uint64_t acknowledged_alone = 0;  ///< of these, by who is alone in sync
    uint64_t taken_back =
        0;  ///< that were acknowledged or seen, by crashes of all who had them in memory
    uint64_t openings = 0;           ///< of stores that came to be served
    uint64_t waited_for_copies = 0;  ///< writes that were not begun, too few being in sync
    uint64_t reads = 0;  ///< each of which was what it may see, from its invocation to its end
    uint64_t seen_unacknowledged = 0;  ///< by reads, of what was not answered to its writer yet
    uint64_t copy_reads = 0, copy_reads_behind = 0;
    uint64_t copy_staleness_ns_max = 0;
    uint64_t alone_crashes = 0;   ///< of a region's only node in sync
    uint64_t crashes_of_all = 0;  ///< of the last of several that were, one after another too fast

    Counts& operator+=(const Counts& more);
  };

  ClusterClients(SimulatedCluster* cluster, uint64_t seed) : cluster_(*cluster), random_(seed) {}
  ClusterClients(const ClusterClients&) = delete;

  const Counts& counts() const { return counts_; }
  uint64_t acknowledged(size_t client) const { return acknowledged_[client]; }
  /// How often it was looked at what is there of the client.
  uint64_t checked(size_t client) const { return checked_[client]; }
  /// Where a region may be split: clients' keys are not parted.
  static std::string FirstKeyOf(size_t client) { return test::KeyPrefixOf(client); }

  /// Of each store that has come to be served: what it has is looked at, and then its clients write to it. Of each
  /// life that has begun: its copies are read.
  void Tend();
  /// Whether that was begun with the store that is served of the region.
  bool IsTended(RegionId region);
  /// Nobody writes or reads.
  void SetPaused(bool paused) { paused_ = paused; }
  /// Whether some writes are to be synced, whatever the store promises. So it is at first.
  void SetSyncing(bool syncing) { syncing_ = syncing; }
  /// Nothing fails that nobody has planned: no request may.
  void SetCalm(bool calm) { calm_ = calm; }

  // ---- What a crash may take
  /// In front of the node's crash, also behind the end of a life that is over. What it had in memory only (what was
  /// seen before it was synced, too) goes with its life; but a backup whose life ends without a crash has saved it.
  /// Nothing is to be there again that nobody else in sync has, but for what is on their disks.
  void NoteLost(const SimulatedCluster::Node& lost);
  /// In front of the crash of all nodes at once.
  void NoteAllLost();
  /// All those in sync are there again, with all.
  void ForgetSaved() { saved_.clear(); }
  /// So many of the client's operations are on the disk of each that is in sync, from now on. By cases: what a
  /// primary acknowledges while nobody else is in sync is on its disk, with all before it, and whoever joins has put
  /// that on his before he counts; so is what is synced, or flushed, at all who are in sync then.
  void NoteOnDisk(size_t client, size_t count);
  /// All that were acknowledged.
  void NoteOnDisk(size_t client) { NoteOnDisk(client, models_[client].durable); }

 private:
  using Worker = dsm::Worker;
  using LsmStore = index::lsm::LsmStore;
  using StoreGate = Gate<ServedStore>;
  struct Acknowledged {
    size_t count = 0;  ///< so many operations
    uint64_t at_ns = 0;
  };
  dsm::Task<void> Serve(Worker& worker, StoreGate* gate, uint64_t opening,
                        std::optional<size_t> only);
  dsm::Task<void> ServeAgain(Worker& worker, StoreGate* gate, uint64_t opening,
                             std::optional<size_t> only);
  dsm::Task<void> Write(Worker& worker, StoreGate* gate, uint64_t opening, size_t client,
                        uint64_t epoch);
  /// Of each client with keys in the store: what is to be there, all of it in front of what is written from now on.
  using Prefixes = std::array<size_t, kCount>;
  Prefixes DurableIn(const ServedStore& served) const;
  void NoteAcknowledged(size_t client, size_t count);
  void NoteFailed(size_t client, size_t count, const Status& written, uint64_t epoch);
  dsm::Task<void> Read(Worker& worker, LsmStore& store, std::pair<StoreGate*, uint64_t> by);
  dsm::Task<void> ReadCopies(Worker& worker, NodeRegions& regions);
  void CheckCopy(size_t client, const std::vector<index::KeyValue>& rows, uint64_t proved_ns);
  /// What is not on a disk need not be there any more.
  void TakeBack(size_t client);

  SimulatedCluster& cluster_;
  Random random_;
  Counts counts_;
  std::array<test::PrefixModel, kCount> models_;
  Prefixes on_disk_{}, taken_from_{};  ///< what was to be there before it was taken back
  std::array<uint64_t, kCount> acknowledged_{}, checked_{};
  std::array<std::vector<Acknowledged>, kCount> acknowledged_at_;
  uint64_t epoch_ = 0;                      // of the store that has come to be served last
  std::array<uint64_t, kCount> serving_{};  // to whose store each client writes
  std::array<std::pair<StoreGate*, uint64_t>, kCount> served_by_{};  // which that is
  bool paused_ = false, calm_ = false, syncing_ = true;
  std::set<dsm::ServerId> reading_;  // lives of nodes, whose copies are read
  std::map<std::pair<dsm::ServerId, RegionId>, uint64_t> tended_;  // the last opening, by a life
  std::set<std::pair<NodeId, RegionId>> saved_;                    // since all was whole
};

}  // namespace farleaf::server::cluster
