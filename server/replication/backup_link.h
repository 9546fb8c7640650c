// BackupLink: one backup, as its region's primary sees it: the channel to it, and the buffers of its area that the bytes of the logs are WRITTEN to.
//
// What counts where: the ReplicaSet decides which links count, and what becomes of one that fails; this only does, and tells.
//
// Invariants:
//   - a segment of a log has a buffer at the backup from Open until the reply to its Seal;
//   - what was WRITTEN of it is known here (`known`) when the WRITE has completed, and those before it: no more is asked to be synced. (Of WRITEs that are on
//     their way together the first may fail, with its connection, and the next one land over another.)
//   - bytes of a table's segment that were shipped are contiguous from 0, or they do not count.
//
// Thread rule: thread-safe, as far as Mirror's rules leave calls beside one another. A link is held by shared_ptr by whatever runs on it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "dsm/transport.h"
#include "index/lsm/mirror.h"
#include "index/lsm/store.h"
#include "server/replication/channel_port.h"
#include "server/replication/messages.h"
#include "server/replication/stamps.h"

namespace farleaf::server::replication {

/// A node of the cluster, from 1.
using NodeId = uint16_t;

class BackupLink final : public index::lsm::CopySink,
                         public std::enable_shared_from_this<BackupLink> {
 public:
  using LogKind = index::lsm::LogKind;
  using MirrorPiece = index::lsm::MirrorPiece;
  using SegmentId = index::storage::SegmentId;
  using Worker = dsm::Worker;

  BackupLink(NodeId node, std::shared_ptr<ChannelPort> port)
      : node_(node), port_(std::move(port)) {}

  NodeId node() const { return node_; }
  ChannelPort& port() { return *port_; }
  std::shared_ptr<ChannelPort> shared_port() { return port_; }

  /// A buffer for a log's segment. Again for one that has one: nothing is done.
  dsm::Task<Status> Open(Worker& worker, LogKind log, SegmentId segment);
  /// What of the pieces belongs to segments without a buffer.
  bool HasBuffers(std::span<const MirrorPiece> pieces) const;
  /// WRITEs of the pieces. Of a segment of which nothing is there yet, from its beginning. `words` takes copies of what does not fill a word, and
  /// stays until the batch has completed. REQUIRES: HasBuffers.
  void AddWrites(std::span<const MirrorPiece> pieces, dsm::Batch* batch,
                 std::deque<uint64_t>* words);
  /// The batch has completed.
  void Written(std::span<const MirrorPiece> pieces);
  /// Ends when the backup has been told; it is done in the background, and told of there.
  dsm::Task<Status> Seal(Worker& worker, LogKind log, SegmentId segment, uint32_t used);
  dsm::Task<Status> Sync(Worker& worker, index::lsm::SyncReach reach);
  dsm::Task<Status> WriteTable(Worker& worker, SegmentId segment, uint32_t offset,
                               std::span<const std::byte> bytes);
  /// `store`: from whose disk comes what the backup lacks of the edit's tables.
  dsm::Task<Status> Commit(Worker& worker, const index::lsm::StateEdit& edit,
                           index::lsm::LsmStore& store);

  /// Of those of which something was shipped.
  dsm::Task<Status> DropTables(Worker& worker, std::span<const SegmentId> segments);

  /// Tells the backup which stamp is proved, and asks for another one. `last`: the store's last sequence, if nobody else can have acknowledged anything yet;
  /// called when the stamp is here.
  using LastSequence = std::function<Result<index::lsm::Sequence>()>;
  dsm::Task<Status> Stamp(Worker& worker, LastSequence last);

  dsm::Task<Result<std::set<SegmentId>>> Inventory(Worker& worker) override;
  dsm::Task<Status> Write(Worker& worker, SegmentId segment, uint32_t offset,
                          std::span<const std::byte> bytes, bool last) override;
  dsm::Task<Status> WriteOpen(Worker& worker, const MirrorPiece& piece) override;
  dsm::Task<Status> Install(Worker& worker, const index::lsm::StoreState& state) override;

  struct Counts {
    uint64_t log_bytes = 0;    ///< posted to buffers
    uint64_t table_bytes = 0;  ///< shipped as they were made
    uint64_t fill_bytes = 0;   ///< shipped from the disk
    uint64_t messages = 0;
    Counts& operator+=(const Counts& more) {
      log_bytes += more.log_bytes;
      table_bytes += more.table_bytes;
      fill_bytes += more.fill_bytes;
      messages += more.messages;
      return *this;
    }
  };
  Counts counts() const {
    std::lock_guard lock(mutex_);
    return counts_;
  }
  /// A Seal that nobody waited for has failed.
  Status failure() const {
    std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  /// From where the WRITE before it ended.
  struct Sent {
    uint32_t to;
    bool landed = false;
  };
  struct Buffer {
    LogKind log = LogKind::kRecovery;
    uint64_t offset = 0;    ///< in the backup's region
    uint32_t known = 0;     ///< [0, known) is there
    std::deque<Sent> sent;  ///< behind that, in order
    uint32_t posted() const { return sent.empty() ? known : sent.back().to; }
  };
  dsm::Task<Result<Reply>> Ask(Worker& worker, MessageKind kind, Arguments arguments,
                               std::span<const std::byte> payload);
  /// The same of what answers nothing.
  dsm::Task<Status> Tell(Worker& worker, MessageKind kind, Arguments arguments,
                         std::span<const std::byte> payload);
  /// In as many messages as it takes.
  dsm::Task<Status> TellLong(Worker& worker, MessageKind kind, Arguments arguments,
                             std::string payload);
  static dsm::Task<void> SealBehind(std::shared_ptr<BackupLink> link, Worker& worker, LogKind log,
                                    SegmentId segment, uint32_t used);
  dsm::Task<Status> ShipTables(Worker& worker, const index::lsm::StateEdit& edit,
                               index::lsm::LsmStore& store, bool anew);
  uint64_t PutKnown(std::string* to) const;
  Status Named(Status status) const;
  bool Shipped(const index::lsm::SegmentPart& part) const;

  const NodeId node_;
  const std::shared_ptr<ChannelPort> port_;
  mutable std::mutex mutex_;  // guards all below
  std::map<SegmentId, Buffer> buffers_;
  std::map<SegmentId, uint32_t> shipped_;  // of tables in the making: bytes from 0 on
  Counts counts_;
  Status failure_;
  Stamps stamps_;
  bool is_read_ = true;  // as far as is known
};

}  // namespace farleaf::server::replication
