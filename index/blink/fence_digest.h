#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "dsm/base/bytes.h"
#include "index/blink/geometry.h"

namespace farleaf::index {
uint64_t FenceDigest(TreeId tree, std::optional<std::string_view> low,
                     std::optional<std::string_view> high);
}  // namespace farleaf::index
