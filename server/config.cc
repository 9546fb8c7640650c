#include "server/config.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>

#include <CLI/CLI.hpp>

#include "dsm/base/check.h"
#include "server/toml.h"

namespace farleaf::server {

namespace {

constexpr uint64_t kConfigFileBytesMax = 1 << 20;

std::string Quoted(std::string_view text) {
  constexpr size_t kShown = 200;
  return "'" + std::string(text.substr(0, kShown)) + (text.size() > kShown ? "..." : "") + "'";
}

std::string JoinChoices(const std::vector<std::string>& names) {
  std::string joined;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) joined += i + 1 == names.size() ? " or " : ", ";
    joined += names[i];
  }
  return joined;
}

/// Edit distance of Levenshtein, by rows.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

/// The elements of a TOML value as text; fails with what it is instead.
Status TextOf(const toml::node& node, bool list, std::vector<std::string>* texts) {
  if (const auto* text = node.as_string()) {
    texts->push_back(text->get());
  } else if (const auto* integer = node.as_integer()) {
    texts->push_back(std::to_string(integer->get()));
  } else if (const auto* boolean = node.as_boolean()) {
    texts->push_back(boolean->get() ? "true" : "false");
  } else if (const auto* array = node.as_array(); array != nullptr && list) {
    for (const toml::node& element : *array) {
      if (!element.is_string()) return Status::InvalidArgument("a list holds strings only");
      texts->push_back(element.as_string()->get());
    }
  } else {
    std::ostringstream type;
    type << node.type();
    return Status::InvalidArgument("is of type " + type.str());
  }
  return Status::Ok();
}

}  // namespace

Result<uint64_t> ParseByteSize(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  const Status bad = Status::InvalidArgument(Quoted(text) + " is not a size such as 512MiB");
  if (error != std::errc()) return bad;
  if (suffix.empty() || suffix == "B") return number;
  const size_t unit = std::string_view("KMGT").find(suffix.front());
  if (unit == std::string_view::npos) return bad;
  if (suffix.size() > 1 && suffix.substr(1) != "iB") return bad;
  const int shift = static_cast<int>(unit + 1) * 10;
  if (number > (UINT64_MAX >> shift)) return bad;
  return number << shift;
}

