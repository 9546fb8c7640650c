// The targets `local:` and `pool:`: this process is a compute server with the tree.
//
// Thread rule: see target.h.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "benchmark/ycsb/target.h"
#include "dsm/op_context.h"
#include "dsm/pool.h"
#include "dsm/shm/local_fabric.h"
#include "dsm/task.h"
#include "dsm/transport.h"
#include "index/blink/catalog.h"
#include "index/blink/options.h"

namespace farleaf::ycsb {

struct LocalTargetOptions {
  dsm::LocalFabric::Options fabric;
  std::optional<uint64_t> delay_ns;  ///< each batch takes effect so much later, and suspends
};
/// What stands behind `local:`: empty, or ?NAME=VALUE&… with servers, region, chunk and delay_us.
/// InvalidArgument names the option, its value and its range.
Result<LocalTargetOptions> ParseLocalOptions(std::string_view text);

index::TreeOptions TreeOptionsOf(const TargetOptions& options);
/// The tree that the options name, created first if they say so.
dsm::Task<Result<index::TreeInfo>> CreateOrOpenTree(dsm::OpContext& op, dsm::Pool& pool,
                                                    const TargetOptions& options);
/// Bytes of the chunks in use of all servers, in one round trip.
dsm::Task<Result<uint64_t>> SumChunks(dsm::OpContext& op,
                                      std::span<const dsm::RegionLayout> layouts);

/// Joins the pool behind `fabric`, and creates or opens the tree.
Result<std::unique_ptr<Target>> OpenPoolTarget(std::unique_ptr<dsm::Fabric> fabric,
                                               const TargetOptions& options, const Clock* clock);

}  // namespace farleaf::ycsb
