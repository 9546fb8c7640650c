// The commands about trees and what is in them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "server/control/control.h"
#include "server/frontend/execute.h"

namespace farleaf::server {

Result<int> Control::Trees() {
  FARLEAF_RETURN_IF_ERROR(Open(StoreAccess::kRead));
  const auto trees = store_->ListTrees();
  if (!trees.ok()) return trees.status();
  if (!arguments_.json)
    fmt::print("{:>4}  {:<7}  {:>9}  {:>9}  {:>10}  {:>10}  {}\n", "id", "layout", "key max",
               "value max", "leaf bytes", "node bytes", "name");
  std::string json;
  for (const client::TreeInfo& tree : *trees) {
    if (!arguments_.json) {
      fmt::print("{:>4}  {:<7}  {:>9}  {:>9}  {:>10}  {:>10}  {}\n", tree.id,
                 TreeLayoutName(tree.layout), tree.key_bytes_max, tree.value_bytes_max,
                 tree.leaf_bytes, tree.node_bytes, PrintBytes(tree.name, TextForm::kText));
    }
    json += (json.empty() ? "" : ", ") + TreeJson(tree);
  }
  if (arguments_.json) fmt::print("[{}]\n", json);
  return kDone;
}

Result<int> Control::CreateTree() {
  FARLEAF_RETURN_IF_ERROR(Open(StoreAccess::kWrite));
  client::TreeSpec spec;
  spec.name = arguments_.name;
  if (arguments_.layout == "fixed8") spec.layout = client::TreeLayout::kFixed8;
  spec.geometry = arguments_.geometry;
  if (arguments_.leaf_layout == "sorted") spec.geometry.leaf_layout = client::LeafLayout::kSorted;
  if (arguments_.leaf_layout == "parted") spec.geometry.leaf_layout = client::LeafLayout::kParted;
  const auto tree = store_->CreateTree(spec);
  if (!tree.ok()) return tree.status();
  if (arguments_.json) {
    fmt::print("{}\n", TreeJson(*tree));
  } else {
    fmt::print("created tree {} (id {}, {})\n", tree->name, tree->id, TreeLayoutName(tree->layout));
  }
  return kDone;
}

Result<int> Control::Get() {
  FARLEAF_RETURN_IF_ERROR(OpenTree(StoreAccess::kRead));
  const auto key = ParseBytes(arguments_.key, form_);
  if (!key.ok()) return key.status();
  const auto value = store_->Get(*key);
  if (!value.ok()) return value.status();
  if (!value->has_value()) {
    if (arguments_.json) {
      fmt::print("{{\"key\": {}, \"found\": false}}\n", JsonBytes(*key));
    } else {
      fmt::print(stderr, "not found: {}\n", PrintBytes(*key, form_));
    }
    return kNotThere;
  }
  if (arguments_.json) {
    fmt::print("{{\"key\": {}, \"found\": true, \"value\": {}}}\n", JsonBytes(*key),
               JsonBytes(**value));
  } else {
    fmt::print("{}\n", PrintBytes(**value, form_));
  }
  return kDone;
}

Result<int> Control::Put() {
  FARLEAF_RETURN_IF_ERROR(OpenTree(StoreAccess::kWrite));
  const auto key = ParseBytes(arguments_.key, form_);
  if (!key.ok()) return key.status();
  const auto value = ParseBytes(arguments_.value, form_);
  if (!value.ok()) return value.status();
  const auto is_new = store_->Put(*key, *value);
  if (!is_new.ok()) return is_new.status();
  Report(*key, *is_new ? "inserted" : "replaced");
  return kDone;
}

Result<int> Control::Delete() {
  FARLEAF_RETURN_IF_ERROR(OpenTree(StoreAccess::kWrite));
  const auto key = ParseBytes(arguments_.key, form_);
  if (!key.ok()) return key.status();
  const auto existed = store_->Delete(*key);
  if (!existed.ok()) return existed.status();
  Report(*key, *existed ? "deleted" : "not found");
  return *existed ? kDone : kNotThere;
}

Result<int> Control::CompareAndSet() {
  FARLEAF_RETURN_IF_ERROR(OpenTree(StoreAccess::kWrite));
  std::array<std::string, 3> bytes;
  const std::string* const typed[] = {&arguments_.key, &arguments_.expected, &arguments_.value};
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto parsed = ParseBytes(*typed[i], form_);
    if (!parsed.ok()) return parsed.status();
    bytes[i] = std::move(*parsed);
  }
  const auto& [key, expected, value] = bytes;
  const auto done = store_->CompareAndSet(key, expected, value);
  if (!done.ok()) return done.status();
  if (done->outcome != client::ConditionOutcome::kDifferent) {
    const bool stored = done->outcome == client::ConditionOutcome::kDone;
    Report(key, stored ? "replaced" : "not found");
    return stored ? kDone : kNotThere;
  }
  const std::string& current = *done->current;
  if (arguments_.json) {
    fmt::print("{{\"key\": {}, \"result\": \"different\", \"value\": {}}}\n", JsonBytes(key),
               JsonBytes(current));
  } else {
    fmt::print("different: {}\n", PrintBytes(current, form_));
  }
  return kFailed;
}

