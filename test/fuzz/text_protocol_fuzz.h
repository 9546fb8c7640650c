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
#include <utility>
#include <vector>

#include "dsm/base/random.h"
#include "test/support/map_tree_host.h"

namespace farleaf::test {

/// Whatever a Peer (RecordPeer) leaves of its records is looked at by `check`.
template <typename Peer, typename Limits>
class TextProtocolFuzz {
 public:
  using Check = void (*)(const MapIndex& index);
  /// With `passwords` peers have to know one.
  TextProtocolFuzz(const Limits& limits, Check check, std::vector<std::string> passwords = {})
      : limits_(limits), check_(check), passwords_(std::move(passwords)) {}

  /// Both ways; that the answers are the same, unless some of them are drawn.
  void Run(std::string_view stream, uint64_t seed, bool draws) {
    const std::string expected = AsAWhole(stream), answers = InPieces(stream, seed);
    FARLEAF_CHECK(draws || answers == expected, answers, expected);
  }

 private:
  std::string AsAWhole(std::string_view stream) {
    Peer peer(worker_.get(), limits_, nullptr, passwords_);
    const std::string answers = peer.Exchange(stream, SIZE_MAX);
    check_(peer.index());
    return answers;
  }
  std::string InPieces(std::string_view stream, uint64_t seed) {
    Random random(seed);
    Peer peer(worker_.get(), limits_, nullptr, passwords_);
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

  const Limits limits_;
  const Check check_;
  const std::vector<std::string> passwords_;
  MonotonicClock clock_;
  MapTreeHost host_{&clock_};
  std::unique_ptr<dsm::Worker> worker_ = std::move(*host_.OpenWorker());
};

/// The target of a protocol: the first byte of `data` says how the stream behind it is cut and its answers read, and with
/// its highest bit whether peers have to know a password. Who never says it changes nothing.
template <typename Peer, typename Limits>
class TextProtocolTarget {
 public:
  static constexpr std::string_view kPassword = "secret";

  /// Whether a stream gets answers that are not the same each time.
  using Draws = bool (*)(std::string_view stream);

  TextProtocolTarget(
      const Limits& limits, typename TextProtocolFuzz<Peer, Limits>::Check check,
      Draws draws = [](std::string_view) { return false; })
      : draws_(draws),
        open_(limits, check),
        knowing_(limits, check, {std::string(kPassword)}),
        guessing_(limits, ExpectNothing, {std::string(kPassword)}) {}

  void Run(std::string_view data) {
    if (data.empty()) return;
    const auto first = static_cast<uint8_t>(data[0]);
    const std::string_view stream = data.substr(1);
    const bool says_it = stream.find(kPassword) != std::string_view::npos;
    auto& fuzz = (first & 0x80) == 0 ? open_ : says_it ? knowing_ : guessing_;
    fuzz.Run(stream, first, draws_(stream));
  }

 private:
  static void ExpectNothing(const MapIndex& index) {
    FARLEAF_CHECK(index.Content().empty(), index.Content().size());
  }
  const Draws draws_;
  TextProtocolFuzz<Peer, Limits> open_, knowing_, guessing_;
};

}  // namespace farleaf::test
