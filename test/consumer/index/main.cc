// A tree inside the application's own process, on memory of its own.
#include <iostream>

#include "dsm/pool.h"
#include "dsm/shm/local_fabric.h"
#include "index/blink/catalog.h"
#include "index/blink/tree.h"

using namespace farleaf;

int main() {
  const MonotonicClock clock;
  auto fabric = dsm::LocalFabric::Create({.servers = 2, .region_bytes = 16 << 20});
  if (!fabric.ok()) return 1;
  auto pool = dsm::Pool::Join(std::move(*fabric), dsm::PoolOptions(), &clock);
  if (!pool.ok()) return 1;
  bool right = true;
  {
    auto worker = (*pool)->OpenWorker();
    if (!worker.ok()) return 1;
    dsm::FabricCounts counts;
    dsm::OpContext op{**worker, counts};
    auto info = (*worker)->Run(index::CreateTree(op, **pool, "words", index::Geometry::Bytes()));
    if (!info.ok()) return 1;
    index::BlinkTree tree(pool->get(), *info, index::TreeOptions());
    auto put = (*worker)->Run(tree.Put(op, "key", "value"));
    std::string value;
    auto found = (*worker)->Run(tree.Get(op, "key", &value));
    right = put.ok() && found.ok() && *found && value == "value";
    std::cout << value << " in " << counts.round_trips << " round trips\n";
  }
  return right && (*pool)->Leave().ok() ? 0 : 1;
}
