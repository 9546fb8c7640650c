#include "benchmark/micro/verb_options.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace farleaf::micro {

namespace {

using dsm::VerbKind;
using server::ConfigSchema;

constexpr uint64_t kOperationsDefault = 100'000;
constexpr uint64_t kOperationsMax = uint64_t{1} << 40;
constexpr uint64_t kSpanBytesMax = uint64_t{1} << 40;
constexpr uint64_t kLocalBytesMax = uint64_t{1} << 30;

constexpr std::pair<VerbKind, const char*> kVerbs[] = {{VerbKind::kRead, "read"},
                                                       {VerbKind::kWrite, "write"},
                                                       {VerbKind::kCompareAndSwap, "cas"},
                                                       {VerbKind::kFetchAdd, "fetch-add"}};
constexpr std::pair<LoopKind, const char*> kLoops[] = {{LoopKind::kTransport, "transport"},
                                                       {LoopKind::kWorker, "worker"}};
constexpr std::pair<Idle, const char*> kIdles[] = {{Idle::kWait, "wait"}, {Idle::kSpin, "spin"}};
constexpr std::pair<Place, const char*> kPlaces[] = {{Place::kRandom, "random"},
                                                     {Place::kFixed, "fixed"}};

template <typename E, size_t N>
std::vector<std::pair<std::string, E>> Choices(const std::pair<E, const char*> (&names)[N]) {
  std::vector<std::pair<std::string, E>> choices;
  for (const auto& [value, name] : names) choices.emplace_back(name, value);
  return choices;
}

template <typename E, size_t N>
std::string_view Find(const std::pair<E, const char*> (&names)[N], E wanted) {
  for (const auto& [value, name] : names) {
    if (value == wanted) return name;
  }
  return "?";
}

bool IsAtomic(VerbKind verb) {
  return verb == VerbKind::kCompareAndSwap || verb == VerbKind::kFetchAdd;
}

void Declare(ConfigSchema& schema, VerbOptions* options) {
  schema.AddString("bootstrap", "directory: memcached://HOST:PORT/CLUSTER or file:PATH",
                   &options->bootstrap);
  schema.Required();
  schema.AddInteger("memory_servers_min", "wait until the pool has so many memory servers",
                    &options->servers_min, 1, 256);
  schema.AddInteger("server", "id of the memory server to measure", &options->server, 0, 255);
  schema.AddEnum("verb", "what to measure", &options->verb, Choices(kVerbs));
  schema.AddBytes("bytes", "of one read or write, a multiple of 8; an atomic has 8",
                  &options->bytes, 8, dsm::Batch::kVerbBytesMax);
  schema.AddInteger("in_flight", "operations in flight, on one thread", &options->in_flight, 1,
                    65'536);
  schema.AddInteger("batch", "verbs in one operation, behind one doorbell", &options->batch, 1,
                    static_cast<uint32_t>(dsm::Batch::kVerbsMax));
  schema.AddInteger("operations",
                    "operations to measure; 0: until --seconds are over, or 100000 without them",
                    &options->operations, 0, kOperationsMax);
  schema.AddInteger("seconds", "end the measurement after so long; 0: no limit", &options->seconds,
                    0, 86'400);
  schema.AddInteger("warmup", "operations before the measurement", &options->warmup, 0,
                    kOperationsMax);
  schema.AddBytes("span", "memory that is taken from the pool as the target", &options->span_bytes,
                  8, kSpanBytesMax);
  schema.AddEnum("place", "where in the target a verb goes", &options->place, Choices(kPlaces));
  schema.AddEnum("loop",
                 "who drives: Post and Poll of the transport alone, or coroutines on a worker",
                 &options->loop, Choices(kLoops));
  schema.AddEnum("idle",
                 "while nothing is complete: poll, then wait as the fabric advises; or poll",
                 &options->idle, Choices(kIdles));
  schema.AddInteger("seed", "of the random places", &options->seed, 0, INT64_MAX);
  schema.AddString("json", "write configuration and result to this file", &options->json_path);
}

/// What no single option can be blamed for by itself.
Status CheckTogether(const ConfigSchema& schema, VerbOptions* options) {
  if (IsAtomic(options->verb)) {
    if (schema.is_set("bytes") && options->bytes != 8) {
      return Status::InvalidArgument("--bytes " + std::to_string(options->bytes) + ": --verb " +
                                     std::string(NameOf(options->verb)) + " has 8 bytes");
    }
    options->bytes = 8;
  }
  if (options->bytes % 8 != 0) {
    return Status::InvalidArgument("--bytes " + std::to_string(options->bytes) +
                                   ": a verb's length is a multiple of 8");
  }
  if (options->span_bytes % 8 != 0 || options->span_bytes < options->bytes) {
    return Status::InvalidArgument("--span " + std::to_string(options->span_bytes) +
                                   ": a multiple of 8 is wanted that holds a verb of --bytes " +
                                   std::to_string(options->bytes));
  }
  const uint64_t batch_bytes = options->batch * options->bytes;
  if (batch_bytes > dsm::Batch::kPayloadBytesMax) {
    return Status::InvalidArgument("--batch " + std::to_string(options->batch) + " of --bytes " +
                                   std::to_string(options->bytes) + " are more than the " +
                                   server::FormatByteSize(dsm::Batch::kPayloadBytesMax) +
                                   " of one doorbell");
  }
  if (batch_bytes * options->in_flight > kLocalBytesMax) {
    return Status::InvalidArgument("--in-flight " + std::to_string(options->in_flight) +
                                   " operations of " + server::FormatByteSize(batch_bytes) +
                                   " need more than " + server::FormatByteSize(kLocalBytesMax) +
                                   " of local memory");
  }
  if (options->operations == 0 && options->seconds == 0) options->operations = kOperationsDefault;
  return Status::Ok();
}

}  // namespace

std::string_view NameOf(VerbKind verb) { return Find(kVerbs, verb); }
std::string_view NameOf(LoopKind loop) { return Find(kLoops, loop); }
std::string_view NameOf(Idle idle) { return Find(kIdles, idle); }
std::string_view NameOf(Place place) { return Find(kPlaces, place); }

Result<VerbCommandLine> ParseVerbOptions(std::span<const std::string> arguments) {
  VerbCommandLine line;
  ConfigSchema schema("verb_bench",
                      "measures one verb on a pool's fabric, in memory that it takes from the pool "
                      "and gives back.");
  Declare(schema, &line.options);
  auto outcome = schema.Parse(arguments);
  if (!outcome.ok()) return outcome.status();
  line.outcome = *outcome;
  if (*outcome == server::ConfigOutcome::kHelp) {
    line.text = schema.Help() +
                "\nAn operation is one batch of verbs, and its latency is from one clock reading "
                "before it is posted to one\nafter its completion, the posting included.\n"
                "Exit code: 0, 1 if an operation failed or the pool is out of reach, 2 for wrong "
                "flags, 130 if interrupted\n(the result is of the part that ran).\n";
  } else if (*outcome == server::ConfigOutcome::kVersion) {
    line.text = schema.Version();
  } else {
    FARLEAF_RETURN_IF_ERROR(CheckTogether(schema, &line.options));
  }
  return line;
}

}  // namespace farleaf::micro
