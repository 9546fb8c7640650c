// farleafctl: looks into and changes a pool or what a compute server serves.
//
// Exit codes: 0 done · 1 failed · 2 wrong arguments · 3 the key, the tree or the
// compute server is not there.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "client/tls.h"
#include "dsm/base/log.h"
#include "server/check_report.h"
#include "server/config.h"
#include "server/control/recover_members.h"
#include "server/control/store.h"
#include "server/control/text_form.h"
#include "server/frontend/execute.h"

namespace farleaf::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDone = 0, kFailed = 1, kWrongArguments = 2, kNotThere = 3;

struct Arguments {
  std::string pool, server, password_file, tree, key, value, start, end, name, layout = "bytes",
                                                                               leaf_layout;
  TextForm form = TextForm::kAuto;
  client::TreeGeometry geometry;
  uint64_t limit = 1'000;
  dsm::MemberIdentity member;  // incarnation 0: the one in the member table
  uint64_t deadline_ms = 0;    // 0: the command's default
  uint64_t watch_ms = 0;
  client::TlsOptions tls;
  bool uses_tls = false;
  bool reverse = false;
  bool all = false;
  bool json = false;
};

std::string ServersText(const std::vector<dsm::ServerId>& servers) {
  return fmt::format("{}", fmt::join(servers, ", "));
}

/// "left", "fenced by memory server 0, 1", "live, silent at memory server 1".
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

class Control {
 public:
  explicit Control(const Arguments& arguments) : arguments_(arguments) {}

  Result<int> Status() {
    FARLEAF_RETURN_IF_ERROR(Open(StoreAccess::kRead));
    const auto lines = store_->Status();
    if (!lines.ok()) return lines.status();
    size_t width = 0;
    for (const auto& [name, value] : *lines) width = std::max(width, name.size());
    std::string json;
    for (const auto& [name, value] : *lines) {
      if (!arguments_.json) fmt::print("{:<{}}  {}\n", name, width, value);
      json +=
          fmt::format("{}{}: {}", json.empty() ? "" : ", ", JsonString(name), JsonString(value));
    }
    if (arguments_.json) fmt::print("{{{}}}\n", json);
    return kDone;
  }

  Result<int> Trees() {
    FARLEAF_RETURN_IF_ERROR(Open(StoreAccess::kRead));
    const auto trees = store_->ListTrees();
    if (!trees.ok()) return trees.status();
    if (!arguments_.json)
      fmt::print("{:>4}  {:<7}  {:>9}  {:>9}  {:>10}  {:>10}  {}\n", "id", "layout", "key max",
                 "value max", "leaf bytes", "node bytes", "name");
    std::string json;
    for (const client::TreeInfo& tree : *trees) {
      if (!arguments_.json) {
        fmt::print("{:>4}  {:<7}  {:>9}  {:>9}  {:>10}  {:>10}  {}\n", tree.id,
                   TreeLayoutName(tree.layout), tree.key_bytes_max, tree.value_bytes_max,
                   tree.leaf_bytes, tree.node_bytes, PrintBytes(tree.name, TextForm::kText));
      }
      json += (json.empty() ? "" : ", ") + TreeJson(tree);
    }
    if (arguments_.json) fmt::print("[{}]\n", json);
    return kDone;
  }

