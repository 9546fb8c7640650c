// Opens a directory by its bootstrap URL (dsm/directory.h).
//
// Thread rule: any thread.
#pragma once

#include <memory>
#include <string_view>

#include "dsm/directory.h"

namespace farleaf::dsm {

/// `memcached://HOST:PORT/CLUSTER` or `file:PATH`, without the options that a bootstrap URL may carry
/// (dsm/bootstrap/open_fabric.h). InvalidArgument: anything else, naming the URL.
/// A memcached that does not answer is an error of the directory's calls, not of opening it.
Result<std::unique_ptr<Directory>> OpenDirectory(std::string_view url);

}  // namespace farleaf::dsm
