// A multi-get over several servers: one for each, and their values together again.
//
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "client/operation.h"

namespace farleaf::client::internal {

class JoinedReads {
 public:
  /// Of `parts` operations that TakeFrom makes of it.
  JoinedReads(Operation whole, size_t parts) : whole_(std::move(whole)), left_(parts) {
    values_ = std::move(whole_.pieces->values);
    values_.resize(whole_.pieces->keys.size());
  }

  /// A multi-get of the keys with these numbers, whose end is this one's, if it is the last.
  static Operation TakeFrom(const std::shared_ptr<JoinedReads>& joined,
                            std::vector<size_t> numbers) {
    Operation part;
    part.opcode = protocol::Opcode::kMultiGet;
    part.tree = joined->whole_.tree;
    part.deadline_ns = joined->whole_.deadline_ns;
    part.order = joined->whole_.order;
    part.pieces = std::make_unique<Operation::Pieces>();
    for (const size_t number : numbers) {
      part.pieces->keys.push_back(std::move(joined->whole_.pieces->keys[number]));
    }
    EncodeNextPiece(&part);
    part.callback = Callback<Values>([joined, numbers = std::move(numbers)](Result<Values> values) {
      joined->Take(numbers, std::move(values));
    });
    return part;
  }

 private:
  void Take(const std::vector<size_t>& numbers, Result<Values> values) {
    if (!values.ok()) {
      if (failure_.ok()) failure_ = values.status();
    } else {
      for (size_t i = 0; i < numbers.size(); ++i) values_[numbers[i]] = std::move((*values)[i]);
    }
    if (--left_ > 0) return;
    if (failure_.ok()) {
      whole_.Succeed<Values>(std::move(values_));
    } else {
      whole_.Fail(failure_);
    }
  }

  Operation whole_;
  Values values_;
  size_t left_;
  Status failure_;
};

}  // namespace farleaf::client::internal
