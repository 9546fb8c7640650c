// EntryTree: the entries that a service keeps, and who is to be told of what. Watches are those of ZooKeeper: each tells of
// one change and is gone then, of an entry's bytes or existence, or of who its children are.
//
// Invariant: every entry but "/" has a parent, which is persistent.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/membership/membership.h"

namespace farleaf::server::membership {

enum class SessionId : uint64_t { kNone = 0 };

class EntryTree {
 public:
  EntryTree() { entries_["/"]; }

  /// As Membership says. `session` owns the entry if it is ephemeral, and is the one that looks.
  Result<std::string> Create(SessionId session, std::string path, std::string bytes,
                             CreateOptions options);
  Result<Entry> Get(SessionId session, const std::string& path, Watch watch);
  Result<Version> Set(const std::string& path, std::string bytes, std::optional<Version> version);
  Status Remove(const std::string& path, std::optional<Version> version);
  Result<std::vector<std::string>> Children(SessionId session, const std::string& path,
                                            Watch watch);
  Status Commit(const std::vector<Change>& changes);
  /// Its ephemeral entries and its watches are gone.
  void EndSession(SessionId session);

  struct Notice {
    SessionId session;
    std::string path;
  };
  /// Who is to be told, of all changes since the last call, in their order.
  std::vector<Notice> TakeNotices() { return std::exchange(notices_, {}); }

 private:
  struct Node {
    Entry entry;
    SessionId owner = SessionId::kNone;
    uint32_t next_sequence = 0;
  };
  using Watches = std::map<std::string, std::set<SessionId>>;

  bool HasChildren(const std::string& path) const;
  void Tell(Watches& watches, const std::string& path);

  std::map<std::string, Node> entries_;  // by path
  Watches entry_watches_, child_watches_;
  std::vector<Notice> notices_;
};

}  // namespace farleaf::server::membership
