// farleafctl: looks into and changes a pool, what a compute server serves, or a cluster's regions. Here are its arguments; what it does is in
// control/.
//
// Exit codes (lsm: control/lsm_commands.h, region: control/region_commands.h): 0 done · 1 failed · 2 wrong arguments · 3 the key, the tree or the
// compute server is not there.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <utility>

#include "dsm/base/log.h"
#include "server/config.h"
#include "server/control/control.h"
#include "server/control/lsm_commands.h"
#include "server/control/region_commands.h"

namespace farleaf::server {
namespace {

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
  const auto looks = [&](CLI::App* added) {
    added->add_option("--interval-ms", arguments->interval_ms, "between two looks")
        ->check(CLI::Range(uint64_t{10}, uint64_t{3'600'000}));
    return added;
  };
  looks(command("status", "one screen: the pool and its servers, and what a compute server does",
                &Control::Status));
  looks(command("top", "a live table of what compute servers do; q ends it", &Control::Top))
      ->add_flag("--once", arguments->once, "one table, and no more");
  command("stats", "everything that the pool or the server counts", &Control::Stats);
  command("slow-log", "the compute server's slow requests, the newest first", &Control::SlowLog);
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
  CLI::App* const cas = on_tree(command(
      "cas", "stores a value under a key that has the expected one", &Control::CompareAndSet));
  cas->footer(
      "Atomic. Exit code: 0 if it stored, 1 if the value is another (it is printed),\n"
      "3 if the key is not there.");
  cas->add_option("key", arguments->key)->required();
  cas->add_option("expected", arguments->expected)->required();
  cas->add_option("value", arguments->value)->required();
  CLI::App* const add =
      on_tree(command("add", "adds to a counter, and prints what it is then", &Control::Add));
  add->footer(
      "Atomic. A counter is a value of 8 bytes: a number with a sign, big-endian; \"put\" stores\n"
      "one with --format u64. Exit code: 3 if the key is not there and --initial is not given.");
  add->add_option("key", arguments->key)->required();
  add->add_option("delta", arguments->delta, "1 if not given");
  add->add_option("--initial", arguments->initial, "what an absent key has before the addition");
  CLI::App* const scan = on_tree(command("scan", "prints a range of keys", &Control::Scan));
  scan->add_option("--start", arguments->start, "from this key on");
  scan->add_option("--end", arguments->end, "up to, and without, this key");
  scan->add_option("--prefix", arguments->prefix, "only keys that begin with it");
  scan->add_flag("--keys-only", arguments->keys_only, "without values");
  scan->add_option("--limit", arguments->limit, "rows at most");
  scan->add_flag("--all", arguments->all, "no limit");
  scan->add_flag("--reverse", arguments->reverse, "from the largest key down");
}

int RunLsm(const Arguments& arguments, LsmArguments lsm, LsmCommand command) {
  if (!arguments.pool.empty() || !arguments.servers.empty()) {
    fmt::print(stderr, "farleafctl: lsm looks into a directory: no --pool and no --server\n");
    return kWrongArguments;
  }
  lsm.json = arguments.json;
  return command(lsm);
}

int RunRegion(const Arguments& arguments, RegionArguments region, RegionCommand command) {
  if (!arguments.pool.empty() || !arguments.servers.empty()) {
    fmt::print(stderr, "farleafctl: region asks a membership: no --pool and no --server\n");
    return kWrongArguments;
  }
  region.json = arguments.json;
  region.deadline_ms = arguments.deadline_ms;
  return command(region);
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
  CLI::Option* const server =
      app.add_option("--server", arguments.servers,
                     "compute server: farleaf://HOST:PORT[,HOST:PORT…] (the first that answers) or "
                     "farleaf+unix:PATH; for top several, each with the flag");
  server->allow_extra_args(false);
  pool->excludes(server);
  app.add_option("--password-file", arguments.password_file,
                 "whose first line is the compute server's password");
  CLI::Option* const tls =
      app.add_flag("--tls", arguments.uses_tls, "speak TLS with the compute server");
  // Whoever names a certificate does not mean the password to go in clear.
  app.add_option("--tls-ca", arguments.tls.ca_file,
                 "who has to have signed its certificate; if not given, the machine's authorities")
      ->needs(tls);
  app.add_option("--tls-certificate", arguments.tls.certificate_file, "of this client")->needs(tls);
  app.add_option("--tls-key", arguments.tls.key_file, "of this client's certificate")->needs(tls);
  app.add_option("--deadline-ms", arguments.deadline_ms,
                 "for each step; 10 s if not given, for a check an hour, for a region 10 minutes")
      ->check(CLI::Range(uint64_t{1}, uint64_t{86'400'000}));
  app.add_flag("--json", arguments.json, "print JSON");
  DeclareCommands(app, &arguments, &chosen);
  LsmArguments lsm_arguments;
  LsmCommand lsm_command = nullptr;
  DeclareLsmCommands(app, &lsm_arguments, &lsm_command);
  RegionArguments region_arguments;
  RegionCommand region_command = nullptr;
  DeclareRegionCommands(app, &region_arguments, &region_command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kDone : kWrongArguments;
  }
  spdlog::set_level(spdlog::level::off);  // failures are printed below
  if (lsm_command) return RunLsm(arguments, std::move(lsm_arguments), lsm_command);
  if (region_command) return RunRegion(arguments, std::move(region_arguments), region_command);
  if (arguments.pool.empty() && arguments.servers.empty()) {
    fmt::print(stderr, "farleafctl: --pool URL or --server URL is needed\n");
    return kWrongArguments;
  }
  if (arguments.servers.size() > 1 && chosen != &Control::Top) {
    fmt::print(stderr, "farleafctl: --server: one URL is wanted here\n");
    return kWrongArguments;
  }
  if (arguments.deadline_ms == 0) {
    arguments.deadline_ms = chosen == &Control::Check ? 3'600'000 : 10'000;
  }
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
