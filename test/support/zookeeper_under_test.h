// A real ZooKeeper on a free port, of loopback or of another address of this machine, with a folder of its own, that
// may be killed and started again on what it had.
//
// Thread rule: one thread.
#pragma once

#include <memory>
#include <string>

#include "test/support/child_process.h"

namespace farleaf {

class ZookeeperUnderTest {
 public:
  /// Whether the Debian packages that it takes are here.
  static bool IsInstalled();

  /// Its files lie in `folder`, which exists. A session's timeout may be 2 to 20 `tick_ms`.
  ZookeeperUnderTest(std::string folder, int tick_ms, const std::string& host = "127.0.0.1");

  void Start();
  /// With SIGKILL.
  void Kill() { process_.reset(); }
  const std::string& address() const { return address_; }

 private:
  bool Answers() const;

  const std::string folder_;
  const std::string address_;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace farleaf
