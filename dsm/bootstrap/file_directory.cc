#include "dsm/bootstrap/file_directory.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>

#include "dsm/handshake.h"

namespace farleaf::dsm {

namespace {

constexpr size_t kFileBytesMax = 8 << 20;

Result<DirectoryFile> ReadDirectoryFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status::NotFound("directory file " + path + ": " + std::strerror(errno));
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return Status::IoError("directory file " + path + " cannot be read");
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kFileBytesMax) {
    return Status::InvalidArgument("directory file " + path + " is larger than 8 MiB");
  }
  return ParseDirectoryFile(text, path);
}

}  // namespace

Result<DirectoryFile> ParseDirectoryFile(std::string_view text, const std::string& name) {
  DirectoryFile parsed;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    const auto wrong = [&](const std::string& why) {
      return Status::InvalidArgument(name + ", line " + std::to_string(number) + ": " + why);
    };
    std::istringstream words(line.substr(0, line.find('#')));
    std::string first, second, more;
    if (!(words >> first)) continue;
    if (!(words >> second) || (words >> more)) {
      return wrong("'cluster NAME' or 'ID ENDPOINT' expected");
    }
    if (first == "cluster") {
      if (!parsed.cluster.empty()) return wrong("the cluster is named twice");
      if (Status status = CheckClusterName(second); !status.ok()) {
        return wrong(std::string(status.message()));
      }
      parsed.cluster = second;
      continue;
    }
    if (parsed.cluster.empty()) return wrong("'cluster NAME' comes first");
    ServerId id = 0;
    const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), id);
    if (error != std::errc() || end != first.data() + first.size()) {
      return wrong("'" + first + "' is not a memory server id (0 to 65535)");
    }
    if (!second.starts_with("shm:") && !second.starts_with("tcp:") &&
        !second.starts_with("verbs:")) {
      return wrong("endpoint '" + second +
                   "' is none of shm:PATH, tcp:HOST:PORT and verbs:HOST:PORT");
    }
    for (const ServerEndpoint& other : parsed.servers) {
      if (other.server == id) return wrong("memory server " + first + " is listed twice");
    }
    parsed.servers.push_back({id, second, 0, 0});
  }
  if (parsed.cluster.empty()) return Status::InvalidArgument(name + ": 'cluster NAME' is missing");
  std::sort(parsed.servers.begin(), parsed.servers.end(),
            [](const auto& a, const auto& b) { return a.server < b.server; });
  return parsed;
}

Result<std::unique_ptr<FileDirectory>> FileDirectory::Open(const std::string& path) {
  auto file = ReadDirectoryFile(path);
  if (!file.ok()) return file.status();
  return std::unique_ptr<FileDirectory>(new FileDirectory(path, file->cluster));
}

Result<std::vector<ServerEndpoint>> FileDirectory::List() {
  auto file = ReadDirectoryFile(path_);
  if (!file.ok()) return file.status();
  return std::move(file->servers);
}

Status FileDirectory::Publish(const ServerEndpoint& endpoint) {
  auto servers = List();
  if (!servers.ok()) return servers.status();
  const std::string name = "memory server " + std::to_string(endpoint.server);
  for (const ServerEndpoint& listed : *servers) {
    if (listed.server != endpoint.server) continue;
    if (listed.endpoint == endpoint.endpoint) return Status::Ok();
    return Status::InvalidArgument(path_ + " lists " + name + " at " + listed.endpoint +
                                   ", but it listens at " + endpoint.endpoint);
  }
  return Status::InvalidArgument(path_ + " does not list " + name + "; add the line '" +
                                 std::to_string(endpoint.server) + " " + endpoint.endpoint + "'");
}

}  // namespace farleaf::dsm
