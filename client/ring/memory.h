// Access to the memory of a ring: what a sender writes into the other side's memory, and what a receiver does
// with its own.
//
// A Writer is whatever can do one thing, in one ordered batch: WRITE a message's bytes behind its rendezvous
// word, then the rendezvous word, as a WRITE of its own. MappedWriter does it to memory of this host; over the
// memory layer's fabrics it is a dsm::Batch of two WRITEs (test/model/ring_test.cc).
//
// Thread rule: each area has one writer and one reader; words are shared between the two.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "client/ring/format.h"
#include "dsm/base/shared_copy.h"

namespace farleaf::client::ring {

using HeaderBytes = std::array<std::byte, kHeaderBytes - 8>;

template <typename Header>
HeaderBytes BytesOf(const Header& header) {
  HeaderBytes bytes;
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

class MappedWriter {
 public:
  explicit MappedWriter(std::span<std::byte> area) : area_(area) {}

  /// REQUIRES: the message lies in the area.
  void Publish(uint64_t offset, const HeaderBytes& header, std::span<const std::byte> payload,
               uint64_t rendezvous) {
    std::byte* const at = area_.data() + offset;
    CopyToShared(at + 8, header.data(), header.size());
    const size_t whole = payload.size() / 8 * 8;
    CopyToShared(at + kHeaderBytes, payload.data(), whole);
    if (whole < payload.size()) {
      std::byte last[8] = {};
      std::memcpy(last, payload.data() + whole, payload.size() - whole);
      CopyToShared(at + kHeaderBytes + whole, last, 8);
    }
    // A release: whoever sees it sees what was written before.
    WordAt(area_.data(), offset).store(rendezvous, std::memory_order_release);
  }

 private:
  std::span<std::byte> area_;
};

/// Copies bytes [from, from + into.size()) of a message's payload. REQUIRES: `from` is a multiple of 8; the
/// payload, padded to 8 bytes, lies in the area.
inline void CopyPayload(std::span<std::byte> area, uint64_t offset, size_t from,
                        std::span<std::byte> into) {
  const std::byte* const at = area.data() + offset + kHeaderBytes + from;
  const size_t whole = into.size() / 8 * 8;
  CopyFromShared(into.data(), at, whole);
  if (whole < into.size()) {
    std::byte last[8];
    CopyFromShared(last, at + whole, 8);
    std::memcpy(into.data() + whole, last, into.size() - whole);
  }
}

/// Where a message may begin next, there is nothing any more. REQUIRES: the units lie in the area.
inline void ZeroRendezvousPoints(std::span<std::byte> area, uint64_t first_unit, uint64_t units) {
  for (uint64_t unit = first_unit; unit < first_unit + units; ++unit) {
    WordAt(area.data(), unit * kUnitBytes).store(0, std::memory_order_release);
  }
}

}  // namespace farleaf::client::ring
