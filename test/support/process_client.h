// Clients of compute servers that run as processes. What cannot be had ends the test, with the server's
// output.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "client/client.h"
#include "dsm/base/check.h"
#include "test/support/process.h"

namespace farleaf {

/// `deadline_ms`: of each operation that names none.
inline std::unique_ptr<client::Client> ConnectTo(const ComputeServerProcess& server,
                                                 uint64_t deadline_ms) {
  client::Options options;
  options.deadline_ms = deadline_ms;
  auto client = client::Client::Connect(server.url(), options);
  FARLEAF_CHECK(client.ok(), client.status(), server.process->Output());
  return std::move(*client);
}

/// "tested", of byte strings, with leaves so small that they lie on all memory servers soon.
inline client::TreeSpec TestedTree() {
  client::TreeSpec spec;
  spec.name = "tested";
  spec.layout = client::TreeLayout::kBytes;
  spec.geometry.key_bytes_max = 64;
  spec.geometry.leaf_bytes = 1024;
  return spec;
}
/// The same of keys of 8 bytes.
inline client::TreeSpec TestedFixed8(client::LeafLayout leaves) {
  client::TreeSpec spec;
  spec.name = "tested";
  spec.layout = client::TreeLayout::kFixed8;
  spec.geometry.leaf_layout = leaves;
  if (leaves == client::LeafLayout::kSorted) spec.geometry.leaf_bytes = 256;
  return spec;
}

inline client::Tree CreateTree(client::Client& client,
                               const client::TreeSpec& spec = TestedTree()) {
  auto tree = client.CreateTree(spec, {.deadline_ms = 30'000});
  FARLEAF_CHECK(tree.ok(), tree.status());
  return *tree;
}

}  // namespace farleaf
