// IndexMode: how a region's backups come by their tables.
//
// Thread rule: a value type.
#pragma once

#include <cstdint>

namespace farleaf::server::replication {

enum class IndexMode : uint8_t {
  kSend,  ///< they are sent those of the primary (Talos' Send-Index)
  kBuild,  ///< they flush and merge for themselves what the logs say (Build-Index): index/lsm/follower.h
};

}  // namespace farleaf::server::replication
