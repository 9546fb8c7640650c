#include "test/support/routed_nodes.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "dsm/base/check.h"
#include "test/support/tiny_store.h"

namespace farleaf::test {

using index::PrefixedIndex;
using index::lsm::LsmStore;
using server::cluster::ClusterTreeHost;
using server::cluster::Gate;
using server::cluster::NodeId;
using server::cluster::RegionId;
using server::cluster::RegionRoutes;
using server::cluster::Route;
using server::cluster::RouteTable;
using server::cluster::ServedCopy;
using server::cluster::ServedStore;
using server::cluster::StoreUse;

RoutedNodes::RoutedNodes(Options options)
    : options_(std::move(options)),
      fabric_(std::move(*dsm::LocalFabric::Create(
          {.servers = 1, .region_bytes = 4 << 20, .hugepages = dsm::Hugepages::kNever}))),
      // Nobody keeps the sessions alive: no test takes that long.
      service_(&clock_, {.session_timeout_ms = 3'600'000}),
      worker_(OpenWorker()) {
  for (size_t i = 0; i < options_.nodes; ++i) {
    auto node = std::make_unique<Node>();
    node->id = static_cast<NodeId>(i + 1);
    auto session = service_.Open();
    FARLEAF_CHECK(session.ok(), session.status());
    node->session = std::move(*session);
    node->host = std::make_unique<ClusterTreeHost>(
        ClusterTreeHost::Deps{
            node->session.get(), node.get(), &clock_,
            [this]() -> Result<std::unique_ptr<dsm::Worker>> { return OpenWorker(); }},
        options_.host);
    server::NativeServerOptions server = options_.server;
    server.listen = {"127.0.0.1:0"};
    auto started = server::NativeServer::Start(node->host.get(), &clock_, server);
    FARLEAF_CHECK(started.ok(), started.status());
    node->server = std::move(*started);
    node->url = node->server->urls().front();
    nodes_.push_back(std::move(node));
  }
}

RoutedNodes::~RoutedNodes() {
  for (auto& node : nodes_) node->server.reset();
  for (auto& node : nodes_) node->host.reset();
  for (Region& region : regions_) {
    region.store->background.reset();
    const Status closed = worker_->Run(region.store->store->Close(*worker_));
    FARLEAF_CHECK(closed.ok(), closed);
  }
}

std::unique_ptr<dsm::Worker> RoutedNodes::OpenWorker() {
  auto transport = fabric_->OpenTransport();
  FARLEAF_CHECK(transport.ok(), transport.status());
  const uint64_t number = ++workers_;
  return std::make_unique<dsm::Worker>(
      dsm::Worker::Deps{std::move(*transport), &epochs_, &clock_, number, number});
}

index::RangeIndex& RoutedNodes::Tree(size_t node, const std::string& name) {
  const auto worker = OpenWorker();
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker, counts};
  auto tree = worker->Run(host(node).Open(op, name));
  if (tree.status().code() == StatusCode::kNotFound) {
    const server::NewTree wanted{.name = name};
    tree = worker->Run(host(node).Create(op, wanted));
  }
  FARLEAF_CHECK(tree.ok(), tree.status());
  return *tree->index;
}

// ---- Regions

std::unique_ptr<RoutedNodes::Store> RoutedNodes::NewStore() {
  auto made = std::make_unique<Store>();
  auto opened = worker_->Run(LsmStore::Open(*worker_, {&made->storage, &epochs_, &clock_, 1},
                                            TinyStore(), LsmStore::IfMissing::kCreate));
  FARLEAF_CHECK(opened.ok(), opened.status());
  made->store = std::move(*opened);
  auto background = index::lsm::Background::Start(
      made->store.get(), [this]() -> Result<std::unique_ptr<dsm::Worker>> { return OpenWorker(); });
  FARLEAF_CHECK(background.ok(), background.status());
  made->background = std::move(*background);
  return made;
}

void RoutedNodes::Found(size_t node) {
  regions_.push_back({RegionId{++last_region_}, "", "", node, false, NewStore()});
  Publish();
  Open(regions_.front());
}

const RoutedNodes::Region& RoutedNodes::RegionOf(std::string_view key) const {
  const auto behind =
      std::upper_bound(regions_.begin(), regions_.end(), key,
                       [](std::string_view wanted, const Region& r) { return wanted < r.start; });
  return *std::prev(behind);
}

