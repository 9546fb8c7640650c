#include "server/control/recover_members.h"

#include <cstdio>
#include <string>

#include <fmt/format.h>

namespace farleaf::server {

namespace {

void Print(const dsm::MemberIdentity& member, const index::MemberRecovered& recovered) {
  if (!recovered.was_member) {
    fmt::print("{} has left the pool, or was recovered before\n", member.ToString());
    return;
  }
  fmt::print("{} is recovered; its id may be used again\n", member.ToString());
  for (const auto& [name, count] : recovered.Counts()) fmt::print("  {:<15} {:>10}\n", name, count);
}

std::string RecoveredJson(const dsm::MemberIdentity& member,
                          const index::MemberRecovered& recovered) {
  std::string json = fmt::format("{{\"id\": {}, \"incarnation\": {}, \"was_member\": {}", member.id,
                                 member.incarnation, recovered.was_member);
  for (const auto& [name, count] : recovered.Counts()) {
    json += fmt::format(", \"{}\": {}", name, count);
  }
  return json + "}";
}

}  // namespace

Status RecoverMembers(Store& store, dsm::MemberId id, bool json) {
  const auto members = store.Members(0);
  if (!members.ok()) return members.status();
  bool known = false, any = false;
  std::string all;
  for (const PoolMember& member : *members) {
    const bool asked = member.identity.id == id;
    known |= asked;
    if (id != 0 ? !asked : !member.live || member.fenced_by.empty()) continue;
    const auto recovered = store.Recover(
        member.identity, [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
    if (!recovered.ok()) return recovered.status();
    if (!json) Print(member.identity, *recovered);
    all += (any ? ",\n " : "") + RecoveredJson(member.identity, *recovered);
    any = true;
  }
  if (id != 0 && !known) {
    return Status::NotFound("compute server " + std::to_string(id) +
                            " was never in this pool; \"members --all\" lists those that were");
  }
  if (json) {
    fmt::print("[{}]\n", all);
  } else if (!any) {
    fmt::print("no compute server is to be recovered\n");
  }
  return Status::Ok();
}

}  // namespace farleaf::server
