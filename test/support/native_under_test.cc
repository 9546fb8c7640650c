#include "test/support/native_under_test.h"

#include <stdlib.h>

#include <chrono>
#include <thread>
#include <utility>

#include "dsm/base/check.h"

namespace farleaf::test {

using farleaf::server::NativeServer;
using farleaf::server::NativeServerOptions;

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

namespace {

/// With the port that it was given.
std::string AddressOf(const NativeServer& server) {
  return server.urls()[0].substr(std::string_view("farleaf://").size());
}

}  // namespace

NativeUnderTest::NativeUnderTest() = default;

NativeUnderTest::~NativeUnderTest() = default;

void NativeUnderTest::SetUp() {
  std::string pattern = (std::filesystem::temp_directory_path() / "farleaf-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  directory = pattern;
  options.listen = {"127.0.0.1:0"};
  options.unix_path = (directory / "server.sock").string();
  // No test that passes sees one of these, however slow its machine is; tests of them name their own.
  options.deadline_ms_default = options.deadline_ms_max = options.hello_timeout_ms = kPatienceMs;
}

void NativeUnderTest::TearDown() {
  server.reset();
  other.reset();
  std::filesystem::remove_all(directory);
}

void NativeUnderTest::StartServer() {
  if (servers() == 2 && !other) StartOther();
  if (server) return;
  auto started = NativeServer::Start(&served(0), &clock, options);
  ASSERT_TRUE(started.ok()) << started.status();
  server = std::move(*started);
  options.listen = {AddressOf(*server)};
}

void NativeUnderTest::StartOther() {
  NativeServerOptions others = options;
  if (!others_listen_.empty()) others.listen = others_listen_;
  others.unix_path = (directory / "other.sock").string();
  auto started = NativeServer::Start(&served(1), &clock, std::move(others));
  ASSERT_TRUE(started.ok()) << started.status();
  other = std::move(*started);
  others_listen_ = {AddressOf(*other)};
}

void NativeUnderTest::ListenForRecords() {
  options.memcached.listen = options.redis.listen = {"127.0.0.1:0"};
}

/// Runs a call of a host on a worker of its own.
template <typename Call>
auto NativeUnderTest::OnHost(farleaf::server::TreeHost& host, Call call) {
  auto worker = host.OpenWorker();
  FARLEAF_CHECK(worker.ok(), worker.status());
  dsm::FabricCounts counts;
  dsm::OpContext op{**worker, counts};
  return (*worker)->Run(call(op));
}

void NativeUnderTest::Add(const std::string& name, farleaf::server::protocol::TreeLayout layout) {
  AddTo(served(1), name, layout);
}

void NativeUnderTest::AddTo(farleaf::server::TreeHost& host, const std::string& name,
                            farleaf::server::protocol::TreeLayout layout) {
  const farleaf::server::NewTree tree{.name = name, .layout = layout};
  const auto created = OnHost(host, [&](dsm::OpContext& op) { return host.Create(op, tree); });
  FARLEAF_CHECK(created.ok(), created.status());
}

std::map<std::string, std::string> NativeUnderTest::Content(const std::string& name) {
  farleaf::server::TreeHost& host = served(1);
  const auto tree = OnHost(host, [&](dsm::OpContext& op) { return host.Open(op, name); });
  FARLEAF_CHECK(tree.ok(), tree.status());
  std::vector<index::KeyValue> rows;
  const Status scanned =
      OnHost(host, [&](dsm::OpContext& op) { return tree->index->Scan(op, {}, &rows); });
  FARLEAF_CHECK(scanned.ok(), scanned);
  std::map<std::string, std::string> content;
  for (index::KeyValue& row : rows) content.emplace(std::move(row.key), std::move(row.value));
  return content;
}

std::string NativeUnderTest::ring_url(size_t i) const {
  constexpr std::string_view kUnix = "farleaf+unix:";
  return "farleaf+ring:" + unix_url(i).substr(kUnix.size());
}

NativeServer::ConnectionCounts NativeUnderTest::Connections() const {
  NativeServer::ConnectionCounts all = server->Connections();
  if (!other) return all;
  const NativeServer::ConnectionCounts others = other->Connections();
  all.accepted += others.accepted;
  all.open += others.open;
  all.refused += others.refused;
  all.truncated += others.truncated;
  all.event_polls += others.event_polls;
  all.event_waits += others.event_waits;
  return all;
}

bool NativeUnderTest::AwaitOpen(uint64_t connections) const {
  const uint64_t end_ns = clock.NowNs() + kPatienceMs * kNsPerMs;
  while (Connections().open != connections && clock.NowNs() < end_ns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Connections().open == connections;
}

client::Options NativeUnderTest::Patient() {
  client::Options patient;
  patient.deadline_ms = patient.connect_timeout_ms = kPatienceMs;
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
  for (size_t i = 0; i < servers(); ++i) {
    auto client = client::Client::Connect(unix_url(i), Patient());
    ASSERT_TRUE(client.ok()) << client.status();
    EXPECT_TRUE((*client)->Ping().ok());
  }
}

}  // namespace farleaf::test
