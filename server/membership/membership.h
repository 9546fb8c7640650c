// Membership: one session of one node with a coordination service (ZooKeeper, or one in this process), as coroutines
// see it. The service keeps a tree of small entries: who is there, which regions there are and who serves them.
//
// What holds of every implementation (test/contract/membership_contract_test.cc):
//   1. An entry's changes are in one order; a version counts them. A compare-and-set takes effect on exactly the version
//      that it names, or not at all. What Commit is given takes effect as a whole or not at all.
//   2. A session reads a state that the service was in, perhaps an older one than another session has written, but never
//      an older one than this session has read or written before.
//   3. An ephemeral entry is gone when its session is closed or has expired, and not before.
//   4. A change of what this session looked at with Watch::kChanges, later than it looked, moves the count of that path
//      and of all paths above it; so do the loss of the service, its return, and the end of the session. Counts may
//      move without a change. Whoever waits takes the count, looks, and waits for the count to move:
//
//        const uint64_t seen = session.ChangeCount(path);
//        auto entry = co_await session.Get(worker, path, Watch::kChanges);
//        if (!WhatIWant(entry)) co_await session.AwaitChange(worker, path, seen, timeout_ns);
//
//   5. Before lease_until_ns() on the clock that the session was opened with, the service has not expired it: no
//      ephemeral entry of this session is gone by expiry, and whoever waits for that waits on.
//   6. An expired session never comes back: each call ends with Fenced from then on. The node opens another one, under a
//      new incarnation (counters.h).
//
// What calls end with, beside what they say: Unavailable: the service is away, and nothing happened; Unknown: it went away
// when this change was under way, which may have taken effect; Fenced: the session is over; InvalidArgument: no path
// (path.h), too many bytes, an ephemeral entry's child, or a removal of an entry with children.
//
// Thread rule: thread-safe. Tasks run on the worker that they are given. REQUIRES of the destructor: no task of it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/base/status.h"
#include "dsm/task.h"
#include "dsm/worker.h"

namespace farleaf::server::membership {

/// Of an entry: how often it was set since it was created. Whoever removes an entry and creates it again begins anew.
using Version = uint32_t;

struct Entry {
  std::string bytes;
  Version version = 0;
};

enum class Lifetime : uint8_t { kPersistent, kEphemeral };
/// kSequential: the name gets ten digits, of a number that grows with each child that is created under the parent.
enum class Naming : uint8_t { kExact, kSequential };
struct CreateOptions {
  Lifetime lifetime = Lifetime::kPersistent;
  Naming naming = Naming::kExact;
};

enum class Watch : uint8_t { kNothing, kChanges };

/// One of several changes that are made together.
struct Change {
  enum class Kind : uint8_t { kCreate, kSet, kRemove };
  Kind kind = Kind::kSet;
  std::string path;
  std::string bytes;               ///< kCreate (persistent, exact name), kSet
  std::optional<Version> version;  ///< kSet, kRemove: what it has to be; nullopt: whatever it is
};

enum class SessionState : uint8_t {
  kConnected,
  kAway,  ///< the service does not answer; the session may have expired there
  kExpired,
};

/// Heartbeats that a session sends in each timeout.
inline constexpr uint64_t kHeartbeatsOfTimeout = 4;
inline constexpr size_t kEntryBytesMax = size_t{512} << 10;
inline constexpr size_t kChangesMax = 4096;  ///< of one Commit, with kEntryBytesMax in all

class Membership {
 public:
  virtual ~Membership() = default;

  /// The path of the new entry. NotFound: it has no parent. AlreadyExists.
  virtual dsm::Task<Result<std::string>> Create(dsm::Worker& worker, std::string path,
                                                std::string bytes, CreateOptions options) = 0;
  /// NotFound, which is watched likewise.
  virtual dsm::Task<Result<Entry>> Get(dsm::Worker& worker, std::string path, Watch watch) = 0;
  /// The version that it has then. NotFound; VersionMismatch.
  virtual dsm::Task<Result<Version>> Set(dsm::Worker& worker, std::string path, std::string bytes,
                                         std::optional<Version> version) = 0;
  /// NotFound; VersionMismatch.
  virtual dsm::Task<Status> Remove(dsm::Worker& worker, std::string path,
                                   std::optional<Version> version) = 0;
  /// Names of the entries right below, in order. What is watched is who they are, not their bytes. NotFound, which is watched
  /// likewise.
  virtual dsm::Task<Result<std::vector<std::string>>> Children(dsm::Worker& worker,
                                                               std::string path, Watch watch) = 0;
  /// All of them, in order, or none: the Status is that of the first that does not fit.
  virtual dsm::Task<Status> Commit(dsm::Worker& worker, std::vector<Change> changes) = 0;

  virtual uint64_t ChangeCount(const std::string& path) = 0;
  /// Until the count is another than `seen`, or for `timeout_ns`. Whether it is another.
  virtual dsm::Task<bool> AwaitChange(dsm::Worker& worker, std::string path, uint64_t seen,
                                      uint64_t timeout_ns) = 0;

  virtual SessionState state() const = 0;
  virtual uint64_t lease_until_ns() const = 0;
  /// Ends the session, and tells the service if it can be reached (otherwise the session expires there). For ever.
  virtual dsm::Task<Status> Close(dsm::Worker& worker) = 0;
};

}  // namespace farleaf::server::membership
