// A verb program on simulated compute servers. Its verbs are real: they move bytes of the memory servers'
// regions, lock words are swapped, and who does not get a lock tries again; what the bytes say is not
// looked at.
//
// Each memory server's region holds leaves, one behind the other (leaf i is on server i mod servers):
//   | scratch for WRITEs | leaf: words of slots · lock word · count of sharers | leaf | …
// and, in the NIC's memory at the end, a table of lock words, to which leaves are hashed. A key's leaf is
// drawn by its number's hash, so that the number of leaves is fixed, and a load is not slower while the
// tree is small.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "benchmark/simulated/simulated_target.h"
#include "benchmark/simulated/verb_program.h"
#include "dsm/local_lock.h"

namespace farleaf::ycsb {

class ProgramTarget final : public SimulatedTarget {
 public:
  struct Layout {
    uint64_t leaves = 0;
    uint64_t leaf_stride = 0;
    uint64_t leaves_offset = 0;                    ///< of each region
    uint64_t device_offset = 0, device_words = 0;  ///< of each region
    uint64_t servers = 0;
    uint64_t region_bytes = 0;  ///< a multiple of chunk_bytes
  };
  /// For twice `records`. InvalidArgument if the program wants locks in device memory and there is none.
  static Result<Layout> LayoutFor(const VerbProgram& program, const dsm::CostModel& model,
                                  uint64_t records, uint64_t chunk_bytes);

  ProgramTarget(std::unique_ptr<dsm::ModelWorld> world, std::string model_file, VerbProgram program,
                const Layout& layout, const TargetOptions& options);

  Result<uint64_t> PoolBytesUsed() override { return uint64_t{0}; }
  Status Close() override;

 protected:
  Result<std::unique_ptr<dsm::Worker>> OpenWorker(uint32_t compute_server) override;
  dsm::Task<void> RunOn(dsm::Worker& worker, uint32_t compute_server,
                        OperationSource& source) override;
  double operation_ns(OpKind kind) const override {
    return program_.cpu_ns[static_cast<size_t>(kind)];
  }
  Status WarmCaches() override { return Status::Ok(); }
  std::string program() const override { return program_.name; }

 private:
  struct ComputeServer {
    std::unique_ptr<dsm::ModelFabric> fabric;
    dsm::EpochDomain epochs;
    dsm::LocalLockTable locks;
  };
  struct Running;  ///< one operation at a time
  dsm::Task<void> Loop(dsm::Worker& worker, ComputeServer& compute_server, OperationSource& source);
  dsm::Task<Status> RunSteps(Running& running, OpKind kind);
  dsm::Task<Status> RunStep(Running& running, const ProgramStep& step, uint64_t leaf);
  void Fill(Running& running, const ProgramStep& step, uint64_t leaf);
  void FillVerb(Running& running, const ProgramVerb& verb, uint64_t leaf);
  dsm::GlobalAddress LeafAddress(uint64_t leaf) const;
  dsm::GlobalAddress LockAddress(uint64_t leaf) const;

  const VerbProgram program_;
  const Layout layout_;
  const TargetOptions options_;
  uint64_t workers_opened_ = 0;
  std::vector<std::unique_ptr<ComputeServer>> compute_servers_;
};

}  // namespace farleaf::ycsb
