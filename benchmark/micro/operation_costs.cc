#include "benchmark/micro/operation_costs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iostream>
#include <memory>
#include <string_view>
#include <utility>

#include "benchmark/micro/allocation_count.h"
#include "benchmark/micro/pieces.h"
#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/random.h"
#include "dsm/shm/memory_region.h"

namespace farleaf::micro {

namespace {

constexpr uint64_t kCostSeed = 1;
constexpr uint64_t kNeverLoaded = uint64_t{1} << 40;  // numbers of keys that are in no tree
constexpr uint64_t kScanRows = 100, kOperationsPerScan = 20;
constexpr size_t kCopyBytes = 1024, kSmallCopyBytes = 128;
/// What is asked for is asked for where a copy of 1 KiB takes this long.
constexpr double kCopyNs = 150;

enum class Kind : uint8_t {
  kCopy,
  kChainedCopy,
  kSmallCopy,
  kGet,
  kGetAbsent,
  kUpdate,
  kPut,
  kInsert,
  kDelete,
  kScan
};
struct Measured {
  Kind kind;
  const char* name;
  double bound_ns;
};
constexpr std::array kMeasured = {Measured{Kind::kCopy, "copy_1024", 0},
                                  Measured{Kind::kChainedCopy, "copy_1024_chained", 0},
                                  Measured{Kind::kSmallCopy, "copy_128", 0},
                                  Measured{Kind::kGet, "get", 450},
                                  Measured{Kind::kGetAbsent, "get_absent", 450},
                                  Measured{Kind::kUpdate, "update", 650},
                                  Measured{Kind::kPut, "put", 650},
                                  Measured{Kind::kInsert, "insert", 800},
                                  Measured{Kind::kDelete, "delete", 800},
                                  Measured{Kind::kScan, "scan_100", 2500}};

bool IsCopy(Kind kind) { return kind <= Kind::kSmallCopy; }

/// Which keys the tree holds: those of numbers [first, last), in no order of theirs.
struct Present {
  uint64_t first = 0, last = 0;
};

struct BatchCost {
  double cpu_ns = 0, wall_ns = 0, allocations = 0, round_trips = 0, bytes = 0;
};

/// A region of memory of the pool's kind, and copies from random places of it.
class Copies {
 public:
  Copies(uint64_t region_bytes, uint64_t count) : places_(count) {
    auto region = dsm::MemoryRegion::Create({.bytes = region_bytes});
    FARLEAF_CHECK(region.ok(), region.status());
    region_ = std::make_unique<dsm::MemoryRegion>(std::move(*region));
    // Pages that were never written would all be the kernel's one page of zeros.
    for (size_t at = 0; at < region_->bytes().size(); at += 4096) {
      region_->bytes()[at] = std::byte{1};
    }
  }
  BatchCost Run(Kind kind) {
    for (uint64_t& place : places_) {
      place = random_.Below(region_->bytes().size() / kCopyBytes - 1) * kCopyBytes;
    }
    const uint64_t wall_ns = clock_.NowNs(), cpu_ns = ThreadCpuNs();
    Copy(kind);
    const uint64_t cpu_end_ns = ThreadCpuNs(), wall_end_ns = clock_.NowNs();
    const auto count = static_cast<double>(places_.size());
    return {.cpu_ns = static_cast<double>(cpu_end_ns - cpu_ns) / count,
            .wall_ns = static_cast<double>(wall_end_ns - wall_ns) / count};
  }

 private:
  void Copy(Kind kind) {
    const std::byte* from = region_->bytes().data();
    const size_t bytes = kind == Kind::kSmallCopy ? kSmallCopyBytes : kCopyBytes;
    alignas(64) std::byte to[kCopyBytes];
    uint64_t chain = 0;  // always 0, but only the copy tells
    for (const uint64_t place : places_) {
      std::memcpy(to, from + place + chain, bytes);
      asm volatile("" ::"r"(to) : "memory");
      if (kind == Kind::kChainedCopy) chain = LoadLittle<uint64_t>(to + bytes - 8);
    }
  }

