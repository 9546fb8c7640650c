// The commands about a pool and its members.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/check_report.h"
#include "server/control/control.h"
#include "server/control/member_text.h"
#include "server/control/recover_members.h"

namespace farleaf::server {

using Json = nlohmann::ordered_json;

Result<int> Control::Check() {
  FARLEAF_RETURN_IF_ERROR(Open(StoreAccess::kRead));
  const auto report = store_->Check();
  if (!report.ok()) return report.status();
  if (arguments_.json) {
    fmt::print("{}\n",
               CheckReportJson(*report).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}", CheckReportText(*report));
  }
  return report->ok() ? kDone : kFailed;
}

Result<int> Control::Members() {
  FARLEAF_RETURN_IF_ERROR(Open(StoreAccess::kRead));
  const auto members = store_->Members(arguments_.watch_ms);
  if (!members.ok()) return members.status();
  if (!arguments_.json) fmt::print("{:>4}  {:>11}  {}\n", "id", "incarnation", "state");
  std::string json;
  for (const PoolMember& member : *members) {
    if (!member.live && !arguments_.all) continue;
    if (!arguments_.json) {
      fmt::print("{:>4}  {:>11}  {}\n", member.identity.id, member.identity.incarnation,
                 StateText(member));
    }
    json += (json.empty() ? "" : ",\n ") + MemberJson(member);
  }
  if (arguments_.json) fmt::print("[{}]\n", json);
  return kDone;
}

Result<int> Control::CutOff() {
  FARLEAF_RETURN_IF_ERROR(Open(StoreAccess::kRead));
  dsm::MemberIdentity member = arguments_.member;
  if (member.incarnation == 0) {
    const auto newest = NewestIncarnation(member.id);
    if (!newest.ok()) return newest.status();
    member.incarnation = *newest;
  }
  const auto outcomes = store_->CutOff(member);
  if (!outcomes.ok()) return outcomes.status();
  bool confirmed = true;
  std::string json;
  for (const auto& [server, status] : *outcomes) {
    confirmed &= status.ok();
    if (!arguments_.json) {
      fmt::print("memory server {}: {}\n", server,
                 status.ok() ? member.ToString() + " is cut off"
                             : "not confirmed, so ask again: " + status.ToString());
    }
    json += fmt::format("{}{{\"server\": {}, \"cut_off\": {}, \"error\": {}}}",
                        json.empty() ? "" : ",\n  ", server, status.ok(),
                        status.ok() ? "null" : JsonString(status.ToString()));
  }
  if (arguments_.json) {
    fmt::print("{{\"id\": {}, \"incarnation\": {}, \"memory_servers\":\n [{}]}}\n", member.id,
               member.incarnation, json);
  }
  return confirmed ? kDone : kFailed;
}

Result<int> Control::Recover() {
  FARLEAF_RETURN_IF_ERROR(Open(StoreAccess::kWrite));
  FARLEAF_RETURN_IF_ERROR(RecoverMembers(*store_, arguments_.member.id, arguments_.json));
  return kDone;
}

farleaf::Status Control::Open(StoreAccess access) {
  const auto options = ClientOptions();
  if (!options.ok()) return options.status();
  auto opened = !on_server()
                    ? OpenPoolStore(arguments_.pool, arguments_.deadline_ms, access, &clock_)
                    : OpenServerStore(arguments_.servers.front(), *options, &clock_);
  if (!opened.ok()) return opened.status();
  store_ = std::move(*opened);
  return farleaf::Status::Ok();
}

Result<client::Options> Control::ClientOptions() const {
  client::Options options;
  options.deadline_ms = arguments_.deadline_ms;
  options.connect_timeout_ms = arguments_.deadline_ms;
  options.password_file = arguments_.password_file;
  if (arguments_.uses_tls) {
    auto tls = client::NewTls(arguments_.tls);
    if (!tls.ok()) return tls.status();
    options.transport = std::move(*tls);
  }
  return options;
}

Result<uint64_t> Control::NewestIncarnation(dsm::MemberId id) {
  const auto members = store_->Members(0);
  if (!members.ok()) return members.status();
  for (const PoolMember& each : *members) {
    if (each.identity.id == id) return each.identity.incarnation;
  }
  return farleaf::Status::NotFound("compute server " + std::to_string(id) +
                                   " was never in this pool; \"members --all\" lists those that "
                                   "were");
}

}  // namespace farleaf::server
