// Where the benchmark sends its operations: a pool inside this process, a pool that this process
// joins, a compute server through the client library, a server of Redis' or memcached's protocol, or
// a store.
//
// A thread opens one Session and gives it an OperationSource; the session keeps `in_flight`
// operations running until the source has no more. The source makes operations, takes the times and
// checks the results, so that all targets are measured by the same code.
//
// Thread rule: a Target is thread-safe; a Session and its source belong to one thread, and the
// session calls the source on that thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "benchmark/ycsb/workload.h"
#include "dsm/base/clock.h"
#include "dsm/base/result.h"
#include "dsm/fabric_counts.h"
#include "dsm/worker.h"
#include "index/blink/options.h"
#include "index/range_index.h"

namespace farleaf::ycsb {

/// One operation. Each of a session's loops has one and uses it again and again.
struct Operation {
  // Filled in by OperationSource::Next:
  OpKind kind = OpKind::kRead;
  std::string key;  ///< SCAN: the first key
  uint64_t key_number = 0;  ///< of a trace: the key's hash
  uint64_t trace_line = 0;  ///< of a trace
  std::string value;  ///< INSERT, UPDATE: what to write; of a trace READ-MODIFY-WRITE, too
  uint64_t scan_length = 0;
  uint64_t due_ns = 0;  ///< do not start before; 0 in a closed loop
  dsm::FabricCounts* counts = nullptr;
  // Filled in by OperationSource::Begin:
  uint64_t start_ns = 0;
  uint64_t deadline_ns = 0;
  uint64_t present_end = 0;  ///< keys inserted in this phase and acknowledged: those below it
  // Filled in by the session:
  Status status;
  bool answered = true;     ///< false: the bytes are no answer to check (a verb program's)
  bool found = false;       ///< the key was there (INSERT too: then it was not inserted)
  std::string found_value;  ///< READ, READ-MODIFY-WRITE: the value before
  std::vector<index::KeyValue> rows;  ///< SCAN
};

class OperationSource {
 public:
  virtual ~OperationSource() = default;
  /// False when no operation is left.
  virtual bool Next(Operation* operation) = 0;
  /// The operation must not begin yet, though it is due: another of its key has not ended. It is asked
  /// again when operations of the session have ended.
  virtual bool Blocked(const Operation& /*operation*/) const { return false; }
  /// Immediately before the operation starts. False if the phase has been stopped meanwhile: the
  /// operation is then dropped.
  virtual bool Begin(Operation* operation) = 0;
  /// READ-MODIFY-WRITE: what replaces `current`; may be called once per attempt. False: `current`
  /// is not what anybody wrote, keep it.
  virtual bool Modify(const Operation& operation, std::string_view current,
                      std::string* replacement) = 0;
  /// Takes the time, counts and checks.
  virtual void Done(const Operation& operation) = 0;
  virtual bool stopped() const = 0;
  /// An open loop's operation is waited for asleep until so long before it is due, and awake from there
  /// on: a thread that sleeps wakes up some 50 us late.
  virtual uint64_t awake_before_due_ns() const { return 200 * kNsPerUs; }
};

class Session {
 public:
  virtual ~Session() = default;
  /// Returns when the source has no more operations and all have ended. Failures of operations are
  /// told to the source; the Status is of the session itself.
  virtual Status Run(OperationSource& source, uint64_t in_flight) = 0;
};

/// What a server may want of its clients.
struct ClientAccess {
  std::string password_file;  ///< empty: no password is given
  bool tls = false;
  std::string tls_ca_file, tls_certificate_file, tls_key_file;
};

struct TargetOptions {
  std::string tree = "usertable";
  KeyLayout key_layout = KeyLayout::kFixed8;
  bool create_tree = true;     ///< else the tree must be there
  bool sorted_leaves = false;  ///< of a tree that is created, where they could be parted
  bool hashed_leaves =
      false;  ///< parted ones that this process writes whole, where they could be ordered
  uint32_t leaf_bytes = 0;  ///< of a tree that is created; 0: its layout's default
  uint32_t node_bytes = 0;
  bool cache = true;           ///< false: every inner node is read from the pool
  uint64_t cache_bytes = 0;    ///< the most that the cache may take; 0: no bound
  bool share_reads = true;     ///< gets at a time of the same part of a leaf share a READ
  bool combine_writes = true;  ///< waiting changes of a leaf are written back together
  bool hand_over = true;       ///< a lock goes on in this process without the network
  uint64_t value_hint_bytes = index::TreeOptions().value_hint_bytes;
  uint64_t value_list_bytes = index::TreeOptions().value_list_bytes;
  uint32_t scan_leaves_max = index::TreeOptions().scan_leaves_max;
  bool in_place = true;           ///< gets over shared memory look at leaves where they are
  bool small_write_backs = true;  ///< what changed of a page is written back, not all of it
  bool back_off = true;           ///< who finds a page locked waits longer each time
  bool learn_splits = true;       ///< a cached node learns of a split from the leaf
  bool warm = false;              ///< fill the cache before the first operation, where there is one
  uint64_t seed = 1;
  uint64_t operation_timeout_ms = 10'000;
  uint64_t in_flight = 1;  ///< in each thread
  bool scans = false;      ///< the workload has them
  ClientAccess access;     ///< of farleaf:, redis: and memcached: targets
  // Of sim: targets
  std::string program;   ///< a verb program instead of the tree: its name or its file
  uint64_t records = 0;  ///< for a verb program: that it holds
  bool skewed = false;   ///< for a verb program: some keys are asked for far more often
};

class Simulation;

class Target {
 public:
  virtual ~Target() = default;
  /// Called on the thread that will use it.
  virtual Result<std::unique_ptr<Session>> OpenSession() = 0;
  /// Whether Operation::counts is filled in.
  virtual bool counts_fabric() const = 0;
  /// Bytes of the pool's chunks in use; 0 where the target cannot tell.
  virtual Result<uint64_t> PoolBytesUsed() = 0;
  /// The search-layer cache's size and traffic so far, name and number; null where there is none here.
  virtual nlohmann::ordered_json DescribeCache() const { return nullptr; }
  // Of a store whose data is on this machine's disks:
  /// Empty: the target is none, or another process's.
  virtual std::string DataDirectory() const { return {}; }
  /// Nothing is being read or written but what operations ask for.
  virtual bool Quiet() { return true; }
  /// A phase begins: figures of what goes on in phases count from here on, where the target has such.
  virtual void BeginPhase() {}
  /// Its own figures, name and number; null: it has none. NetworkBytes is one that the report knows: what went between the store's parts.
  virtual nlohmann::ordered_json DescribeStore() const { return nullptr; }
  /// Not null: the target runs in virtual time, and opens no sessions (benchmark/ycsb/simulation.h).
  virtual Simulation* simulation() { return nullptr; }
  /// REQUIRES: no session is left. Leaves the pool in good order.
  virtual Status Close() = 0;
};

/// A target that is an index in this process: sessions are coroutines on a worker.
class IndexTarget : public Target {
 public:
  Result<std::unique_ptr<Session>> OpenSession() override;
  bool counts_fabric() const override { return true; }

 protected:
  virtual index::RangeIndex& index() = 0;
  /// UPDATE and INSERT are puts that look at nothing.
  virtual bool blind_writes() const { return false; }
  virtual Result<std::unique_ptr<dsm::Worker>> OpenWorker() = 0;
};

/// `local:[?servers=N&region=SIZE&chunk=SIZE&delay_us=N]`, `pool:BOOTSTRAP-URL`, `farleaf://HOST:PORT`,
/// `farleaf+unix:PATH`, `farleaf+ring:PATH`, `redis:`, `memcached:` (benchmark/ycsb/text_target.h), `sim:MODEL-FILE[?region=SIZE&chunk=SIZE]` or a store (benchmark/adapters/stores.h).
/// InvalidArgument names what is wrong with the URL.
Result<std::unique_ptr<Target>> OpenTarget(const std::string& url, const TargetOptions& options,
                                           const Clock* clock);

}  // namespace farleaf::ycsb