std::string FormatByteSize(uint64_t bytes) {
  constexpr const char* kSuffixes[] = {"", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + kSuffixes[unit];
}

ConfigSchema::ConfigSchema(std::string program, std::string description)
    : program_(std::move(program)), description_(std::move(description)) {}

std::string ConfigSchema::FlagOf(const std::string& key) {
  std::string flag = "--" + key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

const ConfigSchema::Option* ConfigSchema::Find(std::string_view key) const {
  for (const Option& option : options_) {
    if (option.key == key) return &option;
  }
  return nullptr;
}

void ConfigSchema::Add(Option option) {
  FARLEAF_CHECK(Find(option.key) == nullptr && option.key != "config" && option.key != "help" &&
                    option.key != "version",
                option.key);
  option.section = section_;
  options_.push_back(std::move(option));
}

void ConfigSchema::AddString(const std::string& key, const std::string& help, std::string* target) {
  Add({key, help, Kind::kString, "", *target, false, [target](auto values) {
         *target = values[0];
         return Status::Ok();
       }});
}

void ConfigSchema::AddBool(const std::string& key, const std::string& help, bool* target) {
  Add({key, help, Kind::kBool, "true or false", *target ? "true" : "false", false,
       [target](auto values) {
         if (values[0] != "true" && values[0] != "false") {
           return Status::InvalidArgument(Quoted(values[0]) + " is not a truth value");
         }
         *target = values[0] == "true";
         return Status::Ok();
       }});
}

void ConfigSchema::AddInteger64(const std::string& key, const std::string& help, int64_t min,
                                int64_t max, std::string initial,
                                std::function<void(int64_t)> set) {
  const std::string allowed = std::to_string(min) + " to " + std::to_string(max);
  Add({key, help, Kind::kInteger, allowed, std::move(initial), false,
       [set = std::move(set), min, max](auto values) {
         const std::string& text = values[0];
         int64_t number = 0;
         const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
         if (error == std::errc::result_out_of_range) {
           return Status::InvalidArgument(text + " is out of range");
         }
         if (error != std::errc() || end != text.data() + text.size()) {
           return Status::InvalidArgument(Quoted(text) + " is not an integer");
         }
         if (number < min || number > max) {
           return Status::InvalidArgument(text + " is out of range");
         }
         set(number);
         return Status::Ok();
       }});
}

void ConfigSchema::AddBytes(const std::string& key, const std::string& help, uint64_t* target,
                            uint64_t min, uint64_t max) {
  AddByteSize(key, help, target, min, max, Zero::kOutOfRange);
}

void ConfigSchema::AddBytesOrNone(const std::string& key, const std::string& help, uint64_t* target,
                                  uint64_t min, uint64_t max) {
  AddByteSize(key, help, target, min, max, Zero::kAllowed);
}

void ConfigSchema::AddByteSize(const std::string& key, const std::string& help, uint64_t* target,
                               uint64_t min, uint64_t max, Zero zero) {
  const std::string allowed = FormatByteSize(min) + " to " + FormatByteSize(max);
  Add({key, help, Kind::kBytes, zero == Zero::kAllowed ? "0, or " + allowed : allowed,
       FormatByteSize(*target), false, [target, min, max, zero](auto values) {
         Result<uint64_t> bytes = ParseByteSize(values[0]);
         if (!bytes.ok()) return bytes.status();
         const bool is_none = *bytes == 0 && zero == Zero::kAllowed;
         if (!is_none && (*bytes < min || *bytes > max)) {
           return Status::InvalidArgument(values[0] + " is out of range");
         }
         *target = *bytes;
         return Status::Ok();
       }});
}

void ConfigSchema::AddStringList(const std::string& key, const std::string& help,
                                 std::vector<std::string>* target) {
  std::string initial;
  for (const std::string& element : *target) initial += (initial.empty() ? "" : ",") + element;
  Add({key, help, Kind::kList, "", initial, false, [target](auto values) {
         target->assign(values.begin(), values.end());
         return Status::Ok();
       }});
}

void ConfigSchema::AddChoice(const std::string& key, const std::string& help,
                             std::vector<std::string> names, std::string initial,
                             std::function<void(size_t)> set) {
  FARLEAF_CHECK(!initial.empty(), key);
  const std::string allowed = JoinChoices(names);
  Add({key, help, Kind::kChoice, allowed, std::move(initial), false,
       [names = std::move(names), set = std::move(set)](auto values) {
         for (size_t i = 0; i < names.size(); ++i) {
           if (names[i] != values[0]) continue;
           set(i);
           return Status::Ok();
         }
         return Status::InvalidArgument(Quoted(values[0]) + " is not known");
       }});
}

void ConfigSchema::Required() { options_.back().required = true; }

std::string ConfigSchema::Nearest(std::string_view key) const {
  const Option* best = nullptr;
  size_t best_distance = key.size() / 2 + 1;  // farther than that is no misspelling
  for (const Option& option : options_) {
    const size_t distance = Distance(key, option.key);
    if (distance < best_distance) {
      best = &option;
      best_distance = distance;
    }
  }
  return best ? best->key : "";
}

Result<ConfigOutcome> ConfigSchema::Parse(int argc, const char* const* argv) {
  return Parse(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}

Result<ConfigOutcome> ConfigSchema::Parse(std::span<const std::string> arguments) {
  CLI::App app;
  app.set_help_flag();  // --help is ours, so that nothing but main() prints or exits
  app.allow_extras();
  bool help = false, version = false;
  std::string config_file;
  app.add_flag("--help,-h", help);
  app.add_flag("--version", version);
  CLI::Option* config = app.add_option("--config", config_file)->take_last();
  std::map<std::string, std::vector<std::string>> given;
  std::map<std::string, std::string> switches;
  for (const Option& option : options_) {
    auto take = [&given, key = option.key](std::vector<std::string> values) {
      given[key] = std::move(values);
      return true;
    };
    if (option.kind == Kind::kBool) {
      // As text, which is "true" without a value: CLI11's own conversion of a flag's value throws.
      app.add_flag(FlagOf(option.key), switches[option.key])
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    } else {
      CLI::Option* added = app.add_option(FlagOf(option.key), CLI::callback_t(take));
      added->type_size(1)->expected(1)->type_name("value");
      if (option.kind == Kind::kList) {
        added->delimiter(',')->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      } else {
        added->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
      }
    }
  }
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(std::move(reversed));
  } catch (const CLI::Error& error) {
    return Status::InvalidArgument(error.what());
  }
  for (const auto& [key, value] : switches) {
    if (!value.empty()) given[key] = {value};
  }
  if (help) return ConfigOutcome::kHelp;
  if (version) return ConfigOutcome::kVersion;
  if (std::vector<std::string> extras = app.remaining(); !extras.empty()) {
    const std::string flag = extras[0].substr(0, extras[0].find('='));
    if (!flag.starts_with("--")) {
      return Status::InvalidArgument("argument " + Quoted(flag) + " is not expected; see --help");
    }
    std::string key = flag.substr(2);
    std::replace(key.begin(), key.end(), '-', '_');
    const std::string nearest = Nearest(key);
    return Status::InvalidArgument(
        "unknown flag " + flag +
        (nearest.empty() ? "; see --help" : "; did you mean " + FlagOf(nearest) + "?"));
  }
  for (const Option& option : options_) {
    auto values = given.find(option.key);
    if (values == given.end()) continue;
    if (Status status = option.set(values->second); !status.ok()) {
      return Status::InvalidArgument(
          FlagOf(option.key) + ": " + std::string(status.message()) +
          (option.allowed.empty() ? "" : "; allowed: " + option.allowed));
    }
    set_by_flag_.insert(option.key);
  }
  if (config->count() > 0) FARLEAF_RETURN_IF_ERROR(ParseFile(config_file));
  FARLEAF_RETURN_IF_ERROR(CheckRequired());
  return ConfigOutcome::kRun;
}

Status ConfigSchema::ParseFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Status::NotFound("configuration file " + path + ": " + std::strerror(errno));
  }
  std::string text(kConfigFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return Status::IoError("configuration file " + path + " cannot be read");
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kConfigFileBytesMax) {
    return Status::InvalidArgument("configuration file " + path + " is larger than 1MiB");
  }
  return ParseToml(text, path);
}

