#include "benchmark/ycsb/runner.h"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <latch>
#include <thread>

#include "benchmark/ycsb/share.h"
#include "benchmark/ycsb/simulation.h"
#include "dsm/base/check.h"

namespace farleaf::ycsb {

namespace {

// A store has settled when it was found quiet so many times in a row: one job may be about to start another.
constexpr int kQuietLooks = 10, kLookIntervalMs = 10;

std::string_view MixName(Mix mix) {
  return mix == Mix::kLoad ? "load" : mix == Mix::kRun ? "run" : "warm-up";
}

}  // namespace

struct Runner::Crew {
  Crew(const RunnerOptions& options, Target* target_in, const Clock* clock_in, PhaseState* state_in,
       std::vector<std::unique_ptr<OperationGenerator>> generators_in)
      : target(target_in),
        clock(clock_in),
        unix_clock(options.unix_clock),
        state(state_in),
        in_flight(options.configuration.in_flight),
        generators(std::move(generators_in)),
        ready(static_cast<ptrdiff_t>(generators.size())),
        running(generators.size()),
        statuses(generators.size()),
        end_ns(generators.size()) {
    done_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    FARLEAF_CHECK(done_fd >= 0, errno);
  }
  ~Crew() { ::close(done_fd); }

  void Work(size_t i) {
    auto session = target->OpenSession();
    if (!session.ok()) {
      statuses[i] = session.status();
      state->stop.store(true);
    }
    ready.count_down();
    go.wait();
    if (session.ok()) statuses[i] = (*session)->Run(*generators[i], in_flight);
    if (!statuses[i].ok()) state->stop.store(true);
    end_ns[i] = clock->NowNs();
    if (running.fetch_sub(1) == 1) {
      const uint64_t one = 1;
      FARLEAF_CHECK(::write(done_fd, &one, sizeof one) == sizeof one, errno);
    }
  }
  void Start() {
    for (size_t i = 0; i < generators.size(); ++i) threads.emplace_back([this, i] { Work(i); });
    ready.wait();
    start_ns = clock->NowNs();
    if (unix_clock) start_unix_ns = unix_clock->NowNs();
    start_cpu_ns = ProcessCpuNs();
    state->start_ns.store(start_ns);
    go.count_down();
  }
  uint64_t done() const {
    uint64_t sum = 0;
    for (const auto& generator : generators) sum += generator->done();
    return sum;
  }

  uint64_t longest_stall_ns() const {
    std::vector<const CompletionGaps*> gaps;
    for (const auto& generator : generators) gaps.push_back(&generator->gaps());
    return LongestCommonGap(gaps, {start_ns, *std::max_element(end_ns.begin(), end_ns.end())});
  }

