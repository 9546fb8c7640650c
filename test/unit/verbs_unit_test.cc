// What of the verbs fabric is pure: the handshake's private data, and the choice of a device.
#include <gtest/gtest.h>

#include "dsm/verbs/options.h"
#include "dsm/verbs/private_data.h"

namespace farleaf::dsm {
namespace {

Hello AHello() {
  Hello hello;
  hello.server = 3;
  hello.member = {5, 0x1122334455667788};
  hello.nonce = 0x99aabbccddeeff00;
  hello.cluster = "tested";
  return hello;
}

RemoteRegion ARegion() {
  RemoteRegion region;
  region.info = {3, 40 << 20, 0x1122334455667788};
  region.address = 0x7f00'1234'5000;
  region.key = 0xabcd1234;
  return region;
}

std::string Failure(const Status& status) { return status.ToString(); }

// ---- connect requests

TEST(ConnectDataTest, AHelloComesBackWhole) {
  Hello hello = AHello();
  for (const HelloKind kind : {HelloKind::kAttach, HelloKind::kCutOff}) {
    hello.kind = kind;
    if (kind == HelloKind::kCutOff) hello.target = {7, 0xfedcba9876543210};
    auto parsed = ParseConnectData(EncodeConnectData(hello), "tested");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->version, kProtocolVersion);
    EXPECT_EQ(parsed->kind, kind);
    EXPECT_EQ(parsed->server, hello.server);
    EXPECT_EQ(parsed->member, hello.member);
    EXPECT_EQ(parsed->target, hello.target);
    EXPECT_EQ(parsed->nonce, hello.nonce);
    EXPECT_EQ(parsed->cluster, "tested");
  }
}

TEST(ConnectDataTest, TheRoomOfAConnectRequestIsEnoughAndItsZerosAreIgnored) {
  std::string bytes = EncodeConnectData(AHello());
  ASSERT_EQ(bytes.size(), 56u);
  ASSERT_LE(bytes.size(), kConnectDataBytesMax);
  bytes.resize(kConnectDataBytesMax);
  auto parsed = ParseConnectData(bytes, "tested");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->nonce, AHello().nonce);
}

TEST(ConnectDataTest, AnotherClusterIsNotTakenForOnesOwn) {
  const std::string bytes = EncodeConnectData(AHello());
  const ServerIdentity self{"production", {3, 40 << 20, 9}};
  for (const char* cluster : {"production", "teste", "tested2", "Tested", "detset"}) {
    auto parsed = ParseConnectData(bytes, cluster);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_NE(parsed->cluster, cluster);
  }
  auto parsed = ParseConnectData(bytes, "production");
  EXPECT_EQ(Failure(CheckHello(*parsed, self)),
            "invalid argument: memory server 3 belongs to cluster 'production', not 'tested'");
}

// Only the beginning of a long name fits.
TEST(ConnectDataTest, ANameThatBeginsLikeOnesOwnIsAnother) {
  const std::string begin = "sixteen.letters_";
  ASSERT_EQ(begin.size(), 16u);
  for (const auto& [theirs, own] : {std::pair(begin + "b", begin + "a"),
                                    std::pair(begin + "b", begin), std::pair(begin, begin + "a")}) {
    Hello hello = AHello();
    hello.cluster = theirs;
    auto parsed = ParseConnectData(EncodeConnectData(hello), own);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->cluster, begin + "*");
    hello.cluster = own;
    parsed = ParseConnectData(EncodeConnectData(hello), own);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->cluster, own);
  }
}

TEST(ConnectDataTest, AnotherVersionIsToldWhateverFollows) {
  Hello hello = AHello();
  hello.version = kProtocolVersion + 1;
  auto parsed = ParseConnectData(EncodeConnectData(hello).substr(0, 6), "tested");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->version, kProtocolVersion + 1);
  EXPECT_EQ(parsed->nonce, 0u);
}

TEST(ConnectDataTest, EveryTruncationIsRefused) {
  const std::string bytes = EncodeConnectData(AHello());
  for (size_t size = 0; size < bytes.size(); ++size) {
    auto parsed = ParseConnectData(bytes.substr(0, size), "tested");
    ASSERT_FALSE(parsed.ok()) << size;
    EXPECT_EQ(parsed.status().code(), StatusCode::kCorruption) << size;
  }
  EXPECT_EQ(Failure(ParseConnectData(bytes.substr(0, 55), "tested").status()),
            "corruption: a connect request of 55 bytes, 56 expected");
}

TEST(ConnectDataTest, WhatIsNotOfThisProtocolIsRefused) {
  std::string wrong_magic = EncodeConnectData(AHello());
  wrong_magic[0] ^= 1;
  for (const std::string& bytes : {wrong_magic, std::string(56, '\0'), std::string(56, '\377'),
                                   std::string("GET / HTTP/1.1\r\n\r\n")}) {
    EXPECT_EQ(Failure(ParseConnectData(bytes, "tested").status()),
              "corruption: the peer does not speak the memory layer's protocol over RDMA");
  }
}

TEST(ConnectDataTest, AnUnknownKindIsRefused) {
  for (const char kind : {0, 3, 127, -1}) {
    std::string bytes = EncodeConnectData(AHello());
    bytes[10] = kind;
    EXPECT_EQ(Failure(ParseConnectData(bytes, "tested").status()),
              "corruption: a connect request of unknown kind " +
                  std::to_string(static_cast<uint8_t>(kind)));
  }
}

// ---- acceptances

