#include "test/support/linearizability.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "dsm/base/random.h"

namespace farleaf::test {

namespace {

using Value = uint32_t;  ///< 0: absent
constexpr Value kAbsent = 0;

/// Stands for all values that no operation of the key could tell from others.
constexpr Value kUnobserved = UINT32_MAX;

/// An operation with values as numbers.
struct Step {
  const Operation* operation;
  OpKind kind;
  bool known;
  bool existed, deleted;
  Value argument, value, after;
  uint64_t invoked, returned;
};

/// What `step` leaves of `state`; nullopt if its result says that the state was another.
std::optional<Value> Apply(const Step& step, Value state) {
  const bool present = state != kAbsent;
  const bool tells_existence =
      step.kind != OpKind::kGet && step.kind != OpKind::kModify && step.kind != OpKind::kSet;
  if (step.known && tells_existence && step.existed != present) {
    return std::nullopt;
  }
  switch (step.kind) {
    case OpKind::kGet:
      return step.value == state ? std::optional(state) : std::nullopt;
    case OpKind::kInsert:
      return present ? state : step.argument;
    case OpKind::kPut:
    case OpKind::kSet:
      return step.argument;
    case OpKind::kUpdate:
      return present ? step.argument : kAbsent;
    case OpKind::kDelete:
      return kAbsent;
    case OpKind::kDeleteIf: {
      const bool deletes = present && state == step.argument;
      if (step.known && step.deleted != deletes) return std::nullopt;
      return deletes ? kAbsent : state;
    }
    case OpKind::kModify:
      return step.value == state ? std::optional(step.after) : std::nullopt;
  }
  return std::nullopt;
}

/// Whether `step`, wherever it may stand, leaves the value as it was.
bool NeverChanges(const Step& step) {
  if (!step.known) return false;
  switch (step.kind) {
    case OpKind::kGet:
      return true;
    case OpKind::kInsert:
      return step.existed;
    case OpKind::kPut:
    case OpKind::kSet:
      return false;
    case OpKind::kUpdate:
    case OpKind::kDelete:
      return !step.existed;
    case OpKind::kDeleteIf:
      return !step.deleted;
    case OpKind::kModify:
      return step.value == step.after;
  }
  return false;
}

/// The value that `step` can only follow; kAbsent: none in particular.
Value Needs(const Step& step) {
  if (!step.known) return kAbsent;
  if (step.kind == OpKind::kDeleteIf) return step.deleted ? step.argument : kAbsent;
  return step.kind == OpKind::kGet || step.kind == OpKind::kModify ? step.value : kAbsent;
}

/// The value that `step` may bring about; kAbsent: none.
Value Brings(const Step& step) {
  switch (step.kind) {
    case OpKind::kInsert:
      return step.known && step.existed ? kAbsent : step.argument;
    case OpKind::kPut:
    case OpKind::kSet:
      return step.argument;
    case OpKind::kUpdate:
      return step.known && !step.existed ? kAbsent : step.argument;
    case OpKind::kModify:
      return step.after;
    default:
      return kAbsent;
  }
}

/// Whether the two ask and answer the same. Of those that may both be next only the one that returned first
/// need be tried: where the other comes before it, they may change places.
bool DoTheSame(const Step& a, const Step& b) {
  const auto what = [](const Step& step) {
    return std::tie(step.kind, step.known, step.existed, step.deleted, step.argument, step.value,
                    step.after);
  };
  return what(a) == what(b);
}

class KeyChecker {
 public:
  KeyChecker(const std::optional<std::string>& initial, LinearizabilityOptions options)
      : options_(options) {
    initial_ = Number(initial);
  }

  void Add(const Operation& operation) {
    if (operation.outcome == Outcome::kFailed) return;
    const bool known = operation.outcome == Outcome::kDone;
    if (!known && operation.kind == OpKind::kGet) return;
    steps_.push_back({&operation, operation.kind, known, operation.existed, operation.deleted,
                      Number(operation.argument), Number(operation.value),
                      Number(operation.argument_after), operation.invoked,
                      known ? operation.returned : Operation::kNever});
  }

