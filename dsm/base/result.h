// Result<T>: a value, or the Status that says why there is none.
//
// Invariant: exactly one of value and non-ok status is present.
// Thread rule: a value type; no sharing.
#pragma once

#include <optional>
#include <utility>

#include "dsm/base/check.h"
#include "dsm/base/status.h"

namespace farleaf {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}            // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {     // NOLINT: implicit by design
    FARLEAF_CHECK(!status_.ok(), "a Result without a value needs a failure");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  /// REQUIRES: ok().
  T& value() & { return Checked(); }
  const T& value() const& { return const_cast<Result*>(this)->Checked(); }
  T&& value() && { return std::move(Checked()); }
  T* operator->() { return &Checked(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return Checked(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(Checked()); }

 private:
  T& Checked() {
    FARLEAF_CHECK(value_.has_value(), status_);
    return *value_;
  }
  std::optional<T> value_;
  Status status_;
};

}  // namespace farleaf
