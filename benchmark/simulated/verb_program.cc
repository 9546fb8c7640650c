#include "benchmark/simulated/verb_program.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "benchmark/simulated/toml_file.h"
#include "dsm/base/random.h"

namespace farleaf::ycsb {

namespace {

using Kind = ProgramVerb::Kind;
using Place = ProgramVerb::Place;

constexpr uint32_t kVerbBytesMax = 1 << 20;
constexpr std::pair<std::string_view, Kind> kKinds[] = {
    {"READ", Kind::kRead},     {"WRITE", Kind::kWrite}, {"LOCK", Kind::kLock},
    {"UNLOCK", Kind::kUnlock}, {"SHARE", Kind::kShare}, {"UNSHARE", Kind::kUnshare},
    {"SWAP", Kind::kSwap},     {"ADD", Kind::kAdd}};
constexpr std::pair<std::string_view, Place> kPlaces[] = {{"leaf", Place::kLeaf},
                                                          {"leaves", Place::kLeaves},
                                                          {"root", Place::kRoot},
                                                          {"other", Place::kOther}};
constexpr std::pair<std::string_view, OpKind> kOperations[] = {
    {"read", OpKind::kRead},
    {"update", OpKind::kUpdate},
    {"insert", OpKind::kInsert},
    {"scan", OpKind::kScan},
    {"read_modify_write", OpKind::kReadModifyWrite}};

template <typename T, size_t N>
const T* Find(const std::pair<std::string_view, T> (&table)[N], std::string_view name) {
  for (const auto& [known, value] : table) {
    if (known == name) return &value;
  }
  return nullptr;
}

/// One file on its way to a VerbProgram.
class Parser {
 public:
  explicit Parser(const std::string& source) : source_(source) {}

  Result<VerbProgram> Parse(const toml::table& file) {
    for (const auto& [name, node] : file) {
      FARLEAF_RETURN_IF_ERROR(TopLevel(std::string(name.str()), node));
    }
    if (program_.name.empty()) return Missing("name");
    if (program_.leaf_bytes == 0) return Missing("data.leaf_bytes");
    if (program_.leaf_entries == 0) return Missing("data.leaf_entries");
    if (program_.lock_owned && !program_.lock_queue) {
      return Status::InvalidArgument(source_ +
                                     ": lock.place is 'owner', whose threads wait for one "
                                     "another: lock.queue must be 'local'");
    }
    for (const ProgramStep& step : program_.split) {
      if (!step.Has(Kind::kLock) && !step.Has(Kind::kUnlock)) continue;
      return Status::InvalidArgument(source_ +
                                     ": split: LOCK and UNLOCK are of the leaf, which is locked "
                                     "already; ADD stands for the parent's lock");
    }
    for (const auto& [name, kind] : kOperations) {
      auto& steps = program_.steps[static_cast<size_t>(kind)];
      if (steps.empty() && kind == OpKind::kReadModifyWrite) {
        steps = program_.steps[static_cast<size_t>(OpKind::kUpdate)];
        program_.cpu_ns[static_cast<size_t>(kind)] =
            program_.cpu_ns[static_cast<size_t>(OpKind::kUpdate)];
      }
      if (steps.empty()) return Missing(std::string(name));
      FARLEAF_RETURN_IF_ERROR(CheckLocks(std::string(name), steps));
    }
    return program_;
  }

 private:
  Status Missing(const std::string& key) const {
    return Status::InvalidArgument(source_ + ": " + key + " is missing");
  }

  Status TopLevel(const std::string& name, const toml::node& node) {
    const TomlPlace place{source_, name};
    if (name == "name" || name == "source") {
      const auto* text = node.as_string();
      if (text == nullptr || text->get().empty()) return place.Wrong(node, "is not a text");
      if (name == "name") program_.name = text->get();
      return Status::Ok();
    }
    if (name == "data" || name == "lock" || name == "cpu_ns") {
      if (!node.is_table()) return place.Wrong(node, "is not a table");
      for (const auto& [key, value] : *node.as_table()) {
        FARLEAF_RETURN_IF_ERROR(Setting(name + "." + std::string(key.str()), value));
      }
      return Status::Ok();
    }
    if (name == "split") return Steps(name, node, &program_.split);
    if (const OpKind* kind = Find(kOperations, name)) {
      return Steps(name, node, &program_.steps[static_cast<size_t>(*kind)]);
    }
    return place.Wrong(node, "belongs to nothing in a verb program");
  }

