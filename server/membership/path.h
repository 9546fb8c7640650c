// Paths of entries: "/", or components of 1 to 255 printable ASCII characters, each behind a '/'.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "dsm/base/status.h"

namespace farleaf::server::membership {

inline constexpr size_t kPathBytesMax = 1024;

/// InvalidArgument: no path. "." and ".." are no components.
Status CheckPath(std::string_view path);
/// "/" of "/a", and of "/". REQUIRES: a path.
std::string_view ParentPath(std::string_view path);
/// "b" of "/a/b". REQUIRES: a path, and not "/".
std::string_view LastName(std::string_view path);
/// "/a/b" of "/a" and "b".
std::string ChildPath(std::string_view parent, std::string_view name);

}  // namespace farleaf::server::membership
