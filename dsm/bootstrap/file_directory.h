// FileDirectory: a static list of memory servers in a text file.
//
//   # anything after '#' is a comment
//   cluster rack7
//   0 tcp:10.0.0.7:7100
//   1 tcp:10.0.0.8:7100
//
// Thread rule: see Directory; the file is read at every call.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "dsm/directory.h"

namespace farleaf::dsm {

struct DirectoryFile {
  std::string cluster;
  std::vector<ServerEndpoint> servers;  ///< ascending id
};
/// `name`: what messages call the file. InvalidArgument names file and line.
Result<DirectoryFile> ParseDirectoryFile(std::string_view text, const std::string& name);

class FileDirectory final : public Directory {
 public:
  static Result<std::unique_ptr<FileDirectory>> Open(const std::string& path);
  const std::string& cluster() const override { return cluster_; }
  Result<std::vector<ServerEndpoint>> List() override;
  /// Verifies that the file lists this server with this endpoint; changes nothing.
  Status Publish(const ServerEndpoint& endpoint) override;
  Status Withdraw(const ServerEndpoint&) override { return Status::Ok(); }
  uint64_t renew_interval_ms() const override { return 0; }

 private:
  FileDirectory(std::string path, std::string cluster)
      : path_(std::move(path)), cluster_(std::move(cluster)) {}
  const std::string path_;
  const std::string cluster_;
};

}  // namespace farleaf::dsm