  Result<int> Check() {
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

  Result<int> Members() {
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

  Result<int> CutOff() {
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

  Result<int> Recover() {
    FARLEAF_RETURN_IF_ERROR(Open(StoreAccess::kWrite));
    FARLEAF_RETURN_IF_ERROR(RecoverMembers(*store_, arguments_.member.id, arguments_.json));
    return kDone;
  }

  Result<int> CreateTree() {
    FARLEAF_RETURN_IF_ERROR(Open(StoreAccess::kWrite));
    client::TreeSpec spec;
    spec.name = arguments_.name;
    if (arguments_.layout == "fixed8") spec.layout = client::TreeLayout::kFixed8;
    spec.geometry = arguments_.geometry;
    if (arguments_.leaf_layout == "sorted") spec.geometry.leaf_layout = client::LeafLayout::kSorted;
    if (arguments_.leaf_layout == "parted") spec.geometry.leaf_layout = client::LeafLayout::kParted;
    const auto tree = store_->CreateTree(spec);
    if (!tree.ok()) return tree.status();
    if (arguments_.json) {
      fmt::print("{}\n", TreeJson(*tree));
    } else {
      fmt::print("created tree {} (id {}, {})\n", tree->name, tree->id,
                 TreeLayoutName(tree->layout));
    }
    return kDone;
  }

  Result<int> Get() {
    FARLEAF_RETURN_IF_ERROR(OpenTree(StoreAccess::kRead));
    const auto key = ParseBytes(arguments_.key, form_);
    if (!key.ok()) return key.status();
    const auto value = store_->Get(*key);
    if (!value.ok()) return value.status();
    if (!value->has_value()) {
      if (arguments_.json) {
        fmt::print("{{\"key\": {}, \"found\": false}}\n", JsonBytes(*key));
      } else {
        fmt::print(stderr, "not found: {}\n", PrintBytes(*key, form_));
      }
      return kNotThere;
    }
    if (arguments_.json) {
      fmt::print("{{\"key\": {}, \"found\": true, \"value\": {}}}\n", JsonBytes(*key),
                 JsonBytes(**value));
    } else {
      fmt::print("{}\n", PrintBytes(**value, form_));
    }
    return kDone;
  }

  Result<int> Put() {
    FARLEAF_RETURN_IF_ERROR(OpenTree(StoreAccess::kWrite));
    const auto key = ParseBytes(arguments_.key, form_);
    if (!key.ok()) return key.status();
    const auto value = ParseBytes(arguments_.value, form_);
    if (!value.ok()) return value.status();
    const auto is_new = store_->Put(*key, *value);
    if (!is_new.ok()) return is_new.status();
    Report(*key, *is_new ? "inserted" : "replaced");
    return kDone;
  }

  Result<int> Delete() {
    FARLEAF_RETURN_IF_ERROR(OpenTree(StoreAccess::kWrite));
    const auto key = ParseBytes(arguments_.key, form_);
    if (!key.ok()) return key.status();
    const auto existed = store_->Delete(*key);
    if (!existed.ok()) return existed.status();
    Report(*key, *existed ? "deleted" : "not found");
    return *existed ? kDone : kNotThere;
  }

  /// In pieces, so that a whole tree passes through without being held.
  Result<int> Scan() {
    constexpr uint64_t kPieceRows = 4'096;
    FARLEAF_RETURN_IF_ERROR(OpenTree(StoreAccess::kRead));
    client::ScanRange range;
    range.reverse = arguments_.reverse;
    FARLEAF_RETURN_IF_ERROR(SetBounds(&range));
    uint64_t left = arguments_.all ? UINT64_MAX : arguments_.limit;
    bool first = true;
    if (arguments_.json) fmt::print("[");
    while (left > 0) {
      range.limit = std::min(left, kPieceRows);
      const auto rows = store_->Scan(range);
      if (!rows.ok()) return rows.status();
      for (const client::KeyValue& row : *rows) {
        PrintRow(row, first);
        first = false;
      }
      if (rows->size() < range.limit) break;
      left -= rows->size();
      if (!Continue(rows->back().key, &range)) break;
    }
    if (arguments_.json) fmt::print("]\n");
    return kDone;
  }

 private:
  farleaf::Status Open(StoreAccess access) {
    const auto options = ClientOptions();
    if (!options.ok()) return options.status();
    auto opened = arguments_.server.empty()
                      ? OpenPoolStore(arguments_.pool, arguments_.deadline_ms, access, &clock_)
                      : OpenServerStore(arguments_.server, *options, &clock_);
    if (!opened.ok()) return opened.status();
    store_ = std::move(*opened);
    return farleaf::Status::Ok();
  }
  Result<client::Options> ClientOptions() const {
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
  Result<uint64_t> NewestIncarnation(dsm::MemberId id) {
    const auto members = store_->Members(0);
    if (!members.ok()) return members.status();
    for (const PoolMember& each : *members) {
      if (each.identity.id == id) return each.identity.incarnation;
    }
    return farleaf::Status::NotFound("compute server " + std::to_string(id) +
                                     " was never in this pool; \"members --all\" lists those that "
                                     "were");
  }
  farleaf::Status OpenTree(StoreAccess access) {
    FARLEAF_RETURN_IF_ERROR(Open(access));
    auto tree = store_->OpenTree(arguments_.tree);
    if (!tree.ok()) return tree.status();
    tree_ = std::move(*tree);
    form_ = FormFor(arguments_.form, tree_.layout);
    return farleaf::Status::Ok();
  }
  farleaf::Status SetBounds(client::ScanRange* range) {
    if (!arguments_.start.empty()) {
      auto start = ParseBytes(arguments_.start, form_);
      if (!start.ok()) return start.status();
      range->start = std::move(*start);
    }
    if (!arguments_.end.empty()) {
      auto end = ParseBytes(arguments_.end, form_);
      if (!end.ok()) return end.status();
      range->end = std::move(*end);
    }
    return farleaf::Status::Ok();
  }
  /// Sets the range to what comes after `last`; returns whether anything can.
  bool Continue(const std::string& last, client::ScanRange* range) {
    if (arguments_.reverse) {
      range->end = last;
      return true;
    }
    auto next = SuccessorKey(last, tree_);
    if (!next) return false;
    range->start = std::move(*next);
    return true;
  }
  void PrintRow(const client::KeyValue& row, bool first) {
    if (arguments_.json) {
      fmt::print("{}{{\"key\": {}, \"value\": {}}}", first ? "" : ",\n ", JsonBytes(row.key),
                 JsonBytes(row.value));
    } else {
      fmt::print("{}\t{}\n", PrintBytes(row.key, form_), PrintBytes(row.value, form_));
    }
  }
  void Report(const std::string& key, std::string_view what) {
    if (arguments_.json) {
      fmt::print("{{\"key\": {}, \"result\": \"{}\"}}\n", JsonBytes(key), what);
    } else {
      fmt::print("{}\n", what);
    }
  }
  std::string JsonBytes(std::string_view bytes) const {
    if (form_ == TextForm::kText) return JsonString(bytes);
    const std::string text = PrintBytes(bytes, form_);
    return form_ == TextForm::kU64 && bytes.size() == 8 ? text : JsonString(text);
  }
  static std::string TreeJson(const client::TreeInfo& tree) {
    return fmt::format(
        "{{\"id\": {}, \"name\": {}, \"layout\": \"{}\", \"key_bytes_max\": {}, "
        "\"value_bytes_max\": {}, \"leaf_bytes\": {}, \"node_bytes\": {}}}",
        tree.id, JsonString(tree.name), TreeLayoutName(tree.layout), tree.key_bytes_max,
        tree.value_bytes_max, tree.leaf_bytes, tree.node_bytes);
  }

  const Arguments& arguments_;
  const MonotonicClock clock_;
  std::unique_ptr<Store> store_;
  client::TreeInfo tree_;
  TextForm form_ = TextForm::kText;
};

using Command = Result<int> (Control::*)();

void DeclareCommands(CLI::App& app, Arguments* arguments, Command* chosen) {
  const auto command = [&](const char* name, const char* help, Command run) {
    CLI::App* const added = app.add_subcommand(name, help);
    added->callback([chosen, run] { *chosen = run; });
    return added;
  };
  const auto on_tree = [&](CLI::App* added) {
    added->add_option("--tree", arguments->tree, "the tree's name")->required();
    const std::map<std::string, TextForm> forms = {{"auto", TextForm::kAuto},
                                                   {"text", TextForm::kText},
                                                   {"u64", TextForm::kU64},
                                                   {"hex", TextForm::kHex}};
    added
        ->add_option("--format", arguments->form,
                     "of keys and values: text, u64, hex; auto: u64 in fixed8 trees, else text")
        ->type_name("FORM")
        ->transform(CLI::CheckedTransformer(forms).description(""));
    return added;
  };
  command("status", "what the pool or the server has and does", &Control::Status);
  command("trees", "lists the trees", &Control::Trees);
  command("check", "validates every tree and accounts for every page (exit code 1: errors found)",
          &Control::Check);
  CLI::App* const members = command(
      "members", "lists the pool's compute servers, with those that died", &Control::Members);
  members->add_flag("--all", arguments->all, "those that have left too");
  members
      ->add_option("--watch-ms", arguments->watch_ms,
                   "looks for so long who renews its leases (they do once a second at least)")
      ->check(CLI::Range(uint64_t{0}, uint64_t{3'600'000}));
  CLI::App* const cut_off = command(
      "cut-off", "has all memory servers cut a compute server off for good", &Control::CutOff);
  cut_off->footer(
      "Its connections are destroyed (on shm, its process is killed). Once a memory server has\n"
      "confirmed that, nothing from the compute server can land there any more, and what it had\n"
      "locked there is taken over by whoever waits for it. Its id stays taken until it is "
      "recovered\n"
      "(\"recover\"). A compute server that lives joins the pool again by itself, if memory "
      "servers\n"
      "have leases (lease_ms).\n"
      "Exit code: 0 if all memory servers have confirmed it, 1 if not (ask again; it does no\n"
      "harm twice), 3 if there never was such a compute server.");
  cut_off->add_option("id", arguments->member.id, "the compute server, as \"members\" lists it")
      ->required()
      ->check(CLI::Range(uint64_t{1}, uint64_t{dsm::kMembersMax - 1}));
  cut_off
      ->add_option("--incarnation", arguments->member.incarnation,
                   "this one and all older ones; if not given, the newest")
      ->check(CLI::Range(uint64_t{1}, UINT64_MAX));
  CLI::App* const recover =
      command("recover", "returns what compute servers hold that are cut off", &Control::Recover);
  recover->footer(
      "Takes over their locks and finishes what they had begun under them, gives their pages back\n"
      "and their ids free. A compute server that has died is cut off when its lease is over;\n"
      "\"cut-off\" does it at once. May be run again, and beside everything else.");
  recover
      ->add_option("id", arguments->member.id,
                   "the compute server; if not given, all that are cut off and have not left")
      ->check(CLI::Range(uint64_t{1}, uint64_t{dsm::kMembersMax - 1}));
  CLI::App* const create = command("create-tree", "creates a tree", &Control::CreateTree);
  create->add_option("name", arguments->name, "the new tree's name")->required();
  create->add_option("--layout", arguments->layout, "fixed8 or bytes")
      ->check(CLI::IsMember({"fixed8", "bytes"}));
  create->add_option("--leaf-bytes", arguments->geometry.leaf_bytes,
                     "of a leaf's page; 0: the default");
  create->add_option("--node-bytes", arguments->geometry.node_bytes,
                     "of an internal node's page; 0: the default");
  create
      ->add_option("--leaf-layout", arguments->leaf_layout,
                   "sorted, or parted (fixed8 only, and its default)")
      ->check(CLI::IsMember({"sorted", "parted"}));
  create->add_option("--key-bytes-max", arguments->geometry.key_bytes_max, "0: the default");
  create->add_option("--inline-value-bytes-max", arguments->geometry.inline_value_bytes_max,
                     "longer values lie outside of the leaf; 0: the default");
  on_tree(command("get", "prints a key's value", &Control::Get))
      ->add_option("key", arguments->key)
      ->required();
  CLI::App* const put = on_tree(command("put", "stores a value under a key", &Control::Put));
  put->add_option("key", arguments->key)->required();
  put->add_option("value", arguments->value)->required();
  on_tree(command("delete", "deletes a key", &Control::Delete))
      ->add_option("key", arguments->key)
      ->required();
  CLI::App* const scan = on_tree(command("scan", "prints a range of keys", &Control::Scan));
  scan->add_option("--start", arguments->start, "from this key on");
  scan->add_option("--end", arguments->end, "up to, and without, this key");
  scan->add_option("--limit", arguments->limit, "rows at most");
  scan->add_flag("--all", arguments->all, "no limit");
  scan->add_flag("--reverse", arguments->reverse, "from the largest key down");
}

int Main(int argc, char** argv) {
  Arguments arguments;
  Command chosen = nullptr;
  CLI::App app("Looks into and changes a pool, or what a compute server serves.", "farleafctl");
  app.require_subcommand(1);
  app.set_version_flag("--version", [] {
    std::string text = VersionText("farleafctl");
    text.pop_back();  // its caller ends the line
    return text;
  });
  app.fallthrough();
  CLI::Option* const pool = app.add_option(
      "--pool", arguments.pool, "bootstrap URL: memcached://HOST:PORT/CLUSTER or file:PATH");
  CLI::Option* const server = app.add_option(
      "--server", arguments.server, "compute server: farleaf://HOST:PORT or farleaf+unix:PATH");
  pool->excludes(server);
  app.add_option("--password-file", arguments.password_file,
                 "whose first line is the compute server's password");
  app.add_flag("--tls", arguments.uses_tls, "speak TLS with the compute server");
  app.add_option("--tls-ca", arguments.tls.ca_file,
                 "who has to have signed its certificate; if not given, the machine's authorities");
  app.add_option("--tls-certificate", arguments.tls.certificate_file, "of this client");
  app.add_option("--tls-key", arguments.tls.key_file, "of this client's certificate");
  app.add_option("--deadline-ms", arguments.deadline_ms,
                 "for each step; 10 s if not given, for a check an hour")
      ->check(CLI::Range(uint64_t{1}, uint64_t{86'400'000}));
  app.add_flag("--json", arguments.json, "print JSON");
  DeclareCommands(app, &arguments, &chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kDone : kWrongArguments;
  }
  if (arguments.pool.empty() && arguments.server.empty()) {
    fmt::print(stderr, "farleafctl: --pool URL or --server URL is needed\n");
    return kWrongArguments;
  }
  if (arguments.deadline_ms == 0) {
    arguments.deadline_ms = chosen == &Control::Check ? 3'600'000 : 10'000;
  }
  spdlog::set_level(spdlog::level::off);  // failures are printed below
  Control control(arguments);
  const Result<int> code = (control.*chosen)();
  if (code.ok()) return *code;
  fmt::print(stderr, "farleafctl: {}\n", code.status().ToString());
  switch (code.status().code()) {
    case StatusCode::kInvalidArgument:
      return kWrongArguments;
    case StatusCode::kNotFound:
      return kNotThere;
    default:
      return kFailed;
  }
}

}  // namespace
}  // namespace farleaf::server

int main(int argc, char** argv) { return farleaf::server::Main(argc, argv); }
