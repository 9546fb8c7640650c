// RemoteTree: a tree at another node, as an index: each operation is one request of the native protocol, or a few.
//
//   Get, MultiGet, BlindPut, Scan   one request (of a large MultiGet or Scan: one for each piece)
//   Modify, kPresenceOnly and       the function is asked what it does with a key that is there and with one that is not: that is a put, an
//     kMustExist                    insert, an update or a delete, one request; where it writes something else in either case, two in turn
//   Modify, kRead                   the value is read, the function decides, and what it wants is inserted, compared and set, or deleted if
//                                   the value is still the same: two requests, and another for each time that somebody was faster
//   DeleteRange                     the keys are read, and deleted one by one, many in flight
//
// Modify is one atomic change all the same: the request that changes something, or the read after which nothing is to be changed, is the moment
// at which it happens, and the function was called of what the key had then. (A value that was changed and changed back in between is the
// same value.)
//
// Fails as PeerClient's requests do. Unavailable and Fenced say that nothing was done, also of a Modify of several requests; of a DeleteRange
// that the rest was not done. ScanDamage::kPassOver is not known to the protocol: what is damaged fails.
//
// Thread rule: made for one operation, on its worker.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "index/range_index.h"
#include "server/cluster/peer_client.h"

namespace farleaf::server::cluster {

class RemoteTree final : public index::RangeIndex {
 public:
  /// What is viewed outlives it.
  RemoteTree(PeerClient* peers, PeerTree at) : peers_(*peers), at_(at) {}

  dsm::Task<Result<bool>> Get(dsm::OpContext& op, std::string_view key,
                              std::string* value) override;
  dsm::Task<Status> MultiGet(dsm::OpContext& op, std::span<const std::string_view> keys,
                             std::vector<std::optional<std::string>>* values) override;
  dsm::Task<Result<index::ModifyResult>> Modify(dsm::OpContext& op, std::string_view key,
                                                const index::ModifyFunction& modify,
                                                index::CurrentValue current) override;
  dsm::Task<Status> BlindPut(dsm::OpContext& op, std::string_view key,
                             std::string_view value) override;
  dsm::Task<Status> Scan(dsm::OpContext& op, index::ScanRange range,
                         std::vector<index::KeyValue>* rows) override;
  dsm::Task<Status> DeleteRange(dsm::OpContext& op, std::string_view start,
                                std::string_view end) override;
  /// Its node's own business.
  dsm::Task<Status> Upkeep(dsm::OpContext&) override { co_return Status::Ok(); }

 private:
  using Kind = PeerClient::Kind;
  template <typename T>
  using StartFunction = PeerClient::StartFunction<T>;
  struct Presence;
  using Current = std::optional<std::string>;

  /// insert, put, update: whether it was stored, of put whether the key is new.
  dsm::Task<Result<bool>> Write(dsm::OpContext& op, client::protocol::Opcode opcode,
                                std::string_view key, std::string_view value);
  dsm::Task<Result<bool>> Remove(dsm::OpContext& op, std::string_view key);
  dsm::Task<Result<Current>> Read(dsm::OpContext& op, std::string_view key);
  /// What a change begins with that may change nothing: what it has seen then survives what the change would.
  dsm::Task<Result<Current>> ReadToChange(dsm::OpContext& op, std::string_view key);
  dsm::Task<Result<index::ModifyResult>> ModifyByPresence(dsm::OpContext& op, std::string_view key,
                                                          const index::ModifyFunction& modify);
  /// One look from each side: nullopt if the key came or went in between.
  dsm::Task<Result<std::optional<bool>>> TryBySide(dsm::OpContext& op, std::string_view key,
                                                   const Presence& wanted);
  dsm::Task<Result<index::ModifyResult>> ModifyByValue(dsm::OpContext& op, std::string_view key,
                                                       const index::ModifyFunction& modify);
  /// Writes `value`, or deletes (nullptr), if the key has `current`: whether it did; if not, `current` is what it has now.
  dsm::Task<Result<bool>> Exchange(dsm::OpContext& op, std::string_view key, Current* current,
                                   const std::string* value);
  dsm::Task<Status> RemoveAll(dsm::OpContext& op, const std::vector<index::KeyValue>& rows);

  PeerClient& peers_;
  const PeerTree at_;
};

}  // namespace farleaf::server::cluster