  Status Setting(const std::string& key, const toml::node& node) {
    const TomlPlace place{source_, key};
    const auto number = [&](double min, double max, bool whole, auto* target) {
      auto value = NumberOf(place, node, min, max, whole);
      if (!value.ok()) return value.status();
      *target = static_cast<std::remove_pointer_t<decltype(target)>>(*value);
      return Status::Ok();
    };
    const auto choice = [&](std::string_view yes, std::string_view no, bool* target) {
      const auto* text = node.as_string();
      if (text == nullptr || (text->get() != yes && text->get() != no)) {
        return place.Wrong(node,
                           "is neither '" + std::string(yes) + "' nor '" + std::string(no) + "'");
      }
      *target = text->get() == yes;
      return Status::Ok();
    };
    if (key == "data.leaf_bytes") return number(8, 1 << 20, true, &program_.leaf_bytes);
    if (key == "data.leaf_entries") return number(1, 65'536, true, &program_.leaf_entries);
    if (key == "data.split_every") return number(1, 1e9, false, &program_.split_every);
    if (key == "lock.place" && node.is_string() && node.as_string()->get() == "owner") {
      program_.lock_owned = true;
      return Status::Ok();
    }
    if (key == "lock.place") return choice("device", "leaf", &program_.lock_in_device);
    if (key == "lock.queue") return choice("local", "none", &program_.lock_queue);
    if (key == "lock.handovers_max") return number(0, 16, true, &program_.lock_handovers_max);
    if (key == "lock.retry_ns") return number(0, 1e9, false, &program_.lock_retry_ns);
    if (key.starts_with("cpu_ns.")) {
      if (const OpKind* kind = Find(kOperations, std::string_view(key).substr(7))) {
        return number(0, 1e9, false, &program_.cpu_ns[static_cast<size_t>(*kind)]);
      }
    }
    return place.Wrong(node, "belongs to nothing in a verb program");
  }

  Status Steps(const std::string& name, const toml::node& node, std::vector<ProgramStep>* steps) {
    const auto* array = node.as_array();
    if (array == nullptr || array->empty()) {
      return TomlPlace{source_, name}.Wrong(node, "is no list of round trips");
    }
    for (const toml::node& element : *array) {
      const std::string key = name + "[" + std::to_string(steps->size()) + "]";
      if (!element.is_table()) return TomlPlace{source_, key}.Wrong(element, "is not a table");
      steps->emplace_back();
      FARLEAF_RETURN_IF_ERROR(Step(key, *element.as_table(), &steps->back()));
    }
    return Status::Ok();
  }

  Status Step(const std::string& key, const toml::table& table, ProgramStep* step) {
    bool skewed_given = false;
    for (const auto& [name, node] : table) {
      const TomlPlace place{source_, key + "." + std::string(name.str())};
      if (name == "verbs") {
        FARLEAF_RETURN_IF_ERROR(Verbs(place, node, step));
      } else if (name == "times" && node.is_string() && node.as_string()->get() == "leaves") {
        step->per_leaf = true;
      } else if (name == "otherwise") {
        const auto* otherwise = node.as_boolean();
        if (otherwise == nullptr) return place.Wrong(node, "is neither true nor false");
        step->otherwise = otherwise->get();
      } else if (name == "times") {
        auto times = NumberOf(place, node, 1, 1'000, true);
        if (!times.ok()) return times.status();
        step->times = static_cast<uint32_t>(*times);
      } else if (name == "chance" || name == "chance_skewed") {
        auto chance = NumberOf(place, node, 0, 1, false);
        if (!chance.ok()) return chance.status();
        skewed_given |= name == "chance_skewed";
        (name == "chance" ? step->chance : step->chance_skewed) = *chance;
      } else {
        return place.Wrong(node, "belongs to nothing in a round trip");
      }
    }
    if (step->otherwise && (table.contains("chance") || table.contains("chance_skewed"))) {
      return Status::InvalidArgument(
          source_ + ": " + key +
          ": otherwise says when it is taken: chance has no place beside it");
    }
    if (!skewed_given) step->chance_skewed = step->chance;
    if (step->verbs.empty()) return Missing(key + ".verbs");
    return Status::Ok();
  }

  Status Verbs(const TomlPlace& place, const toml::node& node, ProgramStep* step) {
    const auto* array = node.as_array();
    if (array == nullptr || array->empty()) return place.Wrong(node, "is no list of verbs");
    bool write_refused = false;
    for (const toml::node& element : *array) {
      const auto* text = element.as_string();
      if (text == nullptr) return place.Wrong(element, "is not a verb");
      ProgramVerb verb{};
      if (!ParseVerb(text->get(), &verb)) {
        return place.Wrong(
            element,
            "is none of READ|WRITE leaf|leaves|root|other BYTES (1 to 1048576), LOCK, "
            "UNLOCK, SHARE, UNSHARE, SWAP and ADD");
      }
      const bool writes = verb.kind == Kind::kWrite || verb.kind == Kind::kUnlock;
      if (writes && write_refused) {
        return place.Wrong(element,
                           "stands behind a READ or an atomic of one round trip, which do not "
                           "order it: it needs a round trip of its own");
      }
      write_refused |= !writes;
      step->verbs.push_back(verb);
    }
    return Status::Ok();
  }

  static bool ParseVerb(const std::string& text, ProgramVerb* verb) {
    std::istringstream words(text);
    std::string kind, place, bytes, rest;
    words >> kind >> place >> bytes >> rest;
    const Kind* known = Find(kKinds, kind);
    if (known == nullptr || !rest.empty()) return false;
    verb->kind = *known;
    if (*known != Kind::kRead && *known != Kind::kWrite) return place.empty();
    const Place* where = Find(kPlaces, place);
    if (where == nullptr) return false;
    verb->place = *where;
    const auto [end, error] =
        std::from_chars(bytes.data(), bytes.data() + bytes.size(), verb->bytes);
    if (error != std::errc() || end != bytes.data() + bytes.size()) return false;
    if (verb->bytes == 0 || verb->bytes > kVerbBytesMax) return false;
    verb->asked_bytes = verb->bytes;
    verb->bytes = (verb->bytes + 7) / 8 * 8;  // a verb's length is a multiple of 8
    return true;
  }

  /// Every lock is taken once and let go later, whatever chance decides.
  Status CheckLocks(const std::string& name, const std::vector<ProgramStep>& steps) const {
    bool locked = false;
    for (const ProgramStep& step : steps) {
      const bool locks = step.Has(Kind::kLock), unlocks = step.Has(Kind::kUnlock);
      if (!locks && !unlocks) continue;
      const bool once = step.chance == 1 && step.chance_skewed == 1 && step.times == 1 &&
                        !step.otherwise && !step.per_leaf && !(locks && unlocks);
      if (!once || locks == locked) {
        return Status::InvalidArgument(
            source_ + ": " + name +
            ": LOCK and UNLOCK do not match: each stands in a round trip "
            "of its own, taken always and once");
      }
      locked = locks;
    }
    if (!locked) return Status::Ok();
    return Status::InvalidArgument(source_ + ": " + name + ": LOCK without UNLOCK");
  }

  const std::string& source_;
  VerbProgram program_;
};

}  // namespace

bool ProgramStep::Has(ProgramVerb::Kind kind) const {
  return std::any_of(verbs.begin(), verbs.end(),
                     [kind](const ProgramVerb& verb) { return verb.kind == kind; });
}

Result<VerbProgram> ParseProgram(std::string_view text, const std::string& source) {
  auto file = ParseTomlText(text, source);
  if (!file.ok()) return file.status();
  return Parser(source).Parse(*file);
}

Result<VerbProgram> LoadProgramFile(const std::string& path) {
  auto text = ReadTextFile(path);
  if (!text.ok()) return text.status();
  return ParseProgram(*text, path);
}

}  // namespace farleaf::ycsb
