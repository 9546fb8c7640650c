// FabricLink: one side of a ring over the memory layer: its WRITEs into the other side's area, on any fabric; and the areas to try it with.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "client/ring/memory.h"
#include "dsm/base/bytes.h"
#include "test/support/fabric_under_test.h"

namespace farleaf::test {

/// Of a ring: small ones are turned over every few messages, and nearly every frame and answer comes in parts; into large ones most
/// fit whole.
struct RingAreas {
  uint32_t request_bytes, reply_bytes;
};
inline constexpr RingAreas kRingAreas[] = {
    {16 * client::ring::kUnitBytes, 12 * client::ring::kUnitBytes}, {32 << 10, 16 << 10}};

/// One side's way to the other's area over the memory layer: a batch of two WRITEs for each message, which is not waited for.
/// And what it has sent.
class FabricLink {
 public:
  struct Sent {
    std::map<uint64_t, uint64_t> messages;  ///< by how many units they take
    uint64_t resets = 0;
    uint64_t up_to_the_end = 0;  ///< of the area: without a reset the next one is at its first unit
  };
  /// The other side's area is [base, base + bytes) of the memory server's region.
  struct Area {
    dsm::ServerId server;
    uint64_t base, bytes;
  };

  FabricLink(std::unique_ptr<dsm::Fabric> fabric, const Clock& clock, Area area)
      : area_(area), fabric_(std::move(fabric)), client_(*fabric_, clock) {}
  ~FabricLink() { EXPECT_TRUE(posted_.empty()); }

  void Post(uint64_t offset, const client::ring::HeaderBytes& header,
            std::span<const std::byte> payload, uint64_t rendezvous) {
    Note(offset, rendezvous);
    Posted& posted = posted_.emplace_back(area_.server);
    posted.behind.assign(header.begin(), header.end());
    posted.behind.insert(posted.behind.end(), payload.begin(), payload.end());
    posted.behind.resize(RoundUp(posted.behind.size(), 8));
    posted.rendezvous = rendezvous;
    posted.batch.Write(area_.base + offset + 8, posted.behind);
    posted.batch.WriteWord(area_.base + offset, &posted.rendezvous);
    client_.Post(posted.batch, posted.state);
  }
  /// Some of what is on its way arrives.
  void Turn() {
    // Where nothing waits, a fabric in virtual time stands still.
    if (client_.transport().Poll() == 0 && !posted_.empty()) {
      client_.transport().Wait(client_.wake_fd(), 1'000);
    }
    while (!posted_.empty() && posted_.front().state.done()) {
      EXPECT_TRUE(posted_.front().batch.status().ok()) << posted_.front().batch.status();
      posted_.pop_front();
    }
  }
  bool landed() const { return posted_.empty(); }
  const Sent& sent() const { return sent_; }

 private:
  struct Posted {
    explicit Posted(dsm::ServerId server) : batch(server) {}
    std::vector<std::byte> behind;
    uint64_t rendezvous = 0;
    dsm::Batch batch;
    dsm::RoundTripState state;
  };

  void Note(uint64_t offset, uint64_t rendezvous) {
    if (client::ring::MarkOf(rendezvous) == client::ring::kResetMark) {
      ++sent_.resets;
      return;
    }
    const uint64_t units = client::ring::UnitsFor(client::ring::PayloadBytesOf(rendezvous));
    ++sent_.messages[units];
    sent_.up_to_the_end += offset + units * client::ring::kUnitBytes == area_.bytes;
  }

  const Area area_;
  std::deque<Posted> posted_;
  Sent sent_;
  const std::unique_ptr<dsm::Fabric> fabric_;
  dsm::TestClient client_;  // destroyed first
};

struct FabricWriter {
  FabricLink* link;
  void Publish(uint64_t offset, const client::ring::HeaderBytes& header,
               std::span<const std::byte> payload, uint64_t rendezvous) {
    link->Post(offset, header, payload, rendezvous);
  }
};

}  // namespace farleaf::test
