// What commands on collections share.
//
// Thread rule: coroutines on the worker of their OpContext.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/frontend/redis/command.h"
#include "server/records/collection.h"
#include "server/records/piece_scan.h"

namespace farleaf::server::redis {

inline constexpr std::string_view kMemberTooLong =
    "ERR the key and its member together are too long";

/// What steps of a command on many members have come to.
struct Tally {
  int64_t count = 0;
  bool wrong_type = false;

  void Add(Presence presence, bool counts) {
    wrong_type |= presence == Presence::kOther;
    count += counts && presence != Presence::kOther;
  }
  void Answer(Reply* reply) const {
    if (wrong_type) {
      reply->Error(kWrongType);
    } else {
      reply->Integer(count);
    }
  }
};

/// The collection behind the command's first key. Where it is another type, that is answered.
dsm::Task<Result<Opened>> OpenCollection(Call call, RecordType type);

/// The next piece of a scan, unless the server stops.
dsm::Task<Status> NextPiece(Call call, PieceScan* scan);
/// All entries of one kind.
PieceScan::Range EntriesOf(std::string_view key, uint64_t generation, EntryKind kind);
/// How many there are, by a walk.
dsm::Task<Result<int64_t>> CountEntries(Call call, PieceScan::Range range);

}  // namespace farleaf::server::redis
