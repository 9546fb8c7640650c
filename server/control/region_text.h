// What farleafctl region list prints, as text and as JSON. Keys are printed as text (text_form.h).
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "server/control/region_admin.h"

namespace farleaf::server {

/// Two tables: regions, and nodes.
std::string RegionsText(const RegionListing& listing);
std::string RegionsJson(const RegionListing& listing);

}  // namespace farleaf::server
