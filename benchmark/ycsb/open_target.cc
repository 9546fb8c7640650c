#include <string_view>

#include "benchmark/adapters/stores.h"
#include "benchmark/simulated/simulated_target.h"
#include "benchmark/ycsb/client_target.h"
#include "benchmark/ycsb/pool_target.h"
#include "benchmark/ycsb/text_target.h"
#include "dsm/bootstrap/open_fabric.h"
#include "dsm/delay/delay_fabric.h"

namespace farleaf::ycsb {

namespace {

constexpr std::string_view kLocal = "local:", kPool = "pool:", kClient = "farleaf:",
                           kUnixClient = "farleaf+unix:", kRingClient = "farleaf+ring:",
                           kSimulated = "sim:";

}  // namespace

Result<std::unique_ptr<Target>> OpenTarget(const std::string& url, const TargetOptions& options,
                                           const Clock* clock) {
  if (url.starts_with(kSimulated)) {
    return OpenSimulatedTarget(std::string_view(url).substr(kSimulated.size()), options);
  }
  if (!options.program.empty()) {
    return Status::InvalidArgument("--program " + options.program +
                                   ": verb programs run on sim:MODEL-FILE only");
  }
  if (url.starts_with(kClient) || url.starts_with(kUnixClient) || url.starts_with(kRingClient)) {
    return OpenClientTarget(url, options, clock);
  }
  if (NamesTextTarget(url)) return OpenTextTarget(url, options, clock);
  if (options.access.tls || !options.access.password_file.empty()) {
    return Status::InvalidArgument("--password-file and --tls are for servers (farleaf:; without --tls redis: and memcached:)");
  }
  if (StoreEngineOf(url)) return OpenStoreTarget(url, options, clock);
  if (url.starts_with(kLocal)) {
    auto local = ParseLocalOptions(std::string_view(url).substr(kLocal.size()));
    if (!local.ok()) return local.status();
    auto created = dsm::LocalFabric::Create(local->fabric);
    if (!created.ok()) return created.status();
    std::unique_ptr<dsm::Fabric> fabric = std::move(*created);
    if (local->delay_ns) {
      const dsm::DelayOptions delay{.delay_ns = *local->delay_ns, .seed = options.seed};
      fabric = std::make_unique<dsm::DelayFabric>(std::move(fabric), delay, clock);
    }
    return OpenPoolTarget(std::move(fabric), options, clock);
  }
  if (url.starts_with(kPool)) {
    auto fabric = dsm::OpenFabric(std::string_view(url).substr(kPool.size()),
                                  dsm::OpenFabricOptions{}, clock);
    if (!fabric.ok()) return fabric.status();
    return OpenPoolTarget(std::move(*fabric), options, clock);
  }
  return Status::InvalidArgument(
      "expected local:, pool:BOOTSTRAP-URL, farleaf://HOST:PORT, farleaf+unix:PATH, "
      "farleaf+ring:PATH, memcached://HOST:PORT, redis://HOST:PORT, lsm:DIR, "
      "replicated:DIR, rocksdb:DIR, blobdb:DIR or sim:MODEL-FILE");
}

}  // namespace farleaf::ycsb
