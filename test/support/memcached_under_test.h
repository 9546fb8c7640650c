// A real memcached on a free loopback port.
//
// Thread rule: one thread.
#pragma once

#include <memory>
#include <string>

#include "dsm/socket.h"
#include "test/support/child_process.h"

namespace farleaf {

class MemcachedUnderTest {
 public:
  explicit MemcachedUnderTest(std::string output_file);

  void Start();
  void Stop() { process_.reset(); }

  const std::string& address() const { return address_; }
  std::string port() const { return address_.substr(address_.rfind(':') + 1); }
  std::string Url(const std::string& cluster) const;

 private:
  static bool Answers(const dsm::SocketAddress& target);

  const std::string output_file_, address_;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace farleaf
