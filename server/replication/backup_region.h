// BackupRegion: a node's copy of a region whose primary is elsewhere: executes what the primary asks for on their channel
// (messages.h), by a StoreCopy in the region's directory and log buffers in its area of registered memory.
//
// The life of one: Open, with what an earlier life left on the disk; Expect, for each primary that is to fill it; until Promote, or Stop.
//
// Thread rule: one worker; metrics, the reader, and how old what it reads may be, by any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "index/lsm/follower.h"
#include "index/lsm/store_copy.h"
#include "server/replication/channel_server.h"
#include "server/replication/log_buffers.h"
#include "server/replication/messages.h"

namespace farleaf::server::replication {

class BackupRegion {
 public:
  /// Of the copy, by whoever asks for its reader.
  struct Reads {
    uint64_t cache_bytes = 0;         ///< 0: nobody reads
    const Clock* wall = nullptr;      ///< time since 1970, by which entries expire
    const Clock* clock = nullptr;     ///< monotonic, of this node: stamps are its
    size_t kept_segments_max = 1024;  ///< index::lsm::ReadableCopy::Options
  };
  struct Deps {
    index::storage::Storage* storage = nullptr;  ///< of the region's directory
    std::span<std::byte> area;  ///< layout.bytes() of registered memory, aligned to kAreaAlignment
    AreaLayout layout;
    ChannelServerOptions channel = {};
    /// Its tables are its own (IndexMode::kBuild), and the primary's ReplicaSet is of that mode; nullopt: they are sent.
    std::optional<index::lsm::Follower::Host> build = std::nullopt;
    /// Not of a backup that builds its tables.
    Reads reads = {};
    /// What comes of tables is checked from there; null: it is read back. Outlives the region.
    index::lsm::CheckMemory* checks = nullptr;
    /// The worker's thread's processor time (cpu_ns); null: nobody wants to know.
    const Clock* cpu = nullptr;
  };
  using Worker = dsm::Worker;
  /// Corruption: what is in the directory is no copy.
  static dsm::Task<Result<std::unique_ptr<BackupRegion>>> Open(Worker& worker, Deps deps);

  /// Serves who knows the token, and nobody before him, whose connections have to be cut by now. REQUIRES: as ChannelServer::Reset.
  dsm::Task<void> Expect(uint64_t token) { return server_.Reset(token); }
  /// Until Stop. Called once.
  dsm::Task<void> Serve(Worker& worker);
  void Stop() { server_.Stop(); }
  /// Makes a directory of it that LsmStore::Open recovers. REQUIRES: Serve has ended, the old primary is cut off, and the copy was whole (`phase`).
  dsm::Task<Status> Promote(Worker& worker);

  index::lsm::StoreCopy::Phase phase() const {
    return follower_ ? index::lsm::StoreCopy::Phase::kFollowing : copy_->phase();
  }
  /// Of a backup that builds its tables, once it was filled; else null.
  index::lsm::Follower* follower() { return follower_.get(); }
  /// What the directory holds. REQUIRES: StoreCopy::Phase::kLeft.
  dsm::Task<Result<index::lsm::HeldThrough>> Held(Worker& worker) { return copy_->Held(worker); }
  /// REQUIRES: on the worker, between messages; there is no follower.
  const index::lsm::StoreCopy& copy() const { return *copy_; }
  /// What is in the copy's tables: for any thread, until the storage is gone. null: it was not asked for. It fails as Unavailable while there is no
  /// proved stamp.
  std::shared_ptr<index::lsm::CopyReader> reader() const { return reader_; }
  /// Of Deps::Reads::clock: whoever looks at this, and begins to read then, sees all that was acknowledged, by anybody, when the clock showed it. nullopt:
  /// it is being filled, was promoted, or nothing is proved yet. By any thread.
  std::optional<uint64_t> proved_ns() const { return reader_ ? copy_->proved_ns() : std::nullopt; }
  /// How old what is read from here on may be. By any thread.
  std::optional<uint64_t> staleness_ns() const {
    const std::optional<uint64_t> proved = proved_ns();
    if (!proved) return std::nullopt;
    return deps_.reads.clock->NowNs() - *proved;
  }
  ChannelServer::Statistics statistics() const { return server_.statistics(); }
  /// Processor time for messages of that kind, so far; what the looks for them take is not in it.
  uint64_t cpu_ns(MessageKind kind) const {
    return cpu_ns_[static_cast<size_t>(kind)].load(std::memory_order_relaxed);
  }

 private:
  BackupRegion(Deps deps, std::unique_ptr<index::lsm::StoreCopy> copy);
  Reply Stamp(const ReceivedMessage& message);
  Status DropTables(const ReceivedMessage& message);
  dsm::Task<Reply> ExecuteCounted(Worker& worker, const ReceivedMessage& message);
  dsm::Task<Reply> Execute(Worker& worker, const ReceivedMessage& message);
  bool IsOpen(index::storage::SegmentId segment) const {
    return follower_ ? follower_->is_open(segment) : copy_->is_open(segment);
  }
  /// A follower is a copy again, as its directory is.
  dsm::Task<Status> EndFollower(Worker& worker);
  dsm::Task<Reply> OpenLog(Worker& worker, const ReceivedMessage& message);
  dsm::Task<Status> Seal(Worker& worker, const ReceivedMessage& message);
  dsm::Task<Status> Sync(Worker& worker, const ReceivedMessage& message);
  dsm::Task<Status> TakeBytes(Worker& worker, const ReceivedMessage& message);
  Status TakePart(const ReceivedMessage& message);
  dsm::Task<Status> Commit(Worker& worker, const ReceivedMessage& message);
  Reply Inventory(const ReceivedMessage& message) const;
  dsm::Task<Status> BeginFill(Worker& worker);
  dsm::Task<Status> Install(Worker& worker, const ReceivedMessage& message);
  /// The parts that came, and the message's payload behind them.
  std::string TakeParts(const ReceivedMessage& message);
  void ReleaseUnused();

  const Deps deps_;
  const std::shared_ptr<index::lsm::CopyReader> reader_;  // null: nobody reads
  // One of them; with a reader it is the copy, always:
  std::unique_ptr<index::lsm::StoreCopy> copy_;
  std::unique_ptr<index::lsm::Follower> follower_;
  ChannelServer server_;
  BufferPool buffers_;
  std::string parts_;
  std::array<std::atomic<uint64_t>, kMessageKindMax + 1> cpu_ns_{};  // by MessageKind
};

}  // namespace farleaf::server::replication