  const MonotonicClock clock_;
  Random random_{kCostSeed};
  std::unique_ptr<dsm::MemoryRegion> region_;
  std::vector<uint64_t> places_;
};

/// Batches of operations on one tree.
class Operations {
 public:
  Operations(TreeUnderTest& under_test, uint64_t count)
      : under_test_(under_test),
        tree_(under_test.tree()),
        worker_(under_test.worker()),
        present_{0, under_test.keys()},
        count_(count),
        keys_(count * under_test.key_bytes()),
        new_value_(under_test.value_bytes(), '7') {}
  BatchCost Run(Kind kind) {
    const uint64_t count = kind == Kind::kScan ? count_ / kOperationsPerScan : count_;
    for (uint64_t i = 0; i < count; ++i) under_test_.FillKey(NumberFor(kind), KeyAt(i));
    dsm::FabricCounts counts;
    const uint64_t allocated = AllocationCount(), wall_ns = clock_.NowNs(), cpu_ns = ThreadCpuNs();
    const Status status = worker_.Run(Operate(kind, count, counts));
    FARLEAF_CHECK(status.ok(), status);
    const uint64_t cpu_end_ns = ThreadCpuNs(), wall_end_ns = clock_.NowNs();
    const auto each = [&](uint64_t sum) {
      return static_cast<double>(sum) / static_cast<double>(count);
    };
    return {each(cpu_end_ns - cpu_ns), each(wall_end_ns - wall_ns),
            each(AllocationCount() - allocated), each(counts.round_trips),
            each(counts.bytes_read + counts.bytes_written)};
  }

 private:
  std::span<char> KeyAt(uint64_t i) {
    const size_t bytes = under_test_.key_bytes();
    return std::span(keys_).subspan(i * bytes, bytes);
  }

  uint64_t NumberFor(Kind kind) {
    switch (kind) {
      case Kind::kInsert:
        return present_.last++;
      case Kind::kDelete:
        return present_.first++;
      case Kind::kGetAbsent:
        return kNeverLoaded + random_.Below(kNeverLoaded);
      default:
        return present_.first + random_.Below(present_.last - present_.first);
    }
  }

  dsm::Task<Status> Operate(Kind kind, uint64_t count, dsm::FabricCounts& counts) {
    dsm::OpContext op{worker_, counts};
    const std::string_view value(new_value_);
    for (uint64_t i = 0; i < count; ++i) {
      const std::string_view key(KeyAt(i).data(), under_test_.key_bytes());
      bool as_expected = true;
      if (kind == Kind::kGet || kind == Kind::kGetAbsent) {
        auto found = co_await tree_.Get(op, key, &value_);
        if (!found.ok()) co_return found.status();
        as_expected = *found == (kind == Kind::kGet);
      } else if (kind == Kind::kUpdate) {
        auto existed = co_await tree_.Update(op, key, value);
        if (!existed.ok()) co_return existed.status();
        as_expected = *existed;
      } else if (kind == Kind::kPut) {
        auto fresh = co_await tree_.Put(op, key, value);
        if (!fresh.ok()) co_return fresh.status();
        as_expected = !*fresh;
      } else if (kind == Kind::kInsert) {
        auto inserted = co_await tree_.Insert(op, key, value);
        if (!inserted.ok()) co_return inserted.status();
        as_expected = *inserted;
      } else if (kind == Kind::kDelete) {
        auto existed = co_await tree_.Delete(op, key);
        if (!existed.ok()) co_return existed.status();
        as_expected = *existed;
      } else {
        Status status = co_await tree_.Scan(op, {.start = key, .limit = kScanRows}, &rows_);
        if (!status.ok()) co_return status;
        as_expected = !rows_.empty();
      }
      FARLEAF_CHECK(as_expected, static_cast<int>(kind), i);
    }
    co_return Status::Ok();
  }

