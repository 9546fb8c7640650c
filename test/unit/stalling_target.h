// StallingTarget: a benchmark target in a manual clock's time that serves one operation after
// another, each in the same time, but one takes long: the clock stands in for a machine of its own,
// so that every latency is known exactly.
//
// Thread rule: one session.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "benchmark/ycsb/target.h"
#include "dsm/base/clock.h"

namespace farleaf::ycsb {

struct ServiceTimes {
  uint64_t usual_ns = 10 * kNsPerUs;
  uint64_t stall_at_ns = UINT64_MAX;  ///< the first operation begun then or later takes stall_ns
  uint64_t stall_ns = 0;
  Status status = Status::Ok();  ///< of the stalled operation
};

class StallingTarget final : public Target {
 public:
  StallingTarget(ManualClock* clock, const ServiceTimes& times) : clock_(clock), times_(times) {}
  Result<std::unique_ptr<Session>> OpenSession() override {
    return std::unique_ptr<Session>(std::make_unique<Server>(clock_, times_));
  }
  bool counts_fabric() const override { return false; }
  Result<uint64_t> PoolBytesUsed() override { return uint64_t{0}; }
  Status Close() override { return Status::Ok(); }

 private:
  class Server final : public Session {
   public:
    Server(ManualClock* clock, const ServiceTimes& times)
        : clock_(clock), times_(times), start_ns_(clock->NowNs()) {}

    Status Run(OperationSource& source, uint64_t in_flight) override {
      std::optional<Operation> next = Take(source);
      while (next || !waiting_.empty()) {
        if (waiting_.empty() && next->due_ns > clock_->NowNs()) {
          clock_->AdvanceNs(next->due_ns - clock_->NowNs());
        }
        while (next && waiting_.size() < in_flight && next->due_ns <= clock_->NowNs()) {
          source.Begin(&*next);
          waiting_.push_back(std::move(*next));
          next = Take(source);
        }
        Serve(source);
      }
      return Status::Ok();
    }

   private:
    static std::optional<Operation> Take(OperationSource& source) {
      Operation operation;
      if (!source.Next(&operation)) return std::nullopt;
      return operation;
    }
    void Serve(OperationSource& source) {
      Operation operation = std::move(waiting_.front());
      waiting_.pop_front();
      const bool stalls = !stalled_ && clock_->NowNs() - start_ns_ >= times_.stall_at_ns;
      stalled_ |= stalls;
      clock_->AdvanceNs(stalls ? times_.stall_ns : times_.usual_ns);
      operation.answered = false;  // there is no value to check
      operation.found = operation.kind != OpKind::kInsert;
      if (stalls) operation.status = times_.status;
      source.Done(operation);
    }

    ManualClock* clock_;
    const ServiceTimes times_;
    const uint64_t start_ns_;
    bool stalled_ = false;
    std::deque<Operation> waiting_;
  };

  ManualClock* clock_;
  const ServiceTimes times_;
};

}  // namespace farleaf::ycsb
