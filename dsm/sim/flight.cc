#include "dsm/sim/flight.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "dsm/base/check.h"

namespace farleaf::dsm {

namespace {

constexpr uint64_t kLineBytes = 64;

/// Units of a verb, in order: pieces of [offset, offset + length) that end at multiples of
/// `unit_bytes`.
uint64_t UnitsOf(const Verb& verb, uint64_t unit_bytes) {
  return (verb.offset + verb.length - 1) / unit_bytes - verb.offset / unit_bytes + 1;
}

uint64_t UnitBytesOf(const Verb& verb) { return verb.kind == VerbKind::kRead ? kLineBytes : 8; }

bool InGroup(const Flight::Piece& piece, uint64_t salt, uint64_t unit, uint64_t units) {
  if (piece.in_runs) return unit * piece.groups / units == piece.group;
  const uint64_t scattered = ((unit + 1) * 0x9e3779b97f4a7c15 ^ salt) * 0xbf58476d1ce4e5b9;
  return (scattered >> 40) % piece.groups == piece.group;
}

/// Whether the verb can run; nothing happens if not.
Status CheckVerb(const Verb& verb, uint64_t region_bytes) {
  if (verb.offset % 8 == 0 && verb.length <= region_bytes &&
      verb.offset <= region_bytes - verb.length) {
    return Status::Ok();
  }
  return Status::InvalidArgument("verb on [" + std::to_string(verb.offset) + ", +" +
                                 std::to_string(verb.length) + ") is outside the region of " +
                                 std::to_string(region_bytes) + " bytes, or misaligned");
}

void RunAtomic(const Verb& verb, std::byte* word) {
  uint64_t old;
  std::memcpy(&old, word, 8);
  uint64_t fresh = old + verb.operand;
  if (verb.kind == VerbKind::kCompareAndSwap) fresh = old == verb.operand ? verb.desired : old;
  std::memcpy(word, &fresh, 8);
  if (verb.local) std::memcpy(verb.local, &old, 8);
}

void Copy(const Verb& verb, std::span<std::byte> region, uint64_t begin, uint64_t end) {
  std::byte* shared = region.data() + begin;
  std::byte* local = verb.local + (begin - verb.offset);
  if (verb.kind == VerbKind::kRead) {
    std::memcpy(local, shared, end - begin);
  } else {
    std::memcpy(shared, local, end - begin);
  }
}

void RunWhole(const Verb& verb, std::span<std::byte> region) {
  if (verb.kind == VerbKind::kCompareAndSwap || verb.kind == VerbKind::kFetchAdd) {
    RunAtomic(verb, region.data() + verb.offset);
  } else if (verb.local) {
    Copy(verb, region, verb.offset, verb.offset + verb.length);
  }
}

}  // namespace

SimNetwork SimNetwork::Draw(Random& random) {
  SimNetwork network;
  network.latency_ns = 200 + random.Below(3'000);
  network.jitter_bits = static_cast<uint32_t>(8 + random.Below(10));
  network.whole_percent = static_cast<uint32_t>(random.Below(4) * 30);
  network.pieces_max = static_cast<uint32_t>(2 + random.Below(5));
  network.lag_one_in = random.OneIn(2) ? 0 : 8u << random.Below(5);
  return network;
}

uint64_t SimNetwork::Jitter(Random& random) const {
  const uint64_t bits = random.Next();
  const uint64_t width = (bits >> 56) * jitter_bits >> 8;  // uniform below jitter_bits
  return (bits & ((uint64_t{2} << width) - 1));
}

void Flight::Clear() {
  batch = nullptr;
  verbs = {};
  failure = Status::Ok();
  pieces.clear();
  lost_after_ns = UINT64_MAX;
  own_verbs.clear();
  own_bytes.clear();
}

void Flight::LeaveBatchBehind() {
  if (batch == nullptr) return;
  batch = nullptr;
  own_verbs.assign(verbs.begin(), verbs.end());
  size_t bytes = 0;
  for (const Verb& verb : own_verbs) bytes += verb.kind == VerbKind::kWrite ? verb.length : 0;
  own_bytes.resize(bytes);
  size_t at = 0;
  for (Verb& verb : own_verbs) {
    if (verb.kind != VerbKind::kWrite) {
      verb.local = nullptr;
      continue;
    }
    std::memcpy(own_bytes.data() + at, verb.local, verb.length);
    verb.local = own_bytes.data() + at;
    at += verb.length;
  }
  verbs = own_verbs;
}

void PlanFlight(Flight& flight, Batch& batch, uint64_t region_bytes, uint64_t now_ns,
                const SimNetwork& network, ConnectionOrder& order, Random& random) {
  flight.batch = &batch;
  flight.verbs = batch.verbs();
  for (size_t i = 0; i < flight.verbs.size(); ++i) {
    flight.failure = CheckVerb(flight.verbs[i], region_bytes);
    if (flight.failure.ok()) continue;
    flight.verbs = flight.verbs.first(i);
    break;
  }
  flight.salt = random.Next();
  const uint64_t arrival_ns = now_ns + network.latency_ns;
  const auto earliest = [&](const Verb& verb) {
    const uint64_t after_ns = std::max(arrival_ns, order.writes_done_ns);
    return verb.kind == VerbKind::kRead ? std::max(after_ns, order.atomics_done_ns) : after_ns;
  };
  const auto took_effect = [&](const Verb& verb, uint64_t at_ns) {
    if (verb.kind == VerbKind::kRead) return;
    uint64_t& done_ns =
        verb.kind == VerbKind::kWrite ? order.writes_done_ns : order.atomics_done_ns;
    done_ns = std::max(done_ns, at_ns);
  };
  if (flight.verbs.empty() || flight.salt % 100 < network.whole_percent) {
    uint64_t at_ns = arrival_ns;
    for (const Verb& verb : flight.verbs) at_ns = std::max(at_ns, earliest(verb));
    flight.whole_at_ns = at_ns + network.Jitter(random);
    for (const Verb& verb : flight.verbs) took_effect(verb, flight.whole_at_ns);
    flight.pieces_left = 1;
    return;
  }
  for (uint32_t v = 0; v < flight.verbs.size(); ++v) {
    const Verb& verb = flight.verbs[v];
    const bool divisible = verb.kind == VerbKind::kRead || verb.kind == VerbKind::kWrite;
    const uint64_t units = divisible ? UnitsOf(verb, UnitBytesOf(verb)) : 1;
    const auto groups = static_cast<uint8_t>(std::min(units, 1 + random.Below(network.pieces_max)));
    const bool in_runs = random.OneIn(2);
    const uint64_t from_ns = earliest(verb);
    for (uint8_t group = 0; group < groups; ++group) {
      uint64_t at_ns = from_ns + network.Jitter(random);
      if (verb.kind == VerbKind::kRead && network.lag_one_in > 0 &&
          random.OneIn(network.lag_one_in)) {
        at_ns += random.Below(SimNetwork::kLagLatencies * network.latency_ns);
      }
      flight.pieces.push_back({at_ns, v, group, groups, in_runs});
      took_effect(verb, at_ns);
    }
  }
  flight.pieces_left = static_cast<uint32_t>(flight.pieces.size());
}

void RunPiece(const Flight& flight, uint32_t piece, std::span<std::byte> region) {
  if (piece == Flight::kAllPieces) {
    for (const Verb& verb : flight.verbs) RunWhole(verb, region);
    return;
  }
  const Flight::Piece& part = flight.pieces[piece];
  const Verb& verb = flight.verbs[part.verb];
  if (part.groups == 1) {
    RunWhole(verb, region);
    return;
  }
  if (verb.local == nullptr) return;
  const uint64_t unit_bytes = UnitBytesOf(verb), units = UnitsOf(verb, unit_bytes);
  const uint64_t first = verb.offset / unit_bytes;
  for (uint64_t unit = 0; unit < units; ++unit) {
    if (!InGroup(part, flight.salt, unit, units)) continue;
    const uint64_t begin = std::max(verb.offset, (first + unit) * unit_bytes);
    const uint64_t end = std::min(verb.offset + verb.length, (first + unit + 1) * unit_bytes);
    Copy(verb, region, begin, end);
  }
}

}  // namespace farleaf::dsm
