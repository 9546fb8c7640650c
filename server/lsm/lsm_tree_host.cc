#include "server/lsm/lsm_tree_host.h"

#include <algorithm>
#include <utility>

#include "server/lsm/catalog_entry.h"

namespace farleaf::server {

using dsm::OpContext;
using dsm::Task;
using index::KeyValue;
using index::PrefixedIndex;
using index::ScanRange;

namespace {

constexpr std::string_view kFormKey = "F", kForm = "farleaf trees 1";
constexpr std::string_view kLastNumberKey = "I";
constexpr char kNameSpace = 'N', kBehindNames = 'O';

std::string NameKey(std::string_view name) { return std::string(1, kNameSpace).append(name); }

}  // namespace

LsmTreeHost::LsmTreeHost(Deps deps, std::unique_ptr<dsm::Worker> observer)
    : deps_(std::move(deps)), catalog_(deps_.store, 0, {}), observer_(std::move(observer)) {}

Result<std::unique_ptr<LsmTreeHost>> LsmTreeHost::Load(Deps deps) {
  auto worker = deps.open_worker();
  if (!worker.ok()) return worker.status();
  std::unique_ptr<LsmTreeHost> host(new LsmTreeHost(std::move(deps), std::move(*worker)));
  dsm::FabricCounts counts;
  OpContext op{*host->observer_, counts};
  Status read = host->observer_->Run(host->ReadCatalog(op));
  if (!read.ok()) return read;
  return host;
}

Task<Status> LsmTreeHost::BeginCatalog(OpContext& op) {
  std::vector<KeyValue> rows;
  ScanRange any;
  any.limit = 1;
  Status scanned = co_await deps_.store->Scan(op, any, &rows);
  if (!scanned.ok()) co_return scanned;
  if (!rows.empty()) {
    co_return Status::InvalidArgument(
        "a store that no compute_server has made: give a directory of its own");
  }
  auto begun = co_await catalog_.Put(op, kFormKey, kForm);
  co_return begun.ok() ? Status::Ok() : begun.status();
}

Task<Status> LsmTreeHost::ReadCatalog(OpContext& op) {
  std::string form;
  auto there = co_await catalog_.Get(op, kFormKey, &form);
  if (!there.ok()) co_return there.status();
  if (!*there) {
    Status begun = co_await BeginCatalog(op);
    co_return begun;
  }
  if (form != kForm) {
    co_return Status::Unimplemented(
        "the store's trees have a form that this program does not know");
  }
  const std::string begin(1, kNameSpace), end(1, kBehindNames);
  ScanRange names{.start = begin, .end = end};
  std::vector<KeyValue> rows;
  Status scanned = co_await catalog_.Scan(op, names, &rows);
  if (!scanned.ok()) co_return scanned;
  for (const KeyValue& row : rows) {
    auto kept = Keep(std::string_view(row.key).substr(1), row.value);
    if (!kept.ok()) co_return kept.status();
  }
  std::string last_bytes;
  there = co_await catalog_.Get(op, kLastNumberKey, &last_bytes);
  if (!there.ok()) co_return there.status();
  Result<uint64_t> last = uint64_t{0};
  if (*there) last = ParseLastNumber(last_bytes);
  if (!last.ok()) co_return last.status();
  // Or the next tree that is made would get another one's number.
  std::lock_guard lock(mutex_);
  const bool behind = !trees_.empty() && trees_.rbegin()->first > *last;
  co_return behind
      ? Status::Corruption("the catalog has tree number " + std::to_string(trees_.rbegin()->first) +
                           ", and the last that was given is " + std::to_string(*last))
      : Status::Ok();
}

Result<HostedTree> LsmTreeHost::Keep(std::string_view name, std::string_view entry_bytes) {
  const auto entry = ParseCatalogEntry(name, entry_bytes);
  if (!entry.ok()) return entry.status();
  std::lock_guard lock(mutex_);
  Tree& tree = trees_[entry->number];
  if (!tree.index) {
    tree.info = InfoOf(*entry, name);
    tree.index = std::make_unique<PrefixedIndex>(deps_.store, entry->number, LimitsOf(*entry));
  } else if (tree.info.name != name) {
    return Status::Corruption("the catalog has number " + std::to_string(entry->number) +
                              " for two trees, \"" + tree.info.name + "\" and \"" +
                              std::string(name) + "\"");
  }
  return HostedTree{tree.info, tree.index.get()};
}

Task<Result<HostedTree>> LsmTreeHost::Open(OpContext& op, std::string_view name) {
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, tree] : trees_) {
      if (tree.info.name == name) co_return HostedTree{tree.info, tree.index.get()};
    }
  }
  // Another thread may have made it this moment.
  const std::string key = NameKey(name);
  std::string entry;
  auto there = co_await catalog_.Get(op, key, &entry);
  if (!there.ok()) co_return there.status();
  if (!*there) co_return Status::NotFound("tree \"" + std::string(name) + "\" does not exist");
  co_return Keep(name, entry);
}

