// What a server that runs as a process tells Prometheus: where, and single samples of it.
//
// Thread rule: any thread.
#pragma once

#include <string>

#include "test/support/child_process.h"
#include "test/support/http_get.h"

namespace farleaf::test {

/// http://HOST:PORT of a server's metrics, from its log; a port that nobody serves if it tells none.
inline std::string MetricsUrl(const ChildProcess& server) {
  const std::string sign = "metrics at ";
  if (!server.WaitForOutput("/health")) return "http://127.0.0.1:1";
  const std::string output = server.Output();
  const size_t begin = output.find(sign) + sign.size();
  return output.substr(begin, output.find("/metrics", begin) - begin);
}

/// A sample's value, by its name with its labels as they are written; -1: it is not there.
inline double Sample(const std::string& page, const std::string& name) {
  const size_t at = page.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::stod(page.substr(at + name.size() + 2));
}

}  // namespace farleaf::test