  Verdict Check() {
    std::stable_sort(steps_.begin(), steps_.end(),
                     [](const Step& a, const Step& b) { return a.invoked < b.invoked; });
    HideUnobserved();
    done_.assign(steps_.size(), false);
    known_left_ = static_cast<size_t>(
        std::count_if(steps_.begin(), steps_.end(), [](const Step& step) { return step.known; }));
    least_left_ = known_left_;
    left_.resize(numbers_.size() + 1);
    for (const Step& step : steps_) {
      ++LeftOf(Needs(step)).needing;
      ++LeftOf(Brings(step)).bringing;
    }
    state_ = initial_;
    if (Search()) return {};
    return {false, Report()};
  }

 private:
  struct Choice {
    size_t step;
    Value before;
  };

  Value Number(const std::optional<std::string>& value) {
    if (!value) return kAbsent;
    return numbers_.try_emplace(*value, static_cast<Value>(numbers_.size() + 1)).first->second;
  }

  /// Values that no step compares with become one.
  void HideUnobserved() {
    std::vector<bool> observed(numbers_.size() + 1, false);
    for (const Step& step : steps_) {
      const bool reads = step.kind == OpKind::kGet || step.kind == OpKind::kModify;
      if (reads) observed[step.value] = true;
      if (step.kind == OpKind::kDeleteIf) observed[step.argument] = true;
    }
    const auto hide = [&](Value* value) {
      if (*value != kAbsent && !observed[*value]) *value = kUnobserved;
    };
    hide(&initial_);
    for (Step& step : steps_) {
      hide(&step.argument);
      hide(&step.after);
    }
  }

  void Take(size_t i, Value after) {
    path_.push_back({i, state_});
    done_[i] = true;
    known_left_ -= steps_[i].known;
    --LeftOf(Needs(steps_[i])).needing;
    --LeftOf(Brings(steps_[i])).bringing;
    hash_low_ += Mix64(2 * i), hash_high_ += Mix64(2 * i + 1);
    state_ = after;
    while (first_left_ < steps_.size() && done_[first_left_]) ++first_left_;
    if (known_left_ < least_left_) {
      least_left_ = known_left_;
      deepest_first_left_ = first_left_;
      deepest_state_ = state_;
    }
  }
  void Undo() {
    const Choice choice = path_.back();
    path_.pop_back();
    done_[choice.step] = false;
    known_left_ += steps_[choice.step].known;
    ++LeftOf(Needs(steps_[choice.step])).needing;
    ++LeftOf(Brings(steps_[choice.step])).bringing;
    hash_low_ -= Mix64(2 * choice.step), hash_high_ -= Mix64(2 * choice.step + 1);
    state_ = choice.before;
    first_left_ = std::min(first_left_, choice.step);
  }

  struct Left {
    uint32_t needing = 0, bringing = 0;  // operations not done
  };
  Left& LeftOf(Value value) { return value == kUnobserved ? left_unobserved_ : left_[value]; }

  /// Whoever may be next: not done, and invoked before every other one left has returned.
  std::vector<size_t> Candidates() const {
    uint64_t earliest_return = Operation::kNever;
    std::vector<size_t> candidates;
    for (size_t i = first_left_; i < steps_.size() && steps_[i].invoked < earliest_return; ++i) {
      if (done_[i]) continue;
      candidates.push_back(i);
      earliest_return = std::min(earliest_return, steps_[i].returned);
    }
    std::erase_if(candidates, [&](size_t i) { return steps_[i].invoked > earliest_return; });
    // Who must come soonest first; the unknown, which need not come at all, last.
    std::stable_sort(candidates.begin(), candidates.end(), [this](size_t a, size_t b) {
      return steps_[a].returned < steps_[b].returned;
    });
    size_t kept = 0;
    for (const size_t i : candidates) {
      const auto end = candidates.begin() + static_cast<ptrdiff_t>(kept);
      const bool another_does = std::any_of(
          candidates.begin(), end, [&](size_t j) { return DoTheSame(steps_[i], steps_[j]); });
      if (!another_does) candidates[kept++] = i;
    }
    candidates.resize(kept);
    return candidates;
  }

  /// Linearizes what changes nothing and fits the state.
  void TakeWhatChangesNothing() {
    for (bool taken = true; taken;) {
      taken = false;
      for (size_t i : Candidates()) {
        if (!NeverChanges(steps_[i]) || Apply(steps_[i], state_) != state_) continue;
        Take(i, state_);
        taken = true;
      }
    }
  }

