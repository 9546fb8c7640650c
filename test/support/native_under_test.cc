#include "test/support/native_under_test.h"

#include <stdlib.h>

#include <utility>

namespace farleaf::test {

std::string KeyOf(uint64_t i) { return "key" + std::to_string(1'000'000 + i); }

index::Task<Status> HoldUntilDeadline(index::OpContext& op, std::atomic<int>* held) {
  ++*held;
  while (!op.expired()) co_await op.worker.Sleep(kNsPerMs);
  co_return Status::DeadlineExceeded("held up by compute server 9");
}

index::Task<Status> HoldUntilReleased(index::OpContext& op, std::atomic<int>* held,
                                      const std::atomic<bool>* released) {
  ++*held;
  while (!*released && !op.expired()) co_await op.worker.Sleep(kNsPerMs);
  co_return Status::Ok();
}

NativeUnderTest::NativeUnderTest() = default;

NativeUnderTest::~NativeUnderTest() = default;

void NativeUnderTest::SetUp() {
  std::string pattern = (std::filesystem::temp_directory_path() / "farleaf-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  directory = pattern;
  options.listen = {"127.0.0.1:0"};
  options.unix_path = (directory / "server.sock").string();
  options.deadline_ms_max = kPatienceMs;
}

void NativeUnderTest::TearDown() {
  server.reset();
  std::filesystem::remove_all(directory);
}

void NativeUnderTest::StartServer() {
  auto started = farleaf::server::NativeServer::Start(&served(), &clock, options);
  ASSERT_TRUE(started.ok()) << started.status();
  server = std::move(*started);
  // The port stays when the server is started again.
  options.listen = {server->urls()[0].substr(std::string("farleaf://").size())};
}

client::Options NativeUnderTest::Patient() {
  client::Options patient;
  patient.deadline_ms = kPatienceMs;
  return patient;
}

std::unique_ptr<client::Client> NativeUnderTest::Connect(const std::string& url) {
  auto connected = client::Client::Connect(url, Patient());
  EXPECT_TRUE(connected.ok()) << connected.status();
  return std::move(*connected);
}

std::unique_ptr<client::Session> NativeUnderTest::ConnectSession(const std::string& url) {
  auto connected = client::Session::Connect(url, Patient());
  EXPECT_TRUE(connected.ok()) << connected.status();
  return std::move(*connected);
}

void NativeUnderTest::ExpectServing() {
  auto other = client::Client::Connect(unix_url(), Patient());
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE((*other)->Ping().ok());
}

}  // namespace farleaf::test
