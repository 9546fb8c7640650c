// RecordMembers: who serves a protocol's records in tests of peers, which have neither sockets nor threads: one server
// over a map, or two compute servers on one pool. MemberPeers: a client of all of them, who asks now the one, now the other.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "test/support/exchange.h"
#include "test/support/map_tree_host.h"
#include "test/support/pool_hosts.h"

namespace farleaf::test {

enum class RecordMembersKind { kOneOverAMap, kTwoOnOnePool };

class RecordMembers {
 public:
  explicit RecordMembers(RecordMembersKind kind);
  ~RecordMembers();

  size_t count() const { return members_.size(); }
  dsm::Worker* worker(size_t i) { return members_[i % count()].worker.get(); }
  index::RangeIndex* tree(size_t i) { return members_[i % count()].tree; }
  /// As this member sees them.
  std::vector<index::KeyValue> Records(size_t i);

 private:
  struct Member {
    std::unique_ptr<dsm::Worker> worker;
    index::RangeIndex* tree;
  };
  void Serve(server::TreeHost* host);

  MonotonicClock clock_;
  std::unique_ptr<MapTreeHost> map_;
  std::unique_ptr<PoolHosts> pool_;
  std::vector<Member> members_;  // destroyed first
};

/// A connection to each member.
template <typename Peer, typename Limits>
class MemberPeers {
 public:
  /// `first`: who is asked first.
  MemberPeers(RecordMembers* members, const Limits& limits, size_t first = 0) : next_(first) {
    for (size_t i = 0; i < members->count(); ++i) {
      peers_.push_back(std::make_unique<Peer>(members->worker(i), limits, members->tree(i)));
    }
  }
  /// The next one is asked.
  std::string Ask(std::string_view request) { return Next().Ask(request); }
  /// Likewise, and that connection ends.
  std::string Exchange(std::string_view stream, size_t piece_bytes) {
    return Next().Exchange(stream, piece_bytes);
  }
  Peer& Next() { return *peers_[next_++ % peers_.size()]; }
  void AdvanceNs(uint64_t ns) {
    for (auto& peer : peers_) peer->wall().AdvanceNs(ns);
  }

 private:
  std::vector<std::unique_ptr<Peer>> peers_;
  size_t next_;
};

/// What each row of the tables is answered, asked now here, now there; and behind each row both tell the same of all there is to
/// be asked, which is `all_at` of a member. All is deleted behind a table, by `flush`. Returns how many rows changed something.
template <typename Peer, typename Limits, typename AllAt>
size_t ExpectBothTellTheSame(RecordMembers* members,
                             const std::vector<std::vector<Exchange>>& tables,
                             std::string_view flush, const AllAt& all_at) {
  size_t asked = 0, changes = 0;
  std::string before;
  for (const auto& table : tables) {
    MemberPeers<Peer, Limits> peers(members, {});
    for (const auto& [request, answer] : table) {
      const std::string answered = peers.Ask(request);
      EXPECT_TRUE(Matches(answer, answered)) << request << answered;
      const std::string here = all_at(asked % 2), there = all_at(asked % 2 + 1);
      EXPECT_TRUE(here == there) << request << here << "\n----\n" << there;
      changes += here != before;
      before = here;
      ++asked;
    }
    peers.Ask(flush);
  }
  return changes;
}

/// The fixture's part: each test has its own records.
struct RecordMembersTest : ::testing::TestWithParam<RecordMembersKind> {
  RecordMembers members{GetParam()};
};

inline const auto kAllRecordMembers =
    ::testing::Values(RecordMembersKind::kOneOverAMap, RecordMembersKind::kTwoOnOnePool);
std::string RecordMembersName(const ::testing::TestParamInfo<RecordMembersKind>& kind);

}  // namespace farleaf::test
