#include "test/simulation/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "dsm/base/bytes.h"

namespace farleaf::simulation {

namespace {

using index::Geometry;
using index::OpContext;
using test::RecordingClient;

/// Small numbers as often as large ones.
uint64_t DrawMagnitude(Range range, Random& random) {
  const uint64_t low = std::max<uint64_t>(range.low, 1);
  if (range.high <= low) return range.high;
  const int steps = std::bit_width(range.high / low);
  const uint64_t drawn = low << random.Below(static_cast<uint64_t>(steps));
  return std::min(range.high, drawn + random.Below(drawn));
}

Geometry DrawGeometry(const SetupPlan& plan, bool fixed8, Random& random) {
  const auto leaf_bytes = static_cast<uint32_t>(plan.leaf_bytes.Draw(random) / 64 * 64);
  uint32_t node_bytes = leaf_bytes;
  if (plan.node_bytes.high != 0) {
    node_bytes = static_cast<uint32_t>(plan.node_bytes.Draw(random) / 64 * 64);
  }
  if (fixed8 && plan.leaf_parts.high != 0) {
    return Geometry::Parted(static_cast<uint32_t>(plan.leaf_parts.Draw(random)), node_bytes);
  }
  if (fixed8) return Geometry::Fixed8(leaf_bytes, node_bytes);
  const uint32_t smaller = std::min(leaf_bytes, node_bytes);
  const uint32_t inline_bytes = std::max<uint32_t>(24, smaller / 12);
  return {index::Layout::kBytes, leaf_bytes, node_bytes, (smaller - 72 - 2 * inline_bytes) / 3,
          inline_bytes};
}

void DrawPool(const SetupPlan& setup, bool fixed8, Random& random, SimulatedPool::Options* pool) {
  pool->geometry = DrawGeometry(setup, fixed8, random);
  const bool no_cache =
      setup.cache == CacheChoice::kNone || (setup.cache == CacheChoice::kAny && random.OneIn(8));
  pool->tree.cache = no_cache ? index::CacheMode::kNone : index::CacheMode::kSearchLayer;
  pool->tree.hop_threshold = static_cast<uint32_t>(setup.hop_threshold.Draw(random));
  if (setup.cache_bytes.high != 0) pool->tree.cache_bytes = setup.cache_bytes.Draw(random);
  pool->tree.merge_below = static_cast<double>(setup.merge_below_percent.Draw(random)) / 100;
  pool->tree.merge_up_to = random.OneIn(2) ? 0.75 : 0.9;
  pool->allocator.grace_ms = 0;  // pages are reused at once: nothing may rely on the grace period
  pool->allocator.local_free_pages_max =
      static_cast<uint32_t>(DrawMagnitude(setup.free_pages_max, random));
  pool->compute_servers = static_cast<uint32_t>(setup.compute_servers.Draw(random));
  pool->workers = static_cast<uint32_t>(setup.workers.Draw(random));
  pool->world.servers = static_cast<uint32_t>(setup.memory_servers.Draw(random));
  // A compute server begins chunks of its own for redo records and for each page class: some 2 MiB of small ones.
  pool->world.region_bytes = std::max<uint64_t>(
      setup.region_kib << 10, pool->compute_servers * (uint64_t{2} << 20) / pool->world.servers);
  pool->world.seed = random.Next();
  // From none to room for all, a set or two being the most usual. Not drawn: all else stays as it was.
  constexpr uint64_t kHintBytes[] = {0, 128, 128, 256, 256, 2'048, 16'384};
  pool->tree.value_hint_bytes = kHintBytes[Mix64(pool->world.seed) % std::size(kHintBytes)];
  // A leaf's list takes some 300 bytes.
  constexpr uint64_t kListBytes[] = {0, 512, 1'024, 4'096, 65'536, 1'048'576};
  pool->tree.value_list_bytes = kListBytes[Mix64(pool->world.seed + 1) % std::size(kListBytes)];
  if (setup.redo_slots.high != 0) pool->redo_slots = setup.redo_slots.Draw(random);
  setup.without.TurnOff(&pool->tree);
}

/// Never the same twice: whoever reads it knows who wrote it.
std::string UniqueValue(Client& client, uint64_t number) {
  std::string value = client.name + std::to_string(number);
  const Shape& shape = *client.shape;
  value.resize(shape.fixed8
                   ? 8
                   : std::max<uint64_t>(value.size(),
                                        DrawMagnitude(shape.workload.value_bytes, client.random)),
               '.');
  return value;
}

uint64_t ChooseKey(Client& client) {
  const Shape& shape = *client.shape;
  const WorkloadPlan& workload = shape.workload;
  if (workload.choice == KeyChoice::kHot && client.random.Below(100) < workload.hot_percent) {
    return client.random.Below(std::min(workload.hot_keys, shape.keys)) * shape.keys /
           std::min(workload.hot_keys, shape.keys);
  }
  return shape.first_key + client.random.Below(std::max<uint64_t>(1, shape.keys - shape.first_key));
}

Act ChooseAct(Client& client) {
  uint64_t sum = 0;
  for (const uint64_t weight : client.shape->workload.weights) sum += weight;
  uint64_t dice = client.random.Below(sum);
  size_t act = 0;
  while (dice >= client.shape->workload.weights[act]) {
    dice -= client.shape->workload.weights[act++];
  }
  return static_cast<Act>(act);
}

bool Writes(Act act) { return act >= Act::kInsert && act <= Act::kModify; }

/// The next act, and on which key.
std::pair<Act, uint64_t> NextStep(Client& client, uint64_t number) {
  Shape& shape = *client.shape;
  Act act = ChooseAct(client);
  const bool growing = shape.phase == 0 || number / shape.phase % 2 == 0;
  if (shape.phase > 0 && Writes(act)) act = growing ? Act::kInsert : Act::kDelete;
  if (shape.workload.choice == KeyChoice::kWindow) {
    if (act == Act::kInsert) return {act, shape.keys++};
    if (act == Act::kDelete && shape.first_key < shape.keys) return {act, shape.first_key++};
  }
  return {act, ChooseKey(client)};
}

test::ScanRecord RandomScan(Client& client) {
  test::ScanRecord scan;
  const Shape& shape = *client.shape;
  if (!client.random.OneIn(4)) scan.start = KeyOf(shape, ChooseKey(client));
  if (!client.random.OneIn(4)) scan.end = KeyOf(shape, ChooseKey(client));
  if (client.random.OneIn(2)) scan.limit = 1 + client.random.Below(20);
  if (client.random.OneIn(2)) scan.direction = index::ScanDirection::kReverse;
  return scan;
}

index::Task<Status> RunStep(OpContext& op, Client& client, Act act, std::string key,
                            uint64_t number) {
  const std::string value = UniqueValue(client, number);
  RecordingClient& recorder = client.recorder;
  Status status;
  switch (act) {
    case Act::kScan:
      status = co_await recorder.Scan(op, RandomScan(client));
      break;
    case Act::kGet:
      status = co_await recorder.Get(op, key);
      break;
    case Act::kMultiGet: {
      std::vector<std::string> keys{key, KeyOf(*client.shape, ChooseKey(client))};
      if (keys[0] == keys[1]) keys.pop_back();
      status = co_await recorder.MultiGet(op, std::move(keys));
      break;
    }
    case Act::kInsert:
      status = co_await recorder.Insert(op, key, value);
      break;
    case Act::kPut:
      status = co_await recorder.Put(op, key, value);
      break;
    case Act::kUpdate:
      status = co_await recorder.Update(op, key, value);
      break;
    case Act::kDelete:
      status = co_await recorder.Delete(op, key);
      break;
    case Act::kModify:
      if (client.shape->fixed8) {  // values of 8 bytes cannot be appended to
        status = co_await recorder.DeleteIf(op, key, value);
      } else {
        const auto change = client.random.OneIn(2) ? RecordingClient::Change::kAppend
                                                   : RecordingClient::Change::kAppendOrDelete;
        status = co_await recorder.Modify(op, key, value, change);
      }
      break;
  }
  co_return status;
}

void Tell(const Client& client, std::string_view what, const std::string& key,
          const Status& status) {
  if (!client.world->trace().wants_text()) return;
  client.world->Say(fmt::format("process {} client {}: {} {} {}", client.process, client.name, what,
                                test::Printable(std::string_view(key)),
                                status.ok() ? "ok" : status.ToString()));
}

}  // namespace

Shape::Shape(const RunPlan& plan, Random& random) : workload(plan.workload) {
  const SetupPlan& setup = plan.setup;
  fixed8 = setup.layout == LayoutChoice::kFixed8 ||
           (setup.layout == LayoutChoice::kAny && random.OneIn(2));
  DrawPool(setup, fixed8, random, &pool);
  clients = setup.clients.Draw(random);
  const uint64_t all_clients = pool.compute_servers * pool.workers * clients;
  operations = workload.operations.Draw(random) / all_clients + 1;
  keys = DrawMagnitude(workload.keys, random);
  preload = workload.preload.Draw(random);
  if (workload.choice == KeyChoice::kWindow) keys = preload;
  phase = random.OneIn(2) ? workload.phase.high : workload.phase.Draw(random);
  if (workload.phase.low == 0 && random.OneIn(2)) phase = 0;
  uneven = pool.geometry.leaf_layout == index::LeafLayout::kParted && random.OneIn(2);
}

std::string KeyOf(const Shape& shape, uint64_t number) {
  std::string key(8, '\0');
  StoreBig64(key.data(), number * 3 + (shape.uneven ? number / 24 << 40 : 0));
  if (shape.fixed8) return key;
  key = std::to_string(number % 7) + "/" + std::to_string(number) + "/";
  const Range& bytes = shape.workload.key_bytes;
  const uint64_t length = bytes.low + Mix64(number) % (bytes.high - bytes.low + 1);
  const uint64_t longest = shape.pool.geometry.key_bytes_max;
  key.resize(std::min(longest, std::max<uint64_t>(length, key.size())), 'k');
  return key;
}

index::Task<void> Preload(dsm::Worker& worker, Client& client) {
  dsm::FabricCounts counts;
  OpContext op{worker, counts};
  for (uint64_t number = 0; number < client.shape->preload; ++number) {
    std::string value = UniqueValue(client, number);
    Status stored = co_await client.recorder.Put(op, KeyOf(*client.shape, number), value);
    if (!stored.ok()) client.failure += "preload: " + stored.ToString() + "\n";
  }
}

index::Task<void> RunClient(dsm::Worker& worker, Client& client) {
  dsm::FabricCounts counts;
  for (uint64_t i = 0; i < client.shape->operations; ++i) {
    OpContext op{worker, counts};
    const uint64_t begun_ns = worker.clock().NowNs();
    if (client.deadline_ns > 0) op.deadline_ns = begun_ns + client.deadline_ns;
    const auto [act, number] = NextStep(client, i);
    const std::string key = KeyOf(*client.shape, number);
    Tell(client, kActNames[static_cast<size_t>(act)], key, Status::Ok());
    Status status = co_await RunStep(op, client, act, key, i);
    Tell(client, "answer", key, status);
    client.longest_ns = std::max(client.longest_ns, worker.clock().NowNs() - begun_ns);
    client.expired += status.code() == StatusCode::kDeadlineExceeded;
    if (status.ok()) continue;
    if (!client.may_fail) {
      client.failure += status.ToString();
      co_return;
    }
    ++client.failed;
  }
}

index::Task<void> WriteEverything(dsm::Worker& worker, Client& client, uint64_t give_up_ns) {
  constexpr uint64_t kWritesMax = 300, kRetryNs = 10 * kNsPerMs;
  dsm::FabricCounts counts;
  const uint64_t step = client.shape->keys / kWritesMax + 1;
  uint64_t writes = 0;
  for (uint64_t number = 0; number < client.shape->keys; number += step) {
    const std::string key = KeyOf(*client.shape, number);
    Status put = Status::Unavailable("not tried");
    while (!put.ok()) {
      OpContext op{worker, counts};
      const uint64_t now_ns = worker.clock().NowNs();
      if (client.deadline_ns > 0) op.deadline_ns = now_ns + client.deadline_ns;
      std::string value = UniqueValue(client, writes++);
      put = co_await client.recorder.Put(op, key, std::move(value));
      Tell(client, "put beside idle members", key, put);
      if (put.ok()) continue;
      if (worker.clock().NowNs() >= give_up_ns) {
        client.failure += "a put beside idle members: " + put.ToString() + "\n";
        co_return;
      }
      co_await worker.Sleep(kRetryNs);  // it may have failed at once
    }
  }
}

index::Task<void> ReadEverything(dsm::Worker& worker, Client& client) {
  dsm::FabricCounts counts;
  OpContext op{worker, counts};
  co_await worker.Sleep(10 * kNsPerSecond);
  const auto set_deadline = [&] {
    if (client.deadline_ns > 0) op.deadline_ns = worker.clock().NowNs() + client.deadline_ns;
  };
  for (uint64_t key = 0; key < client.shape->keys; ++key) {
    set_deadline();
    Status got = co_await client.recorder.Get(op, KeyOf(*client.shape, key));
    if (!got.ok() && !client.may_fail) {
      client.failure += "a get at the end: " + got.ToString() + "\n";
    }
  }
  set_deadline();
  Status scanned = co_await client.recorder.Scan(op, test::ScanRecord());
  if (!scanned.ok() && !client.may_fail) {
    client.failure += "the scan at the end: " + scanned.ToString() + "\n";
  }
}

}  // namespace farleaf::simulation
