// Fencing on shm, where it means killing: whom the memory server kills, and that it is dead then.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <optional>

#include "dsm/pool.h"
#include "dsm/shm/peer_process.h"
#include "test/support/fabric_under_test.h"
#include "test/support/test_scale.h"

namespace farleaf::dsm {
namespace {

constexpr uint64_t kCounter = 4096;

/// A child of this process that attaches to memory server 0 of a FabricUnderTest, and from the Welcome
/// on has a lease, and adds to a word of its region without end. It uses the mapping that it inherited, and nothing but
/// system calls, because other threads may have held any lock when it was forked.
class Victim {
 public:
  static constexpr int kRefused = 100;
  Victim(FabricUnderTest& cluster, MemberIdentity member) {
    Hello hello;
    hello.member = member;
    hello.cluster = "tested";
    const std::string message = EncodeHello(hello);
    auto address = UnixAddress(cluster.server(0).endpoint().endpoint.substr(4));
    FARLEAF_CHECK(address.ok(), address.status());
    auto* word = reinterpret_cast<uint64_t*>(cluster.region_bytes(0).data() + kCounter);
    auto* lease =
        reinterpret_cast<uint64_t*>(cluster.region_bytes(0).data() + LeaseWordOffset(member.id));
    pid_ = ::fork();
    FARLEAF_CHECK(pid_ >= 0, errno);
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // whatever becomes of the test
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    char welcome[kHandshakeHeaderBytes + 1];  // up to its status
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address->storage), address->bytes) != 0 ||
        ::write(fd, message.data(), message.size()) < 0 ||
        ::recv(fd, welcome, sizeof welcome, MSG_WAITALL) != sizeof welcome) {
      ::_exit(1);
    }
    if (welcome[kHandshakeHeaderBytes] != 0) ::_exit(kRefused);
    std::atomic_ref(*lease).store(LeaseWord{member.incarnation, 1}.Encode());
    while (true) std::atomic_ref(*word).fetch_add(1);
  }
  ~Victim() {
    if (!ended_) ::kill(pid_, SIGKILL);
    (void)WaitForEnd();
  }
  Victim(const Victim&) = delete;

  pid_t pid() const { return pid_; }
  /// The signal that ended it, or its exit code; kRefused if the memory server did not let it in. Waits
  /// for its end.
  int WaitForEnd() {
    if (!ended_) {
      int status = 0;
      ::waitpid(pid_, &status, 0);
      ended_ = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    }
    return *ended_;
  }

 private:
  pid_t pid_ = -1;
  std::optional<int> ended_;
};

