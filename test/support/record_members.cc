#include "test/support/record_members.h"

#include <utility>

#include "dsm/base/check.h"

namespace farleaf::test {

RecordMembers::RecordMembers(RecordMembersKind kind) {
  if (kind == RecordMembersKind::kOneOverAMap) {
    map_ = std::make_unique<MapTreeHost>(&clock_);
    Serve(map_.get());
  } else {
    pool_ = std::make_unique<PoolHosts>(2);
    for (size_t i = 0; i < 2; ++i) Serve(&pool_->host(i));
  }
}

RecordMembers::~RecordMembers() = default;

std::vector<index::KeyValue> RecordMembers::Records(size_t i) {
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker(i), counts};
  std::vector<index::KeyValue> rows;
  const Status scanned = worker(i)->Run(tree(i)->Scan(op, {}, &rows));
  FARLEAF_CHECK(scanned.ok(), scanned);
  return rows;
}

void RecordMembers::Serve(server::TreeHost* host) {
  auto worker = host->OpenWorker();
  FARLEAF_CHECK(worker.ok(), worker.status());
  dsm::FabricCounts counts;
  dsm::OpContext op{**worker, counts};
  auto tree = members_.empty() ? (*worker)->Run(host->Create(op, {.name = "records"}))
                               : (*worker)->Run(host->Open(op, "records"));
  FARLEAF_CHECK(tree.ok(), tree.status());
  members_.push_back({std::move(*worker), tree->index});
}

std::string RecordMembersName(const ::testing::TestParamInfo<RecordMembersKind>& kind) {
  return kind.param == RecordMembersKind::kOneOverAMap ? "OneOverAMap" : "TwoOnOnePool";
}

}  // namespace farleaf::test
