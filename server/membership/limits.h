// What every implementation refuses before it sends anything.
//
// Thread rule: pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "server/membership/membership.h"
#include "server/membership/path.h"

namespace farleaf::server::membership {

inline Status CheckEntryBytes(size_t bytes) {
  if (bytes <= kEntryBytesMax) return Status::Ok();
  return Status::InvalidArgument(std::to_string(bytes) +
                                 " bytes are too many for entries: at most " +
                                 std::to_string(kEntryBytesMax));
}

inline Status CheckEntry(std::string_view path, std::string_view bytes) {
  FARLEAF_RETURN_IF_ERROR(CheckPath(path));
  return CheckEntryBytes(bytes.size());
}

inline Status CheckChanges(const std::vector<Change>& changes) {
  size_t bytes = 0;
  for (const Change& change : changes) {
    FARLEAF_RETURN_IF_ERROR(CheckPath(change.path));
    bytes += change.bytes.size();
  }
  if (changes.empty() || changes.size() > kChangesMax) {
    return Status::InvalidArgument(std::to_string(changes.size()) + " changes at once: 1 to " +
                                   std::to_string(kChangesMax));
  }
  return CheckEntryBytes(bytes);
}

}  // namespace farleaf::server::membership
