// Certificates for tests, made by the program openssl: each signs itself, and is its own authority.
//
// Thread rule: one thread.
#pragma once

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "dsm/base/check.h"

namespace farleaf::test {

struct TestCertificate {
  std::string certificate, key;  ///< files
};

inline bool CanMakeCertificates() { return std::system("command -v openssl >/dev/null") == 0; }

/// For 127.0.0.1 and localhost. Files NAME.pem and NAME.key in `folder`; others of these names are replaced.
inline TestCertificate MakeCertificate(const std::filesystem::path& folder,
                                       const std::string& name) {
  const TestCertificate made{(folder / (name + ".pem")).string(),
                             (folder / (name + ".key")).string()};
  const std::string command =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
      "/CN=" +
      name + " -addext subjectAltName=IP:127.0.0.1,DNS:localhost -keyout '" + made.key +
      "' -out '" + made.certificate + "' 2>/dev/null";
  FARLEAF_CHECK(std::system(command.c_str()) == 0, command);
  ::chmod(made.key.c_str(), 0600);
  return made;
}

}  // namespace farleaf::test