  const MonotonicClock clock_;
  TreeUnderTest& under_test_;
  index::BlinkTree& tree_;
  dsm::Worker& worker_;
  Present present_;
  Random random_{kCostSeed};
  uint64_t count_;
  std::vector<char> keys_;
  std::string value_, new_value_;
  std::vector<index::KeyValue> rows_;
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

OperationCost CostOf(const Measured& measured, const std::vector<BatchCost>& batches,
                     const std::vector<BatchCost>& copies) {
  OperationCost cost{.name = measured.name, .copies_bound = measured.bound_ns / kCopyNs};
  std::vector<double> cpu, wall, ratio;
  for (size_t i = 0; i < batches.size(); ++i) {
    cpu.push_back(batches[i].cpu_ns);
    wall.push_back(batches[i].wall_ns);
    ratio.push_back(batches[i].cpu_ns / copies[i].cpu_ns);
    cost.allocations += batches[i].allocations / static_cast<double>(batches.size());
    cost.round_trips += batches[i].round_trips / static_cast<double>(batches.size());
    cost.bytes += batches[i].bytes / static_cast<double>(batches.size());
  }
  cost.cpu_ns_min = *std::min_element(cpu.begin(), cpu.end());
  cost.cpu_ns = Median(std::move(cpu));
  cost.wall_ns = Median(std::move(wall));
  cost.copies = Median(std::move(ratio));
  return cost;
}

/// Whether there is another round, with what has been told of the one before. `only`: what is measured in it.
bool BeginRound(const OperationCostOptions& options, uint64_t round, std::string* only) {
  if (!options.paced) return round <= options.rounds;
  std::cout << std::endl;
  return static_cast<bool>(std::getline(std::cin, *only));
}

}  // namespace

std::vector<std::vector<OperationCost>> MeasureOperations(std::span<TreeUnderTest* const> trees,
                                                          const OperationCostOptions& options) {
  Copies copies(options.copy_bytes, options.operations);
  std::vector<Operations> operations;
  for (TreeUnderTest* const tree : trees) operations.emplace_back(*tree, options.operations);
  std::array<std::vector<BatchCost>, kMeasured.size()> copied;
  std::vector<std::array<std::vector<BatchCost>, kMeasured.size()>> operated(trees.size());
  for (uint64_t done = 0; done < options.warmup; done += options.operations) {
    for (const Measured& measured : kMeasured) {
      if (IsCopy(measured.kind)) continue;
      for (Operations& of_tree : operations) of_tree.Run(measured.kind);
    }
  }
  // The first round only warms up.
  const auto tell = [&options](const Measured& measured, const BatchCost& batch) {
    if (options.paced) std::cout << measured.name << ' ' << batch.cpu_ns << ' ';
  };
  std::string only = options.only;
  for (uint64_t round = 0; BeginRound(options, round, &only); ++round) {
    for (size_t i = 0; i < kMeasured.size(); ++i) {
      const Measured& measured = kMeasured[i];
      if (IsCopy(measured.kind)) {
        const BatchCost batch = copies.Run(measured.kind);
        tell(measured, batch);
        if (round > 0) copied[i].push_back(batch);
      } else if (only.empty() || only == measured.name) {
        for (size_t tree = 0; tree < trees.size(); ++tree) {
          const BatchCost batch = operations[tree].Run(measured.kind);
          tell(measured, batch);
          if (round > 0) operated[tree][i].push_back(batch);
        }
      }
    }
  }
  std::vector<std::vector<OperationCost>> costs(trees.size());
  for (size_t tree = 0; tree < trees.size(); ++tree) {
    for (size_t i = 0; i < kMeasured.size(); ++i) {
      const std::vector<BatchCost>& batches =
          IsCopy(kMeasured[i].kind) ? copied[i] : operated[tree][i];
      if (!batches.empty()) costs[tree].push_back(CostOf(kMeasured[i], batches, copied[0]));
    }
  }
  return costs;
}

}  // namespace farleaf::micro
