#include "index/blink/tree_walk.h"

#include <algorithm>

#include "dsm/page_class.h"
#include "index/blink/value_block.h"

namespace farleaf::index {

using dsm::ChunkKind;

void TreeWalk::Report(FindingKind kind, GlobalAddress address, const std::string& what) {
  findings_->Add(kind, address, PageText(address) + " of tree '" + info_.name + "' " + what);
}

void TreeWalk::Walk(RootWord root) {
  report_->levels.resize(size_t{root.level} + 1);
  GlobalAddress leftmost = root.address;
  Chain parents;
  for (int level = root.level; level >= 0; --level) {
    Chain chain = WalkLevel(static_cast<Level>(level), leftmost);
    if (level == root.level) {
      // Right siblings of a root: nothing above names them (their split could not tell the parents).
      report_->levels[level].missing_separators = chain.empty() ? 0 : chain.size() - 1;
    } else {
      CheckSeparators(parents, chain, static_cast<Level>(level));
    }
    if (level == 0) {
      CheckValues(chain);
    } else if (chain.empty() || chain.front()->entries.empty()) {
      report_->chains_whole = false;
      return;
    } else {
      leftmost = chain.front()->entries.front().child;
    }
    parents = std::move(chain);
  }
}

TreeWalk::Chain TreeWalk::WalkLevel(Level level, GlobalAddress leftmost) {
  Chain chain;
  LevelReport& report = report_->levels[level];
  std::string named_by = level + 1u == report_->levels.size()
                             ? "its root word"
                             : "the leftmost node of level " + std::to_string(level + 1);
  for (GlobalAddress address = leftmost; !address.is_null();) {
    SurveyedNode* node = Reach(address, level, named_by);
    if (node == nullptr) {
      report_->chains_whole = false;
      break;
    }
    CheckFences(chain.empty() ? nullptr : chain.back(), *node);
    node->place = chain.size();
    chain.push_back(node);
    ++report.nodes;
    report.entries += node->count;
    report.used_bytes += node->used_bytes;
    report.capacity_bytes += node->capacity_bytes;
    named_by = "left sibling " + address.ToString();
    address = node->right;
  }
  return chain;
}

SurveyedNode* TreeWalk::Reach(GlobalAddress address, Level level, const std::string& named_by) {
  SurveyedNode* node = survey_->FindNode(address);
  const std::string from = "level " + std::to_string(level) + ", named by " + named_by + ", ";
  if (node == nullptr) {
    Report(FindingKind::kOwnership, address, from + survey_->WhyNotInUse(address));
    return nullptr;
  }
  if (node->reached) {
    Report(FindingKind::kOwnership, address, from + "is reached twice");
    return nullptr;
  }
  node->reached = true;
  if (auto why = WhyNot(*node, level)) {
    Report(FindingKind::kChain, address, from + *why);
    return nullptr;
  }
  return node;
}

std::optional<std::string> TreeWalk::WhyNot(const SurveyedNode& node, Level level) const {
  if (!node.readable) return "cannot be read";
  if (node.tree != info_.id) return "belongs to tree " + std::to_string(node.tree);
  if (node.dead) return "is dead";
  if (node.level != level) return "is a node of level " + std::to_string(node.level);
  const bool leaf_chunk = node.page_class.kind == ChunkKind::kLeaf;
  if (leaf_chunk != (level == 0) || (!leaf_chunk && node.page_class.tree != info_.id)) {
    return "lies in a chunk of " +
           (leaf_chunk ? std::string("leaves")
                       : "the search layer of tree " + std::to_string(node.page_class.tree));
  }
  return std::nullopt;
}

void TreeWalk::CheckFences(const SurveyedNode* left, const SurveyedNode& node) {
  const auto text = [this](bool has, const std::string& key) {
    return has ? KeyText(info_.geometry, key) : std::string("none");
  };
  if (left == nullptr) {
    if (node.has_low) {
      Report(FindingKind::kChain, node.address,
             "is the leftmost of level " + std::to_string(node.level) + " but has low fence " +
                 text(true, node.low));
    }
  } else if (!left->has_high || !node.has_low || left->high != node.low) {
    Report(FindingKind::kChain, node.address,
           "has low fence " + text(node.has_low, node.low) + " but its left sibling " +
               left->address.ToString() + " has high fence " + text(left->has_high, left->high));
  }
  if (node.right.is_null() && node.has_high) {
    Report(FindingKind::kChain, node.address,
           "has no right sibling but high fence " + text(true, node.high));
  }
}

SurveyedNode* TreeWalk::CheckEntry(const SurveyedNode& parent, size_t i, const Chain& children,
                                   Level level) {
  const SurveyedNode::Entry& entry = parent.entries[i];
  const bool lowest = i == 0 && !parent.has_low;
  const auto report = [&](const std::string& what) {
    Report(FindingKind::kSeparator, parent.address,
           "names, from " + (lowest ? "the first key" : KeyText(info_.geometry, entry.separator)) +
               " on, page " + entry.child.ToString() + ", which " + what);
  };
  SurveyedNode* child = survey_->FindNode(entry.child);
  if (child == nullptr) {
    report(survey_->WhyNotInUse(entry.child));
    return nullptr;
  }
  if (auto why = WhyNot(*child, level)) {
    child->reached = true;  // said here; not a leak
    report(*why);
    return nullptr;
  }
  if (child->place >= children.size() || children[child->place] != child) {
    if (report_->chains_whole) {
      child->reached = true;
      report("is no node of the level below that right siblings lead to");
    }
    return nullptr;
  }
  if (child->has_low && (lowest || child->low > entry.separator)) {
    report("begins only at " + KeyText(info_.geometry, child->low));
  }
  return child;
}

void TreeWalk::CheckSeparators(const Chain& parents, const Chain& children, Level level) {
  std::vector<bool> exact(children.size());
  const SurveyedNode* previous = nullptr;
  for (const SurveyedNode* parent : parents) {
    for (size_t i = 0; i < parent->entries.size(); ++i) {
      SurveyedNode* child = CheckEntry(*parent, i, children, level);
      if (child == nullptr) {
        previous = nullptr;
        continue;
      }
      const bool lowest = i == 0 && !parent->has_low;
      exact[child->place] =
          exact[child->place] ||
          (child->has_low ? !lowest && child->low == parent->entries[i].separator : lowest);
      if (child->named && child != previous) {
        Report(FindingKind::kSeparator, parent->address,
               "names page " + child->address.ToString() +
                   " again, behind entries that name other pages");
      }
      child->named = true;
      previous = child;
    }
  }
  report_->levels[level].missing_separators =
      static_cast<uint64_t>(std::count(exact.begin(), exact.end(), false));
}

void TreeWalk::CheckValues(const Chain& leaves) {
  const uint64_t chunk_bytes = survey_->servers()[0].layout.chunk_bytes;
  for (const SurveyedNode* leaf : leaves) {
    for (const OutOfLineValue& value : leaf->values) {
      const std::string where = "names value block " + value.block.ToString() + ", which ";
      SurveyedBlock* block = survey_->FindBlock(value.block);
      if (block == nullptr) {
        Report(FindingKind::kValue, leaf->address, where + survey_->WhyNotInUse(value.block));
        continue;
      }
      if (block->reached) {
        Report(FindingKind::kOwnership, leaf->address, where + "is reached twice");
        continue;
      }
      block->reached = true;
      if (block->unique_id != value.unique_id) {
        Report(FindingKind::kValue, leaf->address, where + "holds another value (its unique id)");
      } else if (block->length != value.length) {
        Report(FindingKind::kValue, leaf->address,
               where + "has " + std::to_string(block->length) + " bytes instead of " +
                   std::to_string(value.length));
      } else if (auto bytes = dsm::ValueBlockBytes(kBlockHeaderBytes + value.length, chunk_bytes);
                 bytes && *bytes != block->bytes) {
        Report(FindingKind::kValue, leaf->address,
               where + "is of " + std::to_string(block->bytes) + " bytes, not of " +
                   std::to_string(*bytes));
      }
      ++report_->values_out_of_line;
      report_->value_block_bytes += block->bytes;
    }
  }
}

void ReportUnreached(PageSurvey& survey, std::vector<TreeReport>& trees, Findings* findings) {
  bool all_whole = true;
  std::vector<TreeReport*> by_id(size_t{kTreeIdMax} + 1);
  for (TreeReport& tree : trees) {
    by_id[tree.info.id] = &tree;
    all_whole &= tree.chains_whole;
  }
  for (const SurveyedNode& node : survey.nodes()) {
    if (node.reached) continue;
    TreeReport* tree = node.readable ? by_id[node.tree] : nullptr;
    if (tree != nullptr ? !tree->chains_whole : !all_whole) {
      if (tree != nullptr) ++tree->unjudged_pages;
      continue;
    }
    std::string text = PageText(node.address);
    if (tree != nullptr) text += " of tree '" + tree->info.name + "'";
    text += " is in use but nothing leads to it";
    if (node.readable && node.dead) text += " (it is dead and was not given back)";
    if (node.lock_word != 0) text += "; it is locked by " + HolderText(node.lock_word);
    findings->Add(FindingKind::kLeak, node.address, std::move(text));
  }
  if (!all_whole) return;
  for (const SurveyedBlock& block : survey.blocks()) {
    if (block.reached) continue;
    findings->Add(FindingKind::kLeak, block.address,
                  "value block " + block.address.ToString() + " of " + std::to_string(block.bytes) +
                      " bytes is in use but nothing leads to it");
  }
}

}  // namespace farleaf::index
