#include "test/support/options_off.h"

#include <algorithm>

namespace farleaf::test {

void TurnOff(TreeOption option, index::TreeOptions* options) {
  switch (option) {
    case TreeOption::kReadSharing:
      options->read_sharing = index::ReadSharing::kOff;
      break;
    case TreeOption::kWriteCombining:
      options->write_combining = index::WriteCombining::kOff;
      break;
    case TreeOption::kHandOver:
      options->hand_over = index::HandOver::kOff;
      break;
    case TreeOption::kInPlace:
      options->in_place = index::InPlace::kOff;
      break;
    case TreeOption::kSmallWriteBacks:
      options->small_write_backs = index::SmallWriteBacks::kOff;
      break;
    case TreeOption::kBackOff:
      options->back_off = index::BackOff::kOff;
      break;
    case TreeOption::kLearnSplits:
      options->learn_splits = index::LearnSplits::kOff;
      break;
    case TreeOption::kValueHints:
      options->value_hint_bytes = 0;
      break;
    case TreeOption::kValueLists:
      options->value_list_bytes = 0;
      break;
    case TreeOption::kOrderedLeaves:
      options->placement = index::Placement::kHashed;
      break;
    case TreeOption::kScanAhead:
      options->scan_leaves_max = 1;
      break;
    case TreeOption::kWideCache:
      options->cache_bytes = 1;
      break;
    case TreeOption::kMerging:
      options->merge_below = 0;
      break;
    case TreeOption::kCache:
      options->cache = index::CacheMode::kNone;
  }
}

void OptionSet::TurnOff(index::TreeOptions* options) const {
  for (size_t i = 0; i < kTreeOptions; ++i) {
    if (Has(static_cast<TreeOption>(i))) test::TurnOff(static_cast<TreeOption>(i), options);
  }
}

std::string AllowedOptions() {
  std::string text = "all, shortcuts";
  for (const std::string_view name : kTreeOptionNames) text += ", " + std::string(name);
  return text + ", or several joined by +";
}

Result<OptionSet> ParseOptionSet(std::string_view names) {
  OptionSet set;
  for (std::string_view rest = names; !rest.empty();) {
    const size_t end = std::min(rest.find('+'), rest.size());
    const std::string_view one = rest.substr(0, end);
    size_t i = 0;
    while (i < kTreeOptions && kTreeOptionNames[i] != one) ++i;
    if (one == "all") {
      set.Add(OptionSet::All());
    } else if (one == "shortcuts") {
      set.Add(OptionSet::Shortcuts());
    } else if (i < kTreeOptions) {
      set.Add(static_cast<TreeOption>(i));
    } else {
      return Status::InvalidArgument("no option is named '" + std::string(one) + "'; allowed are " +
                                     AllowedOptions());
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (set.empty()) {
    return Status::InvalidArgument("no options are named; allowed are " + AllowedOptions());
  }
  return set;
}

std::vector<OptionsCase> AllOnAndAllOff() {
  return {{"all_on", {}}, {"all_off", OptionSet::All()}};
}

std::vector<OptionsCase> EachOptionOff() {
  std::vector<OptionsCase> cases{{"all_on", {}}};
  for (size_t i = 0; i < kTreeOptions; ++i) {
    cases.push_back({"without_" + std::string(kTreeOptionNames[i]), {static_cast<TreeOption>(i)}});
  }
  cases.push_back({"without_shortcuts", OptionSet::Shortcuts()});
  cases.push_back({"all_off", OptionSet::All()});
  return cases;
}

}  // namespace farleaf::test
