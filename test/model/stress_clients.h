// The clients of the stress tests: they put, delete, read, scan and increment under few keys, so that
// a tree with small pages splits and merges all the time, and know what they may be answered.
//
// Thread rule: a StressRun is thread-safe; a client runs on its worker's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "dsm/pool.h"
#include "index/blink/tree.h"
#include "test/support/single_writer_model.h"

namespace farleaf::index {

/// What all clients of one tree share.
struct StressRun {
  StressRun(const Geometry& g, size_t keys) : geometry(g), model(g, keys) {}
  Geometry geometry;
  SingleWriterModel model;
  std::atomic<uint64_t> increments{0};
  std::atomic<uint64_t> operations{0};
  std::atomic<bool> failed{false};
  bool pages_given_up = false;
  uint64_t stop_ns = UINT64_MAX;  ///< clients end when it is over,
  uint64_t operations_min = 0;    ///< but not before so many operations of all of them
  std::mutex mutex;               // guards failure
  std::string failure;

  void Fail(const std::string& what) {
    std::lock_guard lock(mutex);
    if (!failed.exchange(true)) failure = what;
  }
};

struct StressClient {
  StressRun* run;
  BlinkTree* tree;
  dsm::Worker* worker;
  size_t number, clients;
  uint64_t seed;
  uint64_t operations;
  uint64_t deadline_ns = 0;  ///< not 0: operations have deadlines around it
  bool may_fail = false;     ///< operations may fail, without having happened

  bool MayFailWith(const Status& status) const {
    return may_fail && status.code() != StatusCode::kUnknown;
  }
};

/// Writes its own keys, and reads everyone's. The share of inserts swings between nearly all and
/// nearly none, so that the tree grows and empties again and again.
Task<void> RunStressClient(StressClient client);

/// Everything in the tree is what the model says, and every page of the pool is accounted for.
Task<void> VerifyStressRun(StressRun* run, BlinkTree* tree, dsm::Worker* worker, dsm::Pool* pool);

/// Byte strings on small pages. The clients' counters are 8 bytes here too.
inline Geometry StressBytes() { return {Layout::kBytes, 512, 512, 100, 40}; }

/// A number that a variable of the environment holds.
uint64_t FromEnvironment(const char* name, uint64_t otherwise);

}  // namespace farleaf::index
