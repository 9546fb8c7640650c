// Control: farleafctl's commands, on a pool that it joins or on compute servers. A command prints what it finds, and
// returns farleafctl's exit code.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/tls.h"
#include "dsm/base/clock.h"
#include "server/control/server_rates.h"
#include "server/control/store.h"
#include "server/control/text_form.h"

namespace farleaf::server {

inline constexpr int kDone = 0, kFailed = 1, kWrongArguments = 2, kNotThere = 3;

struct Arguments {
  std::vector<std::string> servers;  // several for top
  std::string pool, password_file, tree, key, value, expected, name, layout = "bytes", leaf_layout;
  std::string start, end, prefix;  // of a scan
  int64_t delta = 1;
  std::optional<int64_t> initial;
  TextForm form = TextForm::kAuto;
  client::TreeGeometry geometry;
  uint64_t limit = 1'000;
  dsm::MemberIdentity member;  // incarnation 0: the one in the member table
  uint64_t deadline_ms = 0;    // 0: the command's default
  uint64_t watch_ms = 0;
  uint64_t interval_ms = 1'000;  // between two looks
  client::TlsOptions tls;
  bool uses_tls = false;
  bool reverse = false;
  bool keys_only = false;
  bool all = false;
  bool json = false;
  bool once = false;
};

class Control {
 public:
  explicit Control(const Arguments& arguments) : arguments_(arguments) {}

  /// One screen of the pool, and of the compute server if that is where it looks.
  Result<int> Status();
  /// Everything that is counted, as lines of names and values.
  Result<int> Stats();
  /// What compute servers do, live.
  Result<int> Top();
  Result<int> SlowLog();
  Result<int> Trees();
  Result<int> Check();
  Result<int> Members();
  Result<int> CutOff();
  Result<int> Recover();
  Result<int> CreateTree();
  Result<int> Get();
  Result<int> Put();
  Result<int> Delete();
  /// Stores if the key has the expected value.
  Result<int> CompareAndSet();
  /// To a counter.
  Result<int> Add();
  /// In pieces, so that a whole tree passes through without being held.
  Result<int> Scan();

 private:
  Result<ServerLook> Look();
  void PrintStatusJson(const std::vector<client::TreeInfo>& trees, const Result<StatLines>& pool,
                       const Result<std::vector<PoolMember>>& members, const ServerLook& look,
                       const ServerRates& rates) const;
  bool on_server() const { return !arguments_.servers.empty(); }
  farleaf::Status Open(StoreAccess access);
  Result<client::Options> ClientOptions() const;
  Result<uint64_t> NewestIncarnation(dsm::MemberId id);
  farleaf::Status OpenTree(StoreAccess access);
  /// Sets the range's bounds and prefix; returns whether any key can be in it.
  Result<bool> SetBounds(client::ScanRange* range);
  /// Sets the range to what comes after `last`; returns whether anything can.
  bool Continue(const std::string& last, client::ScanRange* range);
  void PrintRow(const client::KeyValue& row, bool first);
  void Report(const std::string& key, std::string_view what);
  std::string JsonBytes(std::string_view bytes) const;
  static std::string TreeJson(const client::TreeInfo& tree);
  const Arguments& arguments_;
  const MonotonicClock clock_;
  std::unique_ptr<Store> store_;
  client::TreeInfo tree_;
  TextForm form_ = TextForm::kText;
};

}  // namespace farleaf::server
