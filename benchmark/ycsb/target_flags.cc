#include "benchmark/ycsb/target_flags.h"

#include "index/blink/geometry.h"

namespace farleaf::ycsb {

namespace {

void AddSwitch(CLI::App& app, const char* flag, bool* value, const char* help) {
  app.add_option_function<std::string>(
         flag, [value](const std::string& given) { *value = given == "on"; }, help)
      ->default_str(*value ? "on" : "off")
      ->check(CLI::IsMember({"on", "off"}));
}

}  // namespace

void DeclareAccessFlags(CLI::App& app, ClientAccess* access) {
  app.add_option("--password-file", access->password_file,
                 "farleaf:, redis:, memcached: its first line is the server's password")
      ->type_name("FILE");
  CLI::Option* const tls =
      app.add_flag("--tls", access->tls, "farleaf: speak TLS with the compute server");
  // Whoever names a certificate does not mean the password to go in clear.
  app.add_option("--tls-ca", access->tls_ca_file,
                 "Who has to have signed its certificate; if not given, the machine's authorities")
      ->type_name("FILE")
      ->needs(tls);
  app.add_option("--tls-certificate", access->tls_certificate_file, "Of this client")
      ->type_name("FILE")
      ->needs(tls);
  app.add_option("--tls-key", access->tls_key_file, "Of this client's certificate")
      ->type_name("FILE")
      ->needs(tls);
}

void DeclareTreeFlags(CLI::App& app, RunConfiguration* run) {
  app.add_flag(
      "--sorted-leaves", run->sorted_leaves,
      "A tree of fixed8 that is created has sorted leaves, which are read whole, not parted "
      "ones");
  app.add_flag("--hashed-leaves", run->hashed_leaves,
               "The entries of parted leaves that this process writes are placed by a hash, not in "
               "the order of keys; not with client: targets");
  app.add_option("--leaf-bytes", run->leaf_bytes,
                 "Page of a leaf in a tree that is created; 0: the default of its layout")
      ->capture_default_str()
      ->check(CLI::Range(uint32_t{0}, index::kPageBytesMax));
  app.add_option("--node-bytes", run->node_bytes, "The same of an internal node")
      ->capture_default_str()
      ->check(CLI::Range(uint32_t{0}, index::kPageBytesMax));
  AddSwitch(app, "--cache", &run->cache, "Search-layer cache of the tree");
  app.add_option("--cache-bytes", run->cache_bytes,
                 "The most memory that it is to take; 0: no bound")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 50));
  app.add_option("--value-hint-bytes", run->value_hint_bytes,
                 "The most memory for where values out of line are, 26 bytes a value met; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{0}, index::kRememberedBytesMax));
  app.add_option("--value-list-bytes", run->value_list_bytes,
                 "The same for scans, some 12 bytes a value of the leaves scanned; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{0}, index::kRememberedBytesMax));
  app.add_option("--scan-leaves-max", run->scan_leaves_max,
                 "Leaves that a scan reads ahead in one round trip")
      ->capture_default_str()
      ->check(CLI::Range(uint32_t{1}, uint32_t{256}));
  AddSwitch(app, "--share-reads", &run->share_reads,
            "Gets of a thread that want the same part of a leaf at a time share a READ");
  AddSwitch(app, "--combine-writes", &run->combine_writes,
            "Writes of a leaf that wait for its lock are written back together");
  AddSwitch(app, "--hand-over", &run->hand_over,
            "A leaf's lock goes on to another write of this process without the network");
  AddSwitch(app, "--in-place", &run->in_place,
            "Over shared memory, gets look at leaves where they are (values of byte strings are "
            "also replaced there)");
  AddSwitch(app, "--small-write-backs", &run->small_write_backs,
            "Of a page that is written to, what changed is written back, not all of it");
  AddSwitch(app, "--back-off", &run->back_off,
            "Who finds a page locked by another compute server waits longer each time");
  AddSwitch(app, "--learn-splits", &run->learn_splits,
            "A cached node learns that a leaf was split from the leaf itself, and is not read again "
            "each time");
  app.add_option("--program", run->program,
                 "sim: the verb program of another design, its name or file")
      ->type_name("PROGRAM");
}

Status ParseTargetFlags(const std::string& text, RunConfiguration* run) {
  constexpr std::string_view kTreeProperty = "farleaf.tree=";
  CLI::App app;
  app.set_help_flag();
  DeclareAccessFlags(app, &run->access);
  DeclareTreeFlags(app, run);
  std::vector<std::string> assignments;
  app.add_option("-p", assignments)->allow_extra_args(false);
  try {
    app.parse(text);
  } catch (const CLI::ParseError& failure) {
    return Status::InvalidArgument(std::string(failure.what()) +
                                   ": only flags of access and of the tree may differ");
  }
  for (const std::string& assignment : assignments) {
    if (!assignment.starts_with(kTreeProperty) || assignment.size() == kTreeProperty.size()) {
      return Status::InvalidArgument("-p " + assignment +
                                     ": only farleaf.tree=NAME may differ: both targets get the "
                                     "same operations");
    }
    run->workload.tree = assignment.substr(kTreeProperty.size());
  }
  return Status::Ok();
}

}  // namespace farleaf::ycsb
