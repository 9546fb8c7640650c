// A message and a file descriptor over a Unix socket.
//
// Thread rule: free functions.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "dsm/base/result.h"
#include "dsm/socket.h"

namespace farleaf::dsm {

/// `descriptor` -1: none. Does not wait.
Status SendWithDescriptor(int socket, std::string_view message, int descriptor);

struct ReceivedBytes {
  size_t count = 0;  ///< 0: the peer has closed
  bool would_block = false;
  UniqueFd descriptor;  ///< not valid: none came with these bytes
};
/// Does not wait.
Result<ReceivedBytes> ReceiveWithDescriptor(int socket, std::span<std::byte> into);

}  // namespace farleaf::dsm
