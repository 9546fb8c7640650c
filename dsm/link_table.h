// LinkTable: the links of one transport: one to each memory server that its fabric knows, and those to removed ones
// until what was in flight on them has ended. One policy for every fabric whose memory servers come and go.
//
// By cases, for an id:
//   - added: its link is made when the transport learns of it, and connects when a batch is posted;
//   - removed: its link is retired. What waits on it fails; what is in flight is doomed (dsm/link_recovery.h) and reported
//     when it cannot land any more, or as Unknown; then the link has ended, and is let go;
//   - removed and added again, or alive anew, before that: the new link is held back, batches wait on it, until the
//     old one has ended. So no batch overtakes an earlier WRITE of the transport to the same server (rule 2 of
//     dsm/transport.h), should it be the same life; and should it be another, the old link's batches cannot land there,
//     since a link holds to one incarnation.
//
// `LinkPtr`: a pointer, owning or not, to a Link with
//   const KnownServer& server() const;   size_t Poll();
//   void Retire();        // no more batches come: end as soon as nothing is in flight
//   bool ended() const;   // retired, and nothing refers to it
//   void HoldBack();  bool held_back() const;   // batches wait, and nothing connects
//   void Release();                             // no longer
// Thread rule: one thread; the KnownServers are shared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dsm/known_servers.h"

namespace farleaf::dsm {

template <typename LinkPtr>
class LinkTable {
 public:
  using Link = typename std::pointer_traits<LinkPtr>::element_type;

  explicit LinkTable(std::shared_ptr<const KnownServers> known) : known_(std::move(known)) {}

  const KnownServers& known() const { return *known_; }
  /// Whether there may be something to learn.
  bool stale() const { return known_->generation() != learned_; }
  /// Takes over what the fabric knows. `make`: from a KnownServers::Server to a LinkPtr.
  template <typename Make>
  void Learn(Make make) {
    learned_ = known_->generation();  // first: what changes behind it is learned once more
    const std::vector<KnownServers::Server> all = known_->All();
    const auto is_known = [&](const LinkPtr& link) {
      return std::any_of(all.begin(), all.end(),
                         [&](const auto& one) { return one.get() == &link->server(); });
    };
    const auto gone = std::stable_partition(links_.begin(), links_.end(), is_known);
    for (auto link = gone; link != links_.end(); ++link) {
      by_server_[(*link)->server().server()] = nullptr;
      (*link)->Retire();
      retired_.push_back(std::move(*link));
    }
    links_.erase(gone, links_.end());
    for (const KnownServers::Server& server : all) {
      if (Find(server->server()) == nullptr) Insert(make(server));
    }
  }
  /// REQUIRES: there is none to this server.
  void Insert(LinkPtr link) {
    const ServerId server = link->server().server();
    if (by_server_.size() <= server) by_server_.resize(server + size_t{1});
    by_server_[server] = &*link;
    if (IsEnding(server)) link->HoldBack();
    links_.push_back(std::move(link));
  }

  /// Null: not known.
  Link* Find(ServerId server) const {
    return server < by_server_.size() ? by_server_[server] : nullptr;
  }
  /// Retired ones included.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const LinkPtr& link : links_) visit(*link);
    for (const LinkPtr& link : retired_) visit(*link);
  }
  /// Polls each, and lets go of those that have ended. Returns the number of batches completed.
  size_t Poll() {
    size_t completed = 0;
    for (const LinkPtr& link : links_) completed += link->Poll();
    if (!retired_.empty()) [[unlikely]]
      completed += PollRetired();
    return completed;
  }

 private:
  bool IsEnding(ServerId server) const {
    return std::any_of(retired_.begin(), retired_.end(),
                       [&](const LinkPtr& link) { return link->server().server() == server; });
  }
  size_t PollRetired() {
    size_t completed = 0;
    for (const LinkPtr& link : retired_) completed += link->Poll();
    std::erase_if(retired_, [](const LinkPtr& link) { return link->ended(); });
    for (const LinkPtr& link : links_) {
      if (link->held_back() && !IsEnding(link->server().server())) link->Release();
    }
    return completed;
  }

  const std::shared_ptr<const KnownServers> known_;
  uint64_t learned_ = 0;
  std::vector<LinkPtr> links_;
  std::vector<Link*> by_server_;
  std::vector<LinkPtr> retired_;
};

}  // namespace farleaf::dsm
