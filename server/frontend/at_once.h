// AtOnce: how many changes that follow one another are looked at together before the first of them is made, so that the
// cache misses of one hide behind those of others. What was looked at for changes behind one that has to wait (of a key that is
// new, above all) was looked at in vain: so there are few behind such a one, and soon many again.
//
// Thread rule: one owner.
#pragma once

#include <algorithm>
#include <cstddef>

namespace farleaf::server {

class AtOnce {
 public:
  static constexpr size_t kMax = 16;
  size_t count() const { return count_; }
  /// Of `tried` the first `done` needed not wait.
  void Note(size_t tried, size_t done) {
    count_ = done < tried ? std::max(done, size_t{1}) : std::min(2 * count_, kMax);
  }

 private:
  size_t count_ = 1;
};

}  // namespace farleaf::server
