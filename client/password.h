// Passwords of compute servers, as files that only those may read who may know them.
//
// Thread rule: pure functions; ReadPasswords reads a file.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/internal/socket.h"
#include "dsm/base/result.h"

namespace farleaf::client {

inline constexpr size_t kPasswordBytesMax = 512;
inline constexpr size_t kPasswordsMax = 16;  ///< in one file

/// The passwords of a file, one a line; empty lines are none. A server takes each of them, so that a new one can be
/// handed out before the old one is taken back; a client gives the first. InvalidArgument: others than the file's
/// owner and group may read or write it, or it holds no password.
inline Result<std::vector<std::string>> ReadPasswords(const std::string& path) {
  const auto refuse = [&path](const std::string& why) {
    return Status::InvalidArgument("password file " + path + ": " + why);
  };
  const internal::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return refuse(internal::ErrnoText(errno));
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0) return refuse(internal::ErrnoText(errno));
  if (!S_ISREG(about.st_mode)) return refuse("not a regular file");
  if ((about.st_mode & (S_IROTH | S_IWOTH)) != 0) {
    return refuse("everybody may read or write it; take that back with chmod o-rw");
  }
  std::string text(kPasswordsMax * (kPasswordBytesMax + 1) + 1, '\0');
  const ssize_t bytes = ::read(fd.get(), text.data(), text.size());
  if (bytes < 0) return refuse(internal::ErrnoText(errno));
  if (static_cast<size_t>(bytes) == text.size()) return refuse("too large");
  text.resize(static_cast<size_t>(bytes));
  std::vector<std::string> passwords;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    begin = end + 1;
    if (line.empty()) continue;
    if (line.size() > kPasswordBytesMax) {
      return refuse("a password of more than " + std::to_string(kPasswordBytesMax) + " bytes");
    }
    passwords.push_back(std::move(line));
  }
  if (passwords.empty()) return refuse("no password in it");
  if (passwords.size() > kPasswordsMax) {
    return refuse("more than " + std::to_string(kPasswordsMax) + " passwords");
  }
  return passwords;
}

/// In a time that does not depend on where they differ.
inline bool SamePassword(std::string_view a, std::string_view b) {
  unsigned char differ = a.size() != b.size();
  for (size_t i = 0; i < kPasswordBytesMax; ++i) {
    const char from_a = i < a.size() ? a[i] : '\0', from_b = i < b.size() ? b[i] : '\0';
    differ = static_cast<unsigned char>(differ | (from_a ^ from_b));
  }
  return differ == 0 && a.size() <= kPasswordBytesMax;
}

}  // namespace farleaf::client
