// verb_bench: what a verb costs on a fabric: latency and rate of READ, WRITE, CAS or FETCH-ADD on one
// memory server of a pool, from one thread.
//
//   verb_bench --bootstrap URL --verb read --bytes 1024 --in-flight 32
//
// Exit codes: 0, 1 an operation failed or the pool is out of reach, 2 wrong flags, 130 interrupted.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "benchmark/micro/stop_watcher.h"
#include "benchmark/micro/verb_loop.h"
#include "benchmark/micro/verb_options.h"
#include "benchmark/micro/verb_report.h"
#include "benchmark/micro/verb_target.h"
#include "dsm/base/clock.h"
#include "server/shutdown.h"

namespace farleaf::micro {
namespace {

constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2, kExitInterrupted = 130;

int Fail(const Status& status) {
  std::cerr << "verb_bench: " << status << "\n";
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

VerbPlan PlanOf(const VerbOptions& options, dsm::GlobalAddress address) {
  return {.verb = options.verb,
          .bytes = options.bytes,
          .batch = options.batch,
          .in_flight = options.in_flight,
          .place = options.place,
          .idle = options.idle,
          .seed = options.seed,
          .address = address,
          .span_bytes = options.span_bytes};
}

/// The warm-up, then the measurement.
Status Measure(VerbLoop& loop, const VerbOptions& options, const Clock& clock, int interrupt_fd,
               VerbResult* result, uint64_t* operations_done) {
  {
    const StopWatcher watcher(interrupt_fd, -1);
    Histogram warmup;
    Status status = loop.Run(options.warmup, watcher.stop(), &warmup);
    *operations_done = warmup.count();
    if (!status.ok()) return status.WithContext("in the warm-up");
    result->interrupted = watcher.stop() && watcher.interrupted();
    if (result->interrupted) return Status::Ok();
  }
  const StopWatcher watcher(interrupt_fd,
                            options.seconds > 0 ? static_cast<int>(options.seconds * 1'000) : -1);
  const uint64_t operations = options.operations > 0 ? options.operations : UINT64_MAX;
  const uint64_t begin_ns = clock.NowNs(), begin_ticks = NowTicks();
  Status status = loop.Run(operations, watcher.stop(), &result->ticks);
  const uint64_t end_ns = clock.NowNs(), end_ticks = NowTicks();
  result->elapsed_ns = end_ns - begin_ns;
  result->ns_per_tick =
      static_cast<double>(end_ns - begin_ns) / static_cast<double>(end_ticks - begin_ticks);
  result->interrupted = watcher.stop() && watcher.interrupted();
  *operations_done += result->ticks.count();
  return status;
}

/// Every FETCH-ADD has added 1 to some word of a target that was zero.
Status CheckSum(VerbTarget& target, uint64_t verbs) {
  auto sum = target.SumWords();
  if (!sum.ok()) return sum.status();
  if (*sum == verbs) return Status::Ok();
  return Status::Corruption("the words of the target add up to " + std::to_string(*sum) +
                            " after " + std::to_string(verbs) + " FETCH-ADDs of 1");
}

Status MeasureIn(VerbTarget& target, const VerbOptions& options, const Clock& clock,
                 int interrupt_fd, VerbResult* result) {
  const VerbPlan plan = PlanOf(options, target.address());
  auto loop = options.loop == LoopKind::kTransport ? OpenTransportLoop(target.fabric(), plan)
                                                   : OpenWorkerLoop(target.pool(), plan);
  if (!loop.ok()) return loop.status();
  uint64_t operations_done = 0;
  FARLEAF_RETURN_IF_ERROR(Measure(**loop, options, clock, interrupt_fd, result, &operations_done));
  if (options.verb != dsm::VerbKind::kFetchAdd) return Status::Ok();
  return CheckSum(target, operations_done * options.batch);
}

int Run(const VerbOptions& options, std::ofstream* json, int interrupt_fd) {
  const MonotonicClock clock;
  auto target = VerbTarget::Open({.bootstrap = options.bootstrap,
                                  .servers_min = options.servers_min,
                                  .server = options.server,
                                  .span_bytes = options.span_bytes},
                                 &clock);
  if (!target.ok()) return Fail(target.status());
  VerbResult result;
  result.fabric = (*target)->fabric().name();
  PrintHead(std::cout);
  std::cout.flush();
  const Status measured = MeasureIn(**target, options, clock, interrupt_fd, &result);
  const Status closed =
      (*target)->Close(measured.code() == StatusCode::kUnknown ? VerbTarget::Memory::kKeep
                                                               : VerbTarget::Memory::kGiveBack);
  if (!measured.ok()) {
    Fail(measured);
    return kExitFailed;
  }
  PrintLine(options, result, std::cout);
  std::cout.flush();
  if (json->is_open()) {
    *json << ToJson(options, result).dump(2) << "\n";
    json->flush();
    if (!*json) return Fail(Status::IoError("--json " + options.json_path + " cannot be written"));
  }
  if (!closed.ok()) {
    Fail(closed.WithContext("giving the target back"));
    return kExitFailed;
  }
  return result.interrupted ? kExitInterrupted : kExitOk;
}

int Main(const std::vector<std::string>& arguments) {
  auto line = ParseVerbOptions(arguments);
  if (!line.ok()) {
    std::cerr << "verb_bench: " << line.status().message() << "\nTry verb_bench --help.\n";
    return kExitUsage;
  }
  if (line->outcome != server::ConfigOutcome::kRun) {
    std::cout << line->text;
    return kExitOk;
  }
  std::ofstream json;
  if (!line->options.json_path.empty()) {
    json.open(line->options.json_path);
    if (!json) {
      std::cerr << "verb_bench: --json " << line->options.json_path
                << ": cannot be opened for writing\n";
      return kExitUsage;
    }
  }
  // Before any thread: SIGINT and SIGTERM end the measurement early, with its result.
  auto shutdown = server::ShutdownSignal::Install();
  if (!shutdown.ok()) return Fail(shutdown.status());
  return Run(line->options, &json, (*shutdown)->fd());
}

}  // namespace
}  // namespace farleaf::micro

int main(int argc, char** argv) {
  return farleaf::micro::Main(std::vector<std::string>(argv + 1, argv + argc));
}
