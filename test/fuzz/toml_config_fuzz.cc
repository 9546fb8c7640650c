// Whatever a configuration file or a directory file holds: a Status, and no field out of its range.
#include "dsm/base/bytes.h"
#include "dsm/bootstrap/file_directory.h"
#include "dsm/bootstrap/memcached_directory.h"
#include "server/config.h"
#include "server/memory_server.h"
#include "test/fuzz/fuzz_target.h"

std::vector<std::string> FuzzSeeds() {
  return {
      "bootstrap = 'memcached://127.0.0.1:11211/rack7'\nid = 3\nsize = '64GiB'\nprefault = true\n",
      "fabric = \"tcp\"\nlisten = \"127.0.0.1:7100\"\nagent_threads = 2\nchunk_size = 1048576\n",
      "# comment\nlog_level = 'warn'\nlog_format = 'json'\nlog_file = ''\nhugepages = 'never'\n",
      "peers = ['a', 'b', 'c']\n[table]\nx = 1\n[[array]]\ny = 1979-05-27T07:32:00Z\n",
      "cluster rack7\n0 tcp:10.0.0.7:7100\n1 shm:/run/x.sock # one\n",
      "tcp:127.0.0.1:7100 1048576 17",
      "64KiB",
  };
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace farleaf;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  server::MemoryServerOptions options;
  std::vector<std::string> peers;
  server::ConfigSchema schema("memory_server", "fuzzed");
  server::DeclareOptions(schema, &options);
  schema.AddStringList("peers", "a list", &peers);
  const Status status = schema.ParseToml(text, "fuzzed.toml");
  FARLEAF_CHECK(status.ok() || status.code() == StatusCode::kInvalidArgument, status);
  FARLEAF_CHECK(options.agent_threads >= 1 && options.agent_threads <= 256, options.agent_threads);
  FARLEAF_CHECK(options.region_bytes >= (1 << 20), options.region_bytes);

  if (auto file = dsm::ParseDirectoryFile(text, "fuzzed"); file.ok()) {
    FARLEAF_CHECK(!file->cluster.empty());
  }
  if (auto endpoint = dsm::ParseAnnouncement(0, text); endpoint.ok()) {
    FARLEAF_CHECK(dsm::ParseAnnouncement(0, dsm::EncodeAnnouncement(*endpoint)).ok());
  }
  if (auto bytes = server::ParseByteSize(text); bytes.ok()) {
    auto again = server::ParseByteSize(server::FormatByteSize(*bytes));
    FARLEAF_CHECK(again.ok() && *again == *bytes, *bytes);
  }
  return 0;
}