struct ShmFencing : ::testing::Test {
  FabricUnderTest cluster{FabricKind::kShm, {.lease_ms = 1'000}};

  uint64_t Word(uint64_t offset) {
    return std::atomic_ref(*reinterpret_cast<uint64_t*>(cluster.region_bytes(0).data() + offset))
        .load();
  }
  uint64_t Counter() { return Word(kCounter); }
  void ResetCounter() {
    std::atomic_ref(*reinterpret_cast<uint64_t*>(cluster.region_bytes(0).data() + kCounter))
        .store(0);
  }
  void AwaitActivity() {
    const uint64_t before = Counter(), deadline_ns = cluster.clock().NowNs() + 60 * kNsPerSecond;
    while (Counter() == before) ASSERT_LT(cluster.clock().NowNs(), deadline_ns);
  }
};

TEST_F(ShmFencing, WhoeverIsCutOffIsDeadWhenTheCutIsConfirmed) {
  for (uint64_t incarnation = 1; incarnation <= 10; ++incarnation) {
    Victim victim(cluster, {5, incarnation});
    AwaitActivity();
    Status cut = cluster.fabric().CutOff(0, {5, incarnation});
    const uint64_t at_the_cut = Counter();
    EXPECT_TRUE(cut.ok()) << cut;
    EXPECT_EQ(victim.WaitForEnd(), SIGKILL);
    EXPECT_EQ(Counter(), at_the_cut);
    EXPECT_EQ(Word(FenceWordOffset(5)), incarnation);
    EXPECT_TRUE(cluster.fabric().CutOff(0, {5, incarnation}).ok());
  }
}

TEST_F(ShmFencing, AProcessThatEndsIsCutOffAtOnceAndOneThatHasLeftIsNot) {
  ManualClock server_clock;  // on which no lease ever runs out
  LeaseEnforcer enforcer(cluster.LeasesOf(0, &server_clock));
  Victim victim(cluster, {5, 3}), left(cluster, {6, 1});
  AwaitActivity();
  while (Word(LeaseWordOffset(5)) == 0 || Word(LeaseWordOffset(6)) == 0) ::sched_yield();
  enforcer.Look();
  EXPECT_EQ(Word(FenceWordOffset(5)), 0u);
  std::atomic_ref(*reinterpret_cast<uint64_t*>(cluster.region_bytes(0).data() + LeaseWordOffset(6)))
      .store(0);
  for (Victim* one : {&victim, &left}) {
    ::kill(one->pid(), SIGKILL);
    EXPECT_EQ(one->WaitForEnd(), SIGKILL);
  }
  (void)cluster.server(0).agent->connections();  // the sockets are forgotten, the ends are not
  enforcer.Look();
  EXPECT_EQ(Word(FenceWordOffset(5)), 3u);
  EXPECT_EQ(Word(FenceWordOffset(6)), 0u);
}

TEST_F(ShmFencing, WhoeverIsSilentForTheLeaseIsKilled) {
  ManualClock server_clock;
  LeaseEnforcer enforcer(cluster.LeasesOf(0, &server_clock));
  Victim victim(cluster, {5, 3});
  AwaitActivity();
  ::kill(victim.pid(), SIGSTOP);
  for (int looks = 0; looks < 9; ++looks) {
    server_clock.AdvanceNs(125 * kNsPerMs);
    enforcer.Look();
  }
  EXPECT_EQ(victim.WaitForEnd(), SIGKILL);
  EXPECT_EQ(Word(FenceWordOffset(5)), 3u);
}

TEST_F(ShmFencing, WhoeverAttachesDuringTheCutIsRefusedOrDies) {
  const uint64_t rounds = test::Amount{10, 50, 300};
  int died = 0, refused = 0;
  for (uint64_t incarnation = 1; incarnation <= rounds; ++incarnation) {
    Victim victim(cluster, {5, incarnation});
    // From at once to long after it has begun to write.
    for (uint64_t turn = 0; turn < incarnation % 8 * 100 && Counter() == 0; ++turn) ::sched_yield();
    Status cut = cluster.fabric().CutOff(0, {5, incarnation});
    EXPECT_TRUE(cut.ok()) << cut;
    const uint64_t at_the_cut = Counter();
    const int end = victim.WaitForEnd();
    EXPECT_TRUE(end == SIGKILL || end == Victim::kRefused) << end;
    died += end == SIGKILL;
    refused += end == Victim::kRefused;
    EXPECT_EQ(Counter(), at_the_cut);
    ResetCounter();
  }
  EXPECT_EQ(died + refused, static_cast<int>(rounds));
  RecordProperty("died", died);
  RecordProperty("refused", refused);
}

TEST_F(ShmFencing, AStoppedProcessDiesToo) {
  Victim victim(cluster, {5, 1});
  AwaitActivity();
  ::kill(victim.pid(), SIGSTOP);
  Status cut = cluster.fabric().CutOff(0, {5, 1});
  EXPECT_TRUE(cut.ok()) << cut;
  ::kill(victim.pid(), SIGCONT);
  EXPECT_EQ(victim.WaitForEnd(), SIGKILL);
}

TEST_F(ShmFencing, OlderIncarnationsDieAndNobodyElse) {
  Victim oldest(cluster, {5, 1});
  AwaitActivity();
  Victim other(cluster, {6, 1}), newer(cluster, {5, 3}), anonymous(cluster, {});
  const uint64_t deadline_ns = cluster.clock().NowNs() + 60 * kNsPerSecond;
  while (cluster.server(0).agent->connections() < 5) {  // four, and the fabric's own
    ASSERT_LT(cluster.clock().NowNs(), deadline_ns);
  }
  Status cut = cluster.fabric().CutOff(0, {5, 2});
  EXPECT_TRUE(cut.ok()) << cut;
  EXPECT_EQ(oldest.WaitForEnd(), SIGKILL);
  for (const Victim* alive : {&other, &newer, &anonymous}) {
    EXPECT_EQ(::waitpid(alive->pid(), nullptr, WNOHANG), 0);
  }
}

TEST_F(ShmFencing, WhoeverRunsInTheMemoryServersOwnProcessIsNotKilled) {
  auto member = cluster.Connect();
  Status known = member->Identify({5, 1});
  ASSERT_TRUE(known.ok()) << known;
  EXPECT_EQ(
      cluster.fabric().CutOff(0, {5, 1}).ToString(),
      "invalid argument: compute server 5 (incarnation 1) runs in the process of memory server "
      "0, which would have to be killed to cut it off: run compute servers in processes of "
      "their own");
  TestClient client(*member, cluster.clock());
  client.WriteWord(0, 4096, 1);
  // Whoever has left in good order, or was never there, is cut off without a kill.
  member.reset();
  EXPECT_TRUE(cluster.fabric().CutOff(0, {5, 1}).ok());
  EXPECT_TRUE(cluster.fabric().CutOff(0, {6, 1}).ok());
  auto late = cluster.Connect();
  EXPECT_EQ(late->Identify({5, 1}).code(), StatusCode::kFenced);
}

TEST_F(ShmFencing, WhoeverIsCutOffWhileItJoinsIsToldSoAndHoldsNoId) {
  Status cut = cluster.fabric().CutOff(1, {1, 1});  // the first id that is granted
  ASSERT_TRUE(cut.ok()) << cut;
  auto refused = Pool::Join(cluster.Connect(), {}, &cluster.clock());
  EXPECT_EQ(refused.status().ToString(),
            "fenced: compute server 1 (incarnation 1) was cut off by memory server 1; it has "
            "to join the pool again, with a new incarnation");
  const auto* members =
      reinterpret_cast<const uint64_t*>(cluster.region_bytes(0).data() + kMembersOffset);
  EXPECT_EQ(members[1], (MemberWord{false, 1}.Encode()));
  auto joined = Pool::Join(cluster.Connect(), {}, &cluster.clock());
  EXPECT_TRUE(joined.ok()) << joined.status();
}

// Or a child would go on where its parent was killed.
TEST(MemoryRegionTest, AnAttachedRegionIsNotInheritedByChildren) {
  auto region = MemoryRegion::Create({1 << 20, Hugepages::kNever, ""});
  ASSERT_TRUE(region.ok()) << region.status();
  auto attached = MemoryRegion::Attach(::dup(region->fd()), 1 << 20);
  ASSERT_TRUE(attached.ok()) << attached.status();
  auto* word = reinterpret_cast<uint64_t*>(attached->bytes().data());
  *word = 1;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would report it
    std::atomic_ref(*word).store(2);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
#if !defined( \
    __SANITIZE_THREAD__)  // whose runtime may put memory of its own into the hole that a child finds there
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
#endif
  EXPECT_EQ(*word, 1u);
}

// ---- PeerProcess ---------------------------------------------------------------------------------

struct PeerProcessTest : ::testing::Test {
  TempFolder folder;
  SocketAddress address = *UnixAddress(folder.File("sock"));
  UniqueFd listening = std::move(*Listen(address));

