#include "index/blink/page_survey.h"

#include <algorithm>
#include <type_traits>

#include "dsm/base/bytes.h"
#include "dsm/base/crc32c.h"
#include "index/blink/leaf_codec.h"
#include "index/blink/page.h"
#include "index/blink/value_block.h"

namespace farleaf::index {

namespace {

using dsm::ChunkKind;
using dsm::LockWord;

constexpr size_t kKeyCharsShown = 48;

template <typename Vector>
auto* FindByAddress(Vector& sorted, GlobalAddress address) {
  using T = std::remove_reference_t<decltype(sorted[0])>;
  auto at = std::lower_bound(sorted.begin(), sorted.end(), address,
                             [](const T& one, GlobalAddress a) { return one.address < a; });
  const bool found = at != sorted.end() && at->address == address;
  return found ? &*at : static_cast<T*>(nullptr);
}

/// Whether it could be opened, into `page`.
bool OpenInto(const Geometry& geometry, Level level, std::span<const std::byte> image,
              PageBuffer& page) {
  const auto node = page.image(geometry, level);
  std::copy(image.begin(), image.end(), node.begin());
  return OpenPage(geometry, level, node) == OpenOutcome::kValid;
}

bool NeverUsed(std::span<const std::byte> page, uint64_t lock_word) {
  return lock_word == 0 && LoadLittle<uint64_t>(page.data()) == 0 &&
         LoadLittle<uint64_t>(page.data() + 8) == 0;
}

}  // namespace

std::string HolderText(uint64_t lock_word) {
  const LockWord lock = LockWord::Decode(lock_word);
  if (lock.owner == 0) return "the pool";
  return "compute server " + std::to_string(lock.owner) + " (incarnation " +
         std::to_string(lock.incarnation) + ")";
}

std::string KeyText(const Geometry& geometry, std::string_view key) {
  if (geometry.layout == Layout::kFixed8 && key.size() == 8) {
    return std::to_string(LoadBig64(key.data()));
  }
  std::string text = "'";
  for (char c : key.substr(0, kKeyCharsShown)) {
    char escaped[8];
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x20 && byte < 0x7f && c != '\\' && c != '\'';
    std::snprintf(escaped, sizeof escaped, plain ? "%c" : "\\x%02x", byte);
    text += escaped;
  }
  return text + (key.size() > kKeyCharsShown ? "…'" : "'");
}

PageSurvey::PageSurvey(std::span<const TreeInfo> trees, std::span<const dsm::RegionLayout> layouts,
                       Findings* findings)
    : trees_(size_t{kTreeIdMax} + 1), findings_(findings), open_extents_(layouts.size()) {
  for (const TreeInfo& tree : trees) trees_[tree.id] = &tree;
  for (const dsm::RegionLayout& layout : layouts) servers_.push_back({.layout = layout});
}

const TreeInfo* PageSurvey::TreeOf(TreeId tree) const {
  return tree < trees_.size() ? trees_[tree] : nullptr;
}

void PageSurvey::AddChunk(const ChunkPlace& place, std::span<const std::byte> bytes) {
  const auto [server, chunk, word, carved] = place;
  const dsm::RegionLayout& layout = servers_[server].layout;
  if (word.kind == ChunkKind::kExtent || word.kind == ChunkKind::kExtentRest) {
    AddExtentChunk(server, chunk, word, bytes);
    return;
  }
  const auto page_class = PageClassOf(word);
  if (!page_class) return;  // redo slots, or a word that the chunk table's check has reported
  const uint64_t chunk_offset = layout.ChunkOffset(chunk);
  const uint64_t pages = PagesPerChunk(*page_class, layout.chunk_bytes);
  for (uint64_t i = 0; i < pages; ++i) {
    const uint64_t at = PageOffsetInChunk(*page_class, layout.chunk_bytes, i);
    Suspect page{GlobalAddress(server, chunk_offset + at), *page_class};
    uint64_t counter = 0;
    if (page_class->kind == ChunkKind::kSearch) {
      page.counter_offset = chunk_offset + i * 8;
      counter = LoadLittle<uint64_t>(bytes.data() + i * 8);
    }
    PageCounts& counts = CountsOf(page.address, page_class->kind);
    const uint64_t never_used = counts.never_used;
    AddPage(page, bytes.subspan(at, page_class->page_bytes), counter, Look::kFirst);
    if (i < carved) servers_[server].skipped_pages += counts.never_used - never_used;
  }
}

void PageSurvey::AddAgain(const Suspect& suspect, std::span<const std::byte> page, uint64_t counter,
                          Look look) {
  AddPage(suspect, page, counter, look);
}

void PageSurvey::AddPage(const Suspect& page, std::span<const std::byte> bytes, uint64_t counter,
                         Look look) {
  const uint64_t lock_word = LoadLittle<uint64_t>(bytes.data() + LockWordOffset(page.page_class));
  PageCounts& counts = CountsOf(page.address, page.page_class.kind);
  if (LockWord::Decode(lock_word).state == LockWord::State::kFreePage) {
    ++counts.free;
    free_pages_.push_back({page.address, LockWord::Decode(lock_word)});
  } else if (NeverUsed(bytes, lock_word)) {
    ++counts.never_used;
  } else if (page.page_class.kind == ChunkKind::kValue) {
    AddBlock(page, bytes, look);
  } else {
    AddNode(page, bytes, counter, look);
  }
}

PageSurvey::Claim PageSurvey::ClaimOf(std::span<const std::byte> image, Level level) const {
  const Claim claim{Crc32c(image.subspan(4)) == LoadLittle<uint32_t>(image.data()),
                    LoadLittle<uint16_t>(image.data() + 4), LoadLittle<uint64_t>(image.data() + 8)};
  if (claim.sound || level > 0) return claim;
  // No page that stands as its node: perhaps a leaf of the other layout, of a tree that has such.
  const Geometry parted{.leaf_layout = LeafLayout::kParted};
  const TreeId tree = RawTree(parted, level, image);
  const TreeInfo* info = TreeOf(tree);
  if (info == nullptr || StandsAsNode(info->geometry, level) ||
      info->geometry.image_bytes(level) != image.size()) {
    return claim;
  }
  PageBuffer node;
  const OpenOutcome opened = OpenLeaf(info->geometry, image, node.image(info->geometry, level));
  return {opened != OpenOutcome::kTorn, tree, LastVersion(info->geometry, level, image)};
}

void PageSurvey::AddNode(const Suspect& page, std::span<const std::byte> bytes, uint64_t counter,
                         Look look) {
  const auto image = bytes.first(bytes.size() - 8);
  const bool search = page.page_class.kind == ChunkKind::kSearch;
  SurveyedNode node{.address = page.address, .page_class = page.page_class};
  node.lock_word = LoadLittle<uint64_t>(bytes.data() + image.size());
  const auto [sound, tree, version] = ClaimOf(image, search ? 1 : 0);
  if (look == Look::kFirst && (!sound || node.lock_word != 0 || (search && counter != version))) {
    suspects_.push_back(page);
    return;
  }
  ++CountsOf(page.address, page.page_class.kind).in_use;
  const std::string locked = node.lock_word == 0 ? "" : "locked by " + HolderText(node.lock_word);
  const TreeInfo* info = TreeOf(tree);
  const auto report = [&](FindingKind kind, const std::string& what) {
    findings_->Add(kind, page.address, PageText(page.address) + " " + what);
  };
  if (!locked.empty()) report(FindingKind::kLock, "stays " + locked);
  if (!sound) {
    report(FindingKind::kPage,
           "fails its checksum" + (locked.empty() ? "; nobody holds its lock" : ", " + locked));
  } else if (info == nullptr) {
    report(FindingKind::kPage,
           "belongs to tree " + std::to_string(tree) + ", which the catalog does not list");
  } else if (info->geometry.page_bytes(search ? 1 : 0) != bytes.size()) {
    report(FindingKind::kPage, "of tree '" + info->name + "' has " + std::to_string(bytes.size()) +
                                   " bytes; the tree's " + (search ? "internal nodes" : "leaves") +
                                   " have " +
                                   std::to_string(info->geometry.page_bytes(search ? 1 : 0)));
  } else if (PageBuffer opened; !OpenInto(info->geometry, search ? 1 : 0, image, opened)) {
    report(FindingKind::kPage, "of tree '" + info->name +
                                   "' holds no node, although its checksum agrees (or its two "
                                   "versions differ)");
  } else {
    Summarize(ConstNode(info->geometry, opened.image(info->geometry, search ? 1 : 0)), &node);
    if (search && counter != version) {
      report(FindingKind::kCounter, "has version " + std::to_string(version) +
                                        " but its change counter says " + std::to_string(counter));
    }
  }
  nodes_.push_back(std::move(node));
}

void PageSurvey::Summarize(const ConstNode& view, SurveyedNode* node) {
  node->readable = true;
  node->tree = view.tree();
  node->level = view.level();
  node->dead = view.dead();
  node->has_low = view.has_low();
  node->has_high = view.has_high();
  node->right = view.right();
  node->count = static_cast<uint32_t>(view.count());
  node->used_bytes = static_cast<uint32_t>(view.used_bytes());
  node->capacity_bytes = static_cast<uint32_t>(view.capacity_bytes());
  node->low = view.low();
  if (view.has_high()) node->high = view.high();
  if (Status valid = view.ValidateOpened(); !valid.ok()) {
    findings_->Add(FindingKind::kNode, node->address,
                   PageText(node->address) + " of tree '" + TreeOf(node->tree)->name +
                       "': " + std::string(valid.message()));
  }
  for (size_t i = 0; i < view.count(); ++i) {
    if (!view.is_leaf()) {
      node->entries.push_back({view.Key(i), view.Child(i)});
    } else if (const StoredValue value = view.Value(i);
               value.out_of_line && value.bytes.size() == kOutOfLineBytes) {
      node->values.push_back(DecodeOutOfLine(value.bytes));
    }
  }
}

void PageSurvey::AddBlock(const Suspect& page, std::span<const std::byte> bytes, Look look) {
  SurveyedBlock block{.address = page.address, .bytes = bytes.size()};
  block.unique_id = BlockWord(bytes);
  block.length = BlockLength(bytes);
  const uint64_t used = kBlockHeaderBytes + uint64_t{block.length};
  block.readable = used <= bytes.size() && BlockCrc(bytes.first(used)) == BlockStoredCrc(bytes);
  if (look == Look::kFirst && !block.readable) {
    suspects_.push_back(page);
    return;
  }
  ++CountsOf(page.address, ChunkKind::kValue).in_use;
  if (!block.readable) {
    findings_->Add(FindingKind::kValue, page.address,
                   "value block " + page.address.ToString() + " fails its checksum");
  }
  blocks_.push_back(block);
}

void PageSurvey::AddExtentChunk(dsm::ServerId server, uint64_t chunk, dsm::ChunkWord word,
                                std::span<const std::byte> bytes) {
  OpenExtent& extent = open_extents_[server];
  const dsm::RegionLayout& layout = servers_[server].layout;
  const GlobalAddress address(server, layout.ChunkOffset(chunk));
  if (word.kind == ChunkKind::kExtentRest) {
    if (extent.chunks_left == 0) {
      findings_->Add(FindingKind::kChunk, address,
                     "chunk " + std::to_string(chunk) + " of memory server " +
                         std::to_string(server) + " continues an extent that is not before it");
      return;
    }
    const uint64_t covered = std::min<uint64_t>(extent.bytes_left, bytes.size());
    extent.crc = Crc32c(bytes.first(covered), extent.crc);
    extent.bytes_left -= covered;
    if (--extent.chunks_left == 0) EndExtent(server);
    return;
  }
  if (extent.chunks_left > 0) EndExtent(server);
  SurveyedBlock block{.address = address, .bytes = word.page_units * layout.chunk_bytes};
  block.unique_id = BlockWord(bytes);
  block.length = BlockLength(bytes);
  const uint64_t used = kBlockHeaderBytes + uint64_t{block.length};
  const uint64_t covered = std::min<uint64_t>(used, bytes.size());
  extent = {.block = blocks_.size(),
            .chunks_left = word.page_units == 0 ? 0u : word.page_units - 1u,
            .bytes_left = used - covered,
            .crc = BlockCrc(bytes.first(covered)),
            .stored_crc = BlockStoredCrc(bytes)};
  ++servers_[server].pages[static_cast<size_t>(ChunkKind::kExtent)].in_use;
  blocks_.push_back(block);
  if (extent.chunks_left == 0) EndExtent(server);
}

void PageSurvey::EndExtent(dsm::ServerId server) {
  OpenExtent& extent = open_extents_[server];
  SurveyedBlock& block = blocks_[extent.block];
  block.readable = extent.bytes_left == 0 && extent.crc == extent.stored_crc;
  if (extent.chunks_left > 0) {
    findings_->Add(FindingKind::kChunk, block.address,
                   "extent " + block.address.ToString() + " lacks its last " +
                       std::to_string(extent.chunks_left) + " chunks");
  } else if (!block.readable) {
    findings_->Add(FindingKind::kValue, block.address,
                   "value block " + block.address.ToString() + " fails its checksum");
  }
  extent = {};
}

void PageSurvey::AddListed(GlobalAddress address) {
  ++servers_[address.server()].listed_free_pages;
  listed_.push_back(address);
}

void PageSurvey::CheckListed() {
  std::sort(listed_.begin(), listed_.end());
  for (size_t i = 0; i < listed_.size(); ++i) {
    const GlobalAddress address = listed_[i];
    const std::string text = PageText(address) + " is in a free list of the pool ";
    if (i > 0 && listed_[i - 1] == address) {
      findings_->Add(FindingKind::kFreeList, address, text + "twice");
    } else if (FindFree(address) == nullptr) {
      findings_->Add(FindingKind::kFreeList, address, text + "but not free");
    }
  }
}

void PageSurvey::Finish(std::span<const dsm::MemberWord> members) {
  for (size_t server = 0; server < open_extents_.size(); ++server) {
    if (open_extents_[server].chunks_left > 0) EndExtent(static_cast<dsm::ServerId>(server));
  }
  const auto by_address = [](const auto& a, const auto& b) { return a.address < b.address; };
  std::sort(nodes_.begin(), nodes_.end(), by_address);
  std::sort(blocks_.begin(), blocks_.end(), by_address);
  std::sort(free_pages_.begin(), free_pages_.end(), by_address);
  for (const FreePage& page : free_pages_) {
    if (page.word.owner != 0 && !IsLive(members, page.word.owner, page.word.incarnation)) {
      ++servers_[page.address.server()].free_pages_of_the_gone;
    }
  }
  CheckListed();
  for (const FreePage& page : free_pages_) {
    const bool listed = std::binary_search(listed_.begin(), listed_.end(), page.address);
    servers_[page.address.server()].unlisted_free_pages += page.word.owner == 0 && !listed;
  }
}

const PageSurvey::FreePage* PageSurvey::FindFree(GlobalAddress address) const {
  return FindByAddress(free_pages_, address);
}

bool IsLive(std::span<const dsm::MemberWord> members, dsm::MemberId id, uint16_t incarnation) {
  return id < members.size() && members[id].live &&
         (members[id].incarnation & 0xfff) == incarnation;
}

SurveyedNode* PageSurvey::FindNode(GlobalAddress address) { return FindByAddress(nodes_, address); }

SurveyedBlock* PageSurvey::FindBlock(GlobalAddress address) {
  return FindByAddress(blocks_, address);
}

std::string PageSurvey::WhyNotInUse(GlobalAddress address) const {
  if (const FreePage* free = FindFree(address)) {
    if (free->word.owner == 0) return "is free (in the pool's list)";
    return "is free (held by compute server " + std::to_string(free->word.owner) + ")";
  }
  return "is no page in use";
}

}  // namespace farleaf::index
