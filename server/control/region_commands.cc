#include "server/control/region_commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "dsm/base/clock.h"
#include "dsm/epoch.h"
#include "dsm/null_transport.h"
#include "server/control/control.h"
#include "server/control/region_admin.h"
#include "server/control/region_text.h"
#include "server/control/text_form.h"
#include "server/membership/zookeeper_membership.h"

namespace farleaf::server {

namespace {

using membership::RegionId;
using membership::ZookeeperMembership;

constexpr uint64_t kConnectMs = 10'000;
constexpr uint64_t kWishWaitMs = 600'000;

int FailRegion(const Status& status) {
  fmt::print(stderr, "farleafctl: {}\n", status.ToString());
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return kWrongArguments;
    case StatusCode::kNotFound:
      return kNotThere;
    default:
      return kFailed;
  }
}

/// What is waited for: on a terminal one line, elsewhere a line when it is another.
class WaitLine {
 public:
  explicit WaitLine(const Clock* clock) : clock_(clock), begun_ns_(clock->NowNs()) {}
  ~WaitLine() {
    if (terminal_ && !told_.empty()) fmt::print(stderr, "\r{:<118}\r", "");
  }
  void Show(std::string_view missing) {
    if (terminal_) {
      const uint64_t waited_s = (clock_->NowNs() - begun_ns_) / kNsPerSecond;
      fmt::print(stderr, "\r{:<118}", fmt::format("waiting, {} s: {}", waited_s, missing));
      std::fflush(stderr);
    } else if (missing != told_) {
      fmt::print(stderr, "waiting: {}\n", missing);
    }
    told_ = missing;
  }

 private:
  const Clock* const clock_;
  const uint64_t begun_ns_;
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::string told_;
};

/// A session with the membership, and the worker for that.
struct Administering {
  const MonotonicClock clock;
  dsm::EpochDomain epochs;
  dsm::Worker worker{{std::make_unique<dsm::NullTransport>(), &epochs, &clock, 1, 1}};
  std::unique_ptr<ZookeeperMembership> session;
  WaitLine line{&clock};
  std::unique_ptr<RegionAdmin> admin;

  ~Administering() {
    // What was asked for has been answered: if the farewell does not arrive, the session expires.
    if (session) (void)worker.Run(session->Close(worker));
  }
  Status Open(const RegionArguments& arguments) {
    const uint64_t limit_ms = arguments.deadline_ms == 0 ? kConnectMs : arguments.deadline_ms;
    const membership::ZookeeperOptions options{
        .connect_timeout_ms = static_cast<uint32_t>(std::min(limit_ms, kConnectMs))};
    auto opened = ZookeeperMembership::Open(arguments.cluster, options, &clock);
    if (!opened.ok()) return opened.status().WithContext("membership " + arguments.cluster);
    session = std::move(*opened);
    const uint64_t wait_ms = arguments.deadline_ms == 0 ? kWishWaitMs : arguments.deadline_ms;
    admin = std::make_unique<RegionAdmin>(RegionAdmin::Deps{
        session.get(), &clock, wait_ms, [this](std::string_view missing) { line.Show(missing); }});
    return Status::Ok();
  }
};

RegionWait WaitOf(const RegionArguments& arguments) {
  return arguments.no_wait ? RegionWait::kNo : RegionWait::kUntilDone;
}

int ListRegions(const RegionArguments& arguments) {
  Administering with;
  Status opened = with.Open(arguments);
  if (!opened.ok()) return FailRegion(opened);
  const auto listing = with.worker.Run(with.admin->List(with.worker));
  if (!listing.ok()) return FailRegion(listing.status().WithContext(arguments.cluster));
  fmt::print("{}", arguments.json ? RegionsJson(*listing) : RegionsText(*listing));
  return kDone;
}

int CreateRegions(const RegionArguments& arguments) {
  std::vector<std::string> keys;
  for (const std::string& typed : arguments.keys) {
    auto key = ParseBytes(typed, TextForm::kText);
    if (!key.ok()) return FailRegion(key.status());
    keys.push_back(std::move(*key));
  }
  Administering with;
  Status status = with.Open(arguments);
  const size_t regions = keys.size() + 1;
  if (status.ok()) status = with.worker.Run(with.admin->Create(with.worker, std::move(keys)));
  if (!status.ok()) return FailRegion(status);
  fmt::print("the first node that starts founds {} regions\n", regions);
  return kDone;
}

int SplitRegion(const RegionArguments& arguments) {
  if (arguments.region == 0 && !arguments.key) {
    return FailRegion(Status::InvalidArgument("region split: the region's id, or --key"));
  }
  auto key = ParseBytes(arguments.key.value_or(""), TextForm::kText);
  if (!key.ok()) return FailRegion(key.status());
  auto at = ParseBytes(arguments.at, TextForm::kText);
  if (!at.ok()) return FailRegion(at.status());
  Administering with;
  Status opened = with.Open(arguments);
  if (!opened.ok()) return FailRegion(opened);
  const auto right = with.worker.Run(with.admin->Split(
      with.worker, RegionId{arguments.region}, std::move(*key), std::move(*at), WaitOf(arguments)));
  if (!right.ok()) return FailRegion(right.status());
  if (*right == RegionId::kNone) {
    fmt::print("wished: see region list\n");
  } else {
    fmt::print("region {} begins at {}\n", static_cast<uint32_t>(*right), arguments.at);
  }
  return kDone;
}

int Wished(Status status, const RegionArguments& arguments, const std::string& done) {
  if (!status.ok()) return FailRegion(status);
  fmt::print("{}\n", arguments.no_wait ? "wished: see region list" : done);
  return kDone;
}

int MoveRegion(const RegionArguments& arguments) {
  Administering with;
  Status status = with.Open(arguments);
  if (status.ok()) {
    status = with.worker.Run(with.admin->Move(with.worker, RegionId{arguments.region},
                                              arguments.node, WaitOf(arguments)));
  }
  return Wished(
      std::move(status), arguments,
      fmt::format("node {} is the primary of region {}", arguments.node, arguments.region));
}

int AssignRegion(const RegionArguments& arguments) {
  if (arguments.anywhere != arguments.nodes.empty()) {
    return FailRegion(Status::InvalidArgument("region assign: nodes, or --anywhere"));
  }
  Administering with;
  Status status = with.Open(arguments);
  if (status.ok()) {
    status = with.worker.Run(with.admin->Assign(with.worker, RegionId{arguments.region},
                                                arguments.nodes, WaitOf(arguments)));
  }
  return Wished(std::move(status), arguments,
                arguments.anywhere
                    ? fmt::format("region {} is where the master sees fit", arguments.region)
                    : fmt::format("region {} is where it is assigned to", arguments.region));
}

}  // namespace

