#include "test/support/host_decorator.h"

namespace farleaf::test {

server::HostedTree HostDecorator::Decorated(server::HostedTree tree) {
  if (tree.index == nullptr) return tree;
  std::lock_guard lock(mutex_);
  auto& decorated = decorated_[tree.index];
  if (!decorated) decorated = Decorate(tree.index);
  tree.index = decorated.get();
  return tree;
}

dsm::Task<Result<server::HostedTree>> HostDecorator::Open(dsm::OpContext& op,
                                                          std::string_view name) {
  auto opened = co_await host_.Open(op, name);
  if (!opened.ok()) co_return opened.status();
  co_return Decorated(*opened);
}

dsm::Task<Result<server::HostedTree>> HostDecorator::Create(dsm::OpContext& op,
                                                            const server::NewTree& tree) {
  auto created = co_await host_.Create(op, tree);
  if (!created.ok()) co_return created.status();
  co_return Decorated(*created);
}

}  // namespace farleaf::test
