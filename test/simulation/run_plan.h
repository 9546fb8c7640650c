// RunPlan: what a run of the tree in a simulated world is made of: setup, workload, faults and checks.
// Most values are ranges, from which each seed draws its own. A plan comes from a file (run_file.h) or is
// DefaultPlan, which is wide.
//
// Thread rule: a value type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/random.h"
#include "dsm/base/result.h"
#include "test/support/options_off.h"

namespace farleaf::simulation {

/// Both ends are possible.
struct Range {
  uint64_t low = 0, high = 0;
  uint64_t Draw(Random& random) const { return low + random.Below(high - low + 1); }
};
/// "A..B", 1 <= A <= B.
Result<Range> ParseRange(const std::string& text);
/// The same of SetupPlan::leaf_parts.
Result<Range> ParseLeafParts(const std::string& text);

enum class Fault : uint8_t {
  kDrops,       ///< connections break, and are restored
  kStalls,      ///< servers and compute servers stand still, for less than any timeout
  kPartitions,  ///< a compute server and a memory server are parted, some for longer than timeouts
  kCrashes,     ///< compute servers crash, one or several, but not all
  kCrashesAgain,  ///< behind each crash another, when the first is being recovered
  kRecoveries,    ///< compute servers crash, and others recover them beside the workload
  kLostServers,   ///< a memory server crashes, for good
  kRestarts,      ///< a memory server crashes, and an empty one takes its place
};
inline constexpr std::string_view kFaultNames[] = {"drops",        "stalls",        "partitions",
                                                   "crashes",      "crashes_again", "recoveries",
                                                   "lost_servers", "restarts"};
inline constexpr size_t kFaults = std::size(kFaultNames);

/// Faults that come in one run.
class FaultSet {
 public:
  FaultSet() = default;
  FaultSet(std::initializer_list<Fault> faults) {
    for (const Fault fault : faults) Add(fault);
  }
  void Add(Fault fault) { bits_ |= 1u << static_cast<unsigned>(fault); }
  bool Has(Fault fault) const { return bits_ >> static_cast<unsigned>(fault) & 1; }
  bool empty() const { return bits_ == 0; }
  std::vector<Fault> faults() const;
  /// "drops+stalls"; "none".
  std::string Name() const;

  // ---- What may be demanded of a run with these faults
  bool losing_memory() const { return Has(Fault::kLostServers) || Has(Fault::kRestarts); }
  bool crashing() const {
    return Has(Fault::kCrashes) || Has(Fault::kCrashesAgain) || Has(Fault::kRecoveries);
  }
  /// Operations of who does not crash may fail: a connection breaks, or a server is lost.
  bool operations_may_fail() const {
    return Has(Fault::kDrops) || Has(Fault::kPartitions) || losing_memory();
  }
  /// All that was begun comes to an end, sooner or later. Where a memory server is lost, the answers alone
  /// are checked.
  bool leaves_pool_whole() const { return !losing_memory(); }
  bool operator==(const FaultSet&) const = default;

 private:
  uint32_t bits_ = 0;
};

/// One of the names, "none", or several joined by '+'.
Result<FaultSet> ParseFaultSet(std::string_view name);
/// For messages: "none, drops, stalls, ...".
std::string AllowedFaults();

enum class LayoutChoice : uint8_t { kFixed8, kBytes, kAny };
inline constexpr std::string_view kLayoutNames[] = {"fixed8", "bytes", "any"};
enum class CacheChoice : uint8_t { kSearchLayer, kNone, kAny };
inline constexpr std::string_view kCacheNames[] = {"search_layer", "none", "any"};

struct SetupPlan {
  LayoutChoice layout = LayoutChoice::kAny;
  CacheChoice cache = CacheChoice::kAny;
  Range leaf_bytes = {256, 256};
  Range leaf_parts = {0, 0};  ///< of fixed8: parted leaves of so many parts; 0: sorted leaves
  Range node_bytes = {0, 0};  ///< of internal nodes; 0: as the leaves
  Range memory_servers = {1, 3};
  Range compute_servers = {2, 4};
  Range workers = {1, 2};  ///< of each compute server
  Range clients = {1, 4};  ///< coroutines of each worker
  Range hop_threshold = {1, 4};
  test::OptionSet without;     ///< options of the tree that are off, whatever is drawn
  Range cache_bytes = {0, 0};  ///< the most that a compute server's cache takes; 0: no bound
  /// Of a node's bytes. Drawn high, nodes merge eagerly.
  Range merge_below_percent = {25, 45};
  Range free_pages_max = {4, 512};  ///< of an allocator, before it shares them
  /// For how many leaves of a memory server a compute server has redo slots at a time; 0: for as many as it gets.
  Range redo_slots = {0, 0};
  uint64_t region_kib = 8'192;  ///< of each memory server
};

enum class KeyChoice : uint8_t { kUniform, kHot, kWindow };
inline constexpr std::string_view kKeyChoiceNames[] = {"uniform", "hot", "window"};

/// What clients do, and how often.
enum class Act : uint8_t {
  kGet,
  kMultiGet,
  kInsert,
  kPut,
  kUpdate,
  kDelete,
  kModify,  ///< fixed8: delete_if
  kScan,
};
inline constexpr std::string_view kActNames[] = {"get",    "multi_get", "insert", "put",
                                                 "update", "delete",    "modify", "scan"};
inline constexpr size_t kActs = std::size(kActNames);

struct WorkloadPlan {
  KeyChoice choice = KeyChoice::kUniform;
  Range keys = {4, 256};          ///< drawn evenly by magnitude
  Range operations = {400, 400};  ///< of all clients together
  Range preload = {0, 0};         ///< keys stored before anything else
  uint64_t hot_keys = 2;          ///< of choice "hot"
  uint64_t hot_percent = 90;
  /// Inserts and deletes prevail in turn, for so many operations of a client each; 0: never.
  Range phase = {0, 30};
  Range key_bytes = {1, 24};    ///< of byte keys
  Range value_bytes = {8, 40};  ///< of byte values
  uint64_t weights[kActs] = {33, 7, 15, 13, 8, 14, 10, 4};
};

struct FaultPlan {
  FaultSet set;
  /// Between two faults, on average; drawn evenly by magnitude.
  Range gap_us = {50, 1'600};
};

struct CheckPlan {
  /// What an operation may take, of virtual time, where no server is out of reach for longer: a crash of
  /// another compute server is no excuse, once the memory servers know of it.
  uint64_t operation_ms_max = 100;
};

struct RunPlan {
  std::string name = "default";
  std::string description;
  SetupPlan setup;
  WorkloadPlan workload;
  std::vector<FaultPlan> faults = {FaultPlan{}};  ///< a seed takes one of them
  CheckPlan checks;
  uint64_t budget = 500;        ///< seeds that run under ctest
  std::vector<uint64_t> seeds;  ///< that failed once: they run always
};

}  // namespace farleaf::simulation
