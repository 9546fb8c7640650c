// Each command that is served has a row in the tables that say what it promises across compute servers: Redis' in
// server/frontend/redis/README.md, memcached's in server/README.md.
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <set>
#include <string>

#include "server/frontend/memcached/command.h"
#include "server/frontend/redis/command.h"

namespace farleaf::server {
namespace {

/// What stands in backquotes in the first column of the tables with that head. "ZRANGE…" stands for all that begin so.
std::set<std::string> NamesIn(const std::string& path, const std::string& head) {
  std::ifstream file(std::string(FARLEAF_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(file.is_open()) << path;
  std::set<std::string> names;
  bool in_table = false;
  for (std::string line; std::getline(file, line);) {
    in_table = line == head || (in_table && line.starts_with('|'));
    if (!in_table) continue;
    const std::string cell = line.substr(0, line.find('|', 1));
    for (size_t at = cell.find('`'); at != std::string::npos; at = cell.find('`', at + 1)) {
      const size_t end = cell.find('`', at + 1);
      if (end == std::string::npos) break;
      const std::string quoted = cell.substr(at + 1, end - at - 1);
      names.insert(quoted.substr(0, quoted.find(' ')));
      at = end;
    }
  }
  EXPECT_GT(names.size(), 20u) << path;
  return names;
}

const std::string kHead = "| command | across compute servers of a pool |";
const std::string kMemcachedHead = "| command | across compute servers |";

TEST(CommandRowsTest, EveryCommandOfRedisHasOne) {
  const std::set<std::string> rows = NamesIn("server/frontend/redis/README.md", kHead);
  for (const redis::CommandSpec& command : redis::Commands()) {
    std::string name(command.name);
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    bool found = rows.contains(name);
    for (const std::string& row : rows) {
      const size_t dots = row.find("…");
      found |= dots != std::string::npos && name.starts_with(row.substr(0, dots));
    }
    EXPECT_TRUE(found) << name;
  }
}

TEST(CommandRowsTest, EveryCommandOfMemcachedHasOne) {
  const std::set<std::string> rows = NamesIn("server/README.md", kMemcachedHead);
  for (size_t verb = 1; verb < memcached::kVerbCount; ++verb) {
    const std::string name(memcached::VerbName(static_cast<memcached::Verb>(verb)));
    EXPECT_TRUE(rows.contains(name)) << name;
  }
}

}  // namespace
}  // namespace farleaf::server
