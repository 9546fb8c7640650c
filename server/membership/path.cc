#include "server/membership/path.h"

#include <algorithm>

namespace farleaf::server::membership {

namespace {
constexpr size_t kComponentBytesMax = 255;

bool IsComponent(std::string_view name) {
  return !name.empty() && name.size() <= kComponentBytesMax && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}
}  // namespace

Status CheckPath(std::string_view path) {
  if (path == "/") return Status::Ok();
  bool fits = !path.empty() && path.front() == '/' && path.size() <= kPathBytesMax;
  for (std::string_view rest = path; fits && !rest.empty();) {
    rest.remove_prefix(1);  // the '/' in front of a component
    const std::string_view name = rest.substr(0, rest.find('/'));
    fits = IsComponent(name);
    rest.remove_prefix(name.size());
  }
  if (fits) return Status::Ok();
  return Status::InvalidArgument("'" + std::string(path.substr(0, 80)) +
                                 "' is no path of an entry: /NAME/NAME..., of printable ASCII");
}

std::string_view ParentPath(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? path.substr(0, 1) : path.substr(0, slash);
}

std::string_view LastName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string ChildPath(std::string_view parent, std::string_view name) {
  std::string path(parent == "/" ? "" : parent);
  path += '/';
  path += name;
  return path;
}

}  // namespace farleaf::server::membership