  Target* target;
  const Clock* clock;
  const Clock* unix_clock;  // null: nobody asks for the time of day
  PhaseState* state;
  uint64_t in_flight;
  std::vector<std::unique_ptr<OperationGenerator>> generators;
  std::latch ready;
  std::latch go{1};
  std::atomic<size_t> running;
  std::vector<Status> statuses;  // element i: thread i's until joined
  std::vector<uint64_t> end_ns;  // likewise
  std::vector<std::jthread> threads;
  int done_fd = -1;
  uint64_t start_ns = 0, start_cpu_ns = 0, start_unix_ns = 0;
};

Runner::Runner(RunnerOptions options, Target* target, const Clock* clock)
    : options_(std::move(options)),
      workload_(options_.configuration.workload),
      target_(target),
      clock_(clock),
      codec_(workload_.key_layout, workload_.insert_order, workload_.zero_padding,
             workload_.value_bytes(), workload_.kv_mix),
      inserts_(workload_.record_count),
      run_{.options = workload_,
           .codec = codec_,
           .inserts = inserts_,
           .clock = target->simulation() ? target->simulation()->clock() : *clock} {}

Result<PhaseResult> Runner::Run(Phase phase) {
  if (phase == Phase::kLoad) return RunMix(Mix::kLoad, workload_.insert_count);
  const uint64_t warmup = options_.configuration.warmup;
  if (warmup > 0) {
    auto warmed = RunMix(Mix::kWarmup, warmup);
    if (!warmed.ok() || warmed->failed || warmed->interrupted) return warmed;
  }
  inserts_.ReclaimDropped();
  auto result = RunMix(Mix::kRun, workload_.operation_count);
  if (result.ok()) result->warmup_operations = warmup;
  return result;
}

std::vector<std::unique_ptr<OperationGenerator>> Runner::MakeGenerators(PhaseState* state, Mix mix,
                                                                        uint64_t operations) {
  const RunConfiguration& configuration = options_.configuration;
  const TraceSummary* trace =
      mix == Mix::kRun && configuration.trace ? &*configuration.trace : nullptr;
  if (mix == Mix::kRun && !trace &&
      workload_.request_distribution == RequestDistribution::kLatest) {
    // Summed once and copied by each thread.
    const uint64_t items = inserts_.end() - workload_.insert_start;
    if (!latest_) latest_.emplace(items);
    latest_->Grow(items);
  }
  std::vector<std::unique_ptr<OperationGenerator>> generators;
  for (uint64_t thread = 0; thread < configuration.threads; ++thread) {
    const uint64_t begin = ShareBegin(operations, thread, configuration.threads);
    const uint64_t end = ShareBegin(operations, thread + 1, configuration.threads);
    GeneratorOptions options;
    options.mix = mix;
    options.thread = thread;
    options.threads = configuration.threads;
    options.seed = configuration.seed;
    options.operations = trace ? trace->of_thread[thread] : end - begin;
    options.trace = trace;
    options.first_number = workload_.insert_start + begin;
    options.interval_ns = configuration.rate > 0 && mix != Mix::kWarmup
                              ? static_cast<double>(kNsPerSecond) / configuration.rate
                              : 0;
    options.series_interval_ns = mix != Mix::kWarmup ? configuration.series_interval_ns : 0;
    options.latest = latest_ ? &*latest_ : nullptr;
    generators.push_back(std::make_unique<OperationGenerator>(state, options));
  }
  return generators;
}

Result<PhaseResult> Runner::RunMix(Mix mix, uint64_t operations) {
  if (target_->simulation() != nullptr) return RunSimulated(mix, operations);
  PhaseState state{.run = run_};
  auto bytes_before = target_->PoolBytesUsed();
  if (!bytes_before.ok()) return bytes_before.status();
  Crew crew(options_, target_, clock_, &state, MakeGenerators(&state, mix, operations));
  ResetPeakResident();
  target_->BeginPhase();
  const auto traffic_before = ReadDeviceTraffic();
  crew.Start();
  PhaseResult result;
  result.start_unix_ns = crew.start_unix_ns;
  result.interrupted = Watch(crew, mix, operations);
  for (std::jthread& thread : crew.threads) thread.join();
  result.cpu_ns = ProcessCpuNs() - crew.start_cpu_ns;
  for (const Status& status : crew.statuses) FARLEAF_RETURN_IF_ERROR(status);

  result.phase = mix == Mix::kLoad ? Phase::kLoad : Phase::kRun;
  result.counts_fabric = target_->counts_fabric();
  result.elapsed_ns = *std::max_element(crew.end_ns.begin(), crew.end_ns.end()) - crew.start_ns;
  for (const auto& generator : crew.generators) {
    for (size_t i = 0; i < kOpKinds; ++i) result.kinds[i].Merge(generator->stats()[i]);
    result.unverified_values += generator->unverified();
  }
  result.series = TakeSeries(crew.generators, result.elapsed_ns);
  result.problems = state.problems.Copy();
  result.failed = state.failed.load();
  result.cache = target_->DescribeCache();
  result.longest_stall_ns = crew.longest_stall_ns();
  result.peak_resident_bytes = PeakResidentBytes();
  if (!target_->DataDirectory().empty() && mix != Mix::kWarmup) {
    result.store = TakeStoreUse(traffic_before);
    if (options_.configuration.settle_s > 0 && !result.interrupted) result.settling = Settle();
    result.live_user_bytes = CountLiveUserBytes(result);  // behind what CPU time is counted of
  }
  auto bytes_after = target_->PoolBytesUsed();
  if (!bytes_after.ok()) {
    // A server lost during the phase has been reported by its operations.
    if (!result.failed && result.errors() == 0) return bytes_after.status();
    return result;
  }
  result.pool_bytes_used = *bytes_after;
  result.pool_bytes_grown = *bytes_after - std::min(*bytes_before, *bytes_after);
  return result;
}

std::optional<TimeSeries> Runner::TakeSeries(
    std::span<const std::unique_ptr<OperationGenerator>> generators, uint64_t elapsed_ns) const {
  std::vector<IntervalRecorder*> recorders;
  for (const auto& generator : generators) {
    if (generator->intervals()) recorders.push_back(generator->intervals());
  }
  if (recorders.empty()) return std::nullopt;
  return MergeIntervals(recorders, options_.configuration.series_interval_ns, elapsed_ns);
}

StoreUse Runner::TakeStoreUse(const std::optional<DeviceTraffic>& before) const {
  StoreUse use;
  const auto now = ReadDeviceTraffic();
  if (now && before) use.device = *now - *before;
  use.directory_bytes = DirectoryBytes(target_->DataDirectory());
  use.figures = target_->DescribeStore();
  return use;
}

Settling Runner::Settle() const {
  const auto traffic_before = ReadDeviceTraffic();
  const uint64_t start_ns = clock_->NowNs(), start_cpu_ns = ProcessCpuNs();
  const auto limit_ns = static_cast<uint64_t>(options_.configuration.settle_s * 1e9);
  Settling settling;
  for (int quiet = 0; quiet < kQuietLooks && settling.elapsed_ns < limit_ns;) {
    pollfd interrupt = {options_.interrupt_fd, POLLIN, 0};  // one below 0 is not looked at
    if (::poll(&interrupt, 1, kLookIntervalMs) > 0) break;
    quiet = target_->Quiet() ? quiet + 1 : 0;
    settling.quiet = quiet == kQuietLooks;
    settling.elapsed_ns = clock_->NowNs() - start_ns;
  }
  settling.cpu_ns = ProcessCpuNs() - start_cpu_ns;
  settling.store = TakeStoreUse(traffic_before);
  return settling;
}

uint64_t Runner::CountLiveUserBytes(const PhaseResult& result) {
  if (!live_user_bytes_) {
    uint64_t bytes = 0;
    if (result.phase == Phase::kRun) {  // what another process has loaded
      std::string key;
      const uint64_t first = workload_.insert_start;
      for (uint64_t number = first; number < first + workload_.insert_count; ++number) {
        codec_.MakeKey(number, &key);
        bytes += key.size() + codec_.ValueBytes(key);
      }
    }
    live_user_bytes_ = bytes;
  }
  *live_user_bytes_ += result.kinds[static_cast<size_t>(OpKind::kInsert)].user_bytes_written;
  return *live_user_bytes_;
}

bool Runner::Watch(Crew& crew, Mix mix, uint64_t operations) {
  const double limit_s = mix == Mix::kRun ? static_cast<double>(workload_.execution_time_s_max) : 0;
  const double interval_s = options_.progress ? options_.status_interval_s : 0;
  auto elapsed_s = [&] { return static_cast<double>(clock_->NowNs() - crew.start_ns) * 1e-9; };
  double shown_s = 0, due_s = std::max(kQuietPhaseSeconds, interval_s);
  uint64_t shown_done = 0;
  bool interrupted = false;
  while (true) {
    double wait_s = 3600;
    if (interval_s > 0) wait_s = std::min(wait_s, due_s - elapsed_s());
    if (limit_s > 0 && !crew.state->stop.load()) wait_s = std::min(wait_s, limit_s - elapsed_s());
    // After an interruption its descriptor stays readable: watch the crew only.
    pollfd fds[] = {{crew.done_fd, POLLIN, 0}, {options_.interrupt_fd, POLLIN, 0}};
    const nfds_t watched = interrupted || options_.interrupt_fd < 0 ? 1 : 2;
    const int timeout_ms = static_cast<int>(std::max(wait_s, 0.0) * 1e3) + 1;
    FARLEAF_CHECK(::poll(fds, watched, timeout_ms) >= 0 || errno == EINTR, errno);
    if (fds[0].revents != 0) return interrupted;
    const double now_s = elapsed_s();
    if (watched == 2 && fds[1].revents != 0) {
      interrupted = true;
      crew.state->stop.store(true);
    }
    if (limit_s > 0 && now_s >= limit_s) crew.state->stop.store(true);
    if (interval_s <= 0 || now_s < due_s) continue;
    const uint64_t done = crew.done();
    ShowProgress(mix, done, operations, static_cast<double>(done - shown_done) / (now_s - shown_s),
                 now_s);
    shown_s = now_s;
    shown_done = done;
    due_s = now_s + interval_s;
  }
}

void Runner::ShowProgress(Mix mix, uint64_t done, uint64_t total, double rate, double elapsed_s) {
  const double left_s = done > 0 ? static_cast<double>(total - std::min(done, total)) * elapsed_s /
                                       static_cast<double>(done)
                                 : 0;
  fmt::print(*options_.progress, "ycsb: {} {:.0f} s: {} of {} operations ({:.1f} %), {:.0f} ops/s",
             MixName(mix), elapsed_s, done, total,
             100 * static_cast<double>(done) / static_cast<double>(std::max<uint64_t>(total, 1)),
             rate);
  if (done > 0) fmt::print(*options_.progress, ", {:.0f} s left", left_s);
  *options_.progress << std::endl;
}

}  // namespace farleaf::ycsb
