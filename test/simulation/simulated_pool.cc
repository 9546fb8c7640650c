#include "test/simulation/simulated_pool.h"

#include <algorithm>

#include "dsm/base/check.h"
#include "index/blink/check.h"
#include "index/blink/recover_member.h"

namespace farleaf::simulation {

using dsm::OpContext;

namespace {
constexpr const char* kTreeName = "simulated";
/// Longer than any round trip where connections are whole, or dropped.
constexpr uint64_t kSettleMs = 4;
}  // namespace

SimulatedPool::SimulatedPool(const Options& options) : options_(options), world_(options.world) {
  compute_servers_.reserve(options.compute_servers);
  for (uint32_t i = 0; i < options.compute_servers; ++i) Join();
}

SimulatedPool::~SimulatedPool() {
  for (ComputeServer& compute_server : compute_servers_) Remove(compute_server);
}

void SimulatedPool::KeepRedoSlots(dsm::Pool& pool) {
  for (uint32_t i = 0; i < world_.servers(); ++i) {
    dsm::RedoSlots& slots = pool.redo_slots(static_cast<dsm::ServerId>(i));
    std::vector<uint64_t> words;
    while (const auto word = slots.Take(dsm::kLockClasses - 1)) words.push_back(*word);
    const size_t left = std::min(words.size(), dsm::kLockClasses - 1 + options_.redo_slots);
    for (size_t given = 0; given < left; ++given) slots.Give(words[given]);
  }
}

void SimulatedPool::Join() {
  auto fabric = world_.NewFabric();
  ComputeServer joined;
  joined.process = fabric->process();
  auto pool = dsm::Pool::Join(std::move(fabric),
                              {.seed = world_.random().Next(), .allocator = options_.allocator},
                              &world_.clock());
  FARLEAF_CHECK(pool.ok(), pool.status());
  joined.pool = std::move(*pool);
  if (options_.redo_slots != 0) KeepRedoSlots(*joined.pool);
  for (uint32_t i = 0; i < options_.workers; ++i) {
    auto worker = joined.pool->OpenWorker();
    FARLEAF_CHECK(worker.ok(), worker.status());
    joined.workers.push_back(std::move(*worker));
    world_.AddThread(joined.process, joined.workers.back().get());
  }
  dsm::Worker& worker = *joined.workers[0];
  dsm::FabricCounts counts;
  OpContext op{worker, counts};
  auto info = worker.Run(!std::exchange(has_tree_, true)
                             ? index::CreateTree(op, *joined.pool, kTreeName, options_.geometry)
                             : index::OpenTree(op, *joined.pool, kTreeName));
  FARLEAF_CHECK(info.ok(), info.status());
  index::TreeOptions tree_options = options_.tree;
  // Members that do not agree on the placement of leaves: what each remembers of them is often wrong.
  if (compute_servers_.size() % 4 == 2) tree_options.placement = index::Placement::kHashed;
  joined.tree = std::make_unique<index::BlinkTree>(joined.pool.get(), *info, tree_options);
  compute_servers_.push_back(std::move(joined));
}

void SimulatedPool::Crash(ComputeServer& compute_server) {
  world_.CrashProcess(compute_server.process);
  compute_server.crashed = true;
  // Its coroutines may be on the stack, blocked in a call: they are destroyed later.
}

std::string SimulatedPool::Recover(ComputeServer& by, dsm::MemberIdentity dead) {
  dsm::Worker& worker = *by.workers[0];
  dsm::FabricCounts counts;
  OpContext op{worker, counts};
  auto recovered = worker.Run(index::RecoverMember(op, *by.pool, dead, {}));
  if (!recovered.ok()) {
    return "recovery of " + dead.ToString() + ": " + recovered.status().ToString() + "\n";
  }
  recoveries_.claims_taken_over += recovered->claim_taken_over;
  return "";
}

namespace {
index::Task<void> RecoverBeside(dsm::Worker& worker, dsm::Pool& pool, dsm::MemberIdentity dead,
                                RecoveryTally* tally) {
  dsm::FabricCounts counts;
  OpContext op{worker, counts};
  index::RecoverMemberOptions options;
  options.settle_ms = kSettleMs;
  auto recovered = co_await index::RecoverMember(op, pool, dead, options);
  if (!recovered.ok()) {
    tally->failure += "recovery of " + dead.ToString() +
                      " beside the workload: " + recovered.status().ToString() + "\n";
    co_return;
  }
  tally->done_beside += recovered->was_member;
  tally->claims_taken_over += recovered->claim_taken_over;
}
}  // namespace

void SimulatedPool::BeginRecovery(ComputeServer& by, dsm::MemberIdentity dead) {
  dsm::Worker& worker = *by.workers.back();
  worker.Spawn(RecoverBeside(worker, *by.pool, dead, &recoveries_));
}

void SimulatedPool::DestroyCrashed(ComputeServer& compute_server) {
  compute_server.pool->Abandon();
  for (auto& worker : compute_server.workers) worker->Abandon();
  compute_server.workers.clear();
  compute_server.tree.reset();
  compute_server.pool.reset();
}

void SimulatedPool::Remove(ComputeServer& compute_server) {
  if (compute_server.crashed) return DestroyCrashed(compute_server);
  for (auto& worker : compute_server.workers) world_.RemoveThread(worker.get());
  compute_server.workers.clear();
  compute_server.tree.reset();
  // Of interest to LeaveAndCheck only: behind faults it may fail.
  [[maybe_unused]] Status left = compute_server.pool->Leave();
  compute_server.pool.reset();
}

std::string Describe(const index::CheckReport& report) {
  std::string text;
  for (const index::Finding& finding : report.findings.described()) {
    text += std::string(index::FindingKindName(finding.kind)) + ": " + finding.text + "\n";
  }
  return text;
}

Result<index::CheckReport> SimulatedPool::Check() {
  auto observer = dsm::Pool::Join(world_.NewFabric(), {.role = dsm::PoolOptions::Role::kObserver},
                                  &world_.clock());
  if (!observer.ok()) return observer.status().WithContext("an observer cannot join");
  auto worker = (*observer)->OpenWorker();
  if (!worker.ok()) return worker.status().WithContext("an observer cannot connect");
  dsm::FabricCounts counts;
  OpContext op{**worker, counts};
  return (*worker)->Run(index::CheckPool(op, **observer, {}));
}

std::string SimulatedPool::RecoverAtTheEnd(const std::vector<dsm::MemberIdentity>& members) {
  if (members.empty()) return "";
  std::string wrong;
  Join();
  ComputeServer& last = compute_servers_.back();
  for (const dsm::MemberIdentity& member : members) {
    for (uint32_t i = 0; i < world_.servers(); ++i) {
      world_.CutOffAt(static_cast<dsm::ServerId>(i), member);
    }
    wrong += Recover(last, member);
  }
  for (auto& worker : last.workers) world_.RemoveThread(worker.get());
  last.workers.clear();
  last.tree.reset();
  if (Status left = last.pool->Leave(); !left.ok()) {
    wrong += "who recovered the others cannot leave: " + left.ToString() + "\n";
  }
  compute_servers_.clear();
  return wrong;
}

std::string SimulatedPool::LeaveAndCheck(uint64_t* left_in_disorder) {
  std::string wrong;
  std::vector<dsm::MemberIdentity> in_disorder;
  for (ComputeServer& compute_server : compute_servers_) {
    if (compute_server.crashed) {
      DestroyCrashed(compute_server);
      continue;
    }
    for (auto& worker : compute_server.workers) world_.RemoveThread(worker.get());
    compute_server.workers.clear();
    compute_server.tree.reset();
    const dsm::MemberIdentity member = compute_server.pool->self();
    if (Status left = compute_server.pool->Leave(); left.ok()) continue;
    in_disorder.push_back(member);
  }
  compute_servers_.clear();
  if (left_in_disorder != nullptr) *left_in_disorder = in_disorder.size();
  wrong += RecoverAtTheEnd(in_disorder);
  auto report = Check();
  if (!report.ok()) return wrong + report.status().ToString();
  wrong += Describe(*report);
  for (const index::ServerReport& server : report->servers) {
    const auto demand_none = [&](uint64_t count, const char* what) {
      if (count == 0) return;
      wrong += "memory server " + std::to_string(server.layout.server) + ": " +
               std::to_string(count) + " " + what + "\n";
    };
    demand_none(server.chunks_of_the_gone, "chunks are held by compute servers that have left");
    demand_none(server.free_pages_of_the_gone,
                "free pages are held by compute servers that have left");
    demand_none(server.unlisted_free_pages, "free pages are nobody's, and in no list");
    demand_none(server.skipped_pages, "pages were carved and never used");
  }
  return wrong;
}

}  // namespace farleaf::simulation
