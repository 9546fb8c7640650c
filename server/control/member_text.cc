#include "server/control/member_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace farleaf::server {

namespace {

std::string ServersText(const std::vector<dsm::ServerId>& servers) {
  return fmt::format("{}", fmt::join(servers, ", "));
}

}  // namespace

std::string StateText(const PoolMember& member) {
  if (!member.live) return "left";
  if (!member.fenced_by.empty()) {
    return "fenced by memory server " + ServersText(member.fenced_by);
  }
  if (member.silent_at.empty()) return "live";
  return "live, silent at memory server " + ServersText(member.silent_at);
}

std::string MemberJson(const PoolMember& member) {
  return fmt::format(
      "{{\"id\": {}, \"incarnation\": {}, \"live\": {}, \"fenced_by\": [{}], "
      "\"watched_by\": [{}], \"silent_at\": [{}]}}",
      member.identity.id, member.identity.incarnation, member.live, ServersText(member.fenced_by),
      ServersText(member.watched_by), ServersText(member.silent_at));
}

}  // namespace farleaf::server
