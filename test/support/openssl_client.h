// `openssl s_client`: what a client of no protocol sees behind TLS.
//
// Thread rule: one thread.
#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "dsm/base/check.h"

namespace farleaf::test {

/// What it prints that is connected to `url` (SCHEME://HOST:PORT) and sends `input`, which is kept in `folder`, until the
/// server closes.
inline std::string AskOpenssl(const std::filesystem::path& folder, const std::string& url,
                              const std::string& input, const std::string& flags) {
  const std::string file = (folder / "input").string();
  std::ofstream(file) << input;
  const std::string command = "timeout 60 openssl s_client -connect " +
                              url.substr(url.find("://") + 3) + " -quiet " + flags + " 2>&1 <" +
                              file;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  FARLEAF_CHECK(pipe != nullptr, command);
  std::string output;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, n);
  ::pclose(pipe);
  return output;
}

}  // namespace farleaf::test
