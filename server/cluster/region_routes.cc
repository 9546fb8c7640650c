#include "server/cluster/region_routes.h"

#include <algorithm>
#include <iterator>

namespace farleaf::server::cluster {

const Route& RouteTable::Find(std::string_view key) const {
  const auto behind = std::upper_bound(
      routes.begin(), routes.end(), key,
      [](std::string_view wanted, const Route& route) { return wanted < route.start; });
  return *std::prev(behind);  // the first starts at the smallest key
}

}  // namespace farleaf::server::cluster
