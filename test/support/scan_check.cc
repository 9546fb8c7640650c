#include <algorithm>
#include <map>

#include "test/support/linearizability.h"

namespace farleaf::test {

namespace {

/// What is known of one key, for scans.
class KeyFacts {
 public:
  void SetInitial(const std::string* value) {
    if (value) writes_.push_back({*value, 0, 0});
    (value ? proofs_present_ : proofs_absent_).push_back({0, 0});
  }

  void Add(const Operation& op) {
    if (op.outcome == Outcome::kFailed) return;
    const bool known = op.outcome == Outcome::kDone;
    const Span span{op.invoked, known ? op.returned : Operation::kNever};
    bool present_after = true, adds = false, removes = false;
    std::optional<std::string> written;
    switch (op.kind) {
      case OpKind::kGet:
        if (!known) return;
        present_after = op.value.has_value();
        break;
      case OpKind::kInsert:
        if (!known || !op.existed) written = op.argument;
        break;
      case OpKind::kPut:
      case OpKind::kSet:
        written = op.argument;
        break;
      case OpKind::kUpdate:
        present_after = op.existed;
        if (!known || op.existed) written = op.argument;
        break;
      case OpKind::kDelete:
        present_after = false;
        removes = !known || op.existed;
        break;
      case OpKind::kDeleteIf:
        present_after = op.existed && !op.deleted;
        removes = !known || op.deleted;
        break;
      case OpKind::kModify:
        present_after = op.argument_after.has_value();
        written = op.argument_after;
        removes = !present_after && (!known || op.value.has_value());
        break;
    }
    adds = written.has_value();
    if (adds) may_add_.push_back(span);
    if (removes) may_remove_.push_back(span);
    if (written) writes_.push_back({*written, span.invoked, span.returned});
    if (!known) return;
    if (adds || removes) changes_.push_back(span);
    (present_after ? proofs_present_ : proofs_absent_).push_back(span);
  }

  bool CertainlyPresent(uint64_t from, uint64_t to) const {
    return Certain(proofs_present_, may_remove_, from, to);
  }
  bool CertainlyAbsent(uint64_t from, uint64_t to) const {
    return Certain(proofs_absent_, may_add_, from, to);
  }
  /// Whether a scan in [from, to] may have found `value`.
  bool MayHold(const std::string& value, uint64_t from, uint64_t to) const {
    for (const Write& write : writes_) {
      if (write.value != value || write.invoked > to) continue;
      const bool overwritten =
          std::any_of(changes_.begin(), changes_.end(), [&](const Span& change) {
            return change.invoked > write.returned && change.returned < from;
          });
      if (!overwritten) return true;
    }
    return false;
  }

 private:
  struct Span {
    uint64_t invoked, returned;
  };
  struct Write {
    std::string value;
    uint64_t invoked, returned;
  };

  /// Some proof before `from`, behind which nothing until `to` can have spoilt it.
  static bool Certain(const std::vector<Span>& proofs, const std::vector<Span>& spoilers,
                      uint64_t from, uint64_t to) {
    return std::any_of(proofs.begin(), proofs.end(), [&](const Span& proof) {
      return proof.returned < from &&
             std::all_of(spoilers.begin(), spoilers.end(), [&](const Span& spoiler) {
               return spoiler.returned < proof.invoked || spoiler.invoked > to;
             });
    });
  }

  std::vector<Span> proofs_present_, proofs_absent_, may_add_, may_remove_, changes_;
  std::vector<Write> writes_;
};

/// Order, bounds, limit and repetition: what needs no history.
Verdict CheckScanShape(const ScanRecord& scan, const std::string& name) {
  if (scan.rows.size() > scan.limit) {
    return {false, name + " returned " + std::to_string(scan.rows.size()) + " rows of at most " +
                       std::to_string(scan.limit)};
  }
  const bool forward = scan.direction == index::ScanDirection::kForward;
  for (size_t i = 0; i < scan.rows.size(); ++i) {
    const std::string& key = scan.rows[i].key;
    if (key < scan.start || (scan.end && key >= *scan.end)) {
      return {false, name + " returned key " + Printable(std::string_view(key)) + " out of bounds"};
    }
    if (i == 0) continue;
    const std::string& previous = scan.rows[i - 1].key;
    if (forward ? key <= previous : key >= previous) {
      return {false, name + " returned key " + Printable(std::string_view(key)) + " after " +
                         Printable(std::string_view(previous))};
    }
  }
  return {};
}

Verdict CheckScan(const ScanRecord& scan, const std::map<std::string, KeyFacts>& facts) {
  const std::string name =
      "scan [" + Printable(std::string_view(scan.start)) + ", " + Printable(scan.end) + ") limit " +
      std::to_string(scan.limit) +
      (scan.direction == index::ScanDirection::kForward ? " forward" : " reverse") + " at " +
      std::to_string(scan.invoked) + ".." + std::to_string(scan.returned);
  Verdict shape = CheckScanShape(scan, name);
  if (!shape.ok) return shape;

  std::map<std::string_view, const std::string*> found;
  for (const index::KeyValue& row : scan.rows) found.emplace(row.key, &row.value);
  for (const index::KeyValue& row : scan.rows) {
    const auto it = facts.find(row.key);
    if (it == facts.end() || !it->second.MayHold(row.value, scan.invoked, scan.returned)) {
      return {false, name + " returned key " + Printable(std::string_view(row.key)) + " with " +
                         Printable(std::string_view(row.value)) +
                         ", which nobody wrote or somebody overwrote before"};
    }
  }
  // A scan that ended at its limit says nothing of what lies behind its last row.
  const bool forward = scan.direction == index::ScanDirection::kForward;
  const bool cut = scan.rows.size() == scan.limit;
  for (const auto& [key, fact] : facts) {
    if (key < scan.start || (scan.end && key >= *scan.end)) continue;
    if (cut && (scan.rows.empty() ||
                (forward ? key > scan.rows.back().key : key < scan.rows.back().key))) {
      continue;
    }
    const bool there = found.contains(key);
    if (!there && fact.CertainlyPresent(scan.invoked, scan.returned)) {
      return {false, name + " missed key " + Printable(std::string_view(key)) +
                         ", which was there throughout"};
    }
    if (there && fact.CertainlyAbsent(scan.invoked, scan.returned)) {
      return {false, name + " returned key " + Printable(std::string_view(key)) +
                         ", which was absent throughout"};
    }
  }
  return {};
}

}  // namespace

Verdict CheckScans(const History& history) {
  std::map<std::string, KeyFacts> facts;
  for (const auto& [key, value] : history.initial) facts[key].SetInitial(&value);
  for (const Operation& operation : history.operations) {
    const auto [it, is_new] = facts.try_emplace(operation.key);
    if (is_new) it->second.SetInitial(nullptr);
    it->second.Add(operation);
  }
  for (const ScanRecord& scan : history.scans) {
    Verdict verdict = CheckScan(scan, facts);
    if (!verdict.ok) return verdict;
  }
  return {};
}

}  // namespace farleaf::test
