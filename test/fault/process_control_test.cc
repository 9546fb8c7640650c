// What farleafctl changes and prints of trees.
#include <gtest/gtest.h>

#include "test/support/process.h"

namespace farleaf {
namespace {

struct ControlProcessTest : ::testing::Test {
  ProcessCluster cluster{{.fabric = "shm"}};
  void SetUp() override { cluster.StartMemoryServers(); }
};

// The same commands against the server and against the pool beneath it.
TEST_F(ControlProcessTest, ControlComparesAddsAndScansByPrefixThroughServerAndPool) {
  const auto server = cluster.StartComputeServer({"--trees", "words:bytes,numbers:fixed8"});
  const std::vector<std::vector<std::string>> doors = {{"--server", server.url()},
                                                       {"--pool", cluster.bootstrap_url()}};
  for (const auto& door : doors) {
    const auto run = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.begin(), door.begin(), door.end());
      return cluster.Run("farleafctl", arguments);
    };
    const auto words = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.begin() + 1, {"--tree", "words"});
      return run(std::move(arguments));
    };
    for (const char* key : {"user:1", "user:2", "user:3", "zone"}) words({"put", key, "a"});
    EXPECT_EQ(words({"cas", "user:1", "a", "b"}).output, "replaced\n");
    const Ended different = words({"cas", "user:1", "a", "c"});
    EXPECT_EQ(different.code, 1);
    EXPECT_EQ(different.output, "different: b\n");
    EXPECT_EQ(words({"cas", "--json", "user:1", "a", "c"}).output,
              "{\"key\": \"user:1\", \"result\": \"different\", \"value\": \"b\"}\n");
    EXPECT_EQ(words({"cas", "none", "a", "b"}).code, 3);
    EXPECT_EQ(words({"scan", "--prefix", "user:", "--limit", "2"}).output,
              "user:1\tb\nuser:2\ta\n");
    EXPECT_EQ(words({"scan", "--prefix", "user:", "--keys-only", "--reverse"}).output,
              "user:3\nuser:2\nuser:1\n");
    EXPECT_EQ(words({"scan", "--prefix", "user:", "--start", "user:3", "--json"}).output,
              "[{\"key\": \"user:3\", \"value\": \"a\"}]\n");
    EXPECT_EQ(words({"scan", "--keys-only", "--json", "--prefix", "z"}).output,
              "[{\"key\": \"zone\"}]\n");
    EXPECT_EQ(words({"scan", "--prefix", "none"}).output, "");
    EXPECT_EQ(words({"add", "visits"}).code, 3);
    EXPECT_EQ(words({"add", "visits", "5", "--initial", "10"}).output, "15\n");
    EXPECT_EQ(words({"add", "visits"}).output, "16\n");
    EXPECT_EQ(words({"add", "--json", "visits", "-20"}).output,
              "{\"key\": \"visits\", \"number\": -4}\n");
    const Ended none = words({"add", "zone"});
    EXPECT_EQ(none.code, 2);
    EXPECT_TRUE(none.says("is no counter")) << none.output;
    words({"delete", "visits"});
    EXPECT_EQ(run({"put", "--tree", "numbers", "7", "41"}).code, 0);
    EXPECT_EQ(run({"add", "--tree", "numbers", "7"}).output, "42\n");
    EXPECT_EQ(run({"cas", "--tree", "numbers", "7", "42", "1"}).output, "replaced\n");
    EXPECT_TRUE(run({"cas", "--help"}).says("Exit code: 0 if it stored"));
    EXPECT_TRUE(run({"add", "--help"}).says("A counter is a value of 8 bytes"));
    EXPECT_TRUE(run({"scan", "--help"}).says("--prefix"));
  }
}

}  // namespace
}  // namespace farleaf
