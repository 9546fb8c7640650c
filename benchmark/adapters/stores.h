// The targets that are stores in this process, with their data in a directory.
//
// Thread rule: see benchmark/ycsb/target.h.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "benchmark/adapters/store_options.h"
#include "benchmark/ycsb/target.h"

namespace farleaf::ycsb {

/// The engine that `url` names, if it names one.
std::optional<StoreEngine> StoreEngineOf(std::string_view url);

/// `ENGINE:DIR[?NAME=VALUE&…]`. InvalidArgument names what is wrong with it; Unimplemented if this binary was built
/// without the engine. With `options.create_tree` the directory must hold no store, else it must hold one.
/// REQUIRES: StoreEngineOf(url).
Result<std::unique_ptr<Target>> OpenStoreTarget(std::string_view url, const TargetOptions& options,
                                                const Clock* clock);

}  // namespace farleaf::ycsb
