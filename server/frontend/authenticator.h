// Authenticator: whether those who connect have to know a password, and whether they do. One for all front ends of
// a server.
//
// Thread rule: immutable; any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/password.h"

namespace farleaf::server {

class Authenticator {
 public:
  /// Who gives a wrong password so often is cut off.
  static constexpr int kAttemptsMax = 3;
  /// The user of protocols that have users; there is no other.
  static constexpr std::string_view kUser = "default";

  /// Nobody is asked.
  Authenticator() = default;
  /// Each of `passwords` will do.
  explicit Authenticator(std::vector<std::string> passwords) : passwords_(std::move(passwords)) {}

  bool required() const { return !passwords_.empty(); }
  /// All are compared, each in constant time.
  bool Accepts(std::string_view password) const {
    bool accepted = passwords_.empty();
    for (const std::string& each : passwords_) {
      accepted |= client::SamePassword(each, password);
    }
    return accepted;
  }

 private:
  std::vector<std::string> passwords_;
};

}  // namespace farleaf::server
