// micro: what the pieces of a get cost on this machine, and what a get could cost at best.
//
//   micro [--keys=N] [--bootstrap=URL] [Google Benchmark's flags]
//   micro --operations [--keys=N] [--leaf-layout=parted|sorted|both] [--leaf-parts=N] [--bootstrap=URL] [--rounds=N]
//         [--batch=N] [--warmup=N] [--copy-mib=N] [--only=OPERATION] [--json=FILE] [--paced]
//         [--layout=bytes [--value-bytes=N] [--in-place=on|off]]
//
// The second form tells what operations of the tree cost, beside copies from random places
// (operation_costs.h); of byte strings, keys have 24 bytes. The first one:
//
// `bound` is the least that a get of a tree with cached separators has to do: search a sorted array
// of separators, copy the leaf's image from a random place, and check it. The pieces of it stand
// alone as well. Below them are gets of the same keys from the tree and from a map in local memory, the
// verbs of each fabric (of a pool's too, with --bootstrap), codecs, and pieces of the LSM engine. The table at the end puts pieces beside
// what the machine itself takes for the least of it (physical_bounds.h). A ratio is of two lines of one run.
#include <absl/container/btree_map.h>
#include <benchmark/benchmark.h>

#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmark/micro/codec_pieces.h"
#include "benchmark/micro/fabric_pieces.h"
#include "benchmark/micro/lsm_pieces.h"
#include "benchmark/micro/operation_costs.h"
#include "benchmark/micro/operation_report.h"
#include "benchmark/micro/physical_bounds.h"
#include "benchmark/micro/pieces.h"
#include "benchmark/micro/table_pieces.h"
#include "benchmark/micro/tree_under_test.h"
#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/crc32c.h"
#include "dsm/base/random.h"
#include "dsm/worker.h"

namespace farleaf::micro {
namespace {

constexpr uint64_t kKeysDefault = 10'000'000;

/// What all benchmarks of a process work on, made when first asked for: a filtered run makes no
/// more than it needs.
class Data {
 public:
  explicit Data(uint64_t keys) : keys_(keys) {}
  uint64_t keys() const { return keys_; }
  const Leaves& leaves() {
    if (!leaves_) leaves_.emplace(keys_);
    return *leaves_;
  }
  TreeUnderTest& tree() {
    if (!tree_) {
      tree_ = std::make_unique<TreeUnderTest>(TreeUnderTestOptions{.keys = keys_});
    }
    return *tree_;
  }

