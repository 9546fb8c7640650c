#include "benchmark/ycsb/comparison_flags.h"

#include <filesystem>

#include "benchmark/ycsb/target_flags.h"

namespace farleaf::ycsb {

namespace {

/// What stands behind the scheme, where two targets could share it; else empty.
std::string PlaceOf(const std::string& target) {
  if (InVirtualTime(target) || target.starts_with("local:")) return "";
  const std::string behind = target.substr(target.find(':') + 1);
  const std::string name = behind.substr(0, behind.find('?'));
  if (name.empty()) return "";
  std::error_code ignored;
  const std::string path =
      std::filesystem::weakly_canonical(std::filesystem::absolute(name, ignored), ignored).string();
  return path.ends_with('/') ? path.substr(0, path.size() - 1) : path;
}

/// Whether trees of several names can be in one place.
bool HoldsTrees(const std::string& target) {
  return target.starts_with("pool:") || target.starts_with("farleaf") ||
         target.starts_with("redis") || target.starts_with("memcached");
}

}  // namespace

bool InVirtualTime(const std::string& target) { return target.starts_with("sim:"); }

bool SamePlace(const std::string& target, const std::string& other) {
  const std::string place = PlaceOf(target);
  return !place.empty() && place == PlaceOf(other);
}

Result<RunConfiguration> ConfigureAgainst(const RunConfiguration& run, const std::string& against,
                                          const std::string& args, bool loads) {
  if (against.empty()) return Status::InvalidArgument("--against: a target is missing");
  const std::string flag = "--against " + against;
  if (InVirtualTime(run.target) != InVirtualTime(against)) {
    return Status::InvalidArgument(
        flag + ": a target in virtual time (sim:) can be compared with another such only");
  }
  RunConfiguration configuration = run;
  configuration.target = against;
  const Status differs = ParseTargetFlags(args, &configuration);
  if (!differs.ok()) return differs.WithContext("--against-args");
  const bool other_tree =
      HoldsTrees(against) && configuration.workload.tree != run.workload.tree;
  if (loads && !other_tree && SamePlace(run.target, against)) {
    return Status::InvalidArgument(flag +
                                   ": the same place as --target's, and both cannot be loaded "
                                   "there: give it its own, or in a pool or server its own tree by "
                                   "--against-args '-p farleaf.tree=NAME'");
  }
  return configuration;
}

}  // namespace farleaf::ycsb
