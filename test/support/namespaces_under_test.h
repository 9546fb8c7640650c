// NamespacesUnderTest: network namespaces on a bridge of this machine, for processes that can be parted from each other without knowing: what one sends to
// the other is lost silently.
//
// Namespace n, from 1, has the address 10.X.Y.n; this machine's own has 10.X.Y.254, and 10.X.Y.253 for a service.
//
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace farleaf {

class NamespacesUnderTest {
 public:
  /// Whether this process may make some: root, with iproute2 and a kernel that has them.
  static bool IsPossible();

  explicit NamespacesUnderTest(size_t count);
  ~NamespacesUnderTest();
  NamespacesUnderTest(const NamespacesUnderTest&) = delete;

  /// What stands before a command that is to run in it.
  std::vector<std::string> Prefix(size_t number) const;
  std::string AddressOf(size_t number) const;
  static constexpr size_t kService = 253, kHost = 254;
  /// Nothing that `from` sends to `to` arrives any more: one way. REQUIRES: `from` is a namespace's number.
  void Part(size_t from, size_t to);
  void Heal(size_t from, size_t to);

 private:
  std::string NameOf(size_t number) const;
  std::string In(size_t number, const std::string& command) const;

  const size_t count_;
  const std::string id_, net_;  // "12345", "10.X.Y."
};

}  // namespace farleaf
