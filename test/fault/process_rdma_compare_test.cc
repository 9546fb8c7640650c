// scripts/rdma_compare.sh: what it makes of the programs' figures, and how it ends. Its RDMA device is not
// needed here: stand-ins for perftest's programs print figures that are far from any of ours.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "test/support/process.h"

namespace farleaf {
namespace {

using Json = nlohmann::json;

/// As a server it waits for one connection; as a client it connects and prints `text`.
std::string StandIn(const std::string& text) {
  return R"(#!/usr/bin/env python3
import socket, sys
port = int(sys.argv[sys.argv.index("-p") + 1])
assert sys.argv[sys.argv.index("-d") + 1] == "device0" and "-F" in sys.argv
if sys.argv[-1] == "127.0.0.1":
    socket.create_connection(("127.0.0.1", port)).close()
    print(""")" +
         text + R"(""")
else:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    server.accept()
)";
}

std::string Latency(const std::string& median) {
  return "---------\n                    RDMA_Read Latency Test\n Dual-port       : "
         "OFF\n---------\n"
         " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
         "t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n"
         " 8       1000          18.82          8241.93      " +
         median + "    \t       45.18       \t206.89 \t\t286.42  \t\t8241.93\n---------\n";
}

std::string Rate(const std::string& rate) {
  return " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
         " 1024       1000             42.04              22.49  \t\t   " +
         rate + "\n";
}

struct RdmaCompareTest : ::testing::Test {
  dsm::TempFolder folder;

  void Install(const std::string& program, const std::string& text) const {
    const std::string path = folder.File(program);
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  void InstallPerftest(const std::string& latency, const std::string& rate) const {
    Install("ib_read_lat", StandIn(Latency(latency)));
    Install("ib_atomic_lat", StandIn(Latency(latency)));
    Install("ib_read_bw", StandIn(Rate(rate)));
  }
  Ended Compare(std::vector<std::string> flags) const {
    const std::string address = FreeAddress();
    const std::vector<std::string> command{
        "env",
        "-u",
        "FARLEAF_RDMA_DEVICE",
        "-u",
        "FARLEAF_RDMA_ADDRESS",
        "PATH=" + folder.File("") + ":" + std::getenv("PATH"),
        std::string(FARLEAF_SCRIPTS) + "/rdma_compare.sh",
        "--fabric",
        "shm",
        "--iterations",
        "200",
        "--bin",
        std::filesystem::path(ProgramPath("verb_bench")).parent_path(),
        "--port",
        address.substr(address.find(':') + 1),
        "--json",
        folder.File("result.json")};
    flags.insert(flags.begin(), command.begin(), command.end());
    ChildProcess process(flags, folder.File("output"));
    const auto code = process.Wait();
    const Ended ended{code.value_or(Ended::kStillRunning), process.Output()};
    std::filesystem::remove(folder.File("output"));
    return ended;
  }
  std::vector<std::string> WithPerftest(std::vector<std::string> more) const {
    more.insert(more.begin(), {"--device", "device0", "--address", "127.0.0.1"});
    return more;
  }
  Json Result() const {
    std::ifstream file(folder.File("result.json"));
    return Json::parse(file, nullptr, false);
  }
};

TEST_F(RdmaCompareTest, MeasuresOursAlone) {
  const Ended ended =
      Compare({"--without-perftest", "--rounds", "2", "--loops", "transport,worker"});
  ASSERT_EQ(ended.code, 0) << ended.output;
  const Json result = Result();
  ASSERT_EQ(result["rows"].size(), 8u);
  for (const Json& row : result["rows"]) {
    EXPECT_EQ(row["ours"].size(), 2u);
    EXPECT_FALSE(row.contains("ratio"));
  }
  EXPECT_EQ(result["configuration"]["iterations"], 200);
}

TEST_F(RdmaCompareTest, ComparesWithTheirFiguresAndChecksTheBounds) {
  InstallPerftest("1000000.00", "0.000001");
  const Ended good = Compare(WithPerftest({"--rounds", "2", "--check"}));
  ASSERT_EQ(good.code, 0) << good.output;
  const Json result = Result();
  ASSERT_EQ(result["rows"].size(), 4u);
  for (const Json& row : result["rows"]) {
    const bool latency = row["kind"] == "latency";
    EXPECT_EQ(row["theirs"], Json::array({latency ? 1e6 : 1e-3, latency ? 1e6 : 1e-3}));
    for (size_t round = 0; round < 2; ++round) {
      const double ours = row["ours"][round], theirs = row["theirs"][round];
      EXPECT_DOUBLE_EQ(row["ratios"][round].get<double>(), ours / theirs);
    }
    EXPECT_EQ(row["holds"], true) << row;
  }
  InstallPerftest("0.01", "0.000001");  // no program takes 13 ns to read and to notice it
  const Ended bad = Compare(WithPerftest({"--rounds", "1", "--check"}));
  EXPECT_EQ(bad.code, 1) << bad.output;
  EXPECT_TRUE(bad.says(": NO")) << bad.output;
  const Ended unchecked = Compare(WithPerftest({"--rounds", "1"}));
  EXPECT_EQ(unchecked.code, 0) << unchecked.output;
}

TEST_F(RdmaCompareTest, SaysWhatWentWrong) {
  InstallPerftest("10.00", "1.000000");
  Install("ib_atomic_lat", "#!/bin/sh\necho no such device >&2\nexit 1\n");
  const Ended no_server = Compare(WithPerftest({"--rounds", "1"}));
  EXPECT_EQ(no_server.code, 3) << no_server.output;
  EXPECT_TRUE(no_server.says("no such device")) << no_server.output;
  Install("ib_atomic_lat", StandIn("t_typical is not in this output"));
  const Ended no_figures = Compare(WithPerftest({"--rounds", "1"}));
  EXPECT_EQ(no_figures.code, 3) << no_figures.output;
  EXPECT_TRUE(no_figures.says("no line of columns")) << no_figures.output;
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "--address is missing"},
      {{"--address", "127.0.0.1"}, "--device is missing"},
      {{"--address", "::1", "--device", "device0"}, "no IPv4 address"},
      {{"--without-perftest", "--check"}, "nothing to compare with"},
      {{"--loops", "none"}, "--loops: 'none'"},
      {{"--rounds", "0"}, "--rounds needs a number"},
      {{"--speed"}, "unknown option '--speed'"}};
  for (const auto& [flags, message] : cases) {
    const Ended ended = Compare(flags);
    EXPECT_EQ(ended.code, 2) << ended.output;
    EXPECT_TRUE(ended.says(message)) << ended.output;
  }
}

}  // namespace
}  // namespace farleaf
