#include <filesystem>

#include "benchmark/simulated/model_file.h"
#include "benchmark/simulated/program_target.h"
#include "benchmark/simulated/simulated_target.h"
#include "benchmark/simulated/tree_target.h"
#include "server/config.h"

namespace farleaf::ycsb {

namespace {

constexpr uint64_t kRegionBytesDefault = uint64_t{1} << 30;

Status BadOption(std::string_view option, const std::string& expected) {
  return Status::InvalidArgument("option '" + std::string(option) + "': expected " + expected);
}

Status SetOption(std::string_view option, dsm::ModelWorld::Options* world) {
  const size_t split = std::min(option.find('='), option.size());
  const std::string_view name = option.substr(0, split);
  const std::string_view value = split < option.size() ? option.substr(split + 1) : "";
  const bool is_region = name == "region";
  if (!is_region && name != "chunk") return BadOption(option, "region=SIZE or chunk=SIZE");
  auto bytes = server::ParseByteSize(value);
  const uint64_t min = is_region ? 1 << 20 : dsm::kChunkBytesMin;
  const uint64_t max = is_region ? uint64_t{1} << 40 : dsm::kChunkBytesMax;
  if (!bytes.ok() || *bytes < min || *bytes > max) {
    return BadOption(option, "a size from " + server::FormatByteSize(min) + " to " +
                                 server::FormatByteSize(max));
  }
  (is_region ? world->region_bytes : world->chunk_bytes) = *bytes;
  return Status::Ok();
}

/// A file, or the name of one in the folder `programs` beside the model file.
std::string ProgramPath(const std::string& program, const std::string& model_file) {
  if (program.find('/') != std::string::npos || program.ends_with(".toml")) return program;
  return std::filesystem::path(model_file).parent_path() / "programs" / (program + ".toml");
}

Result<std::unique_ptr<Target>> OpenProgram(const std::string& model_file,
                                            dsm::ModelWorld::Options world_options,
                                            const TargetOptions& options) {
  auto program = LoadProgramFile(ProgramPath(options.program, model_file));
  if (!program.ok()) return program.status();
  // A program says what an operation takes, the checks of all bytes included.
  world_options.model.read_byte_ns = world_options.model.write_byte_ns = 0;
  auto layout = ProgramTarget::LayoutFor(*program, world_options.model, options.records,
                                         world_options.chunk_bytes);
  if (!layout.ok()) return layout.status();
  world_options.region_bytes = layout->region_bytes;
  auto world = dsm::ModelWorld::Create(world_options);
  if (!world.ok()) return world.status();
  return std::unique_ptr<Target>(std::make_unique<ProgramTarget>(
      std::move(*world), model_file, std::move(*program), *layout, options));
}

}  // namespace

Result<std::unique_ptr<Target>> OpenSimulatedTarget(std::string_view text,
                                                    const TargetOptions& options) {
  dsm::ModelWorld::Options world_options;
  world_options.seed = options.seed;
  world_options.region_bytes = kRegionBytesDefault;
  const size_t question = std::min(text.find('?'), text.size());
  const std::string file(text.substr(0, question));
  std::string_view rest = text.substr(std::min(question + 1, text.size()));
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('&'), rest.size());
    FARLEAF_RETURN_IF_ERROR(SetOption(rest.substr(0, end), &world_options));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  auto model = LoadModelFile(file);
  if (!model.ok()) return model.status();
  world_options.model = *model;
  if (!options.create_tree) {
    return Status::InvalidArgument("a simulated pool begins empty: run with --phase load,run");
  }
  if (!options.program.empty()) return OpenProgram(file, world_options, options);
  auto world = dsm::ModelWorld::Create(world_options);
  if (!world.ok()) return world.status();
  auto target = std::make_unique<SimulatedTreeTarget>(std::move(*world), file, options);
  FARLEAF_RETURN_IF_ERROR(target->Open());
  return std::unique_ptr<Target>(std::move(target));
}

}  // namespace farleaf::ycsb
