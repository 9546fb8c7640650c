// MembershipUnderTest: each coordination service behind one little language: sessions, faults, and a worker on which tests run
// coroutines. Over the service in this process time is virtual: it moves when nothing else can.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/epoch.h"
#include "dsm/worker.h"
#include "server/membership/in_process_membership.h"
#include "server/membership/membership.h"

namespace farleaf::server::membership {

class MembershipUnderTest {
 public:
  enum class Kind : uint8_t { kInProcess, kZookeeper };
  static bool IsInstalled(Kind kind);
  static std::unique_ptr<MembershipUnderTest> New(Kind kind);

  virtual ~MembershipUnderTest() = default;
  /// A session of another node; it lives as long as this.
  virtual Membership& Open() = 0;
  virtual void Part(Membership& session) = 0;
  virtual void Heal(Membership& session) = 0;
  virtual void GoAway() = 0;
  virtual void ComeBack() = 0;
  virtual const Clock& clock() const = 0;

  dsm::Worker& worker() { return *worker_; }
  /// Lets the worker do something, or time pass.
  virtual void Step() = 0;
  void Until(const std::function<bool()>& condition) {
    worker().GoOnline();
    while (!condition()) Step();
    worker().GoOffline();
  }
  template <typename T>
  T Run(dsm::Task<T> task) {
    worker().GoOnline();
    task.Start();
    while (!task.done()) Step();
    worker().GoOffline();
    return task.TakeResult();
  }

 protected:
  dsm::EpochDomain epochs_;
  std::unique_ptr<dsm::Worker> worker_;
};

/// The service in this process, in virtual time.
class InProcessUnderTest final : public MembershipUnderTest {
 public:
  explicit InProcessUnderTest(const InProcessOptions& options);
  ~InProcessUnderTest() override;
  InProcessMembership& Open() override;
  void Part(Membership& session) override { service_.Part(AsOurs(session)); }
  void Heal(Membership& session) override { service_.Heal(AsOurs(session)); }
  void GoAway() override { service_.GoAway(); }
  void ComeBack() override { service_.ComeBack(); }
  const Clock& clock() const override { return clock_; }
  void Step() override;

  InProcessService& service() { return service_; }
  std::vector<std::unique_ptr<InProcessMembership>>& sessions() { return sessions_; }

 private:
  static InProcessMembership& AsOurs(Membership& session) {
    return static_cast<InProcessMembership&>(session);
  }

  ManualClock clock_;
  InProcessService service_;
  std::vector<std::unique_ptr<InProcessMembership>> sessions_;
};

}  // namespace farleaf::server::membership
