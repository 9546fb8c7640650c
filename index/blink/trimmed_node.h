// A node's image without what it does not use: what a cache keeps of it.
//
// A trimmed image is the same node in a page just as large as it has to be: no room behind the last
// entry, no garbage in the heap. ConstNode reads it like any other; it cannot be opened or written (the
// checksum is that of the whole image). Of a dead node the entries are left out: it only forwards.
//
// Thread rule: pure functions over bytes.
#pragma once

#include <cstddef>
#include <span>

#include "index/blink/node.h"

namespace farleaf::index {

/// REQUIRES: an internal node.
size_t TrimmedImageBytes(const ConstNode& node);
/// REQUIRES: out.size() == TrimmedImageBytes(node).
void TrimImage(const ConstNode& node, std::span<std::byte> out);

}  // namespace farleaf::index
