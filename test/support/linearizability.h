// Checkers of recorded histories (test/support/history.h).
//
// CheckLinearizable: every key is a register that is absent or holds a value; keys are independent,
// so each is checked alone (linearizability is compositional: Herlihy and Wing 1990). Per key, a
// depth-first search over the orders that real time allows, after Wing and Gong 1993, remembering
// visited (set of linearized operations, value) pairs as Lowe 2017 does. Two things keep it small:
// an operation that can change nothing and agrees with the current value is linearized at once,
// which never loses an order; and the set is remembered as a 128-bit sum of random numbers, one an
// operation. Operations of unknown outcome may come at any time after their invocation, or never.
//
// CheckScans: a scan is no snapshot. What must hold: rows in order, inside the bounds, no
// repetition, at most `limit`; each value was written before the scan ended and not certainly
// overwritten before it began; a key certainly present throughout is there, one certainly absent
// throughout is not.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "test/support/history.h"

namespace farleaf::test {

struct Verdict {
  bool ok = true;
  std::string why;  ///< not ok: the key, and the operations around the contradiction

  explicit operator bool() const { return ok; }
};

struct LinearizabilityOptions {
  /// (operation set, value) pairs visited per key before the checker gives up, which is not ok.
  uint64_t visited_max = 2'000'000;
};

Verdict CheckLinearizable(const History& history, LinearizabilityOptions options = {});
Verdict CheckScans(const History& history);

}  // namespace farleaf::test
