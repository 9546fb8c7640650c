#include "benchmark/adapters/store_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>

namespace farleaf::ycsb {

namespace {

constexpr unsigned kRocks = 1u << static_cast<unsigned>(StoreEngine::kRocksDb),
                   kBlob = 1u << static_cast<unsigned>(StoreEngine::kBlobDb),
                   kLsm = 1u << static_cast<unsigned>(StoreEngine::kLsm),
                   kReplicated = 1u << static_cast<unsigned>(StoreEngine::kReplicated),
                   kOwn = kLsm | kReplicated, kAll = kRocks | kBlob | kOwn;

/// Exactly one of the fields behind the range is set.
struct Option {
  std::string_view name;
  unsigned engines;
  uint64_t min = 0, max = 0;  ///< of a number
  uint64_t StoreOptions::*number = nullptr;
  bool StoreOptions::*flag = nullptr;
  StoreCompression StoreOptions::*compression = nullptr;
  ReplicationMode StoreOptions::*mode = nullptr;
  StoreDurability StoreOptions::*durability = nullptr;
  ReplicationFabric StoreOptions::*fabric = nullptr;
};

constexpr uint64_t kMiBMax = uint64_t{1} << 22;
constexpr std::array kOptions = {
    Option{"cache_mb", kAll, 1, kMiBMax, &StoreOptions::cache_mb},
    Option{"memtable_mb", kAll, 1, 4096, &StoreOptions::memtable_mb},
    Option{"growth", kAll, 2, 100, &StoreOptions::growth},
    Option{.name = "sync", .engines = kRocks | kBlob | kLsm, .flag = &StoreOptions::sync},
    Option{"flush_ms", kAll, 1, 60000, &StoreOptions::flush_ms},
    Option{.name = "direct", .engines = kAll, .flag = &StoreOptions::direct},
    Option{"filter_bits", kAll, 0, 20, &StoreOptions::filter_bits},
    Option{"block_kb", kAll, 4, 64, &StoreOptions::block_kb},
    Option{.name = "compression", .engines = kAll, .compression = &StoreOptions::compression},
    Option{"compaction_threads", kAll, 1, 16, &StoreOptions::compaction_threads},
    Option{"separation_bytes", kBlob | kOwn, 1, 65536, &StoreOptions::separation_bytes},
    Option{.name = "blind", .engines = kOwn, .flag = &StoreOptions::blind},
    Option{.name = "wal", .engines = kRocks | kBlob, .flag = &StoreOptions::wal},
    Option{
        .name = "dynamic_levels", .engines = kRocks | kBlob, .flag = &StoreOptions::dynamic_levels},
    Option{"readahead_kb", kRocks | kBlob, 0, 4096, &StoreOptions::readahead_kb},
    Option{.name = "blob_collection", .engines = kBlob, .flag = &StoreOptions::blob_collection},
    Option{"backups", kReplicated, 1, 4, &StoreOptions::backups},
    Option{.name = "mode", .engines = kReplicated, .mode = &StoreOptions::mode},
    Option{.name = "durability", .engines = kReplicated, .durability = &StoreOptions::durability},
    Option{.name = "fabric", .engines = kReplicated, .fabric = &StoreOptions::fabric},
    Option{.name = "collect", .engines = kReplicated, .flag = &StoreOptions::collect},
};
using Names = std::span<const std::string_view>;
constexpr std::array<std::string_view, 3> kCompressions = {"none", "lz4", "zstd"},
                                          kModes = {"none", "send", "build"},
                                          kDurabilities = {"local", "replicated", "synced"};
constexpr std::array<std::string_view, 2> kFabrics = {"tcp", "shm"};

bool Has(StoreEngine engine, const Option& option) {
  return (option.engines >> static_cast<unsigned>(engine) & 1) != 0;
}

std::string AllowedOf(Names names) {
  return fmt::format("{} or {}", fmt::join(names.first(names.size() - 1), ", "), names.back());
}

std::string Allowed(const Option& option) {
  if (option.flag) return "0 or 1";
  if (option.compression) return AllowedOf(kCompressions);
  if (option.mode) return AllowedOf(kModes);
  if (option.durability) return AllowedOf(kDurabilities);
  if (option.fabric) return AllowedOf(kFabrics);
  return "a number from " + std::to_string(option.min) + " to " + std::to_string(option.max);
}

/// One of an enumeration whose values are in the order of their names.
template <typename Enum>
bool SetByName(Names names, std::string_view value, Enum* to) {
  const auto found = std::find(names.begin(), names.end(), value);
  if (found == names.end()) return false;
  *to = static_cast<Enum>(found - names.begin());
  return true;
}

bool SetOption(const Option& option, std::string_view value, StoreOptions* options) {
  if (option.flag) {
    options->*option.flag = value == "1";
    return value == "0" || value == "1";
  }
  if (option.compression) {
    return SetByName(kCompressions, value, &(options->*option.compression));
  }
  if (option.mode) return SetByName(kModes, value, &(options->*option.mode));
  if (option.durability) {
    return SetByName(kDurabilities, value, &(options->*option.durability));
  }
  if (option.fabric) return SetByName(kFabrics, value, &(options->*option.fabric));
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) return false;
  options->*option.number = number;
  return number >= option.min && number <= option.max;
}

Status ParseOption(std::string_view text, StoreOptions* options) {
  const size_t split = std::min(text.find('='), text.size());
  const std::string_view name = text.substr(0, split);
  const auto option = std::find_if(kOptions.begin(), kOptions.end(), [&](const Option& one) {
    return one.name == name && Has(options->engine, one);
  });
  if (option == kOptions.end()) {
    std::string known;
    for (const Option& one : kOptions) {
      if (Has(options->engine, one)) known += (known.empty() ? "" : ", ") + std::string(one.name);
    }
    return Status::InvalidArgument("option '" + std::string(text) + "': " +
                                   std::string(StoreEngineName(options->engine)) + " has " + known);
  }
  const std::string_view value = split < text.size() ? text.substr(split + 1) : "";
  if (SetOption(*option, value, options)) return Status::Ok();
  return Status::InvalidArgument("option '" + std::string(text) + "': expected " +
                                 Allowed(*option));
}

}  // namespace

std::string_view StoreEngineName(StoreEngine engine) {
  constexpr std::array<std::string_view, 4> kNames = {"rocksdb", "blobdb", "lsm", "replicated"};
  return kNames[static_cast<size_t>(engine)];
}

std::string_view ReplicationModeName(ReplicationMode mode) {
  return kModes[static_cast<size_t>(mode)];
}

Result<StoreOptions> ParseStoreOptions(StoreEngine engine, std::string_view text) {
  StoreOptions options;
  options.engine = engine;
  const size_t query = std::min(text.find('?'), text.size());
  options.directory = text.substr(0, query);
  if (options.directory.empty()) {
    const std::string name(StoreEngineName(engine));
    return Status::InvalidArgument("expected a directory: " + name + ":DIR or " + name +
                                   ":DIR?NAME=VALUE&…");
  }
  text.remove_prefix(std::min(query + 1, text.size()));
  while (!text.empty()) {
    const size_t end = std::min(text.find('&'), text.size());
    FARLEAF_RETURN_IF_ERROR(ParseOption(text.substr(0, end), &options));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (options.sync && !options.wal) {
    return Status::InvalidArgument("option 'sync=1': a write without log (wal=0) cannot be synced");
  }
  return options;
}

}  // namespace farleaf::ycsb