void RoutedNodes::Open(const Region& region) {
  Gate<ServedStore>& gate = nodes_[region.node]->gates[static_cast<uint32_t>(region.id)].store;
  while (!gate.idle()) std::this_thread::yield();
  gate.Open({{region.start, region.end}, region.store->store.get()});
}

void RoutedNodes::CloseAndWait(const Region& region) {
  Gate<ServedStore>& gate = nodes_[region.node]->gates[static_cast<uint32_t>(region.id)].store;
  gate.Close();
  while (!gate.idle()) std::this_thread::yield();
}

std::shared_ptr<index::lsm::CopyReader> RoutedNodes::OpenCopy(std::string_view key, size_t node,
                                                              Staleness staleness_ns) {
  const Region& region = RegionOf(key);
  LsmStore& store = *region.store->store;
  const index::lsm::Sequence last = store.last_sequence();
  index::lsm::StoreState state;
  do {
    store.FlushSoon();
    state = worker_->Run(store.State(*worker_));
  } while (state.flushed_through < last);
  auto reader = std::make_shared<index::lsm::CopyReader>(index::lsm::CopyReader::Deps{
      .storage = &region.store->storage, .wall = &clock_, .cache_bytes = 1 << 20});
  reader->Show(state);
  Gate<ServedCopy>& gate = nodes_[node]->gates[static_cast<uint32_t>(region.id)].copy;
  gate.Close();
  while (!gate.idle()) std::this_thread::yield();
  gate.Open({{region.start, region.end}, reader, std::move(staleness_ns)});
  return reader;
}

void RoutedNodes::CopyFrom(const std::string& key, Store& from, Store* to) {
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker_, counts};
  std::vector<index::KeyValue> rows;
  Status done = worker_->Run(from.store->Scan(op, {}, &rows));
  for (const index::KeyValue& row : rows) {
    if (std::string_view(row.key).substr(PrefixedIndex::kPrefixBytes) < key) continue;
    if (done.ok()) done = worker_->Run(to->store->BlindPut(op, row.key, row.value));
  }
  FARLEAF_CHECK(done.ok(), done);
}

bool RoutedNodes::Split(const std::string& key) {
  Region& left = RegionOf(key);
  if (left.start == key) return false;
  FARLEAF_CHECK(last_region_ + 1 < kRegionsMax, last_region_);
  CloseAndWait(left);
  Region right{RegionId{++last_region_}, key, left.end, left.node, left.deposed, NewStore()};
  CopyFrom(key, *left.store, right.store.get());
  left.end = key;
  const auto at = regions_.begin() + (&left - regions_.data());
  const auto added = regions_.insert(std::next(at), std::move(right));
  // Either may be first.
  const bool opens_first = view_ % 2 == 0;
  if (!opens_first) Publish();
  Open(*added);
  Open(*std::prev(added));
  if (opens_first) Publish();
  return true;
}

void RoutedNodes::Move(std::string_view key, size_t to) {
  Region& region = RegionOf(key);
  CloseAndWait(region);
  region.node = to;
  region.deposed = false;
  // Either may be first.
  const bool opens_first = view_ % 2 == 0;
  if (opens_first) Open(region);
  Publish();
  if (!opens_first) Open(region);
}

void RoutedNodes::CloseGate(std::string_view key) { CloseAndWait(RegionOf(key)); }

void RoutedNodes::OpenGate(std::string_view key) { Open(RegionOf(key)); }

void RoutedNodes::Depose(std::string_view key) {
  Region& region = RegionOf(key);
  CloseAndWait(region);
  region.deposed = true;
  Publish();
}

std::shared_ptr<const RouteTable> RoutedNodes::Table() const {
  auto table = std::make_shared<RouteTable>();
  table->view = view_;
  for (const Region& region : regions_) {
    Route route{region.id, region.start, region.end, server::membership::kNoNode, ""};
    if (!region.deposed) {
      route.primary = nodes_[region.node]->id;
      route.url = nodes_[region.node]->url;
    }
    table->routes.push_back(std::move(route));
  }
  return table;
}

void RoutedNodes::Publish() {
  ++view_;
  const auto table = Table();
  // Now one node is told first, now another.
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = *nodes_[(i + view_) % nodes_.size()];
    if (node.listens) node.set_table(table);
    std::this_thread::yield();
  }
}

void RoutedNodes::Listens(size_t node) {
  nodes_[node]->listens = true;
  nodes_[node]->set_table(Table());
}

}  // namespace farleaf::test
