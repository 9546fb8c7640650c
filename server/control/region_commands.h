// farleafctl region: looks at a cluster's regions, and says where they are to be cut and who is to have them (region_admin.h).
//
// Exit codes: 0 done · 1 failed, or not done in time · 2 wrong arguments · 3 no such region, node or map.
//
// Thread rule: one thread.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dsm/member.h"

namespace farleaf::server {

struct RegionArguments {
  std::string cluster;
  uint32_t region = 0;             ///< 0: not given
  std::optional<std::string> key;  ///< as typed
  std::string at;
  std::vector<std::string> keys;
  dsm::MemberId node = 0;
  std::vector<dsm::MemberId> nodes;
  uint64_t deadline_ms = 0;  ///< 0: the default
  bool anywhere = false, no_wait = false;
  bool json = false;
};

/// Returns the exit code.
using RegionCommand = int (*)(const RegionArguments&);

/// `chosen` is set by the parsing, if the command is one of these.
void DeclareRegionCommands(CLI::App& app, RegionArguments* arguments, RegionCommand* chosen);

}  // namespace farleaf::server
