#include "test/model/stress_clients.h"

#include <cstdlib>

#include "dsm/base/random.h"
#include "index/blink/check.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {

namespace {

constexpr size_t kCounters = 6;

/// A few keys among the others that everyone increments.
std::string CounterKey(const Geometry& geometry, size_t counter) {
  if (geometry.layout == Layout::kFixed8) return Fixed((counter * 9 + 1) << 40 | 1);
  return "1000" + std::string(20, 'p') + std::to_string(100 + counter) + "#";
}

Task<void> WriteOne(StressClient* client, OpContext* op, size_t key, bool insert) {
  StressRun& run = *client->run;
  const std::string name = run.model.Key(key);
  const bool was_present = run.model.IsPresent(key);
  const uint64_t write = run.model.BeginWrite(key, insert);
  bool answer = false;
  Status status;
  if (insert) {
    const std::string value = run.model.Value(write);
    auto is_new = co_await client->tree->Put(*op, name, value);
    status = is_new.status();
    if (is_new.ok()) answer = !*is_new;
  } else {
    auto existed = co_await client->tree->Delete(*op, name);
    status = existed.status();
    if (existed.ok()) answer = *existed;
  }
  if (status.ok() || !client->MayFailWith(status)) {
    run.model.EndWrite(key);
  } else {
    run.model.CancelWrite(key);
    co_return;
  }
  if (!status.ok()) {
    run.Fail("write of key " + std::to_string(key) + ": " + status.ToString());
  } else if (answer != was_present) {
    run.Fail("write " + std::to_string(write) + " of key " + std::to_string(key) + " found it " +
             (answer ? "present" : "absent"));
  }
}

Task<void> ReadOne(StressClient* client, OpContext* op, size_t key) {
  StressRun& run = *client->run;
  const std::string name = run.model.Key(key);
  const auto begun = run.model.BeginRead(key);
  std::string value;
  auto found = co_await client->tree->Get(*op, name, &value);
  if (!found.ok() && client->MayFailWith(found.status())) co_return;
  if (!found.ok()) {
    run.Fail("get of key " + std::to_string(key) + ": " + found.status().ToString());
    co_return;
  }
  const auto seen = *found ? std::optional<std::string_view>(value) : std::nullopt;
  const std::string wrong = run.model.EndRead(key, begun, seen);
  if (!wrong.empty()) run.Fail(wrong);
}

Task<void> ScanSome(StressClient* client, OpContext* op, size_t low, size_t high, bool forward) {
  StressRun& run = *client->run;
  const std::string start = run.model.Key(low), end = run.model.Key(high);
  std::vector<SingleWriterModel::Seen> begun;
  for (size_t key = low; key < high; ++key) begun.push_back(run.model.BeginRead(key));
  ScanRange range;
  range.start = start;
  range.end = end;
  range.direction = forward ? ScanDirection::kForward : ScanDirection::kReverse;
  std::vector<KeyValue> rows;
  Status status = co_await client->tree->Scan(*op, range, &rows);
  if (!status.ok() && client->MayFailWith(status)) co_return;
  if (!status.ok()) {
    run.Fail("scan: " + status.ToString());
    co_return;
  }
  const std::string wrong = run.model.EndScan(low, high, begun, rows, range.direction);
  if (!wrong.empty()) run.Fail(wrong);
}

ModifyAction Increment(std::optional<std::string_view> current, std::string* replacement) {
  const uint64_t count = current ? LoadBig64(current->data()) : 0;
  *replacement = Fixed(count + 1);
  return ModifyAction::kWrite;
}

Task<void> IncrementOne(StressClient* client, OpContext* op, size_t counter) {
  const std::string key = CounterKey(client->run->geometry, counter);
  const ModifyFunction increment = Increment;
  auto result = co_await client->tree->ReadModifyWrite(*op, key, increment);
  if (!result.ok() && client->MayFailWith(result.status())) co_return;
  if (!result.ok()) client->run->Fail("increment: " + result.status().ToString());
  client->run->increments.fetch_add(1);
}

}  // namespace

Task<void> RunStressClient(StressClient client) {
  StressRun& run = *client.run;
  Random random(client.seed);
  dsm::FabricCounts counts;
  OpContext op{*client.worker, counts};
  const size_t keys = run.model.keys(), own = keys / client.clients;
  for (uint64_t i = 0; i < client.operations && !run.failed.load(); ++i) {
    const bool time_matters = run.stop_ns != UINT64_MAX && run.operations >= run.operations_min;
    if (time_matters && client.worker->clock().NowNs() >= run.stop_ns) break;
    const uint64_t phase = run.operations.fetch_add(1) / (keys * 6) % 2;
    const uint64_t dice = random.Below(100);
    if (client.deadline_ns > 0) {
      op.deadline_ns = client.worker->clock().NowNs() + 1 + random.Below(2 * client.deadline_ns);
    }
    if (dice < 60 && own > 0) {
      const size_t key = random.Below(own) * client.clients + client.number;
      co_await WriteOne(&client, &op, key, random.Below(100) < (phase == 0 ? 85 : 12));
    } else if (dice < 85) {
      co_await ReadOne(&client, &op, random.Below(keys));
    } else if (dice < 90) {
      const size_t low = random.Below(keys - 1);
      const size_t high = low + 1 + random.Below(keys - low - 1);
      co_await ScanSome(&client, &op, low, high, random.OneIn(2));
    } else {
      co_await IncrementOne(&client, &op, random.Below(kCounters));
    }
  }
}

Task<void> VerifyStressRun(StressRun* run, BlinkTree* tree, dsm::Worker* worker, dsm::Pool* pool) {
  dsm::FabricCounts counts;
  OpContext op{*worker, counts};
  StressClient client{run, tree, worker, 0, 1, 0, 0};
  for (size_t key = 0; key < run->model.keys(); ++key) co_await ReadOne(&client, &op, key);
  const bool directions[] = {true, false};
  for (bool forward : directions) {
    co_await ScanSome(&client, &op, 0, run->model.keys() - 1, forward);
  }
  uint64_t sum = 0;
  for (size_t counter = 0; counter < kCounters; ++counter) {
    const std::string key = CounterKey(run->geometry, counter);
    std::string value;
    auto found = co_await tree->Get(op, key, &value);
    if (!found.ok()) run->Fail(found.status().ToString());
    if (found.ok() && *found) sum += LoadBig64(value.data());
  }
  if (sum != run->increments.load()) {
    run->Fail("counters add up to " + std::to_string(sum) + " after " +
              std::to_string(run->increments.load()) + " increments");
  }
  auto report = co_await CheckPool(op, *pool, {});
  if (!report.ok()) {
    run->Fail(report.status().ToString());
    co_return;
  }
  for (const Finding& finding : report->findings.described()) {
    // A page whose first WRITE failed is given up, for its state is unknown.
    if (run->pages_given_up && finding.kind != FindingKind::kSeparator &&
        finding.kind != FindingKind::kChain) {
      continue;
    }
    run->Fail(std::string(FindingKindName(finding.kind)) + " " + finding.text);
  }
}

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace farleaf::index
