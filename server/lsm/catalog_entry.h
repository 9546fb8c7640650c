// The values of an LSM store's catalog of trees (lsm_tree_host.h): their bytes, and what the bytes may say.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "client/protocol.h"
#include "dsm/base/result.h"
#include "index/prefixed_index.h"

namespace farleaf::server {

struct CatalogEntry {
  uint16_t number = 0;  ///< of the tree: 1 to PrefixedIndex::kNumberEnd - 1
  client::protocol::TreeLayout layout = client::protocol::TreeLayout::kBytes;
  uint32_t key_bytes_max = 0;  ///< 1 to PrefixedIndex::kKeyBytesMax; of a fixed8 tree 8

  bool operator==(const CatalogEntry&) const = default;
};

inline constexpr size_t kCatalogEntryBytes = 7;

/// What clients are told of the tree; its id is its number.
client::protocol::TreeInfo InfoOf(const CatalogEntry& entry, std::string_view name);
index::PrefixedIndex::Limits LimitsOf(const CatalogEntry& entry);

/// Of a tree that is to be made, without a number. `key_bytes_max`: as it is wanted; 0: 1024, or what the layout says. InvalidArgument: such keys cannot be.
Result<CatalogEntry> NewCatalogEntry(client::protocol::TreeLayout layout, uint32_t key_bytes_max);

std::string EncodeCatalogEntry(const CatalogEntry& entry);
/// Corruption, with the tree's name: no entry that is written.
Result<CatalogEntry> ParseCatalogEntry(std::string_view name, std::string_view bytes);

/// The number that was given last, 8 bytes.
std::string EncodeLastNumber(uint64_t number);
/// Corruption: of another length, or more than there can be trees.
Result<uint64_t> ParseLastNumber(std::string_view bytes);

}  // namespace farleaf::server
