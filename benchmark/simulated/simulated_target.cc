#include "benchmark/simulated/simulated_target.h"

#include <algorithm>
#include <utility>

#include "dsm/base/check.h"

namespace farleaf::ycsb {

namespace {
constexpr uint64_t kEventsBetween = 4'096;
constexpr uint64_t kOperationsBetween = 1'024;
// Threads begin one after another within so long, or all would ask the first server at once.
constexpr uint64_t kStartNsMax = 4'000;
}  // namespace

/// A source whose operations cost CPU time from their beginning on.
class SimulatedTarget::PricedSource final : public OperationSource {
 public:
  PricedSource(SimulatedTarget* target, OperationSource* below,
               const std::function<void()>* now_and_then)
      : target_(target), below_(below), now_and_then_(now_and_then) {}

  bool Next(Operation* operation) override {
    // In free mode a thread's operations run without an event between them.
    if (now_and_then_ != nullptr && ++taken_ % kOperationsBetween == 0) (*now_and_then_)();
    return below_->Next(operation);
  }
  bool Blocked(const Operation& operation) const override { return below_->Blocked(operation); }
  bool Begin(Operation* operation) override {
    if (!below_->Begin(operation)) return false;
    target_->world_->Charge(target_->operation_ns(operation->kind));
    return true;
  }
  bool Modify(const Operation& operation, std::string_view current,
              std::string* replacement) override {
    return below_->Modify(operation, current, replacement);
  }
  void Done(const Operation& operation) override { below_->Done(operation); }
  bool stopped() const override { return below_->stopped(); }
  /// Who waits awake lets no virtual time pass, and who sleeps wakes up on time.
  uint64_t awake_before_due_ns() const override { return 0; }

 private:
  SimulatedTarget* target_;
  OperationSource* below_;
  const std::function<void()>* now_and_then_;
  uint64_t taken_ = 0;
};

SimulatedTarget::SimulatedTarget(std::unique_ptr<dsm::ModelWorld> world, std::string model_file,
                                 uint64_t seed)
    : world_(std::move(world)),
      model_file_(std::move(model_file)),
      random_(Mix64(seed)),
      described_(world_->network().nics()) {}

Result<std::unique_ptr<Session>> SimulatedTarget::OpenSession() {
  return Status::Unimplemented("a simulated target runs all its threads together");
}

Status SimulatedTarget::OpenThreads(size_t count) {
  if (threads_.size() == count) return Status::Ok();
  CloseWorkers();
  const uint64_t compute_servers = world_->model().compute_servers;
  for (size_t i = 0; i < count; ++i) {
    const auto compute_server = static_cast<uint32_t>(i % compute_servers);
    auto worker = OpenWorker(compute_server);
    if (!worker.ok()) return worker.status();
    world_->AddThread(worker->get());
    threads_.push_back({compute_server, std::move(*worker)});
  }
  return Status::Ok();
}

void SimulatedTarget::CloseWorkers() {
  world_->RemoveThreads();
  threads_.clear();
}

Status SimulatedTarget::Run(std::span<OperationSource* const> sources, uint64_t in_flight,
                            Pace pace, const std::function<void()>& now_and_then) {
  FARLEAF_RETURN_IF_ERROR(OpenThreads(sources.size()));
  std::vector<PricedSource> priced;
  for (OperationSource* source : sources) {
    priced.emplace_back(this, source, pace == Pace::kFree ? &now_and_then : nullptr);
  }
  const auto spawn = [&](size_t i) {
    for (uint64_t n = 0; n < in_flight; ++n) {
      threads_[i].worker->Spawn(RunOn(*threads_[i].worker, threads_[i].compute_server, priced[i]));
    }
  };
  if (pace == Pace::kFree) {
    for (size_t i = 0; i < sources.size(); ++i) {
      spawn(i);
      threads_[i].worker->RunUntilIdle();
    }
    return Status::Ok();
  }
  FARLEAF_RETURN_IF_ERROR(WarmCaches());
  world_->StartTiming();
  for (size_t i = 0; i < sources.size(); ++i) {
    world_->StartThread(static_cast<uint32_t>(i), random_.Below(kStartNsMax),
                        [&spawn, i] { spawn(i); });
  }
  auto end = dsm::ModelWorld::RunEnd::kEvents;
  while (end == dsm::ModelWorld::RunEnd::kEvents) {
    now_and_then();
    end = world_->Run(kEventsBetween);
  }
  FARLEAF_CHECK(end == dsm::ModelWorld::RunEnd::kIdle, "operations wait for nothing");
  world_->StopTiming();
  return Status::Ok();
}

nlohmann::ordered_json SimulatedTarget::Describe() {
  nlohmann::ordered_json json;
  json["program"] = program();
  json["model_file"] = model_file_;
  const dsm::CostModel& model = world_->model();
  auto& parameters = json["model"] = nlohmann::ordered_json::object();
  for (const dsm::CostModelField& field : dsm::CostModelFields()) {
    auto& parameter = parameters[std::string(field.key)];
    if (field.integer != nullptr) {
      parameter = model.*field.integer;
    } else {
      parameter = model.*field.number;
    }
  }
  const double elapsed_ps = static_cast<double>(world_->now_ps() - described_ps_);
  const auto share = [&](uint64_t busy_ps, double of) {
    return elapsed_ps > 0 ? static_cast<double>(busy_ps) / (elapsed_ps * of) : 0;
  };
  // Of the busiest NIC: it is the one that ends the growth.
  double requests = 0, serving = 0, out = 0, in = 0;
  for (size_t nic = 0; nic < world_->network().nics(); ++nic) {
    const dsm::ModelNetwork::Busy& busy = world_->network().busy(nic);
    dsm::ModelNetwork::Busy& before = described_[nic];
    requests = std::max(requests, share(busy.requests_ps - before.requests_ps, 1));
    serving = std::max(serving, share(busy.serving_ps - before.serving_ps, 1));
    out = std::max(out, share(busy.out_ps - before.out_ps, 1));
    in = std::max(in, share(busy.in_ps - before.in_ps, 1));
    before = busy;
  }
  const auto cores =
      static_cast<double>(std::min<uint64_t>(threads_.size(), model.compute_servers * model.cores));
  json["utilisation"] = {{"nic_requests", requests},
                         {"nic_serving", serving},
                         {"link_out", out},
                         {"link_in", in},
                         {"cores", share(world_->cpu_ps() - described_cpu_ps_, cores)}};
  described_ps_ = world_->now_ps();
  described_cpu_ps_ = world_->cpu_ps();
  return json;
}

}  // namespace farleaf::ycsb