Status ConfigSchema::ParseToml(std::string_view text, const std::string& file) {
  toml::parse_result parsed = toml::parse(text, file);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return Status::InvalidArgument(file + ", line " + std::to_string(error.source().begin.line) +
                                   ": " + std::string(error.description()));
  }
  for (const auto& [name, node] : parsed.table()) {
    const std::string key(name.str());
    const std::string where =
        file + ", line " + std::to_string(name.source().begin.line) + ": " + key;
    const Option* option = Find(key);
    if (option == nullptr) {
      const std::string nearest = Nearest(key);
      return Status::InvalidArgument(
          where + ": unknown key" +
          (nearest.empty() ? "; see --help" : "; did you mean " + nearest + "?"));
    }
    std::vector<std::string> values;
    Status status = TextOf(node, option->kind == Kind::kList, &values);
    const bool is_text = node.is_string() || node.is_array();
    const bool wants_text = option->kind == Kind::kString || option->kind == Kind::kList ||
                            option->kind == Kind::kChoice;
    if (status.ok() && option->kind != Kind::kBytes && is_text != wants_text) {
      status = Status::InvalidArgument(Quoted(values.empty() ? "" : values[0]) +
                                       (wants_text ? " is not a string" : " is a string"));
    }
    if (status.ok() && !set_by_flag_.contains(key)) status = option->set(values);
    if (!status.ok()) {
      return Status::InvalidArgument(
          where + ": " + std::string(status.message()) +
          (option->allowed.empty() ? "" : "; allowed: " + option->allowed));
    }
    set_by_file_.insert(key);
  }
  return Status::Ok();
}

Status ConfigSchema::CheckRequired() const {
  for (const Option& option : options_) {
    if (option.required && !is_set(option.key)) {
      return Status::InvalidArgument(FlagOf(option.key) + " is missing (or key " + option.key +
                                     " in the configuration file): " + option.help);
    }
  }
  return Status::Ok();
}

std::optional<std::string> ConfigSchema::FirstSetOf(std::string_view heading) const {
  for (const Option& option : options_) {
    if (option.section == heading && is_set(option.key)) {
      return FlagOf(option.key) + " (key " + option.key + ")";
    }
  }
  return std::nullopt;
}

std::string ConfigSchema::Help() const {
  std::ostringstream out;
  out << program_ << ": " << description_ << "\n\nUsage: " << program_
      << " [--config FILE] [flags]\n\n"
      << "Every flag is also a key of the TOML file, with _ for -; a flag wins over the file.\n\n";
  const auto line = [&out](const std::string& left, const std::string& right) {
    out << "  " << left << std::string(left.size() < 28 ? 28 - left.size() : 1, ' ') << right
        << '\n';
  };
  line("--config FILE", "read this TOML file");
  line("--help", "show this text");
  line("--version", "show the version");
  std::string section;
  for (const Option& option : options_) {
    if (option.section != section) out << '\n' << (section = option.section) << ":\n";
    constexpr const char* kPlaceholders[] = {" TEXT", "", " N", " BYTES", " LIST", " WORD"};
    std::string right = option.help;
    std::string note = option.required ? "required" : "";
    if (!option.allowed.empty() && option.kind != Kind::kBool) note = option.allowed;
    if (!option.required && !option.initial.empty()) {
      note += (note.empty() ? "default " : "; default ") + option.initial;
    }
    if (!note.empty()) right += " (" + note + ")";
    line(FlagOf(option.key) + kPlaceholders[static_cast<size_t>(option.kind)], right);
  }
  return out.str();
}

std::string ConfigSchema::Version() const { return VersionText(program_); }

std::string VersionText(std::string_view program) {
  return std::string(program) + " (farleaf) " + FARLEAF_VERSION + "\n";
}

}  // namespace farleaf::server
