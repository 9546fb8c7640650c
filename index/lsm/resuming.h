// Resuming: waiters that go on when whoever has chosen them has let go of its lock.
#pragma once

#include <coroutine>
#include <utility>
#include <vector>

#include "dsm/worker.h"

namespace farleaf::index::lsm {

using Resuming = std::vector<std::pair<dsm::Worker*, std::coroutine_handle<>>>;

/// Each worker is woken once; that of the last one first, and it ahead of its worker's others. Waiters may be gone as soon as they are resumed.
inline void ResumeAll(Resuming resuming) {
  std::vector<std::coroutine_handle<>> of_worker;
  while (!resuming.empty()) {
    dsm::Worker* const worker = resuming.back().first;
    of_worker.clear();
    for (size_t i = resuming.size(); i-- > 0;) {
      if (resuming[i].first == worker) of_worker.push_back(resuming[i].second);
    }
    std::erase_if(resuming, [worker](const auto& each) { return each.first == worker; });
    worker->ResumeSoon(of_worker);
  }
}

}  // namespace farleaf::index::lsm
