// A server's page of metrics, as Prometheus's own parser reads it (test/fault/prometheus_check.py).
//
// Who includes it is told where that is: FARLEAF_TESTS. Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "test/support/process.h"

namespace farleaf::test {

/// The page at `url` is well-formed, and `families` are in it with samples. Nothing where the parser is not installed.
inline void ExpectWellFormed(ProcessCluster& cluster, const std::string& url,
                             std::vector<std::string> families) {
  if (std::system("/usr/bin/python3 -c 'import prometheus_client' 2>/dev/null") != 0) return;
  families.insert(families.begin(),
                  {"/usr/bin/python3", FARLEAF_TESTS "/prometheus_check.py", url + "/metrics"});
  const std::string port = url.substr(url.rfind(':') + 1);
  ChildProcess process(std::move(families), cluster.File("metrics-" + port));
  const Ended ended = cluster.WaitFor(process);
  EXPECT_EQ(ended.code, 0) << url << ": " << ended.output;
}

}  // namespace farleaf::test
