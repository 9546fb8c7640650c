// Images of nodes: the format's example byte by byte, every corruption noticed, hostile contents
// harmless, violations named.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "dsm/base/crc32c.h"
#include "index/blink/node.h"
#include "index/blink/parted_leaf.h"
#include "test/support/node_fixture.h"
#include "test/support/parted_leaf_fixture.h"
#include "test/support/test_scale.h"

namespace farleaf::index {
namespace {

static_assert(internal::Fixed8::Capacity(1024) == 60);
static_assert(internal::Fixed8::kKeys + 16 * internal::Fixed8::Capacity(256) + 16 == 256);
static_assert(internal::BytesSlot::kBytes == 10 && internal::BytesPage::kFences == 36);

const GlobalAddress kSibling(1, 0x20000);

/// The bytes of the n-th ```hex block of index/blink/format.md.
std::vector<std::byte> ExampleFromFormat(int n) {
  std::ifstream file(FARLEAF_SOURCE_DIR "/index/blink/format.md");
  EXPECT_TRUE(file.is_open());
  std::string line;
  while (n >= 0 && std::getline(file, line)) n -= line == "```hex";
  std::vector<std::byte> bytes;
  while (std::getline(file, line) && line != "```") {
    std::istringstream fields(line);
    size_t offset = 0;
    fields >> std::hex >> offset;
    bytes.resize(offset);  // what a line leaves out is zero
    unsigned byte = 0;
    for (int i = 0; i < 16 && fields >> byte; ++i) bytes.push_back(static_cast<std::byte>(byte));
  }
  return bytes;
}

std::string Dump(std::span<const std::byte> image) {
  std::string text;
  for (size_t at = 0; at < image.size(); at += 16) {
    const auto row = image.subspan(at, std::min<size_t>(16, image.size() - at));
    if (std::all_of(row.begin(), row.end(), [](std::byte b) { return b == std::byte{0}; })) {
      continue;
    }
    char field[24];
    std::snprintf(field, sizeof field, "%04zx ", at);
    text += field;
    for (std::byte b : row) {
      std::snprintf(field, sizeof field, " %02x", static_cast<unsigned>(b));
      text += field;
    }
    text += '\n';
  }
  return text;
}

TEST(NodeFormatTest, Fixed8ExampleInTheDocumentIsRight) {
  NodeImage page(Geometry::Fixed8(256));
  page->Init({1, 0, Big(0x10), Big(0x20), kSibling});
  ASSERT_TRUE(page->Insert(0, Big(0x11), {"value 11", false}));
  ASSERT_TRUE(page->Insert(1, Big(0x1f), {"value 1f", false}));
  page->Seal(3);
  EXPECT_EQ(Dump(page.image()), Dump(ExampleFromFormat(0)));
}

TEST(NodeFormatTest, BytesExampleInTheDocumentIsRight) {
  NodeImage page({Layout::kBytes, 256, 256, 36, 24});
  page->Init({2, 0, "/etc/h", std::nullopt, GlobalAddress()});
  ASSERT_TRUE(page->Insert(0, "/etc/hosts", {"127", false}));
  ASSERT_TRUE(page->Insert(1, "/usr", {"", false}));
  page->Seal(1);
  EXPECT_EQ(Dump(page.image()), Dump(ExampleFromFormat(1)));
}

TEST(NodeFormatTest, PartedExampleInTheDocumentIsRight) {
  const Geometry geometry = Geometry::Fixed8(4 * kPartBytes + kLeafTrailerBytes);
  NodeImage page(geometry);
  page->Init({1, 0, Big(0x100), Big(0x140), kSibling});
  for (uint64_t key = 0x130; key < 0x138; ++key) {
    char value[8];
    StoreLittle(value, page->count() + 1);
    ASSERT_TRUE(page->Insert(page->count(), Big(key), {{value, sizeof value}, false}));
  }
  page->Seal(0x12345);
  std::vector<std::byte> raw(page.image().size());
  PackPartedLeaf(geometry, *page, {}, raw);
  EXPECT_EQ(Dump(raw), Dump(ExampleFromFormat(2)));
}

TEST(NodeFormatTest, OutOfLineValueRoundTrips) {
  const OutOfLineValue value{GlobalAddress(3, 0x123456789abc), 0xfedcba9876543210, 16u << 20};
  char encoded[kOutOfLineBytes];
  EncodeOutOfLine(value, encoded);
  EXPECT_EQ(DecodeOutOfLine({encoded, sizeof encoded}), value);
}

class NodeImageTest : public ::testing::TestWithParam<Geometry> {
 protected:
  const Geometry geometry = GetParam();

