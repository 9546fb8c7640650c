// The range of an option, as every Validate() tells of it.
//
// Thread rule: a pure function.
#pragma once

#include <fmt/format.h>

#include "dsm/base/status.h"

namespace farleaf::index {

/// InvalidArgument names the option, what it is, and what it may be.
template <typename T>
Status InRange(const char* name, T value, T min, T max) {
  if (value >= min && value <= max) return Status::Ok();
  return Status::InvalidArgument(fmt::format("{} is {}: {} to {} can be", name, value, min, max));
}

}  // namespace farleaf::index
