#include "benchmark/simulated/model_file.h"

#include <set>

#include "benchmark/simulated/toml_file.h"

namespace farleaf::ycsb {

namespace {

const dsm::CostModelField* FindField(const std::string& key) {
  for (const dsm::CostModelField& field : dsm::CostModelFields()) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

Status SetField(const std::string& source, const std::string& key, const toml::node& node,
                dsm::CostModel* model) {
  const TomlPlace place{source, key};
  const dsm::CostModelField* field = FindField(key);
  if (field == nullptr) return place.Wrong(node, "belongs to no parameter of a cost model");
  auto number = NumberOf(place, node, field->min, field->max, field->integer != nullptr);
  if (!number.ok()) return number.status();
  if (field->integer != nullptr) {
    model->*field->integer = static_cast<uint64_t>(*number);
  } else {
    model->*field->number = *number;
  }
  return Status::Ok();
}

}  // namespace

Result<dsm::CostModel> ParseModel(std::string_view text, const std::string& source) {
  auto file = ParseTomlText(text, source);
  if (!file.ok()) return file.status();
  dsm::CostModel model;
  std::set<std::string, std::less<>> given;
  for (const auto& [group, node] : *file) {
    const std::string group_name(group.str());
    const auto* table = node.as_table();
    if (table == nullptr) {
      return TomlPlace{source, group_name}.Wrong(node, "stands outside of a table");
    }
    for (const auto& [name, value] : *table) {
      const std::string key = group_name + "." + std::string(name.str());
      FARLEAF_RETURN_IF_ERROR(SetField(source, key, value, &model));
      given.insert(key);
    }
  }
  for (const dsm::CostModelField& field : dsm::CostModelFields()) {
    if (given.contains(field.key)) continue;
    return Status::InvalidArgument(source + ": " + std::string(field.key) +
                                   " is missing: a model names every parameter");
  }
  return model;
}

Result<dsm::CostModel> LoadModelFile(const std::string& path) {
  auto text = ReadTextFile(path);
  if (!text.ok()) return text.status();
  return ParseModel(*text, path);
}

}  // namespace farleaf::ycsb
