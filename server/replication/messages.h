// What a primary asks of a backup: the kinds of messages on their channel (channel.md), and their arguments.
//
//   kind          arguments                          payload                      reply
//   kOpenLog      log, segment                       -                            values[0]: offset of its buffer in the area
//   kSeal         log, segment, used bytes           -                            -         once its buffer is free again
//   kSync         SyncReach                          (segment u64, bytes u64)*    -         of open segments: what is known to be there
//   kTable        segment, offset                    blocks                       -
//   kPart         -                                  part of what is too long     -         goes in front of the next message's payload
//   kCommit       -                                  StateEdit                    -         kNotFound: a table's segments are not whole
//   kDropTables   -                                  segments, each u64           -
//   kInventory    first                              -                            segments as u64 from that one on; values[0]: all of them
//   kBeginFill    -                                  -                            -
//   kFill         segment, offset, 1: the last       blocks                       -
//   kInstall      epoch, open segments               (segment u64, bytes u64) of  -
//                                                    each, StateEdit: the state
//   kStamp        proved stamp, or 0                 -                            values[0]: a stamp, its clock's time now. kUnimplemented: nobody
//                                                                                 reads there (README.md, Staleness)
//
// Any other reply's code than kOk is a failure of the backup's: text says which. Integers are little-endian.
//
// Thread rule: value types.
#pragma once

#include <cstdint>

namespace farleaf::server::replication {

enum class MessageKind : uint8_t {
  kOpenLog = 1,
  kSeal = 2,
  kSync = 3,
  kTable = 4,
  kPart = 5,
  kCommit = 6,
  kInventory = 7,
  kBeginFill = 8,
  kFill = 9,
  kInstall = 10,
  kStamp = 11,
  kDropTables = 12,
};
inline constexpr uint8_t kMessageKindMax = 12;

/// The longest payload that parts are put together to.
inline constexpr uint64_t kPartsBytesMax = uint64_t{1} << 30;

}  // namespace farleaf::server::replication
