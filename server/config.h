// Configuration of a process: a TOML file and flags, declared once as a list of options that are
// bound to the fields of a plain options struct.
//
//   MemoryServerOptions options;
//   ConfigSchema schema("memory_server", "Exposes memory to a pool.");
//   schema.AddBytes("size", "bytes of memory to expose", &options.region_bytes, 1 << 20, 1 << 40);
//   Result<ConfigOutcome> outcome = schema.Parse(arguments);
//
// Every key is also a flag: the key `chunk_size` is the flag `--chunk-size`. A flag wins over the
// file (`--config FILE`), which wins over the value that the field had when it was declared, which
// is the default that --help shows. Unknown keys, wrong types and values out of range are refused
// with InvalidArgument, naming file or flag, key, value and what is allowed.
//
// Invariant: nothing here exits, prints or throws; main() decides.
// Thread rule: one thread; the bound fields outlive the schema.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/base/status.h"

namespace farleaf::server {

enum class ConfigOutcome : uint8_t {
  kRun,      ///< the fields are set
  kHelp,     ///< --help was given: print Help()
  kVersion,  ///< --version was given: print Version()
};

/// "64KiB", "1 GiB", "4096": bytes, with the suffixes B, KiB, MiB, GiB, TiB (K, M, G, T for short).
Result<uint64_t> ParseByteSize(std::string_view text);
/// The shortest exact form: "64KiB", "1GiB", "4097".
std::string FormatByteSize(uint64_t bytes);

/// "ycsb (farleaf) 0.1.0\n", what --version prints.
std::string VersionText(std::string_view program);

class ConfigSchema {
 public:
  ConfigSchema(std::string program, std::string description);

  void AddString(const std::string& key, const std::string& help, std::string* target);
  void AddBool(const std::string& key, const std::string& help, bool* target);
  /// Both bounds are allowed values.
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  void AddInteger(const std::string& key, const std::string& help, T* target,
                  std::type_identity_t<T> min, std::type_identity_t<T> max) {
    AddInteger64(key, help, static_cast<int64_t>(min), ClampToInt64(max), std::to_string(*target),
                 [target](int64_t value) { *target = static_cast<T>(value); });
  }
  void AddBytes(const std::string& key, const std::string& help, uint64_t* target, uint64_t min,
                uint64_t max);
  /// 0 is allowed too.
  void AddBytesOrNone(const std::string& key, const std::string& help, uint64_t* target,
                      uint64_t min, uint64_t max);
  /// In the file an array of strings; as a flag separated by commas, or the flag repeated.
  void AddStringList(const std::string& key, const std::string& help,
                     std::vector<std::string>* target);
  /// REQUIRES: *target is one of the named values.
  template <typename E>
  void AddEnum(const std::string& key, const std::string& help, E* target,
               std::vector<std::pair<std::string, E>> names) {
    std::vector<std::string> texts;
    std::string initial;
    for (const auto& [name, value] : names) {
      texts.push_back(name);
      if (value == *target) initial = name;
    }
    AddChoice(key, help, std::move(texts), initial,
              [target, names](size_t i) { *target = names[i].second; });
  }
  /// Parse fails if the option that was added last is given neither in the file nor as a flag.
  void Required();
  /// What is added from here on stands under this heading in the help.
  void Section(std::string heading) { section_ = std::move(heading); }

  /// Reads flags, and the file that --config names. `arguments` are without the program's name.
  /// NotFound or IoError: the file cannot be read.
  Result<ConfigOutcome> Parse(std::span<const std::string> arguments);
  Result<ConfigOutcome> Parse(int argc, const char* const* argv);
  /// Reads the text of a file; `file` is what messages call it. Keys of options that a flag has set
  /// are checked and then left alone.
  Status ParseToml(std::string_view text, const std::string& file);

  /// Whether the file or a flag gave this option a value.
  bool is_set(const std::string& key) const {
    return set_by_flag_.contains(key) || set_by_file_.contains(key);
  }
  /// The first option under the heading that the file or a flag gave a value, as "--size (key size)".
  std::optional<std::string> FirstSetOf(std::string_view heading) const;
  std::string Help() const;
  std::string Version() const;

 private:
  enum class Kind : uint8_t { kString, kBool, kInteger, kBytes, kList, kChoice };
  struct Option {
    std::string key;
    std::string help;
    Kind kind;
    std::string allowed;  ///< "1 to 64", "never, auto or require"
    std::string initial;
    bool required = false;
    /// Sets the field from one value, or from all elements of a list. The message is without name.
    std::function<Status(std::span<const std::string>)> set;
    std::string section = {};  ///< its heading; empty: none
  };

  static constexpr int64_t ClampToInt64(uint64_t value) {
    return static_cast<int64_t>(
        std::min<uint64_t>(value, static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
  }
  static std::string FlagOf(const std::string& key);
  void Add(Option option);
  enum class Zero : uint8_t { kOutOfRange, kAllowed };
  void AddByteSize(const std::string& key, const std::string& help, uint64_t* target, uint64_t min,
                   uint64_t max, Zero zero);
  void AddInteger64(const std::string& key, const std::string& help, int64_t min, int64_t max,
                    std::string initial, std::function<void(int64_t)> set);
  void AddChoice(const std::string& key, const std::string& help, std::vector<std::string> names,
                 std::string initial, std::function<void(size_t)> set);
  const Option* Find(std::string_view key) const;
  std::string Nearest(std::string_view key) const;
  Status CheckRequired() const;
  Status ParseFile(const std::string& path);

  std::string program_;
  std::string description_;
  std::string section_;  // of what is added next
  std::vector<Option> options_;
  std::set<std::string> set_by_flag_;
  std::set<std::string> set_by_file_;
};

}  // namespace farleaf::server