Task<Result<uint16_t>> LsmTreeHost::TakeNumber(OpContext& op) {
  Result<uint64_t> last = uint64_t{0};
  const index::ModifyFunction next = [&last](std::optional<std::string_view> bytes,
                                             std::string* replacement) {
    last = bytes ? ParseLastNumber(*bytes) : uint64_t{0};
    if (!last.ok() || *last + 1 >= PrefixedIndex::kNumberEnd) return index::ModifyAction::kKeep;
    *replacement = EncodeLastNumber(*last + 1);
    return index::ModifyAction::kWrite;
  };
  auto taken = co_await catalog_.ReadModifyWrite(op, kLastNumberKey, next);
  if (!taken.ok()) co_return taken.status();
  if (!last.ok()) co_return last.status();
  if (*last + 1 >= PrefixedIndex::kNumberEnd) {
    co_return Status::ResourceExhausted(
        "this store has had 65534 trees, which is all there can be");
  }
  co_return static_cast<uint16_t>(*last + 1);
}

Task<Result<HostedTree>> LsmTreeHost::Create(OpContext& op, const NewTree& tree) {
  auto entry = NewCatalogEntry(tree.layout, tree.geometry.key_bytes_max);
  if (!entry.ok()) co_return entry.status();
  // A taken name costs no number.
  const Status exists = Status::AlreadyExists("tree \"" + tree.name + "\" exists");
  const auto opened = co_await Open(op, tree.name);
  if (opened.ok()) co_return exists;
  if (opened.status().code() != StatusCode::kNotFound) co_return opened.status();
  const auto number = co_await TakeNumber(op);
  if (!number.ok()) co_return number.status();
  entry->number = *number;
  const std::string key = NameKey(tree.name), bytes = EncodeCatalogEntry(*entry);
  const auto inserted = co_await catalog_.Insert(op, key, bytes);
  if (!inserted.ok()) co_return inserted.status();
  if (!*inserted) co_return exists;
  co_return Keep(tree.name, bytes);
}

Task<Result<std::vector<protocol::TreeInfo>>> LsmTreeHost::List(OpContext&) {
  std::vector<protocol::TreeInfo> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, tree] : trees_) all.push_back(tree.info);
  }
  std::ranges::sort(all, {}, &protocol::TreeInfo::name);
  co_return all;
}

HostedTree LsmTreeHost::Find(uint32_t id) {
  std::lock_guard lock(mutex_);
  const auto at = trees_.find(id);
  return at == trees_.end() ? HostedTree{} : HostedTree{at->second.info, at->second.index.get()};
}

Status LsmTreeHost::Health() const {
  std::lock_guard lock(observer_mutex_);
  dsm::FabricCounts counts;
  OpContext op{*observer_, counts};
  return observer_->Run(deps_.store->Upkeep(op));
}

}  // namespace farleaf::server
