#include "test/support/tree_fixture.h"

#include <utility>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"

namespace farleaf::index {

std::string Fixed(uint64_t number) {
  std::string bytes(8, '\0');
  StoreBig64(bytes.data(), number);
  return bytes;
}

LocalTree::LocalTree(Options options) {
  auto fabric = dsm::LocalFabric::Create(options.fabric);
  FARLEAF_CHECK(fabric.ok(), fabric.status());
  fabric_ = fabric->get();
  auto joined = dsm::Pool::Join(std::move(*fabric), options.pool, &clock_);
  FARLEAF_CHECK(joined.ok(), joined.status());
  pool_ = std::move(*joined);
  worker_ = NewWorker();
  dsm::FabricCounts counts;
  OpContext op{*worker_, counts};
  auto info = worker_->Run(CreateTree(op, *pool_, "test", options.geometry));
  FARLEAF_CHECK(info.ok(), info.status());
  tree_ = std::make_unique<BlinkTree>(pool_.get(), *info, options.tree);
}

LocalTree::~LocalTree() = default;

std::unique_ptr<dsm::Worker> LocalTree::NewWorker() {
  auto worker = pool_->OpenWorker();
  FARLEAF_CHECK(worker.ok(), worker.status());
  return std::move(*worker);
}

std::optional<std::string> LocalTree::Get(std::string_view key) {
  std::string value;
  OpContext op = Start();
  auto found = worker_->Run(tree_->Get(op, key, &value));
  FARLEAF_CHECK(found.ok(), found.status());
  return *found ? std::optional(value) : std::nullopt;
}

bool LocalTree::Insert(std::string_view key, std::string_view value) {
  OpContext op = Start();
  return Checked(worker_->Run(tree_->Insert(op, key, value)));
}

bool LocalTree::Put(std::string_view key, std::string_view value) {
  OpContext op = Start();
  return Checked(worker_->Run(tree_->Put(op, key, value)));
}

bool LocalTree::Update(std::string_view key, std::string_view value) {
  OpContext op = Start();
  return Checked(worker_->Run(tree_->Update(op, key, value)));
}

bool LocalTree::Delete(std::string_view key) {
  OpContext op = Start();
  return Checked(worker_->Run(tree_->Delete(op, key)));
}

std::vector<KeyValue> LocalTree::Scan(ScanRange range) {
  std::vector<KeyValue> rows;
  OpContext op = Start();
  Status status = worker_->Run(tree_->Scan(op, range, &rows));
  FARLEAF_CHECK(status.ok(), status);
  return rows;
}

OpContext LocalTree::Start() {
  cost_ = {};
  return OpContext{*worker_, cost_};
}

bool LocalTree::Checked(Result<bool> result) {
  FARLEAF_CHECK(result.ok(), result.status());
  return *result;
}

}  // namespace farleaf::index
