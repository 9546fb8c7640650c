// How much the tests do: FARLEAF_TEST_SCALE=small on a machine with little of everything (an emulated
// one), =long with all of their data (scripts/test.sh --long).
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "dsm/base/check.h"

namespace farleaf::test {

enum class Scale : uint8_t { kSmall, kUsual, kLong };

inline Scale ScaleOfTests() {
  const char* text = std::getenv("FARLEAF_TEST_SCALE");
  const std::string_view name = text ? text : "usual";
  if (name == "small") return Scale::kSmall;
  if (name == "long") return Scale::kLong;
  FARLEAF_CHECK(name == "usual", "FARLEAF_TEST_SCALE is small, usual or long", name);
  return Scale::kUsual;
}

/// How many of something, by scale.
struct Amount {
  uint64_t small;
  uint64_t usual;
  uint64_t large = usual;  ///< where the long tests do more

  operator uint64_t() const {  // NOLINT: an amount is a number
    const Scale scale = ScaleOfTests();
    return scale == Scale::kSmall ? small : scale == Scale::kLong ? large : usual;
  }
};

}  // namespace farleaf::test