  /// Iterative, since a path is as long as the history.
  bool Search() {
    struct Frame {
      size_t path_size;  ///< before this frame's choice
      std::vector<size_t> candidates;
      size_t next = 0;
    };
    std::vector<Frame> frames;
    const auto enter = [&](size_t path_size) {
      TakeWhatChangesNothing();
      frames.push_back({path_size, Candidates(), 0});
    };
    enter(0);
    while (known_left_ > 0) {
      Frame& frame = frames.back();  // until enter() adds another
      bool descended = false;
      while (!descended && frame.next < frame.candidates.size()) {
        const size_t i = frame.candidates[frame.next++];
        const std::optional<Value> after = Apply(steps_[i], state_);
        if (!after || (!steps_[i].known && *after == state_)) continue;
        const size_t path_size = path_.size();
        const Value before = state_;
        Take(i, *after);
        if (!IsLost(before) && Visit()) {
          descended = true;
          enter(path_size);
        } else {
          Undo();
        }
      }
      if (descended) continue;
      if (gave_up_) return false;
      while (path_.size() > frame.path_size) Undo();
      frames.pop_back();
      if (frames.empty()) return false;
    }
    return true;
  }

  /// Whether `value` is gone for good while somebody left needs it.
  bool IsLost(Value value) const {
    return value != kAbsent && value != kUnobserved && value != state_ &&
           left_[value].needing > 0 && left_[value].bringing == 0;
  }

  /// False: been here, or too many visited.
  bool Visit() {
    if (visited_.size() >= options_.visited_max) {
      gave_up_ = true;
      return false;
    }
    return visited_.insert({hash_low_, hash_high_ + Mix64(~uint64_t{state_})}).second;
  }

  std::string Report() const {
    std::string why = gave_up_ ? "undecided after " + std::to_string(visited_.size()) + " states"
                               : "not linearizable";
    why += ", key " + Printable(std::string_view(steps_[0].operation->key)) +
           "; no order found beyond value ";
    std::string value = deepest_state_ == kUnobserved ? "(one that nobody saw)"
                                                      : Printable(std::optional<std::string>());
    for (const auto& [text, number] : numbers_) {
      if (number == deepest_state_) value = Printable(std::string_view(text));
    }
    why += value + " around:\n";
    const size_t begin = deepest_first_left_ < 6 ? 0 : deepest_first_left_ - 6;
    for (size_t i = begin; i < std::min(steps_.size(), begin + 20); ++i) {
      why += "  " + steps_[i].operation->ToString() + "\n";
    }
    return why;
  }

  struct PairHash {
    size_t operator()(const std::pair<uint64_t, uint64_t>& pair) const { return pair.first; }
  };

  LinearizabilityOptions options_;
  std::map<std::string, Value> numbers_;
  Value initial_ = kAbsent;
  std::vector<Step> steps_;  // by invocation

  std::vector<Left> left_;  // by value
  Left left_unobserved_;
  std::vector<bool> done_;
  size_t known_left_ = 0;
  size_t first_left_ = 0;  // of steps_
  Value state_ = kAbsent;
  uint64_t hash_low_ = 0, hash_high_ = 0;
  std::vector<Choice> path_;
  std::unordered_set<std::pair<uint64_t, uint64_t>, PairHash> visited_;
  bool gave_up_ = false;
  size_t least_left_ = 0, deepest_first_left_ = 0;
  Value deepest_state_ = kAbsent;
};

}  // namespace

Verdict CheckLinearizable(const History& history, LinearizabilityOptions options) {
  std::map<std::string_view, KeyChecker> keys;
  for (const Operation& operation : history.operations) {
    auto it = keys.find(operation.key);
    if (it == keys.end()) {
      const auto initial = history.initial.find(operation.key);
      it = keys.emplace(operation.key, KeyChecker(initial == history.initial.end()
                                                      ? std::nullopt
                                                      : std::optional(initial->second),
                                                  options))
               .first;
    }
    it->second.Add(operation);
  }
  for (auto& [key, checker] : keys) {
    Verdict verdict = checker.Check();
    if (!verdict.ok) return verdict;
  }
  return {};
}

}  // namespace farleaf::test
