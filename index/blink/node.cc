#include "index/blink/node.h"

#include <cstring>

#include "dsm/base/check.h"
#include "dsm/base/crc32c.h"
#include "dsm/base/mutation.h"
#include "index/blink/parted_leaf.h"

namespace farleaf::index {

using internal::BytesPage;
using internal::BytesPageWriter;
using internal::Field;
using internal::Fixed8;
using internal::kFlagDead;
using internal::kFlagNoHigh;
using internal::kFlagNoLow;
using internal::kFlagsAll;
using internal::PageHeader;

namespace {

uint32_t Checksum(std::span<const std::byte> image) { return Crc32c(image.subspan(4)); }

std::string Big64String(uint64_t value) {
  std::string key(8, '\0');
  StoreBig64(key.data(), value);
  return key;
}

/// What is to be true of a fixed8 node's order and bounds.
Status ValidateFixed8(const std::byte* page, bool has_high) {
  const bool leaf = internal::PageLevel(page) == 0;
  const size_t count = internal::PageCount(page);
  const uint64_t low = Fixed8::Low(page), high = Fixed8::High(page);
  if (!leaf && LoadBig64(page + Fixed8::kKeys) != 0) {
    return Status::Corruption("key 0 of an internal node is not 0");
  }
  uint64_t previous = low;
  for (size_t i = leaf ? 0 : 1; i < count; ++i) {
    const uint64_t key = Fixed8::Key(page, i);
    const bool first = i == (leaf ? 0u : 1u);
    if (first && leaf ? key < previous : key <= previous) {
      return Status::Corruption(
          "entry " + std::to_string(i) +
          (first ? " is below the low fence" : " is not above the one before it"));
    }
    previous = key;
  }
  if (count > 0 && has_high && previous >= high) {
    return Status::Corruption("entry " + std::to_string(count - 1) +
                              " is not below the high fence");
  }
  for (uint16_t reserved : {26, 28, 30}) {
    if (Field<uint16_t>(page, reserved) != 0) return Status::Corruption("bytes 26..31 are not 0");
  }
  return Status::Ok();
}

/// Whether all pages that a node names are where a page may be: whoever goes there reads and writes whole
/// words.
bool NamesPages(const ConstNode& node) {
  uint64_t words = node.right().word();
  if (!node.is_leaf()) {
    for (size_t i = 0; i < node.count(); ++i) words |= node.Child(i).word();
  }
  return words % kPageAlignment == 0;
}

}  // namespace

void EncodeOutOfLine(const OutOfLineValue& value, char (&out)[kOutOfLineBytes]) {
  StoreLittle(out, value.block.word());
  StoreLittle(out + 8, value.unique_id);
  StoreLittle(out + 16, value.length);
  StoreLittle(out + 20, uint32_t{0});
}

OutOfLineValue DecodeOutOfLine(std::string_view bytes) {
  FARLEAF_CHECK(bytes.size() == kOutOfLineBytes, bytes.size());
  return {GlobalAddress::FromWord(LoadLittle<uint64_t>(bytes.data())),
          LoadLittle<uint64_t>(bytes.data() + 8), LoadLittle<uint32_t>(bytes.data() + 16)};
}

OpenOutcome ConstNode::Open(const Geometry& geometry, std::span<const std::byte> image) {
  const std::byte* page = image.data();
  const auto version = Field<uint64_t>(page, offsetof(PageHeader, version));
  const bool checks = !Mutated(Mutation::kSkipChecksum);
  if (checks && version != Field<uint64_t>(page, image.size() - internal::kTailBytes)) {
    return OpenOutcome::kTorn;
  }
  if (checks && Field<uint32_t>(page, offsetof(PageHeader, checksum)) != Checksum(image)) {
    return OpenOutcome::kTorn;
  }
  const Level level = internal::PageLevel(page);
  const size_t count = internal::PageCount(page);
  if (level > kLevelMax || image.size() != geometry.image_bytes(level) ||
      (internal::PageFlags(page) & ~kFlagsAll) != 0 || (level > 0 && count == 0)) {
    return OpenOutcome::kMalformed;
  }
  const bool fits = geometry.layout == Layout::kFixed8
                        ? count <= Fixed8::Capacity(static_cast<uint32_t>(image.size()) + 8)
                        : BytesPage::Check(geometry, image);
  return fits && NamesPages(ConstNode(geometry, image)) ? OpenOutcome::kValid
                                                        : OpenOutcome::kMalformed;
}

std::string ConstNode::low() const {
  if (is_fixed8()) return Big64String(Fixed8::Low(data_));
  return std::string(bytes_page().Low());
}

std::string ConstNode::high() const {
  FARLEAF_DCHECK(has_high());
  if (is_fixed8()) return Big64String(Fixed8::High(data_));
  return std::string(bytes_page().High());
}

bool ConstNode::LowEquals(std::string_view key) const {
  if (!has_low()) return false;
  if (is_fixed8()) return LoadBig64(key.data()) == Fixed8::Low(data_);
  return key == bytes_page().Low();
}

bool ConstNode::HighEquals(std::string_view key) const {
  if (!has_high()) return false;
  if (is_fixed8()) return LoadBig64(key.data()) == Fixed8::High(data_);
  return key == bytes_page().High();
}

void ConstNode::AppendKey(size_t i, std::string* out) const {
  if (is_fixed8()) {
    char key[8];
    StoreBig64(key, Fixed8::Key(data_, i));
    out->append(key, sizeof key);
  } else {
    bytes_page().AppendKey(i, out);
  }
}

std::string ConstNode::Key(size_t i) const {
  std::string key;
  AppendKey(i, &key);
  return key;
}

int ConstNode::CompareKey(size_t i, std::string_view key) const {
  if (is_fixed8()) {
    const uint64_t mine = Fixed8::Key(data_, i), other = LoadBig64(key.data());
    return mine < other ? -1 : mine > other;
  }
  if (i == 0 && !is_leaf()) return bytes_page().Low().compare(key);
  return bytes_page().Compare(i, bytes_page().Probe(key));
}

size_t ConstNode::used_bytes() const {
  return is_fixed8() ? count() * Fixed8::kEntryBytes : bytes_page().UsedBytes();
}

size_t ConstNode::capacity_bytes() const {
  if (is_leaf() && geometry_->leaf_layout == LeafLayout::kParted) {
    return PartsOf(page_bytes()) * kPartSlots * Fixed8::kEntryBytes;
  }
  return is_fixed8() ? Fixed8::Capacity(page_bytes()) * Fixed8::kEntryBytes
                     : bytes_page().CapacityBytes();
}

Status ConstNode::Validate() const {
  const OpenOutcome opened = Open(*geometry_, image());
  if (opened == OpenOutcome::kTorn) {
    return Status::Corruption("checksum or versions disagree");
  }
  if (opened == OpenOutcome::kMalformed) {
    return Status::Corruption("header or entry extents cannot be a node's");
  }
  return ValidateOpened();
}

Status ConstNode::ValidateOpened() const {
  if (tree() == 0) return Status::Corruption("tree id 0");
  const std::string no_key(is_fixed8() ? 8 : 0, '\0');
  if (!has_low() && low() != no_key) return Status::Corruption("leftmost, with a low fence");
  if (has_low() && !is_fixed8() && low().empty()) return Status::Corruption("empty low fence");
  if (!has_high() && !bytes_page().High().empty() && !is_fixed8()) {
    return Status::Corruption("rightmost, with a high fence");
  }
  if (!has_high() && is_fixed8() && Fixed8::High(data_) != 0) {
    return Status::Corruption("rightmost, with a high fence");
  }
  if (has_high() && low() >= high()) return Status::Corruption("low fence is not below high fence");
  if (!dead() && has_high() == right().is_null()) {
    return Status::Corruption(has_high() ? "a high fence and no right sibling"
                                         : "a right sibling and no high fence");
  }
  if (dead() && right().is_null()) return Status::Corruption("dead and no forward pointer");
  if (!is_leaf()) {
    for (size_t i = 0; i < count(); ++i) {
      if (Child(i).is_null()) return Status::Corruption("child " + std::to_string(i) + " is null");
    }
  }
  return is_fixed8() ? ValidateFixed8(data_, has_high()) : bytes_page().Validate();
}

void Node::Init(const Header& header) {
  std::byte* page = bytes();
  std::memset(page, 0, image_bytes_);
  StoreLittle(page + offsetof(PageHeader, tree), header.tree);
  StoreLittle(page + offsetof(PageHeader, level), header.level);
  const int flags = (header.low ? 0 : kFlagNoLow) | (header.high ? 0 : kFlagNoHigh);
  StoreLittle(page + offsetof(PageHeader, flags), static_cast<uint8_t>(flags));
  set_right(header.right);
  if (is_fixed8()) {
    if (header.low) std::memcpy(page + Fixed8::kLow, header.low->data(), 8);
    if (header.high) std::memcpy(page + Fixed8::kHigh, header.high->data(), 8);
  } else {
    bytes_writer().Init(header.low.value_or(""), header.high.value_or(""));
  }
}

bool Node::Insert(size_t i, std::string_view key, StoredValue value) {
  FARLEAF_DCHECK(is_leaf() && i <= count(), i, count());
  if (is_fixed8()) {
    FARLEAF_DCHECK(key.size() == 8 && value.bytes.size() == 8, key.size(), value.bytes.size());
    if (count() == Fixed8::Capacity(page_bytes())) return false;
    Fixed8::InsertAt(bytes(), page_bytes(), i, LoadBig64(key.data()), value.bytes.data());
    return true;
  }
  return bytes_writer().Insert(i, BytesPageWriter::KeyIs::kStored, key, value.bytes,
                               value.out_of_line);
}

bool Node::ReplaceValue(size_t i, StoredValue value) {
  FARLEAF_DCHECK(is_leaf() && i < count(), i, count());
  if (is_fixed8()) {
    std::memcpy(bytes() + Fixed8::ValueOffset(page_bytes(), i), value.bytes.data(), 8);
    return true;
  }
  return bytes_writer().ReplaceValue(i, value.bytes, value.out_of_line);
}

void Node::Remove(size_t i) {
  FARLEAF_DCHECK(i < count(), i, count());
  if (is_fixed8()) {
    Fixed8::RemoveAt(bytes(), page_bytes(), i);
  } else {
    bytes_writer().Remove(i);
  }
}

bool Node::InsertChild(size_t i, std::string_view separator, GlobalAddress child) {
  FARLEAF_DCHECK(!is_leaf() && (i == 0) == (count() == 0) && i <= count(), i, count());
  char word[8];
  StoreLittle(word, child.word());
  if (is_fixed8()) {
    if (count() == Fixed8::Capacity(page_bytes())) return false;
    const uint64_t key = i == 0 ? 0 : LoadBig64(separator.data());
    Fixed8::InsertAt(bytes(), page_bytes(), i, key, word);
    return true;
  }
  const auto key_is = i == 0 ? BytesPageWriter::KeyIs::kLowFence : BytesPageWriter::KeyIs::kStored;
  return bytes_writer().Insert(i, key_is, separator, {word, sizeof word}, false);
}

void Node::SetChild(size_t i, GlobalAddress child) {
  FARLEAF_DCHECK(!is_leaf() && i < count(), i, count());
  std::byte* at =
      is_fixed8() ? bytes() + Fixed8::ValueOffset(page_bytes(), i) : bytes_writer().ValueBytes(i);
  StoreLittle(at, child.word());
}

void Node::RemoveChild(size_t i) {
  FARLEAF_DCHECK(!is_leaf() && i >= 1, i);
  Remove(i);
}

void Node::set_right(GlobalAddress right) {
  StoreLittle(bytes() + offsetof(PageHeader, right), right.word());
}

void Node::MarkDead(GlobalAddress forward) {
  StoreLittle(bytes() + offsetof(PageHeader, flags), static_cast<uint8_t>(flags() | kFlagDead));
  set_right(forward);
}

void Node::Seal(uint64_t version) {
  SetVersion(version);
  StoreLittle(bytes() + offsetof(PageHeader, checksum), Checksum(image()));
}

void Node::SetVersion(uint64_t version) {
  StoreLittle(bytes() + offsetof(PageHeader, version), version);
  StoreLittle(bytes() + image_bytes_ - internal::kTailBytes, version);
}

}  // namespace farleaf::index
