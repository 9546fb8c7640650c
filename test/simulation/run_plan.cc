#include "test/simulation/run_plan.h"

#include <cstdio>

namespace farleaf::simulation {

Result<Range> ParseRange(const std::string& text) {
  unsigned long long low = 0, high = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%llu..%llu%c", &low, &high, &rest) != 2 || low == 0 ||
      high < low) {
    return Status::InvalidArgument("'" + text + "' is not A..B with 1 <= A <= B");
  }
  return Range{low, high};
}

Result<Range> ParseLeafParts(const std::string& text) {
  auto parts = ParseRange(text);
  if (parts.ok() && (parts->low < 4 || parts->high > 31)) {
    return Status::InvalidArgument("'" + text + "' is outside 4..31");
  }
  return parts;
}

std::vector<Fault> FaultSet::faults() const {
  std::vector<Fault> faults;
  for (size_t i = 0; i < kFaults; ++i) {
    if (Has(static_cast<Fault>(i))) faults.push_back(static_cast<Fault>(i));
  }
  return faults;
}

std::string FaultSet::Name() const {
  std::string name;
  for (const Fault fault : faults()) {
    name += (name.empty() ? "" : "+") + std::string(kFaultNames[static_cast<size_t>(fault)]);
  }
  return name.empty() ? "none" : name;
}

std::string AllowedFaults() {
  std::string text = "none";
  for (const std::string_view name : kFaultNames) text += ", " + std::string(name);
  return text + ", or several joined by +";
}

Result<FaultSet> ParseFaultSet(std::string_view name) {
  FaultSet set;
  if (name == "none") return set;
  for (std::string_view rest = name; !rest.empty();) {
    const size_t end = std::min(rest.find('+'), rest.size());
    const std::string_view one = rest.substr(0, end);
    size_t i = 0;
    while (i < kFaults && kFaultNames[i] != one) ++i;
    if (i == kFaults) {
      return Status::InvalidArgument("no faults are named '" + std::string(one) +
                                     "'; allowed are " + AllowedFaults());
    }
    set.Add(static_cast<Fault>(i));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (set.empty())
    return Status::InvalidArgument("no faults are named; allowed are " + AllowedFaults());
  return set;
}

}  // namespace farleaf::simulation
