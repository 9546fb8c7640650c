#include "server/control/lsm_commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "dsm/base/clock.h"
#include "dsm/epoch.h"
#include "dsm/null_transport.h"
#include "index/lsm/checkpoint.h"
#include "index/lsm/closed_store.h"
#include "index/lsm/scrub.h"
#include "server/control/control.h"
#include "server/control/lsm_text.h"
#include "server/records/record.h"

namespace farleaf::server {

namespace {

using index::lsm::ClosedStore;
using index::lsm::ScrubFault;
using index::lsm::ScrubReport;
using Json = nlohmann::ordered_json;

constexpr double kMiB = 1 << 20;

/// A store that is looked at, and the worker for that.
struct Looking {
  const MonotonicClock clock;
  const WallClock wall;
  dsm::EpochDomain epochs;
  dsm::Worker worker{{std::make_unique<dsm::NullTransport>(), &epochs, &clock, 1, 1}};
  std::unique_ptr<ClosedStore> store;

  Status Open(const std::string& directory) {
    auto opened = worker.Run(ClosedStore::Open(worker, directory, &wall));
    if (!opened.ok()) return opened.status();
    store = std::move(*opened);
    return Status::Ok();
  }
};

int Fail(const Status& status) {
  std::string text = status.ToString();
  if (status.code() == StatusCode::kAlreadyExists) text += ": stop it, and ask again";
  fmt::print(stderr, "farleafctl: {}\n", text);
  return status.code() == StatusCode::kInvalidArgument ? kWrongArguments : kFailed;
}

/// Something long is under way: now and then a line for whoever waits, on a terminal the same one.
class ProgressLine {
 public:
  explicit ProgressLine(const Clock* clock) : clock_(clock), begun_ns_(clock->NowNs()) {}
  ~ProgressLine() {
    if (shown_ && terminal_) fmt::print(stderr, "\r{:78}\r", "");
  }
  double seconds() const {
    return static_cast<double>(clock_->NowNs() - begun_ns_) / static_cast<double>(kNsPerSecond);
  }
  void Show(uint64_t bytes, uint64_t of, uint64_t faults) {
    const uint64_t now_ns = clock_->NowNs();
    const uint64_t every_ns = terminal_ ? kNsPerSecond / 5 : 10 * kNsPerSecond;
    if (now_ns - std::max(told_ns_, begun_ns_) < every_ns) return;
    told_ns_ = now_ns;
    shown_ = true;
    const double mib = static_cast<double>(bytes) / kMiB;
    const std::string line = fmt::format("{:.0f} of {:.0f} MiB, {:.0f} MiB/s, {} faults", mib,
                                         static_cast<double>(of) / kMiB, mib / seconds(), faults);
    fmt::print(stderr, "{}{:<78}{}", terminal_ ? "\r" : "", line, terminal_ ? "" : "\n");
    std::fflush(stderr);
  }

