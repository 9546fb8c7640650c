// zookeeper://HOST:PORT[,HOST:PORT...]/CHROOT: where a ZooKeeper is, and below which of its nodes all of a cluster's lie.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "dsm/base/result.h"

namespace farleaf::server::membership {

struct ZookeeperUrl {
  std::string hosts;   ///< "HOST:PORT,HOST:PORT", as the C client takes them
  std::string chroot;  ///< "/farleaf", "/farleaf/rack7"
};

/// InvalidArgument, with the URL and what is wrong.
Result<ZookeeperUrl> ParseZookeeperUrl(std::string_view url);

}  // namespace farleaf::server::membership