TEST(AcceptDataTest, ARegionComesBackWhole) {
  std::string bytes = EncodeAcceptData(ARegion());
  ASSERT_EQ(bytes.size(), 40u);
  bytes.resize(196);  // what librdmacm hands over
  auto parsed = ParseAcceptData(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->info.server, 3u);
  EXPECT_EQ(parsed->info.region_bytes, uint64_t{40} << 20);
  EXPECT_EQ(parsed->info.incarnation, 0x1122334455667788u);
  EXPECT_EQ(parsed->address, 0x7f00'1234'5000u);
  EXPECT_EQ(parsed->key, 0xabcd1234u);
}

TEST(AcceptDataTest, EveryTruncationIsRefused) {
  const std::string bytes = EncodeAcceptData(ARegion());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(ParseAcceptData(bytes.substr(0, size)).status().code(), StatusCode::kCorruption)
        << size;
  }
}

TEST(AcceptDataTest, AnotherVersionAndAnotherProtocolAreTold) {
  std::string other_version = EncodeAcceptData(ARegion());
  other_version[4] = 9;
  EXPECT_EQ(Failure(ParseAcceptData(other_version).status()),
            "invalid argument: the memory server speaks protocol version 9, this program 3");
  EXPECT_EQ(Failure(ParseAcceptData(std::string(196, '\0')).status()),
            "corruption: the peer does not speak the memory layer's protocol over RDMA");
}

// ---- rejections

TEST(RejectDataTest, AStatusComesBackWhole) {
  for (const Status& sent : {Status::Fenced("compute server 5 was cut off"),
                             Status::InvalidArgument(""), Status::Ok()}) {
    std::string bytes = EncodeRejectData(7, sent);
    bytes.resize(kRejectDataBytesMax);  // what librdmacm hands over
    Welcome answer;
    answer.refusal = Status::Unknown("not set");
    Status parsed = ParseRejectData(bytes, &answer);
    ASSERT_TRUE(parsed.ok()) << parsed;
    EXPECT_EQ(answer.refusal.ToString(), sent.ToString());
    EXPECT_EQ(answer.region.server, 7);
  }
}

TEST(RejectDataTest, ALongMessageIsCutToTheRoomThereIs) {
  const std::string bytes = EncodeRejectData(7, Status::Fenced(std::string(1'000, 'x')));
  EXPECT_EQ(bytes.size(), kRejectDataBytesMax);
  Welcome answer;
  ASSERT_TRUE(ParseRejectData(bytes, &answer).ok());
  EXPECT_EQ(answer.refusal.code(), StatusCode::kFenced);
  EXPECT_EQ(answer.refusal.message(), std::string(kRejectDataBytesMax - 10, 'x'));
}

TEST(RejectDataTest, HostileLengthsAndCodesAreRefused) {
  const std::string good = EncodeRejectData(7, Status::Fenced("why"));
  std::string long_message = good, unknown_code = good;
  long_message[9] = '\377';
  unknown_code[8] = kStatusCodeMax + 1;
  for (const std::string& bytes : {long_message, unknown_code, good.substr(0, 9)}) {
    Welcome answer;
    EXPECT_EQ(Failure(ParseRejectData(bytes, &answer)),
              "corruption: a malformed rejection of " + std::to_string(bytes.size()) + " bytes");
    EXPECT_TRUE(answer.refusal.ok());
  }
  for (size_t size = 0; size < good.size(); ++size) {
    Welcome answer;
    EXPECT_EQ(ParseRejectData(good.substr(0, size), &answer).code(), StatusCode::kCorruption)
        << size;
  }
}

TEST(RejectDataTest, AnotherVersionIsTold) {
  std::string bytes = EncodeRejectData(7, Status::Fenced("in words of the future"));
  bytes[4] = 9;
  Welcome answer;
  Status parsed = ParseRejectData(bytes, &answer);
  EXPECT_TRUE(parsed.ok()) << parsed;
  EXPECT_EQ(Failure(answer.refusal),
            "invalid argument: the memory server speaks protocol version 9, this program 3");
}

// ---- the choice of a device

TEST(DeviceChoiceTest, PartsThatAreLeftOutAreOpen) {
  struct Case {
    const char* text;
    const char* device;
    int port, gid_index;
  };
  for (const Case& each :
       {Case{"", "", 0, -1}, Case{"mlx5_0", "mlx5_0", 0, -1}, Case{"mlx5_0:2", "mlx5_0", 2, -1},
        Case{"mlx5_0:2:3", "mlx5_0", 2, 3}, Case{"mlx5_0::3", "mlx5_0", 0, 3},
        Case{":1", "", 1, -1}, Case{"::0", "", 0, 0}, Case{"::", "", 0, -1},
        Case{":255:", "", 255, -1}}) {
    auto choice = ParseDeviceChoice(each.text);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->device, each.device) << each.text;
    EXPECT_EQ(choice->port, each.port) << each.text;
    EXPECT_EQ(choice->gid_index, each.gid_index) << each.text;
  }
  EXPECT_TRUE(ParseDeviceChoice("")->any());
  EXPECT_FALSE(ParseDeviceChoice("mlx5_0")->any());
  EXPECT_FALSE(ParseDeviceChoice("::0")->any());
}

TEST(DeviceChoiceTest, AnythingElseIsRefusedWithTheText) {
  for (const char* text : {"mlx5_0:x", "mlx5_0:256", "mlx5_0:-1", "mlx5_0:1:-1", "mlx5_0:1:x",
                           "mlx5_0:1:2:3", "a:1 ", "a: 1", "a:1:99999999999", ":::"}) {
    auto choice = ParseDeviceChoice(text);
    ASSERT_FALSE(choice.ok()) << text;
    EXPECT_EQ(Failure(choice.status()), "invalid argument: '" + std::string(text) +
                                            "' is not DEVICE[:PORT[:GID INDEX]], as mlx5_0:1:3");
  }
}

}  // namespace
}  // namespace farleaf::dsm
