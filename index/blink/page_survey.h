// PageSurvey: a summary of every page in use of a pool, made from whole chunks as they were read.
//
// A page that is locked, torn or out of step with its change counter may be in the middle of a
// write: it is a suspect, and is looked at again before it is taken for what it is.
//
// Invariant: after Finish, nodes and blocks are in address order.
// Thread rule: one thread; no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dsm/page_class.h"
#include "dsm/region_layout.h"
#include "index/blink/check.h"
#include "index/blink/node.h"

namespace farleaf::index {

/// A page in use of a leaf or search chunk.
struct SurveyedNode {
  struct Entry {
    std::string separator;  ///< of entry 0 the low fence
    GlobalAddress child;
  };
  GlobalAddress address;
  dsm::PageClass page_class;  ///< of its chunk
  bool readable = false;      ///< nothing below means anything if not, save the lock word
  uint64_t lock_word = 0;
  TreeId tree = 0;
  Level level = 0;
  bool dead = false, has_low = false, has_high = false;
  GlobalAddress right;
  uint32_t count = 0;
  uint32_t used_bytes = 0, capacity_bytes = 0;
  std::string low, high;
  std::vector<Entry> entries;          ///< of an internal node
  std::vector<OutOfLineValue> values;  ///< of a leaf
  bool reached = false;                ///< set by a walk
  bool named = false;                  ///< by an entry of the level above; set by a walk
  uint64_t place = 0;                  ///< in its level; set by a walk
};

/// A block or extent in use.
struct SurveyedBlock {
  GlobalAddress address;
  uint64_t bytes = 0;  ///< of the block, or of all the extent's chunks
  uint64_t unique_id = 0;
  uint32_t length = 0;
  bool readable = false;  ///< length and CRC agree with its bytes
  bool reached = false;   ///< set by a walk
};

struct ChunkPlace {
  dsm::ServerId server = 0;
  uint64_t chunk = 0;
  dsm::ChunkWord word;
  uint64_t carved = 0;  ///< pages that nobody will carve any more
};

class PageSurvey {
 public:
  PageSurvey(std::span<const TreeInfo> trees, std::span<const dsm::RegionLayout> layouts,
             Findings* findings);

  /// The bytes of a whole chunk. Chunks of one server come in ascending order.
  void AddChunk(const ChunkPlace& place, std::span<const std::byte> bytes);

  struct Suspect {
    GlobalAddress address;
    dsm::PageClass page_class;
    uint64_t counter_offset = 0;  ///< of a search page's change counter; else 0
  };
  /// Takes the list of pages to look at again.
  std::vector<Suspect> TakeSuspects() { return std::exchange(suspects_, {}); }
  enum class Look : uint8_t { kFirst, kLast };
  /// `page`: the whole page as read again. kLast: whatever it is, it is taken for that.
  void AddAgain(const Suspect& suspect, std::span<const std::byte> page, uint64_t counter,
                Look look);
  /// A page that a free list of the pool names.
  void AddListed(GlobalAddress address);
  void Finish(std::span<const dsm::MemberWord> members);

  std::vector<SurveyedNode>& nodes() { return nodes_; }
  std::vector<SurveyedBlock>& blocks() { return blocks_; }
  SurveyedNode* FindNode(GlobalAddress address);
  SurveyedBlock* FindBlock(GlobalAddress address);
  /// Of an address at which no page is in use: "is free (held by compute server 3)" and the like.
  std::string WhyNotInUse(GlobalAddress address) const;
  std::vector<ServerReport>& servers() { return servers_; }

 private:
  struct OpenExtent {
    size_t block = 0;  ///< in blocks_
    uint64_t chunks_left = 0;
    uint64_t bytes_left = 0;  ///< of header and value
    uint32_t crc = 0, stored_crc = 0;
  };
  /// What a page says of itself before its tree is known.
  struct Claim {
    bool sound = false;  ///< its checksums hold
    TreeId tree = 0;
    uint64_t version = 0;
  };
  Claim ClaimOf(std::span<const std::byte> image, Level level) const;
  void AddPage(const Suspect& page, std::span<const std::byte> bytes, uint64_t counter, Look look);
  void AddNode(const Suspect& page, std::span<const std::byte> bytes, uint64_t counter, Look look);
  void AddBlock(const Suspect& page, std::span<const std::byte> bytes, Look look);
  void AddExtentChunk(dsm::ServerId server, uint64_t chunk, dsm::ChunkWord word,
                      std::span<const std::byte> bytes);
  void EndExtent(dsm::ServerId server);
  void CheckListed();
  void Summarize(const ConstNode& view, SurveyedNode* node);
  PageCounts& CountsOf(GlobalAddress address, dsm::ChunkKind kind) {
    return servers_[address.server()].pages[static_cast<size_t>(kind)];
  }
  const TreeInfo* TreeOf(TreeId tree) const;

  std::vector<const TreeInfo*> trees_;  // by id
  Findings* findings_;
  std::vector<ServerReport> servers_;
  std::vector<OpenExtent> open_extents_;  // by server
  std::vector<Suspect> suspects_;
  std::vector<SurveyedNode> nodes_;
  std::vector<SurveyedBlock> blocks_;
  struct FreePage {
    GlobalAddress address;
    dsm::LockWord word;  ///< names the holder
  };
  const FreePage* FindFree(GlobalAddress address) const;
  std::vector<FreePage> free_pages_;
  std::vector<GlobalAddress> listed_;
};

/// Whether this member is in the pool. False for one that died, too, once its word says so.
bool IsLive(std::span<const dsm::MemberWord> members, dsm::MemberId id, uint16_t incarnation);
/// "page 1:0x20400".
inline std::string PageText(GlobalAddress address) { return "page " + address.ToString(); }
/// "compute server 7 (incarnation 2)", of a locked or free word.
std::string HolderText(uint64_t lock_word);
/// A key as a message shows it: fixed8 as a number, bytes escaped and cut.
std::string KeyText(const Geometry& geometry, std::string_view key);

}  // namespace farleaf::index