  /// A sealed node with something in it.
  void Fill(uint64_t seed, NodeImage* page) {
    Random random(seed);
    KeySource keys(geometry, &random);
    auto [low, high] = keys.Fences();
    const Level level = random.OneIn(2) ? 0 : 1;
    (*page)->Init({9, level, low, high, high ? kSibling : GlobalAddress()});
    std::map<std::string, std::string> model;
    PendingStorage storage;
    FillUntilRefused(&keys, low, high, &**page, &model, &storage);
    (*page)->Seal(seed);
  }
};

TEST_P(NodeImageTest, EveryFlippedByteIsTorn) {
  NodeImage page(geometry);
  Fill(1, &page);
  ASSERT_EQ(ConstNode::Open(geometry, page.image()), OpenOutcome::kValid);
  Random random(7);
  for (std::byte& byte : page.image()) {
    const std::byte good = byte;
    byte ^= static_cast<std::byte>(1 + random.Below(255));
    EXPECT_EQ(ConstNode::Open(geometry, page.image()), OpenOutcome::kTorn);
    byte = good;
  }
  EXPECT_EQ(ConstNode::Open(geometry, page.image()), OpenOutcome::kValid);
}

TEST_P(NodeImageTest, DifferingVersionsAreTornThoughTheChecksumHolds) {
  NodeImage page(geometry);
  Fill(1, &page);
  auto image = page.image();
  StoreLittle(image.data() + image.size() - 8, page->version() + 1);
  StoreLittle(image.data(), Crc32c(image.subspan(4)));
  EXPECT_EQ(ConstNode::Open(geometry, image), OpenOutcome::kTorn);
}

TEST_P(NodeImageTest, ZeroedPageIsTorn) {
  std::vector<std::byte> image(geometry.image_bytes(0));
  EXPECT_EQ(ConstNode::Open(geometry, image), OpenOutcome::kTorn);
}

TEST_P(NodeImageTest, ImpossibleHeaderIsMalformed) {
  const std::vector<std::pair<size_t, int>> fields = {
      {offsetof(internal::PageHeader, level), kLevelMax + 1},
      {offsetof(internal::PageHeader, flags), 8},
      {offsetof(internal::PageHeader, count) + 1, 0xff}};
  for (auto [offset, value] : fields) {
    NodeImage page(geometry);
    Fill(1, &page);
    page.image()[offset] = static_cast<std::byte>(value);
    page->Seal(1);
    EXPECT_EQ(ConstNode::Open(geometry, page.image()), OpenOutcome::kMalformed) << offset;
  }
}

/// Calls everything that reads, then everything that writes.
void Exercise(const Geometry& geometry, KeySource* keys, NodeImage* page) {
  Node& node = **page;
  std::string sink = node.low() + (node.has_high() ? node.high() : "");
  for (int i = 0; i < 8; ++i) {
    const std::string key = keys->Key();
    node.Covers(key);
    node.PastHigh(key);
    node.LowEquals(key);
    node.HighEquals(key);
    if (node.is_leaf()) {
      EXPECT_LE(node.Search(key).index, node.count());
    } else {
      EXPECT_LT(node.ChildIndexFor(key), node.count());
      EXPECT_LT(node.ChildIndexBelow(key), node.count());
    }
    for (size_t entry = 0; entry < node.count(); ++entry) node.CompareKey(entry, key);
  }
  for (size_t entry = 0; entry < node.count(); ++entry) {
    node.AppendKey(entry, &sink);
    sink += node.Value(entry).bytes;
  }
  NodeImage left(geometry), right(geometry), merged(geometry);
  if (FitsMerged(node, node, 1.0)) MergeNodes(node, node, &*merged);
  if (node.Validate().ok() && node.count() >= 2) {
    const std::string key = node.Key(1) + (geometry.layout == Layout::kBytes ? "x" : "");
    if (node.is_leaf() && key.size() <= geometry.key_bytes_max && node.Covers(key)) {
      const std::string value = keys->Value();
      PendingEntry pending{key, Stored(value), keys->Child(), node.Search(key).found};
      SplitNode(node, pending, kSibling, &*left, &*right);
    }
  }
  for (int i = 0; i < 20; ++i) {
    const std::string key = keys->Key(), value = keys->Value();
    if (!node.is_leaf()) {
      node.InsertChild(node.ChildIndexFor(key) + 1, key, keys->Child());
      node.SetChild(node.count() - 1, keys->Child());
      if (i % 3 == 0 && node.count() > 1) node.RemoveChild(1);
      continue;
    }
    const auto at = node.Search(key);
    node.Insert(at.index, key, Stored(value));
    if (at.index < node.count()) node.ReplaceValue(at.index, Stored(value));
    if (i % 3 == 0 && node.count() > 0) node.Remove(node.count() / 2);
  }
  node.MarkDead(kSibling);
}

TEST_P(NodeImageTest, HostileContentWithARightChecksumIsHarmless) {
  size_t opened = 0, refused = 0;
  const uint64_t seeds = test::Amount{1'000, 3'000};
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    NodeImage page(geometry);
    Fill(seed % 40 + 1, &page);
    Random random(seed);
    KeySource keys(geometry, &random);
    auto image = page.image();
    for (uint64_t change = 0; change <= random.Below(6); ++change) {
      const size_t reach = random.OneIn(2) ? 40 : random.OneIn(2) ? 160 : image.size();
      const size_t at = 4 + random.Below(std::min(reach, image.size()) - 4);
      image[at] = random.OneIn(3) ? std::byte{0xff} : static_cast<std::byte>(random.Next());
    }
    page->Seal(seed);
    if (ConstNode::Open(geometry, image) != OpenOutcome::kValid) {
      ++refused;
      continue;
    }
    ++opened;
    Exercise(geometry, &keys, &page);
    EXPECT_TRUE(page.LockWordUntouched());
  }
  EXPECT_GT(opened, 100u);
  EXPECT_GT(refused, 100u);
}

TEST_P(NodeImageTest, PlantedViolationsAreNamed) {
  const auto key = [this](uint64_t i) {
    return geometry.layout == Layout::kFixed8 ? Big(i << 8) : "key" + std::string(1, char('a' + i));
  };
  const std::string low = key(1), high = key(9), value = "12345678";
  const auto report = [&](Level level, const std::function<void(Node&)>& plant) {
    NodeImage page(geometry);
    page->Init({9, level, low, high, kSibling});
    plant(*page);
    page->Seal(1);
    return page->Validate().ToString();
  };
  const auto insert = [&](uint64_t i) {
    return [&, i](Node& node) { node.Insert(node.count(), key(i), {value, false}); };
  };
  EXPECT_EQ(report(0, [&](Node& n) { insert(1)(n), insert(8)(n); }), "ok");
  EXPECT_EQ(report(0, [&](Node& n) { insert(3)(n), insert(2)(n); }),
            "corruption: entry 1 is not above the one before it");
  EXPECT_EQ(report(0, [&](Node& n) { insert(3)(n), insert(3)(n); }),
            "corruption: entry 1 is not above the one before it");
  EXPECT_EQ(report(0, [&](Node& n) { insert(0)(n), insert(2)(n); }),
            "corruption: entry 0 is below the low fence");
  EXPECT_EQ(report(0, [&](Node& n) { insert(2)(n), insert(9)(n); }),
            "corruption: entry 1 is not below the high fence");
  EXPECT_EQ(report(0, [&](Node& n) { n.set_right(GlobalAddress()); }),
            "corruption: a high fence and no right sibling");
  EXPECT_EQ(report(0, [&](Node& n) { n.MarkDead(GlobalAddress()); }),
            "corruption: dead and no forward pointer");
  EXPECT_EQ(report(0,
                   [&](Node& n) {
                     n.Init({9, 0, high, low, kSibling});
                   }),
            "corruption: low fence is not below high fence");
  EXPECT_EQ(report(0,
                   [&](Node& n) {
                     n.Init({9, 0, low, std::nullopt, kSibling});
                   }),
            "corruption: a right sibling and no high fence");
  EXPECT_EQ(report(0,
                   [&](Node& n) {
                     n.Init({0, 0, low, high, kSibling});
                   }),
            "corruption: tree id 0");
  EXPECT_EQ(report(1, [&](Node&) {}), "corruption: header or entry extents cannot be a node's");
  const auto child = [&](uint64_t i, GlobalAddress to) {
    return [&, i, to](Node& node) { node.InsertChild(node.count(), key(i), to); };
  };
  EXPECT_EQ(report(1, [&](Node& n) { child(1, kSibling)(n), child(8, kSibling)(n); }), "ok");
  EXPECT_EQ(report(1, [&](Node& n) { child(1, kSibling)(n), child(1, kSibling)(n); }),
            "corruption: entry 1 is below the low fence");
  EXPECT_EQ(report(1, [&](Node& n) { child(1, kSibling)(n), child(8, GlobalAddress())(n); }),
            "corruption: child 1 is null");

  NodeImage page(geometry);
  page->Init({9, 0, low, high, kSibling});
  page.image()[50] ^= std::byte{1};
  EXPECT_EQ(page->Validate().ToString(), "corruption: checksum or versions disagree");
}

INSTANTIATE_TEST_SUITE_P(Geometries, NodeImageTest, ::testing::ValuesIn(TestGeometries()),
                         [](const auto& param) { return GeometryName(param.param); });

}  // namespace
}  // namespace farleaf::index