 private:
  const Clock* const clock_;
  const uint64_t begun_ns_;
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
  uint64_t told_ns_ = 0;
};

int Stats(const LsmArguments& arguments) {
  Looking looking;
  Status opened = looking.Open(arguments.directory);
  if (!opened.ok()) return Fail(opened);
  auto stats = looking.worker.Run(looking.store->Stats(looking.worker));
  if (!stats.ok()) return Fail(stats.status());
  if (arguments.json) {
    fmt::print("{}\n", StatsJson(*stats));
  } else {
    fmt::print("{}", StatsText(arguments.directory, *stats));
  }
  return stats->recovery.ok() ? kDone : kFailed;
}

Json JsonOf(const ScrubFault& fault) {
  return {{"file", fault.file}, {"offset", fault.offset}, {"what", fault.what}};
}

void PrintFault(const ScrubFault& fault, const char* kind) {
  fmt::print("{}: {} at offset {}: {}\n", kind, fault.file, fault.offset, fault.what);
  std::fflush(stdout);
}

int PrintCheck(const ScrubReport& report, double seconds, const LsmArguments& arguments,
               const Json& faults, const Json& notes) {
  const double mib = static_cast<double>(report.bytes_read) / kMiB;
  if (arguments.json) {
    const Json json = {{"faults", faults},
                       {"notes", notes},
                       {"tables", report.tables},
                       {"blocks", report.blocks},
                       {"entries", report.entries},
                       {"commits", report.commits},
                       {"values", report.values},
                       {"values_named", report.values_named},
                       {"bytes_read", report.bytes_read},
                       {"seconds", seconds}};
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print(
        "{} tables with {} blocks and {} entries, {} commits, {} values of which {} are named\n",
        report.tables, report.blocks, report.entries, report.commits, report.values,
        report.values_named);
    fmt::print("read {:.1f} MiB in {:.1f} s, {:.0f} MiB/s\n", mib, seconds,
               mib / std::max(seconds, 1e-3));
    fmt::print("{}\n", report.faults == 0 ? "sound" : fmt::format("{} faults", report.faults));
  }
  return report.faults == 0 ? kDone : kFailed;
}

int Check(const LsmArguments& arguments) {
  Looking looking;
  Json faults = Json::array(), notes = Json::array();
  Status opened = looking.Open(arguments.directory);
  if (opened.code() == StatusCode::kCorruption) {
    if (!arguments.json) fmt::print("fault: {}\n", opened.message());
    fmt::print(stderr, "farleafctl: without the manifest nothing else can be checked\n");
    if (!arguments.json) return kFailed;
    faults.push_back({{"file", arguments.directory}, {"offset", 0}, {"what", opened.message()}});
    return PrintCheck({.faults = 1}, 0, arguments, faults, notes);
  }
  if (!opened.ok()) return Fail(opened);
  ProgressLine line(&looking.clock);
  index::lsm::ScrubObserver observer;
  observer.fault = [&](const ScrubFault& fault) {
    if (arguments.json) {
      faults.push_back(JsonOf(fault));
    } else {
      PrintFault(fault, "fault");
    }
  };
  observer.note = [&](const ScrubFault& note) {
    if (arguments.json) {
      notes.push_back(JsonOf(note));
    } else {
      PrintFault(note, "note");
    }
  };
  observer.progress = [&line](const ScrubReport& report) {
    line.Show(report.bytes_read, report.bytes_to_read, report.faults);
  };
  auto report =
      looking.worker.Run(index::lsm::Scrub(looking.worker, *looking.store, std::move(observer)));
  if (!report.ok()) return Fail(report.status());
  return PrintCheck(*report, line.seconds(), arguments, faults, notes);
}

int DumpTables(Looking& looking, const LsmArguments& arguments) {
  uint64_t left = arguments.limit;
  bool failed = false;
  const index::lsm::TableInfo* table = nullptr;
  const ClosedStore::LookAtRow look = [&](const ClosedStore::TableRow& row) {
    if (arguments.end && row.entry.key >= *arguments.end) return ClosedStore::GoOn::kWithTable;
    const bool is_new = table != &row.table;
    table = &row.table;
    fmt::print("{}",
               arguments.json ? TableRowJson(row) : TableRowText(row, arguments.form, is_new));
    return --left == 0 ? ClosedStore::GoOn::kNot : ClosedStore::GoOn::kWithRow;
  };
  const std::function<void(const Status&)> fail = [&failed](const Status& status) {
    std::fflush(stdout);
    fmt::print(stderr, "farleafctl: {}\n", status.ToString());
    failed = true;
  };
  looking.worker.Run(looking.store->ScanTables(looking.worker, arguments.start, look, fail));
  return failed ? kFailed : kDone;
}

int Dump(const LsmArguments& typed) {
  LsmArguments arguments = typed;
  for (std::string* const key : {&arguments.start, arguments.end ? &*arguments.end : nullptr}) {
    if (key == nullptr) continue;
    auto parsed = ParseBytes(*key, arguments.form);
    if (!parsed.ok()) return Fail(parsed.status());
    *key = std::move(*parsed);
  }
  Looking looking;
  Status status = looking.Open(arguments.directory);
  if (!status.ok()) return Fail(status);
  if (arguments.tables) return DumpTables(looking, arguments);
  auto recovered = looking.worker.Run(looking.store->Recover(looking.worker));
  if (!recovered.ok()) return Fail(recovered.status());
  uint64_t rows = 0;
  const ClosedStore::Row row = [&](std::string_view key, std::string_view value) {
    if (arguments.end && key >= *arguments.end) return false;
    if (arguments.json) {
      fmt::print("{{\"key\":{},\"value\":{}}}\n", JsonString(key), JsonString(value));
    } else {
      fmt::print("{}\t{}\n", PrintBytes(key, arguments.form), PrintBytes(value, arguments.form));
    }
    return ++rows != arguments.limit;
  };
  status = looking.worker.Run(looking.store->Scan(looking.worker, arguments.start, row));
  return status.ok() ? kDone : Fail(status);
}

int Copy(const LsmArguments& arguments, index::lsm::CopyLinks links, const char* what) {
  Looking looking;
  Status opened = looking.Open(arguments.directory);
  if (!opened.ok()) return Fail(opened);
  ProgressLine line(&looking.clock);
  const uint64_t of = looking.store->files().segments().size() * index::storage::kSegmentBytes;
  const std::function<void(const index::lsm::CopyReport&)> progress =
      [&](const index::lsm::CopyReport& report) {
        line.Show(report.segments * index::storage::kSegmentBytes, of, 0);
      };
  auto copied = looking.worker.Run(
      index::lsm::CopyStore(looking.worker, *looking.store, arguments.to, links, progress));
  if (!copied.ok()) return Fail(copied.status());
  if (arguments.json) {
    const Json json = {{"segments", copied->segments},
                       {"linked", copied->linked},
                       {"copied", copied->copied},
                       {"bytes_copied", copied->bytes_copied},
                       {"seconds", line.seconds()}};
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{} in {}: {} segments, {} linked, {} copied ({:.1f} MiB), in {:.1f} s\n", what,
               arguments.to, copied->segments, copied->linked, copied->copied,
               static_cast<double>(copied->bytes_copied) / kMiB, line.seconds());
  }
  return kDone;
}

int Checkpoint(const LsmArguments& arguments) {
  return Copy(arguments, index::lsm::CopyLinks::kWherePossible, "a checkpoint is");
}

int Restore(const LsmArguments& arguments) {
  return Copy(arguments, index::lsm::CopyLinks::kNever, "the store is");
}

}  // namespace

