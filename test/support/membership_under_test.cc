#include "test/support/membership_under_test.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "dsm/base/check.h"
#include "dsm/null_transport.h"
#include "server/membership/zookeeper_membership.h"
#include "test/support/fabric_under_test.h"
#include "test/support/link_proxy.h"
#include "test/support/zookeeper_under_test.h"

namespace farleaf::server::membership {

namespace {

std::unique_ptr<dsm::Worker> NewWorker(dsm::EpochDomain* epochs, const Clock* clock) {
  return std::make_unique<dsm::Worker>(
      dsm::Worker::Deps{std::make_unique<dsm::NullTransport>(), epochs, clock, 1, 1});
}

/// A ZooKeeper, each of whose sessions has a link of its own to it.
class ZookeeperSessions final : public MembershipUnderTest {
 public:
  ZookeeperSessions() : folder_(), zookeeper_(MakeFolder(), kTickMs) {
    worker_ = NewWorker(&epochs_, &clock_);
  }
  Membership& Open() override {
    auto link = std::make_unique<LinkProxy>(zookeeper_.address());
    auto opened = ZookeeperMembership::Open(
        "zookeeper://" + link->address() + "/farleaf/tested",
        {.session_timeout_ms = 8 * kTickMs, .connect_timeout_ms = 60'000}, &clock_);
    FARLEAF_CHECK(opened.ok(), opened.status());
    sessions_.push_back({std::move(link), std::move(*opened)});
    return *sessions_.back().membership;
  }
  void Part(Membership& session) override { LinkOf(session).Cut(); }
  void Heal(Membership& session) override { LinkOf(session).Heal(); }
  void GoAway() override { zookeeper_.Kill(); }
  void ComeBack() override { zookeeper_.Start(); }
  const Clock& clock() const override { return clock_; }
  void Step() override { worker_->RunOnce(dsm::Worker::Idle::kBlock); }

 private:
  static constexpr int kTickMs = 500;
  struct Session {
    std::unique_ptr<LinkProxy> link;
    std::unique_ptr<ZookeeperMembership> membership;  // destroyed first
  };
  std::string MakeFolder() {
    const std::string path = folder_.File("zookeeper");
    FARLEAF_CHECK(std::filesystem::create_directory(path), path);
    return path;
  }
  LinkProxy& LinkOf(const Membership& session) {
    for (Session& each : sessions_) {
      if (each.membership.get() == &session) return *each.link;
    }
    FARLEAF_CHECK(false, "a session of another service");
    std::abort();
  }

  MonotonicClock clock_;
  dsm::TempFolder folder_;
  ZookeeperUnderTest zookeeper_;
  std::vector<Session> sessions_;
};

}  // namespace

bool MembershipUnderTest::IsInstalled(Kind kind) {
  return kind == Kind::kInProcess || ZookeeperUnderTest::IsInstalled();
}

std::unique_ptr<MembershipUnderTest> MembershipUnderTest::New(Kind kind) {
  if (kind == Kind::kZookeeper) return std::make_unique<ZookeeperSessions>();
  return std::make_unique<InProcessUnderTest>(
      InProcessOptions{.seed = 7, .session_timeout_ms = 2'000, .delay_ns_max = 3 * kNsPerMs});
}

InProcessUnderTest::InProcessUnderTest(const InProcessOptions& options)
    : service_(&clock_, options) {
  worker_ = NewWorker(&epochs_, &clock_);
}

InProcessUnderTest::~InProcessUnderTest() {
  for (auto& session : sessions_) {
    const Status closed = Run(session->Close(worker()));
    FARLEAF_CHECK(closed.ok(), closed);
  }
  Until([this] { return worker().spawned() == 0; });  // KeepAlive of each
}

InProcessMembership& InProcessUnderTest::Open() {
  auto opened = service_.Open();
  FARLEAF_CHECK(opened.ok(), opened.status());
  sessions_.push_back(std::move(*opened));
  worker().Spawn(sessions_.back()->KeepAlive(worker()));
  return *sessions_.back();
}

void InProcessUnderTest::Step() {
  if (worker().RunOnce(dsm::Worker::Idle::kReturn)) return;
  const uint64_t due_ns = worker().NextDueNs();
  FARLEAF_CHECK(due_ns != UINT64_MAX, "nothing will ever happen");
  if (due_ns > clock_.NowNs()) clock_.AdvanceNs(due_ns - clock_.NowNs());
}

}  // namespace farleaf::server::membership