 private:
  uint64_t keys_;
  std::optional<Leaves> leaves_;
  std::unique_ptr<TreeUnderTest> tree_;
};

using Buffer = std::array<std::byte, kLeafBytes>;

void SearchSeparators(benchmark::State& state, Data* data) {
  const Leaves& leaves = data->leaves();
  Random random(kSeed);
  for (auto _ : state) benchmark::DoNotOptimize(leaves.Find(random.Next()));
  state.counters["separators"] = static_cast<double>(leaves.count());
}

void CopyRandomLeaf(benchmark::State& state, Data* data) {
  const Leaves& leaves = data->leaves();
  Random random(kSeed);
  alignas(64) Buffer buffer;
  for (auto _ : state) {
    const auto leaf = leaves.leaf(random.Below(leaves.count()));
    std::memcpy(buffer.data(), leaf.data(), kLeafBytes);
    benchmark::DoNotOptimize(buffer.data());
    benchmark::ClobberMemory();
  }
  state.counters["MiB"] = static_cast<double>(leaves.count() * kLeafBytes >> 20);
}

void ChecksumLeaf(benchmark::State& state, Data*) {
  alignas(64) Buffer buffer{};
  const std::span<const std::byte> image(buffer.data(), kLeafImageBytes);
  for (auto _ : state) {
    benchmark::DoNotOptimize(Crc32c(image));
    benchmark::ClobberMemory();
  }
}

void Bound(benchmark::State& state, Data* data) {
  const Leaves& leaves = data->leaves();
  Random random(kSeed);
  alignas(64) Buffer buffer;
  for (auto _ : state) {
    const uint64_t key = KeyOf(random.Below(leaves.keys()));
    const bool good = CopyAndCheck(leaves.leaf(leaves.Find(key)), buffer);
    FARLEAF_CHECK(good, key);
    benchmark::ClobberMemory();
  }
  state.counters["keys"] = static_cast<double>(leaves.keys());
}

dsm::Task<Status> GetFromTree(benchmark::State& state, TreeUnderTest& under_test,
                              dsm::FabricCounts& counts) {
  dsm::OpContext op{under_test.worker(), counts};
  Random random(kSeed);
  char key[8];
  std::string value;
  for (auto _ : state) {
    StoreBig64(key, KeyOf(random.Below(under_test.keys())));
    auto found = co_await under_test.tree().Get(op, {key, 8}, &value);
    if (!found.ok()) co_return found.status();
    FARLEAF_CHECK(*found);
    benchmark::DoNotOptimize(value.data());
  }
  co_return Status::Ok();
}

void TreeGet(benchmark::State& state, Data* data) {
  TreeUnderTest& under_test = data->tree();
  dsm::FabricCounts counts;
  const Status status = under_test.worker().Run(GetFromTree(state, under_test, counts));
  FARLEAF_CHECK(status.ok(), status);
  state.counters["keys"] = static_cast<double>(data->keys());
  state.counters["round_trips"] = benchmark::Counter(static_cast<double>(counts.round_trips),
                                                     benchmark::Counter::kAvgIterations);
}

void BtreeMapGet(benchmark::State& state, Data* data) {
  absl::btree_map<uint64_t, uint64_t> map;
  for (uint64_t i = 0; i < data->keys(); ++i) map.emplace(KeyOf(i), i);
  Random random(kSeed);
  for (auto _ : state) {
    const auto found = map.find(KeyOf(random.Below(data->keys())));
    FARLEAF_CHECK(found != map.end());
    benchmark::DoNotOptimize(found->second);
  }
  state.counters["keys"] = static_cast<double>(data->keys());
}

void RegisterAll(Data* data) {
  benchmark::RegisterBenchmark("search_separators", SearchSeparators, data);
  benchmark::RegisterBenchmark("copy_random_1KiB", CopyRandomLeaf, data);
  benchmark::RegisterBenchmark("crc32c_1016B", ChecksumLeaf, data);
  benchmark::RegisterBenchmark("bound", Bound, data);
  benchmark::RegisterBenchmark("tree_get", TreeGet, data);
  benchmark::RegisterBenchmark("btree_map_get", BtreeMapGet, data);
}

constexpr std::string_view kHelp =
    R"(micro: what pieces of an operation cost on this machine, beside the least that they can cost
      [--keys=N]                 keys of the trees and of what they are compared with (1000 to 1000000000)
      [--bootstrap=URL]          verbs and trees of this pool, too: file:PATH or memcached://HOST:PORT/CLUSTER
micro --operations: CPU time, allocations, round trips and bytes of a tree's operations, one at a time
      [--leaf-layout=parted|sorted|both [--leaf-parts=N]]
      [--layout=bytes [--value-bytes=N] [--in-place=on|off]]
      [--rounds=N] [--batch=N]   batches of each operation, operations of a batch
      [--warmup=N]               of each operation ahead of all rounds
      [--only=OPERATION] [--copy-mib=N] [--json=FILE]
      [--paced]                  a round for each line of standard input (scripts/compare_micro.py)
Google Benchmark's own, for the first form:
)";

/// What the command line asks for, besides Google Benchmark's flags.
struct Arguments {
  bool operations = false;
  bool as_text = true;  ///< no other --benchmark_format
  TreeUnderTestOptions tree{.keys = kKeysDefault};
  OperationCostOptions costs;
  std::vector<index::LeafLayout> leaf_layouts = {index::LeafLayout::kParted};
  std::string json;
  uint64_t copy_mib = 4096;
};

/// Takes our flags out of the arguments. Returns what is wrong with one, or nothing.
std::string TakeArguments(int* argc, char** argv, Arguments* arguments) {
  std::string error;
  std::string_view value;
  const auto names = [&](std::string_view argument, std::string_view flag) {
    if (!argument.starts_with(flag)) return false;
    value = argument.substr(flag.size());
    return true;
  };
  const auto take = [&](std::string_view flag, uint64_t min, uint64_t max, uint64_t* number) {
    const auto [end, outcome] = std::from_chars(value.begin(), value.end(), *number);
    if (outcome == std::errc() && end == value.end() && *number >= min && *number <= max) return;
    error = std::string(flag) + ": expected a number from " + std::to_string(min) + " to " +
            std::to_string(max);
  };
  int kept = 0;
  for (int i = 0; i < *argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help")
      std::cout << kHelp << std::flush;  // Google Benchmark adds its own, and ends
    if (argument == "--operations") {
      arguments->operations = true;
    } else if (names(argument, "--keys=")) {
      take("--keys", 1000, 1'000'000'000, &arguments->tree.keys);
    } else if (names(argument, "--rounds=")) {
      take("--rounds", 1, 1'000'000, &arguments->costs.rounds);
    } else if (names(argument, "--batch=")) {
      take("--batch", 20, 1'000'000, &arguments->costs.operations);
    } else if (names(argument, "--warmup=")) {
      take("--warmup", 0, 1'000'000'000, &arguments->costs.warmup);
    } else if (names(argument, "--leaf-parts=")) {
      take("--leaf-parts", index::kLeafPartsMin, index::kLeafPartsMax, &arguments->tree.leaf_parts);
    } else if (names(argument, "--value-bytes=")) {
      take("--value-bytes", 8, index::kValueBytesMax, &arguments->tree.value_bytes);
    } else if (argument == "--paced") {
      arguments->costs.paced = true;
    } else if (argument == "--layout=bytes") {
      arguments->tree.layout = index::Layout::kBytes;
    } else if (argument == "--in-place=off") {
      arguments->tree.in_place = index::InPlace::kOff;
    } else if (argument == "--in-place=on") {
      arguments->tree.in_place = index::InPlace::kOn;
    } else if (names(argument, "--copy-mib=")) {
      take("--copy-mib", 1, 1 << 20, &arguments->copy_mib);
    } else if (names(argument, "--only=")) {
      arguments->costs.only = value;
    } else if (names(argument, "--bootstrap=")) {
      arguments->tree.bootstrap = value;
    } else if (names(argument, "--json=")) {
      arguments->json = value;
    } else if (names(argument, "--leaf-layout=")) {
      if (value == "both") {
        arguments->leaf_layouts = {index::LeafLayout::kSorted, index::LeafLayout::kParted};
      } else if (value == "sorted") {
        arguments->leaf_layouts = {index::LeafLayout::kSorted};
      } else if (value != "parted") {
        error = "--leaf-layout: expected parted, sorted or both";
      }
    } else {
      if (names(argument, "--benchmark_format=")) arguments->as_text = value == "console";
      argv[kept++] = argv[i];
    }
  }
  *argc = kept;
  const bool parted = arguments->tree.layout == index::Layout::kFixed8 &&
                      arguments->leaf_layouts.back() == index::LeafLayout::kParted;
  if (error.empty() && arguments->tree.leaf_parts != 0 && !parted) {
    error = "--leaf-parts: of parted leaves; add --leaf-layout=parted, or leave it out";
  }
  arguments->costs.copy_bytes = arguments->copy_mib << 20;
  return error;
}

int MeasureAndReport(const Arguments& arguments) {
  std::vector<std::unique_ptr<TreeUnderTest>> trees;
  std::vector<TreeUnderTest*> measured;
  for (const index::LeafLayout leaf_layout : arguments.leaf_layouts) {
    TreeUnderTestOptions options = arguments.tree;
    options.leaf_layout = leaf_layout;
    trees.push_back(std::make_unique<TreeUnderTest>(options));
    measured.push_back(trees.back().get());
  }
  std::vector<std::vector<OperationCost>> costs = MeasureOperations(measured, arguments.costs);
  std::vector<TreeCosts> of_trees;
  for (size_t i = 0; i < trees.size(); ++i) {
    of_trees.push_back({.leaf_layout = trees[i]->leaf_layout(),
                        .load_ns_per_key = trees[i]->load_ns_per_key(),
                        .costs = std::move(costs[i])});
  }
  const OperationRun run{.keys = arguments.tree.keys,
                         .fabric = trees[0]->fabric(),
                         .key_bytes = trees[0]->key_bytes(),
                         .value_bytes = trees[0]->value_bytes(),
                         .rounds = arguments.costs.rounds,
                         .operations = arguments.costs.operations,
                         .copy_bytes = arguments.costs.copy_bytes};
  PrintCosts(run, of_trees, std::cout);
  if (arguments.json.empty()) return 0;
  std::ofstream file(arguments.json);
  file << ToJson(run, of_trees).dump(2) << '\n';
  file.flush();
  if (!file) std::cerr << "micro: cannot write " << arguments.json << '\n';
  return file ? 0 : 1;
}

}  // namespace
}  // namespace farleaf::micro

int main(int argc, char** argv) {
  farleaf::micro::Arguments arguments;
  const std::string error = farleaf::micro::TakeArguments(&argc, argv, &arguments);
  if (!error.empty()) {
    std::cerr << "micro: " << error << '\n';
    return 2;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  if (arguments.operations) return farleaf::micro::MeasureAndReport(arguments);
  farleaf::micro::Data data(arguments.tree.keys);
  farleaf::micro::RegisterPhysicalBounds();
  farleaf::micro::RegisterAll(&data);
  farleaf::micro::RegisterFabricPieces(arguments.tree.bootstrap);
  farleaf::micro::RegisterCodecPieces();
  farleaf::micro::RegisterLsmPieces();
  farleaf::micro::RegisterTableBenchmarks();
  farleaf::micro::BoundReporter reporter;
  benchmark::RunSpecifiedBenchmarks(arguments.as_text ? &reporter : nullptr);
  reporter.PrintBounds(std::cout);
  benchmark::Shutdown();
  return reporter.any_failed() ? 1 : 0;
}
