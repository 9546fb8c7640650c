// PoolPages: a tree's pages as they lie in the memory of a LocalFabric, to look at and to damage.
//
// Thread rule: one thread, while nothing runs on the pool.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/page_class.h"
#include "dsm/region_layout.h"
#include "dsm/shm/local_fabric.h"
#include "index/blink/catalog.h"
#include "index/blink/node.h"
#include "index/blink/search_cache.h"

namespace farleaf::index {

class PoolPages {
 public:
  PoolPages(dsm::LocalFabric* fabric, const TreeInfo& info) : fabric_(fabric), info_(info) {}

  std::span<std::byte> Bytes(GlobalAddress address, size_t length) {
    return fabric_->region_bytes(address.server()).subspan(address.offset(), length);
  }
  uint64_t Word(GlobalAddress address) { return LoadLittle<uint64_t>(Bytes(address, 8).data()); }
  void SetWord(GlobalAddress address, uint64_t word) {
    StoreLittle(Bytes(address, 8).data(), word);
  }
  Node At(GlobalAddress address) {
    return Node(info_.geometry, Bytes(address, ImageBytes(address)));
  }
  GlobalAddress LockOf(GlobalAddress address) { return address + ImageBytes(address); }
  RootWord Root() {
    return RootWord::Decode(Word({dsm::kCatalogServer, info_.root_word_offset()}));
  }
  /// The nodes of a level, from the left.
  std::vector<GlobalAddress> Level(farleaf::index::Level level) {
    RootWord root = Root();
    GlobalAddress address = root.address;
    for (farleaf::index::Level at = root.level; at > level; --at) address = At(address).Child(0);
    std::vector<GlobalAddress> nodes;
    for (; !address.is_null(); address = At(address).right()) nodes.push_back(address);
    return nodes;
  }
  GlobalAddress LeafOf(std::string_view key) {
    for (GlobalAddress leaf : Level(0)) {
      if (At(leaf).Covers(key)) return leaf;
    }
    return {};
  }
  /// Lets `edit` change a node and seals it under its old version.
  template <typename Edit>
  void Change(GlobalAddress address, Edit edit) {
    Node node = At(address);
    edit(node);
    node.Seal(node.version());
  }

 private:
  /// By the level that stands in the page.
  uint32_t ImageBytes(GlobalAddress address) {
    return info_.geometry.image_bytes(
        internal::PageLevel(Bytes(address, sizeof(internal::PageHeader)).data()));
  }

  dsm::LocalFabric* fabric_;
  TreeInfo info_;
};

}  // namespace farleaf::index