void DeclareLsmCommands(CLI::App& app, LsmArguments* arguments, LsmCommand* chosen) {
  CLI::App* const lsm = app.add_subcommand(
      "lsm", "looks into, checks and copies the data directory of a store that no process serves");
  lsm->require_subcommand(1);
  lsm->footer(
      "Neither --pool nor --server is needed. stats, check and dump change nothing in the "
      "directory.\n"
      "Exit code: 0 done, or sound; 1 failed, or damaged; 2 wrong arguments, or no store.");
  const auto command = [&](const char* name, const char* help, LsmCommand run) {
    CLI::App* const added = lsm->add_subcommand(name, help);
    added->callback([chosen, run] { *chosen = run; });
    return added;
  };
  const auto directory = [&](CLI::App* added, const char* name, const char* help) {
    added->add_option(name, arguments->directory, help)->required();
  };
  directory(command("stats", "levels, logs, space and its amplification, manifest", &Stats), "dir",
            "the data directory");
  CLI::App* const check =
      command("check", "reads every block and every record, and says what is damaged (exit code 1)",
              &Check);
  directory(check, "dir", "the data directory");
  CLI::App* const dump = command("dump", "prints keys and their values", &Dump);
  directory(dump, "dir", "the data directory");
  dump->add_option("--start", arguments->start, "from this key on");
  dump->add_option("--end", arguments->end, "up to, and without, this key");
  dump->add_option("--limit", arguments->limit, "rows at most; 0: no limit");
  dump->add_flag("--tables", arguments->tables,
                 "entries as tables have them, with sequence and kind, one table after another");
  const std::map<std::string, TextForm> forms = {{"text", TextForm::kText},
                                                 {"hex", TextForm::kHex}};
  dump->add_option("--format", arguments->form, "of keys and values: text or hex")
      ->type_name("FORM")
      ->transform(CLI::CheckedTransformer(forms).description(""));
  CLI::App* const checkpoint =
      command("checkpoint", "copies the store, by hard links where possible", &Checkpoint);
  directory(checkpoint, "dir", "the data directory");
  checkpoint->add_option("to", arguments->to, "the copy's directory: new, or empty")->required();
  CLI::App* const restore =
      command("restore", "copies a checkpoint to a data directory, never by links", &Restore);
  directory(restore, "from", "the checkpoint");
  restore->add_option("dir", arguments->to, "the data directory: new, or empty")->required();
}

}  // namespace farleaf::server
