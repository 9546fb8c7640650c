#include "server/frontend/open_tree.h"

#include <string>

namespace farleaf::server {

dsm::Task<Result<HostedTree>> OpenOrCreateTree(TreeHost& host, dsm::OpContext& op, NewTree tree) {
  const auto opened = co_await host.Open(op, tree.name);
  if (opened.ok()) {
    if (opened->info.layout == tree.layout) co_return *opened;
    co_return Status::InvalidArgument("tree \"" + tree.name + "\" exists with layout " +
                                      std::string(TreeLayoutName(opened->info.layout)) + ", not " +
                                      std::string(TreeLayoutName(tree.layout)));
  }
  if (opened.status().code() != StatusCode::kNotFound) co_return opened.status();
  const auto created = co_await host.Create(op, tree);
  // Another compute server that starts with the same option may have been faster.
  if (!created.ok() && created.status().code() == StatusCode::kAlreadyExists) {
    const auto again = co_await host.Open(op, tree.name);
    co_return again;
  }
  co_return created;
}

}  // namespace farleaf::server
