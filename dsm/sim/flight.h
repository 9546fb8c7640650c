// Flight: one batch on its way through the simulated network, in pieces that take effect one by one.
//
// A READ is divided into sets of cache lines, a WRITE into sets of 8-byte words; atomics are whole.
// Each piece has a moment of its own. Which moments are allowed, PlanFlight decides: those that the
// transport contract does not rule out (dsm/transport.h, rule 2), and no others:
//
//     first \ later    READ     WRITE    atomic
//     READ             free     free     free        "free": also when the first was posted in an
//     WRITE            after    after    after       earlier batch
//     atomic           after    free     free
//
// A flight whose connection broke has left its batch behind: it goes on with copies of the WRITEs'
// bytes, until the memory server destroys the connection.
//
// Thread rule: one thread.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dsm/base/random.h"
#include "dsm/base/status.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

/// How the simulated network behaves.
struct SimNetwork {
  uint64_t latency_ns = 1'000;  ///< one way, at the least
  uint32_t jitter_bits = 12;  ///< further delays are below 2^jitter_bits ns, short ones more often
  uint32_t whole_percent = 50;  ///< of the batches take effect in one moment
  uint32_t pieces_max = 4;      ///< of a READ or WRITE
  /// One in so many pieces of READs comes later than all else, by up to kLagLatencies; 0: none.
  uint32_t lag_one_in = 0;
  static constexpr uint64_t kLagLatencies = 64;

  /// One of many networks: what is rare in one is frequent in another.
  static SimNetwork Draw(Random& random);
  uint64_t Jitter(Random& random) const;
};

/// The moments by which earlier verbs of one connection have taken effect.
struct ConnectionOrder {
  uint64_t writes_done_ns = 0;
  uint64_t atomics_done_ns = 0;
};

struct Flight {
  /// The part of verb `verb` that takes effect in one moment: those of its units (cache lines of a
  /// READ, words of a WRITE) that belong to `group`, of `groups`.
  struct Piece {
    uint64_t at_ns;
    uint32_t verb;
    uint8_t group, groups;
    bool in_runs;  ///< a group is a run of units, not a random set
  };
  static constexpr uint32_t kAllPieces = UINT32_MAX;  ///< for a flight that is planned whole

  Batch* batch = nullptr;  ///< null: left behind
  std::span<const Verb> verbs;
  Status failure;  ///< of the verb behind the last of `verbs`, if there is one that cannot run
  uint32_t link = 0;
  uint32_t generation = 0;                          ///< of the link's connection
  uint32_t position = 0;                            ///< among the link's flights
  uint64_t number = 0;                              ///< of the link's posts
  uint64_t salt = 0;                                ///< decides which unit is in which group
  boost::container::small_vector<Piece, 8> pieces;  ///< empty: planned whole
  uint64_t whole_at_ns = 0;
  uint32_t pieces_left = 0;
  uint32_t events_left = 0;
  uint64_t lost_after_ns = UINT64_MAX;  ///< later pieces are lost on the way
  std::vector<Verb> own_verbs;          ///< once left behind
  std::vector<std::byte> own_bytes;

  void Clear();
  /// Goes on without the batch, whose memory is not touched any more.
  void LeaveBatchBehind();
};

/// Takes `batch`'s verbs as far as they can run on a region of `region_bytes`, and sets the moments at
/// which their pieces take effect, from `now_ns` on.
void PlanFlight(Flight& flight, Batch& batch, uint64_t region_bytes, uint64_t now_ns,
                const SimNetwork& network, ConnectionOrder& order, Random& random);

/// Lets one piece, or all (kAllPieces), take effect.
void RunPiece(const Flight& flight, uint32_t piece, std::span<std::byte> region);

}  // namespace farleaf::dsm
