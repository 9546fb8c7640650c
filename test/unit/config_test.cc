#include "server/config.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "server/logging.h"
#include "server/shutdown.h"

namespace farleaf::server {
namespace {

enum class Colour : uint8_t { kRed, kGreen };

struct ConfigTest : ::testing::Test {
  std::string name = "default";
  bool loud = false;
  uint16_t port = 7;
  uint64_t size = 64 << 10;
  Colour colour = Colour::kRed;
  std::vector<std::string> peers;
  ConfigSchema schema{"tester", "Tests configuration."};

  ConfigTest() {
    schema.AddString("name", "a name", &name);
    schema.AddBool("loud", "make noise", &loud);
    schema.AddInteger("listen_port", "a port", &port, 1, 1000);
    schema.AddBytes("chunk_size", "bytes a chunk", &size, 4096, 1 << 30);
    schema.AddEnum("colour", "a colour", &colour,
                   {{"red", Colour::kRed}, {"green", Colour::kGreen}});
    schema.AddStringList("peers", "names of peers", &peers);
  }
  Result<ConfigOutcome> Flags(std::vector<std::string> arguments) {
    return schema.Parse(arguments);
  }
  std::string FlagError(std::vector<std::string> arguments) {
    Result<ConfigOutcome> outcome = schema.Parse(arguments);
    return outcome.ok() ? "ok" : outcome.status().ToString();
  }
  std::string FileError(std::string_view text) {
    return schema.ParseToml(text, "f.toml").ToString();
  }
};

TEST_F(ConfigTest, DefaultsStayWithoutFileAndFlags) {
  ASSERT_TRUE(Flags({}).ok());
  EXPECT_EQ(name, "default");
  EXPECT_EQ(port, 7);
  EXPECT_FALSE(schema.is_set("name"));
}

TEST_F(ConfigTest, EveryKindIsSetByFlags) {
  ASSERT_EQ(FlagError({"--name", "x", "--loud", "--listen-port=1000", "--chunk-size", "2MiB",
                       "--colour", "green", "--peers", "a,b", "--peers", "c"}),
            "ok");
  EXPECT_EQ(name, "x");
  EXPECT_TRUE(loud);
  EXPECT_EQ(port, 1000);
  EXPECT_EQ(size, 2u << 20);
  EXPECT_EQ(colour, Colour::kGreen);
  EXPECT_EQ(peers, (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(ConfigTest, EveryKindIsSetByFile) {
  ASSERT_EQ(FileError("name = 'x'\nloud = true\nlisten_port = 9\nchunk_size = '1 MiB'\n"
                      "colour = \"green\"\npeers = ['a', 'b']\n"),
            "ok");
  EXPECT_EQ(name, "x");
  EXPECT_TRUE(loud);
  EXPECT_EQ(port, 9);
  EXPECT_EQ(size, 1u << 20);
  EXPECT_EQ(colour, Colour::kGreen);
  EXPECT_EQ(peers, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(FileError("chunk_size = 8192"), "ok");
  EXPECT_EQ(size, 8192u);
}

TEST_F(ConfigTest, AFlagWinsOverTheFile) {
  const std::string path = ::testing::TempDir() + "/farleaf_config_test.toml";
  std::ofstream(path) << "listen_port = 5\nloud = true\nname = 'file'\n";
  ASSERT_EQ(FlagError({"--config", path, "--listen-port", "6", "--loud=false"}), "ok");
  EXPECT_EQ(port, 6);
  EXPECT_FALSE(loud);
  EXPECT_EQ(name, "file");
  std::filesystem::remove(path);
}

TEST_F(ConfigTest, WrongFlagsAreRefusedWithWhatIsAllowed) {
  EXPECT_EQ(FlagError({"--listen-port", "1001"}),
            "invalid argument: --listen-port: 1001 is out of range; allowed: 1 to 1000");
  EXPECT_EQ(FlagError({"--listen-port", "-3"}),
            "invalid argument: --listen-port: -3 is out of range; allowed: 1 to 1000");
  EXPECT_EQ(FlagError({"--listen-port", "seven"}),
            "invalid argument: --listen-port: 'seven' is not an integer; allowed: 1 to 1000");
  EXPECT_EQ(
      FlagError({"--listen-port", "99999999999999999999"}),
      "invalid argument: --listen-port: 99999999999999999999 is out of range; allowed: 1 to 1000");
  EXPECT_EQ(FlagError({"--chunk-size", "2GiB"}),
            "invalid argument: --chunk-size: 2GiB is out of range; allowed: 4KiB to 1GiB");
  EXPECT_EQ(FlagError({"--chunk-size", "2 apples"}),
            "invalid argument: --chunk-size: '2 apples' is not a size such as 512MiB; allowed: "
            "4KiB to 1GiB");
  EXPECT_EQ(FlagError({"--colour", "blue"}),
            "invalid argument: --colour: 'blue' is not known; allowed: red or green");
  EXPECT_EQ(FlagError({"--chunksize", "1"}),
            "invalid argument: unknown flag --chunksize; did you mean --chunk-size?");
  EXPECT_EQ(FlagError({"stray"}), "invalid argument: argument 'stray' is not expected; see --help");
  EXPECT_NE(FlagError({"--name"}), "ok");
  EXPECT_EQ(FlagError({"--config", "/nonexistent/f.toml"}),
            "not found: configuration file /nonexistent/f.toml: No such file or directory");
}

TEST_F(ConfigTest, WrongFilesAreRefusedWithLineKeyAndWhatIsAllowed) {
  EXPECT_EQ(
      FileError("\nlisten_prot = 5"),
      "invalid argument: f.toml, line 2: listen_prot: unknown key; did you mean listen_port?");
  EXPECT_EQ(FileError("zzz = 5"), "invalid argument: f.toml, line 1: zzz: unknown key; see --help");
  EXPECT_EQ(FileError("listen_port = '5'"),
            "invalid argument: f.toml, line 1: listen_port: '5' is a string; allowed: 1 to 1000");
  EXPECT_EQ(FileError("listen_port = 5.5"),
            "invalid argument: f.toml, line 1: listen_port: is of type floating-point; allowed: 1 "
            "to 1000");
  EXPECT_EQ(FileError("listen_port = 0"),
            "invalid argument: f.toml, line 1: listen_port: 0 is out of range; allowed: 1 to 1000");
  EXPECT_EQ(FileError("name = 5"), "invalid argument: f.toml, line 1: name: '5' is not a string");
  EXPECT_EQ(FileError("loud = 'true'"),
            "invalid argument: f.toml, line 1: loud: 'true' is a string; allowed: true or false");
  EXPECT_EQ(FileError("peers = ['a', 3]"),
            "invalid argument: f.toml, line 1: peers: a list holds strings only");
  EXPECT_EQ(FileError("[name]\nx = 1"), "invalid argument: f.toml, line 1: name: is of type table");
  EXPECT_TRUE(FileError("name = ").starts_with("invalid argument: f.toml, line 1: "))
      << FileError("name = ");
}

// Found by toml_config_fuzz: assumptions of the TOML library did not hold.
TEST_F(ConfigTest, OddCharactersOutsideOfStringsAreRefused) {
  for (const char* text :
       {"[=]", "name\u00e9 = 'x'", "\u00e9 = 'x'", "na\ufb50 = 'x'", "name = \ufb50"}) {
    EXPECT_TRUE(FileError(text).starts_with("invalid argument: f.toml, line 1: ")) << text;
  }
  EXPECT_EQ(FileError("name = '\u00e9\ufb50' # \u00e9\ufb50"), "ok");
  EXPECT_EQ(name, "\u00e9\ufb50");
}

TEST_F(ConfigTest, ARequiredOptionMayComeFromEitherPlace) {
  schema.Required();
  EXPECT_EQ(FlagError({}),
            "invalid argument: --peers is missing (or key peers in the configuration file): names "
            "of peers");
  ASSERT_EQ(FileError("peers = ['a']"), "ok");
  EXPECT_EQ(FlagError({}), "ok");
}

TEST_F(ConfigTest, HelpAndVersionAreOutcomes) {
  EXPECT_EQ(*Flags({"--help"}), ConfigOutcome::kHelp);
  EXPECT_EQ(*Flags({"--version"}), ConfigOutcome::kVersion);
  EXPECT_NE(
      schema.Help().find("--chunk-size BYTES          bytes a chunk (4KiB to 1GiB; default 64KiB)"),
      std::string::npos)
      << schema.Help();
  EXPECT_TRUE(schema.Version().starts_with("tester (farleaf) "));
}

TEST(ByteSizeTest, RoundTrips) {
  for (uint64_t bytes :
       {uint64_t{0}, uint64_t{1}, uint64_t{1024}, uint64_t{4097}, uint64_t{3} << 40, UINT64_MAX}) {
    Result<uint64_t> parsed = ParseByteSize(FormatByteSize(bytes));
    ASSERT_TRUE(parsed.ok()) << bytes;
    EXPECT_EQ(*parsed, bytes);
  }
  for (const char* bad :
       {"", "KiB", "-1", "1.5GiB", "1KB", "99999999TiB", "18446744073709551616"}) {
    EXPECT_FALSE(ParseByteSize(bad).ok()) << bad;
  }
}

TEST(ShutdownTest, SigtermMakesTheDescriptorReadable) {
  auto shutdown = ShutdownSignal::Install();
  ASSERT_TRUE(shutdown.ok());
  EXPECT_FALSE((*shutdown)->requested());
  ::kill(::getpid(), SIGTERM);
  EXPECT_TRUE((*shutdown)->WaitForMs(10'000));
  EXPECT_TRUE((*shutdown)->requested());
  (*shutdown)->AwaitAnother();
  EXPECT_FALSE((*shutdown)->another());
  ::kill(::getpid(), SIGTERM);
  EXPECT_TRUE((*shutdown)->another());
  EXPECT_TRUE((*shutdown)->requested());
  // The end of the object, which unblocks the signal, does not end the process.
}

TEST(ShutdownTest, ARequestMakesTheDescriptorReadable) {
  auto shutdown = ShutdownSignal::Install();
  ASSERT_TRUE(shutdown.ok());
  (*shutdown)->Request();
  EXPECT_TRUE((*shutdown)->requested());
}

TEST(LogOptionsTest, AnUnwritableFileIsNamed) {
  EXPECT_EQ(SetUpLog("tester", {.file = "/nonexistent/log"}).ToString(),
            "i/o error: log_file /nonexistent/log: No such file or directory");
}

}  // namespace
}  // namespace farleaf::server