void DeclareRegionCommands(CLI::App& app, RegionArguments* arguments, RegionCommand* chosen) {
  CLI::App* const region = app.add_subcommand(
      "region", "looks at a cluster's regions, cuts them and says who is to have them");
  region->require_subcommand(1);
  region
      ->add_option("--cluster", arguments->cluster,
                   "the membership: zookeeper://HOST:PORT[,HOST:PORT...]/NAME")
      ->required();
  region->footer(
      "What is asked for is written as a wish into the membership, and carried out by the master "
      "and\n"
      "the region's primary. farleafctl waits until it has come about, 10 minutes if --deadline-ms "
      "is\n"
      "not given; a wish stays when it waits no more.\n"
      "Keys are text: bytes that are not printable as \\xNN, a backslash as \\\\. They are keys as "
      "clients\n"
      "have them: a region holds of every tree what is in its range.\n"
      "Exit code: 0 done; 1 failed, or not in time; 2 wrong arguments; 3 no such region or node, "
      "or no\n"
      "map yet.");
  const auto command = [&](const char* name, const char* help, RegionCommand run) {
    CLI::App* const added = region->add_subcommand(name, help);
    added->callback([chosen, run] { *chosen = run; });
    return added;
  };
  const auto waits = [&](CLI::App* added) {
    added->add_flag("--no-wait", arguments->no_wait, "does not wait until it has come about");
  };
  const auto id = [&](CLI::App* added) {
    return added->add_option("id", arguments->region, "the region, as \"region list\" has it")
        ->check(CLI::Range(uint32_t{1}, UINT32_MAX));
  };
  const CLI::Range nodes(uint32_t{1}, uint32_t{UINT16_MAX});
  command("list", "regions with their keys, members and what is wished for them; nodes",
          &ListRegions);
  CLI::App* const create =
      command("create", "before any node was started: where the first map of regions is to be cut",
              &CreateRegions);
  create->add_option("keys", arguments->keys, "each begins a region; the first begins at the start")
      ->required();
  create->footer(
      "Again replaces what was said before. Refused where there is a map: use region split.");
  CLI::App* const split = command("split", "cuts a region in two, at its primary", &SplitRegion);
  CLI::Option* const by_id = id(split);
  split->add_option("--key", arguments->key, "the region that has this key")->excludes(by_id);
  split->add_option("--at", arguments->at, "the first key of the new region")->required();
  waits(split);
  CLI::App* const move = command("move", "makes a node a region's primary", &MoveRegion);
  id(move)->required();
  move->add_option("node", arguments->node, "gets a copy first, if it has none")
      ->required()
      ->check(nodes);
  move->footer(
      "Balance may move it, or another region, later on; \"region assign\" keeps it where it is.");
  waits(move);
  CLI::App* const assign =
      command("assign", "says which nodes are to have a region, and nobody else", &AssignRegion);
  id(assign)->required();
  assign
      ->add_option("nodes", arguments->nodes, "all of them get a copy; one of them is the primary")
      ->check(nodes);
  assign->add_flag("--anywhere", arguments->anywhere, "no nodes: where the master sees fit");
  assign->footer(
      "Copies are made before any is given up. As many as are named have it then, also if they "
      "are\n"
      "fewer than the cluster's --replicas.");
  waits(assign);
}

}  // namespace farleaf::server
