// What the fuzz targets of protocols on records share: a stream goes to a peer as a whole, and to another one in
// pieces, its answers read bit by bit; both say the same.
//
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "dsm/base/random.h"
#include "test/support/map_tree_host.h"

namespace farleaf::test {

/// Whatever a Peer (RecordPeer) leaves of its records is looked at by `check`.
template <typename Peer, typename Limits>
class TextProtocolFuzz {
 public:
  using Check = void (*)(const MapIndex& index);
  TextProtocolFuzz(const Limits& limits, Check check) : limits_(limits), check_(check) {}

  std::string AsAWhole(std::string_view stream) {
    Peer peer(worker_.get(), limits_);
    const std::string answers = peer.Exchange(stream, SIZE_MAX);
    check_(peer.index());
    return answers;
  }
  std::string InPieces(std::string_view stream, uint64_t seed) {
    Random random(seed);
    Peer peer(worker_.get(), limits_);
    for (;;) {
      const size_t bytes = 1 + random.Below(random.OneIn(4) ? 300 : 4);
      if (!peer.Send(&stream, bytes)) break;
      FARLEAF_CHECK(peer.connection().output().size() < 100'000);
      peer.Receive(random.Below(300));
    }
    peer.End();
    check_(peer.index());
    return peer.received();
  }

 private:
  const Limits limits_;
  const Check check_;
  MonotonicClock clock_;
  MapTreeHost host_{&clock_};
  std::unique_ptr<dsm::Worker> worker_ = std::move(*host_.OpenWorker());
};

}  // namespace farleaf::test
