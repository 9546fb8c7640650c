#include "dsm/verbs/options.h"

#include <charconv>
#include <vector>

namespace farleaf::dsm {

Result<VerbsDeviceChoice> ParseDeviceChoice(std::string_view text) {
  const Status bad = Status::InvalidArgument("'" + std::string(text) +
                                             "' is not DEVICE[:PORT[:GID INDEX]], as mlx5_0:1:3");
  auto number = [](std::string_view digits, auto* value) {
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, *value);
    return error == std::errc() && stop == end && *value >= 0;
  };
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;;) {
    const size_t colon = rest.find(':');
    parts.push_back(rest.substr(0, colon));
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  if (parts.size() > 3) return bad;
  parts.resize(3);
  VerbsDeviceChoice choice;
  choice.device = std::string(parts[0]);
  if (!parts[1].empty() && !number(parts[1], &choice.port)) return bad;
  if (!parts[2].empty() && !number(parts[2], &choice.gid_index)) return bad;
  return choice;
}

}  // namespace farleaf::dsm