Result<int> Control::Add() {
  FARLEAF_RETURN_IF_ERROR(OpenTree(StoreAccess::kWrite));
  const auto key = ParseBytes(arguments_.key, form_);
  if (!key.ok()) return key.status();
  const auto number = store_->Add(*key, arguments_.delta, arguments_.initial);
  if (!number.ok()) return number.status();
  if (arguments_.json) {
    fmt::print("{{\"key\": {}, \"number\": {}}}\n", JsonBytes(*key), *number);
  } else {
    fmt::print("{}\n", *number);
  }
  return kDone;
}

Result<int> Control::Scan() {
  constexpr uint64_t kPieceRows = 4'096;
  FARLEAF_RETURN_IF_ERROR(OpenTree(StoreAccess::kRead));
  client::ScanRange range;
  range.reverse = arguments_.reverse;
  range.keys_only = arguments_.keys_only;
  const auto any = SetBounds(&range);
  if (!any.ok()) return any.status();
  uint64_t left = !*any ? 0 : arguments_.all ? UINT64_MAX : arguments_.limit;
  bool first = true;
  if (arguments_.json) fmt::print("[");
  while (left > 0) {
    range.limit = std::min(left, kPieceRows);
    const auto rows = store_->Scan(range);
    if (!rows.ok()) return rows.status();
    for (const client::KeyValue& row : *rows) {
      PrintRow(row, first);
      first = false;
    }
    if (rows->size() < range.limit) break;
    left -= rows->size();
    if (!Continue(rows->back().key, &range)) break;
  }
  if (arguments_.json) fmt::print("]\n");
  return kDone;
}

farleaf::Status Control::OpenTree(StoreAccess access) {
  FARLEAF_RETURN_IF_ERROR(Open(access));
  auto tree = store_->OpenTree(arguments_.tree);
  if (!tree.ok()) return tree.status();
  tree_ = std::move(*tree);
  form_ = FormFor(arguments_.form, tree_.layout);
  return farleaf::Status::Ok();
}

Result<bool> Control::SetBounds(client::ScanRange* range) {
  const auto take = [this](const std::string& typed, auto* bound) {
    if (typed.empty()) return farleaf::Status::Ok();
    auto bytes = ParseBytes(typed, form_);
    if (bytes.ok()) *bound = std::move(*bytes);
    return bytes.status();
  };
  FARLEAF_RETURN_IF_ERROR(take(arguments_.start, &range->start));
  FARLEAF_RETURN_IF_ERROR(take(arguments_.end, &range->end));
  FARLEAF_RETURN_IF_ERROR(take(arguments_.prefix, &range->prefix));
  return client::internal::ResolvePrefix(tree_, range);
}

bool Control::Continue(const std::string& last, client::ScanRange* range) {
  if (arguments_.reverse) {
    range->end = last;
    return true;
  }
  auto next = SuccessorKey(last, tree_);
  if (!next) return false;
  range->start = std::move(*next);
  return true;
}

void Control::PrintRow(const client::KeyValue& row, bool first) {
  if (arguments_.json) {
    fmt::print("{}{{\"key\": {}", first ? "" : ",\n ", JsonBytes(row.key));
    if (!arguments_.keys_only) fmt::print(", \"value\": {}", JsonBytes(row.value));
    fmt::print("}}");
  } else if (arguments_.keys_only) {
    fmt::print("{}\n", PrintBytes(row.key, form_));
  } else {
    fmt::print("{}\t{}\n", PrintBytes(row.key, form_), PrintBytes(row.value, form_));
  }
}

void Control::Report(const std::string& key, std::string_view what) {
  if (arguments_.json) {
    fmt::print("{{\"key\": {}, \"result\": \"{}\"}}\n", JsonBytes(key), what);
  } else {
    fmt::print("{}\n", what);
  }
}

std::string Control::JsonBytes(std::string_view bytes) const {
  if (form_ == TextForm::kText) return JsonString(bytes);
  const std::string text = PrintBytes(bytes, form_);
  return form_ == TextForm::kU64 && bytes.size() == 8 ? text : JsonString(text);
}

std::string Control::TreeJson(const client::TreeInfo& tree) {
  return fmt::format(
      "{{\"id\": {}, \"name\": {}, \"layout\": \"{}\", \"key_bytes_max\": {}, "
      "\"value_bytes_max\": {}, \"leaf_bytes\": {}, \"node_bytes\": {}}}",
      tree.id, JsonString(tree.name), TreeLayoutName(tree.layout), tree.key_bytes_max,
      tree.value_bytes_max, tree.leaf_bytes, tree.node_bytes);
}

}  // namespace farleaf::server
