// TreeWalk: one tree of a survey, walked from its root word level by level along right siblings.
// check.h says what is checked.
//
// Thread rule: one thread; no I/O.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "index/blink/check.h"
#include "index/blink/page_survey.h"
#include "index/blink/search_cache.h"

namespace farleaf::index {

class TreeWalk {
 public:
  /// Marks what it reaches in `survey`, and fills the rest of `report` (its info is set already).
  TreeWalk(PageSurvey* survey, Findings* findings, TreeReport* report)
      : survey_(survey), findings_(findings), report_(report), info_(report->info) {}
  void Walk(RootWord root);

 private:
  using Chain = std::vector<SurveyedNode*>;

  Chain WalkLevel(Level level, GlobalAddress leftmost);
  /// The node at `address`, marked as reached. Null: the chain cannot go on there (and a finding
  /// says why).
  SurveyedNode* Reach(GlobalAddress address, Level level, const std::string& named_by);
  std::optional<std::string> WhyNot(const SurveyedNode& node, Level level) const;
  void CheckFences(const SurveyedNode* left, const SurveyedNode& node);
  void CheckSeparators(const Chain& parents, const Chain& children, Level level);
  /// Checks one entry. The child, or null if it is none.
  SurveyedNode* CheckEntry(const SurveyedNode& parent, size_t i, const Chain& children,
                           Level level);
  void CheckValues(const Chain& leaves);
  void Report(FindingKind kind, GlobalAddress address, const std::string& what);

  PageSurvey* survey_;
  Findings* findings_;
  TreeReport* report_;
  const TreeInfo& info_;
};

/// What is in use and was not reached, once all trees are walked.
void ReportUnreached(PageSurvey& survey, std::vector<TreeReport>& trees, Findings* findings);

}  // namespace farleaf::index
