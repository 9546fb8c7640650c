#include "test/simulation/run_file.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <span>
#include <sstream>

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace farleaf::simulation {

namespace {

/// Takes the keys of one table, one after the other; the first that is wrong is what Finish tells.
class TableReader {
 public:
  TableReader(const std::string& file, const toml::table& table, std::string section)
      : file_(file), table_(table), section_(std::move(section)) {}

  void Number(const char* key, Range allowed, uint64_t* out) {
    const toml::node* node = Take(key);
    if (node == nullptr) return;
    if (!IsIn(*node, allowed)) return Refuse(*node, key, "a number from " + Text(allowed));
    *out = Value(*node);
  }
  /// A number, or [low, high].
  void Numbers(const char* key, Range allowed, Range* out) {
    const toml::node* node = Take(key);
    if (node == nullptr) return;
    if (IsIn(*node, allowed)) {
      out->low = out->high = Value(*node);
      return;
    }
    const toml::array* pair = node->as_array();
    const bool fits = pair != nullptr && pair->size() == 2 && IsIn(*pair->get(0), allowed) &&
                      IsIn(*pair->get(1), allowed) && Value(*pair->get(0)) <= Value(*pair->get(1));
    if (!fits) {
      return Refuse(*node, key,
                    "a number from " + Text(allowed) + ", or two as in [low, high], within it");
    }
    *out = {Value(*pair->get(0)), Value(*pair->get(1))};
  }
  template <typename Enum>
  void Choice(const char* key, std::span<const std::string_view> names, Enum* out) {
    const toml::node* node = Take(key);
    if (node == nullptr) return;
    const auto text = node->value<std::string_view>();
    const auto at = std::find(names.begin(), names.end(), text.value_or(""));
    if (at != names.end()) {
      *out = static_cast<Enum>(at - names.begin());
      return;
    }
    std::string allowed;
    for (const std::string_view name : names) {
      allowed += (allowed.empty() ? "\"" : ", \"") + std::string(name) + "\"";
    }
    Refuse(*node, key, "one of " + allowed);
  }
  void String(const char* key, std::string* out) {
    const toml::node* node = Take(key);
    if (node == nullptr) return;
    if (!node->is_string()) return Refuse(*node, key, "a string");
    *out = node->as_string()->get();
  }
  void List(const char* key, std::vector<uint64_t>* out) {
    const toml::node* node = Take(key);
    if (node == nullptr) return;
    const toml::array* list = node->as_array();
    const Range allowed{1, INT64_MAX};
    bool fits = list != nullptr;
    for (size_t i = 0; fits && i < list->size(); ++i) {
      fits = IsIn(*list->get(i), allowed);
      if (fits) out->push_back(Value(*list->get(i)));
    }
    if (!fits) Refuse(*node, key, "a list of numbers from " + Text(allowed));
  }
  void Faults(const char* key, FaultSet* out) {
    const toml::node* node = Take(key);
    if (node == nullptr) return;
    const auto set = ParseFaultSet(node->value<std::string_view>().value_or(""));
    if (!set.ok()) return Refuse(*node, key, AllowedFaults());
    *out = *set;
  }
  void Options(const char* key, test::OptionSet* out) {
    const toml::node* node = Take(key);
    if (node == nullptr) return;
    const auto set = test::ParseOptionSet(node->value<std::string_view>().value_or(""));
    if (!set.ok()) return Refuse(*node, key, test::AllowedOptions());
    *out = *set;
  }
  const toml::table* Table(const char* key) {
    const toml::node* node = Take(key);
    if (node == nullptr) return nullptr;
    if (!node->is_table()) Refuse(*node, key, "a table, [" + Path(key) + "]");
    return node->as_table();
  }
  const toml::array* Tables(const char* key) {
    const toml::node* node = Take(key);
    if (node == nullptr) return nullptr;
    if (!node->is_array_of_tables()) Refuse(*node, key, "tables, each [[" + Path(key) + "]]");
    return node->is_array_of_tables() ? node->as_array() : nullptr;
  }

  /// Why the table is wrong; a key that nobody has asked for is.
  Status Finish() const {
    if (!failure_.ok()) return failure_;
    for (const auto& [key, node] : table_) {
      if (taken_.contains(std::string(key.str()))) continue;
      std::string allowed;
      for (const std::string& name : taken_) allowed += (allowed.empty() ? "" : ", ") + name;
      return Status::InvalidArgument(Where(node) + ": there is no key '" +
                                     Path(std::string(key.str())) + "'; allowed are " + allowed);
    }
    return Status::Ok();
  }

 private:
  const toml::node* Take(const char* key) {
    taken_.insert(key);
    return table_.get(key);
  }
  static bool IsIn(const toml::node& node, Range allowed) {
    const auto* number = node.as_integer();
    return number != nullptr && number->get() >= 0 &&
           static_cast<uint64_t>(number->get()) >= allowed.low &&
           static_cast<uint64_t>(number->get()) <= allowed.high;
  }
  static uint64_t Value(const toml::node& node) {
    return static_cast<uint64_t>(node.as_integer()->get());
  }
  static std::string Text(Range range) {
    return std::to_string(range.low) + " to " + std::to_string(range.high);
  }
  std::string Where(const toml::node& node) const {
    return file_ + ":" + std::to_string(node.source().begin.line);
  }
  std::string Path(const std::string& key) const {
    return section_.empty() ? key : section_ + "." + key;
  }
  void Refuse(const toml::node& node, const char* key, const std::string& allowed) {
    if (!failure_.ok()) return;
    failure_ = Status::InvalidArgument(Where(node) + ": " + Path(key) + ": allowed is " + allowed);
  }

  const std::string& file_;
  const toml::table& table_;
  const std::string section_;
  std::set<std::string> taken_;
  Status failure_;
};

Status ReadSetup(TableReader setup, SetupPlan* plan) {
  setup.Choice("layout", kLayoutNames, &plan->layout);
  setup.Choice("cache", kCacheNames, &plan->cache);
  setup.Numbers("leaf_bytes", {256, 4096}, &plan->leaf_bytes);
  setup.Numbers("leaf_parts", {4, 31}, &plan->leaf_parts);
  setup.Numbers("node_bytes", {256, 4096}, &plan->node_bytes);
  setup.Numbers("memory_servers", {1, 16}, &plan->memory_servers);
  setup.Numbers("compute_servers", {1, 64}, &plan->compute_servers);
  setup.Numbers("workers", {1, 8}, &plan->workers);
  setup.Numbers("clients", {1, 32}, &plan->clients);
  setup.Numbers("hop_threshold", {1, 64}, &plan->hop_threshold);
  setup.Options("without", &plan->without);
  setup.Numbers("cache_bytes", {0, 1 << 30}, &plan->cache_bytes);
  setup.Numbers("merge_below_percent", {0, 50}, &plan->merge_below_percent);
  setup.Numbers("free_pages_max", {1, 4096}, &plan->free_pages_max);
  setup.Numbers("redo_slots", {0, 1024}, &plan->redo_slots);
  setup.Number("region_kib", {1'024, 1 << 20}, &plan->region_kib);
  return setup.Finish();
}

Status ReadMix(TableReader mix, WorkloadPlan* plan) {
  std::fill(std::begin(plan->weights), std::end(plan->weights), 0);
  uint64_t sum = 0;
  for (size_t act = 0; act < kActs; ++act) {
    mix.Number(kActNames[act].data(), {0, 1'000}, &plan->weights[act]);
    sum += plan->weights[act];
  }
  FARLEAF_RETURN_IF_ERROR(mix.Finish());
  if (sum == 0) return Status::InvalidArgument("workload.mix: all weights are 0");
  return Status::Ok();
}

Status ReadWorkload(const std::string& file, const toml::table& table, WorkloadPlan* plan) {
  TableReader workload(file, table, "workload");
  workload.Choice("choice", kKeyChoiceNames, &plan->choice);
  workload.Numbers("keys", {1, 100'000}, &plan->keys);
  workload.Numbers("operations", {1, 1'000'000}, &plan->operations);
  workload.Numbers("preload", {0, 100'000}, &plan->preload);
  workload.Number("hot_keys", {1, 1'000}, &plan->hot_keys);
  workload.Number("hot_percent", {0, 100}, &plan->hot_percent);
  workload.Numbers("phase", {0, 10'000}, &plan->phase);
  workload.Numbers("key_bytes", {1, 1'000}, &plan->key_bytes);
  workload.Numbers("value_bytes", {8, 1 << 20}, &plan->value_bytes);
  const toml::table* mix = workload.Table("mix");
  FARLEAF_RETURN_IF_ERROR(workload.Finish());
  return mix == nullptr ? Status::Ok() : ReadMix(TableReader(file, *mix, "workload.mix"), plan);
}

Status ReadFaults(const std::string& file, const toml::array& tables,
                  std::vector<FaultPlan>* plans) {
  plans->clear();
  for (const toml::node& node : tables) {
    TableReader faults(file, *node.as_table(), "faults");
    FaultPlan& plan = plans->emplace_back();
    faults.Faults("set", &plan.set);
    faults.Numbers("gap_us", {1, 1'000'000}, &plan.gap_us);
    FARLEAF_RETURN_IF_ERROR(faults.Finish());
  }
  return Status::Ok();
}

}  // namespace

Result<RunPlan> ParseRunFile(std::string_view text, const std::string& name) {
  const toml::parse_result parsed = toml::parse(text, name);
  if (!parsed) {
    return Status::InvalidArgument(name + ":" + std::to_string(parsed.error().source().begin.line) +
                                   ": " + std::string(parsed.error().description()));
  }
  RunPlan plan;
  plan.name = name;
  TableReader file(name, parsed.table(), "");
  file.String("description", &plan.description);
  file.Number("budget", {1, 1'000'000}, &plan.budget);
  file.List("seeds", &plan.seeds);
  const toml::table* setup = file.Table("setup");
  const toml::table* workload = file.Table("workload");
  const toml::table* checks = file.Table("checks");
  const toml::array* faults = file.Tables("faults");
  FARLEAF_RETURN_IF_ERROR(file.Finish());
  if (setup) FARLEAF_RETURN_IF_ERROR(ReadSetup(TableReader(name, *setup, "setup"), &plan.setup));
  if (workload) FARLEAF_RETURN_IF_ERROR(ReadWorkload(name, *workload, &plan.workload));
  if (faults) FARLEAF_RETURN_IF_ERROR(ReadFaults(name, *faults, &plan.faults));
  if (checks) {
    TableReader reader(name, *checks, "checks");
    reader.Number("operation_ms_max", {1, 1'000'000}, &plan.checks.operation_ms_max);
    FARLEAF_RETURN_IF_ERROR(reader.Finish());
  }
  return plan;
}

Result<RunPlan> LoadRunFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Status::NotFound("cannot read the run file " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return ParseRunFile(text.str(), path);
}

}  // namespace farleaf::simulation
