// Whatever bytes the catalog of an LSM store's trees has: an entry is taken, and encodes to the same bytes again, or is refused as
// damaged; and a store with such a catalog is refused, or its trees are there, apart from one another, also behind one more.
//
// The first byte chooses: 0, an entry; 1, the last number; else rows of a catalog: { bytes of the key(1) key bytes of the value(1)
// value }. Inputs to start from: corpus/lsm_catalog.
#include <set>
#include <string>

#include "dsm/base/check.h"
#include "dsm/null_transport.h"
#include "server/lsm/catalog_entry.h"
#include "server/lsm/lsm_tree_host.h"
#include "test/fuzz/corpus.h"
#include "test/fuzz/fuzz_target.h"
#include "test/support/lsm_host.h"

namespace farleaf::test {
namespace {

using index::PrefixedIndex;
using server::LsmTreeHost;
enum class Parser : uint8_t { kEntry, kLastNumber, kRows };
constexpr uint8_t kParsers = 3;

void CheckEntry(const server::CatalogEntry& entry) {
  FARLEAF_CHECK(entry.number > 0 && entry.number < PrefixedIndex::kNumberEnd, entry.number);
  FARLEAF_CHECK(entry.key_bytes_max > 0 && entry.key_bytes_max <= PrefixedIndex::kKeyBytesMax,
                entry.key_bytes_max);
}

void ParseAsEntry(std::string_view bytes) {
  const auto entry = server::ParseCatalogEntry("tree", bytes);
  if (!entry.ok()) {
    FARLEAF_CHECK(entry.status().code() == StatusCode::kCorruption, entry.status());
    return;
  }
  CheckEntry(*entry);
  FARLEAF_CHECK(server::EncodeCatalogEntry(*entry) == bytes, bytes.size());
}

void ParseAsLastNumber(std::string_view bytes) {
  const auto number = server::ParseLastNumber(bytes);
  FARLEAF_CHECK(!number.ok() || server::EncodeLastNumber(*number) == bytes, bytes.size());
}

/// Of a store in memory, for which nothing runs in the background.
class Catalog {
 public:
  Catalog() {
    using index::lsm::LsmStore;
    auto store = worker_.Run(LsmStore::Open(worker_, {&storage_, &epochs_, &clock_, 1},
                                            LsmHost::SmallStore(), LsmStore::IfMissing::kCreate));
    FARLEAF_CHECK(store.ok(), store.status());
    store_ = std::move(*store);
  }
  ~Catalog() { store_->Abandon(); }

  void Put(std::string_view key, std::string_view value) {
    PrefixedIndex catalog(store_.get(), 0, {});
    const auto put = worker_.Run(catalog.Put(op_, key, value));
    FARLEAF_CHECK(put.ok() || put.status().code() == StatusCode::kInvalidArgument, put.status());
  }
  Result<std::unique_ptr<LsmTreeHost>> Load() {
    return LsmTreeHost::Load(
        {store_.get(), &storage_, "memory", [this]() -> Result<std::unique_ptr<dsm::Worker>> {
           return std::make_unique<dsm::Worker>(Parts(++workers_));
         }});
  }
  std::vector<server::protocol::TreeInfo> List(LsmTreeHost& host) {
    auto trees = worker_.Run(host.List(op_));
    FARLEAF_CHECK(trees.ok(), trees.status());
    return std::move(*trees);
  }
  Status Create(LsmTreeHost& host, const std::string& name) {
    return worker_.Run(host.Create(op_, {.name = name})).status();
  }

 private:
  dsm::Worker::Deps Parts(uint64_t number) {
    return {std::make_unique<dsm::NullTransport>(), &epochs_, &clock_, number, number};
  }

  MonotonicClock clock_;
  dsm::EpochDomain epochs_;
  MemoryStorage storage_;
  uint64_t workers_ = 1;
  dsm::Worker worker_{Parts(1)};
  dsm::FabricCounts counts_;
  dsm::OpContext op_{worker_, counts_};
  std::unique_ptr<index::lsm::LsmStore> store_;
};

/// A new tree behind those that are there, which stay.
void MakeOneMore(Catalog& catalog, LsmTreeHost& host,
                 std::vector<server::protocol::TreeInfo> before) {
  const Status created = catalog.Create(host, "one more");
  const StatusCode code = created.code();
  FARLEAF_CHECK(
      created.ok() || code == StatusCode::kAlreadyExists || code == StatusCode::kResourceExhausted,
      created);
  auto again = catalog.Load();
  FARLEAF_CHECK(again.ok(), again.status());
  FARLEAF_CHECK(catalog.List(**again).size() == before.size() + (created.ok() ? 1 : 0));
}

void LoadAsRows(std::string_view bytes) {
  Catalog catalog;
  while (!bytes.empty()) {
    std::string_view row[2];
    for (std::string_view& part : row) {
      const size_t length = bytes.empty() ? 0 : static_cast<uint8_t>(bytes[0]);
      bytes.remove_prefix(std::min<size_t>(bytes.size(), 1));
      part = bytes.substr(0, length);
      bytes.remove_prefix(part.size());
    }
    catalog.Put(row[0], row[1]);
  }
  auto host = catalog.Load();
  if (!host.ok()) {
    const StatusCode code = host.status().code();
    FARLEAF_CHECK(code == StatusCode::kCorruption || code == StatusCode::kInvalidArgument ||
                      code == StatusCode::kUnimplemented,
                  host.status());
    return;
  }
  const auto trees = catalog.List(**host);
  std::set<uint32_t> ids;
  std::set<std::string> names;
  for (const server::protocol::TreeInfo& tree : trees) {
    FARLEAF_CHECK(ids.insert(tree.id).second && names.insert(tree.name).second, tree.id);
    FARLEAF_CHECK((*host)->Find(tree.id).info == tree, tree.id);
  }
  MakeOneMore(catalog, **host, trees);
}

}  // namespace
}  // namespace farleaf::test

std::vector<std::string> FuzzSeeds() { return farleaf::test::ReadCorpus("lsm_catalog"); }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace farleaf::test;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (static_cast<Parser>(data[0] % kParsers)) {
    case Parser::kEntry:
      ParseAsEntry(bytes);
      break;
    case Parser::kLastNumber:
      ParseAsLastNumber(bytes);
      break;
    case Parser::kRows:
      LoadAsRows(bytes);
      break;
  }
  return 0;
}
