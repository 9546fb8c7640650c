// Copies of closed stores.
//
// A copy has what the manifest names, and nothing else. It is made beside a file INCOMPLETE, which goes when all the rest is on the
// device: with it, a directory is opened as a store by nobody (Manifest::Open).
//
// Segments may be shared with the copy by hard links: none is written again once a store was closed or has crashed (logs go on in new
// segments), and a file with two names is not recycled (index/storage/README.md).
//
// Thread rule: one worker; it blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "dsm/base/result.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/closed_store.h"

namespace farleaf::index::lsm {

enum class CopyLinks : uint8_t {
  kWherePossible,  ///< on the same file system
  kNever,          ///< each byte is copied
};

struct CopyReport {
  uint64_t segments = 0, linked = 0, copied = 0;
  uint64_t bytes_copied = 0;  ///< of segments
};

/// To a directory that is made, or is empty; durable when it is Ok. InvalidArgument: it is not empty, or inside the store's.
/// Corruption: a segment that the manifest names is missing. After any other failure what is in `to` is incomplete, and says so.
/// `progress` is told after each segment.
dsm::Task<Result<CopyReport>> CopyStore(dsm::Worker& worker, ClosedStore& from, std::string to,
                                        CopyLinks links,
                                        std::function<void(const CopyReport&)> progress = {});

}  // namespace farleaf::index::lsm
