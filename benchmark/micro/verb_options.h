// What verb_bench is asked for, and its command line.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dsm/address.h"
#include "dsm/base/result.h"
#include "dsm/transport.h"
#include "server/config.h"

namespace farleaf::micro {

enum class LoopKind : uint8_t {
  kTransport,  ///< Post and Poll of a Transport, nothing between
  kWorker,     ///< coroutines on a Worker, as the tree's operations run
};
/// What a loop does while no batch is complete.
enum class Idle : uint8_t {
  kWait,  ///< polls as long as the fabric advises, then blocks
  kSpin,  ///< polls for ever, as perftest does
};
/// Where in the target a verb goes.
enum class Place : uint8_t {
  kRandom,  ///< anywhere
  kFixed,   ///< each verb of each batch in flight has its own place
};

struct VerbOptions {
  std::string bootstrap;
  uint32_t servers_min = 1;  ///< wait until the pool has so many
  dsm::ServerId server = 0;
  dsm::VerbKind verb = dsm::VerbKind::kRead;
  uint64_t bytes = 8;       ///< of one verb; an atomic has 8
  uint32_t in_flight = 1;   ///< operations at a time
  uint32_t batch = 1;       ///< verbs in an operation
  uint64_t operations = 0;  ///< measured; 0: as many as `seconds` allow
  uint32_t seconds = 0;     ///< 0: no limit
  uint64_t warmup = 1'000;  ///< operations before, not measured
  uint64_t span_bytes = 64 << 10;
  Place place = Place::kRandom;
  LoopKind loop = LoopKind::kTransport;
  Idle idle = Idle::kWait;
  uint64_t seed = 1;
  std::string json_path;
};

std::string_view NameOf(dsm::VerbKind verb);
std::string_view NameOf(LoopKind loop);
std::string_view NameOf(Idle idle);
std::string_view NameOf(Place place);

struct VerbCommandLine {
  server::ConfigOutcome outcome;
  std::string text;  ///< the help or the version, where that was asked for
  VerbOptions options;
};

/// `arguments` are without the program's name. InvalidArgument names the flag and what it may be.
Result<VerbCommandLine> ParseVerbOptions(std::span<const std::string> arguments);

}  // namespace farleaf::micro
