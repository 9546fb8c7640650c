#include "benchmark/adapters/stores.h"

#include <filesystem>

#include "benchmark/adapters/lsm_target.h"
#include "benchmark/adapters/replicated_target.h"
#include "benchmark/adapters/rocksdb_target.h"

namespace farleaf::ycsb {

namespace {

struct Engine {
  StoreEngine engine;
  Result<std::unique_ptr<Target>> (*open)(const StoreOptions&, const TargetOptions&, const Clock*);
};
constexpr Engine kEngines[] = {
    {StoreEngine::kRocksDb, OpenRocksDbTarget},
    {StoreEngine::kBlobDb, OpenRocksDbTarget},
    {StoreEngine::kLsm, OpenLsmTarget},
    {StoreEngine::kReplicated, OpenReplicatedTarget},
};

const Engine* Find(std::string_view url) {
  for (const Engine& engine : kEngines) {
    const std::string_view name = StoreEngineName(engine.engine);
    if (url.starts_with(name) && url.substr(name.size()).starts_with(':')) return &engine;
  }
  return nullptr;
}

}  // namespace

std::optional<StoreEngine> StoreEngineOf(std::string_view url) {
  const Engine* const engine = Find(url);
  return engine ? std::optional(engine->engine) : std::nullopt;
}

Result<std::unique_ptr<Target>> OpenStoreTarget(std::string_view url, const TargetOptions& options,
                                                const Clock* clock) {
  const Engine& engine = *Find(url);
  auto store =
      ParseStoreOptions(engine.engine, url.substr(StoreEngineName(engine.engine).size() + 1));
  if (!store.ok()) return store.status();
  if (options.create_tree) {
    std::error_code error;
    std::filesystem::create_directories(store->directory, error);
    if (error) {
      return Status::IoError("directory '" + store->directory +
                             "' cannot be made: " + error.message());
    }
  }
  return engine.open(*store, options, clock);
}

}  // namespace farleaf::ycsb