  /// A child that connects, and then ends if `then` says so.
  enum class Then : uint8_t { kStay, kEnd };
  pid_t Connect(Then then) {
    const pid_t pid = ::fork();
    FARLEAF_CHECK(pid >= 0, errno);
    if (pid > 0) return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // whatever becomes of the test
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0) {
      ::_exit(1);
    }
    while (then == Then::kStay) ::pause();
    ::_exit(0);
  }
  UniqueFd Accept() {
    pollfd waited{listening.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&waited, 1, 60'000), 1);
    return UniqueFd(::accept(listening.get(), nullptr, nullptr));
  }
};

TEST_F(PeerProcessTest, TheOneAtTheOtherEndIsKilledAndNoOther) {
  const pid_t first = Connect(Then::kStay);
  const UniqueFd socket = Accept();
  const pid_t second = Connect(Then::kStay);
  auto peer = PeerProcess::Of(socket.get());
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->pid(), first);
  EXPECT_FALSE(peer->is_this_process());
  EXPECT_FALSE(peer->WaitForExit(0));
  const PeerProcess copy = peer->Duplicate();
  Status killed = copy.Kill();
  EXPECT_TRUE(killed.ok()) << killed;
  EXPECT_TRUE(peer->WaitForExit(60'000));
  EXPECT_TRUE(copy.Kill().ok()) << "whoever is dead has been killed";
  EXPECT_EQ(::waitpid(second, nullptr, WNOHANG), 0);
  ::kill(second, SIGKILL);
  ::waitpid(first, nullptr, 0);
  ::waitpid(second, nullptr, 0);
}

TEST_F(PeerProcessTest, WhoeverHasEndedIsNotMistakenForAnother) {
  const pid_t child = Connect(Then::kEnd);
  const UniqueFd socket = Accept();
  ::waitpid(child, nullptr, 0);
  auto peer = PeerProcess::Of(socket.get());
  EXPECT_EQ(peer.status().ToString(),
            "unavailable: process " + std::to_string(child) + " has ended");
}

TEST_F(PeerProcessTest, WhoeverMayNotBeKilledIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only the superuser can be another user";
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const UniqueFd mine(ends[0]), its(ends[1]);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // which runs as nobody, and looks at this process
    if (::setuid(65'534) != 0) ::_exit(2);
    const Status status = PeerProcess::Of(its.get()).status();
    const bool right =
        status.code() == StatusCode::kIoError && status.message().ends_with(
                                                     "may not be killed from here (Operation not "
                                                     "permitted): run both as one user");
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(PeerProcessTest, ThisProcessIsKnown) {
  auto connecting = StartConnect(address);
  ASSERT_TRUE(connecting.ok()) << connecting.status();
  const UniqueFd socket = Accept();
  auto peer = PeerProcess::Of(socket.get());
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_TRUE(peer->is_this_process());
}

}  // namespace
}  // namespace farleaf::dsm
