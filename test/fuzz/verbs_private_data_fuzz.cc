// Whatever bytes a peer puts into the private data of an RDMA connection message: both ends end with a
// Status, and what is accepted is encoded as it came.
//
// The first byte chooses the parser.
#include <algorithm>

#include "dsm/base/check.h"
#include "dsm/verbs/private_data.h"
#include "test/fuzz/fuzz_target.h"

namespace farleaf::dsm {
namespace {

const ServerIdentity kServer{"tested", {3, 40 << 20, 5}};

void RunConnect(std::string_view bytes) {
  auto hello = ParseConnectData(bytes, kServer.cluster);
  if (!hello.ok() || hello->version != kProtocolVersion) return;
  (void)CheckHello(*hello, kServer);
  auto again = ParseConnectData(EncodeConnectData(*hello), kServer.cluster);
  FARLEAF_CHECK(again.ok(), again.status());
  FARLEAF_CHECK(again->member == hello->member && again->target == hello->target);
  FARLEAF_CHECK(again->nonce == hello->nonce && again->server == hello->server);
  FARLEAF_CHECK((again->cluster == kServer.cluster) == (hello->cluster == kServer.cluster),
                again->cluster, hello->cluster);
}

void RunAccept(std::string_view bytes) {
  auto region = ParseAcceptData(bytes);
  if (!region.ok()) return;
  Hello sent;
  sent.server = kServer.region.server;
  Welcome welcome;
  welcome.region = region->info;
  (void)CheckWelcome(welcome, sent, kServer.region.incarnation);
  const std::string again = EncodeAcceptData(*region);
  constexpr size_t kMeaningBytes = 36;  // zeros follow
  FARLEAF_CHECK(bytes.substr(0, kMeaningBytes) == again.substr(0, kMeaningBytes));
}

void RunReject(std::string_view bytes) {
  Welcome answer;
  if (!ParseRejectData(bytes, &answer).ok()) return;
  const Status& why = answer.refusal;
  constexpr size_t kOwnMessageBytesMax = 100;  // that the version is another
  FARLEAF_CHECK(why.message().size() <= std::max(bytes.size(), kOwnMessageBytesMax), why);
  Welcome again;
  Status parsed = ParseRejectData(EncodeRejectData(answer.region.server, why), &again);
  FARLEAF_CHECK(parsed.ok() && again.refusal.code() == why.code(), parsed, again.refusal, why);
  FARLEAF_CHECK(again.region.server == answer.region.server, again.region.server);
  FARLEAF_CHECK(why.message().starts_with(again.refusal.message()), again.refusal, why);
}

}  // namespace
}  // namespace farleaf::dsm

std::vector<std::string> FuzzSeeds() {
  using namespace farleaf::dsm;
  Hello attach, cut_off;
  attach.server = cut_off.server = kServer.region.server;
  attach.cluster = cut_off.cluster = kServer.cluster;
  attach.nonce = 77;
  cut_off.kind = HelloKind::kCutOff;
  cut_off.target = {5, 9};
  RemoteRegion region;
  region.info = kServer.region;
  region.address = 0x7f0012345000;
  region.key = 0xabcd;
  const std::string connect("\0", 1), accept("\1"), reject("\2");
  return {connect + EncodeConnectData(attach), connect + EncodeConnectData(cut_off),
          accept + EncodeAcceptData(region),
          reject + EncodeRejectData(2, farleaf::Status::Fenced(std::string(40, 'x'))),
          reject + EncodeRejectData(2, farleaf::Status::Ok())};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace farleaf::dsm;
  if (size < 1) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      RunConnect(rest);
      break;
    case 1:
      RunAccept(rest);
      break;
    case 2:
      RunReject(rest);
      break;
  }
  return 0;
}
