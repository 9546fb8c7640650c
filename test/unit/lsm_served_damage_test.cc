// A store of several levels, with values in leaves and in the log, one bit of one of whose files has flipped: while it is served, or before
// it is opened. Each answer is right, or an error that names file and offset; and it goes on being written, merged and collected.
#include "dsm/base/bytes.h"
#include "test/support/damaged_store.h"

namespace farleaf::index::lsm {
namespace {

enum class Spoiled : uint8_t {
  kLeaf,
  kInnerNode,
  kFilter,
  kFooter,
  kValueLog,
  kRecoveryLog,
  kManifest,
  kCurrent
};
constexpr const char* kSpoiledNames[] = {"Leaf",     "InnerNode",   "Filter",   "Footer",
                                         "ValueLog", "RecoveryLog", "Manifest", "Current"};

class LsmServedDamageTest
    : public test::DamagedStore,
      public ::testing::WithParamInterface<std::tuple<Spoiled, bool, uint64_t>> {
 protected:
  LsmServedDamageTest() : DamagedStore(std::get<2>(GetParam())) {}
  static constexpr uint64_t kKeys = 6000;

  void Build() {
    Open();
    BeginMerges();
    BeginCollection();
    store_->CompactEagerly(true);
    for (int round = 0; round < 3; ++round) {
      PutMany(static_cast<uint64_t>(round), kKeys, 120, 2);
      PutMany(static_cast<uint64_t>(round), kKeys, 700, 5);
      Flush();
      if (round < 2) AwaitQuiet();
      store_->CompactEagerly(false);
    }
    PutMany(1, kKeys, 120, 50);
    PutMany(2, kKeys, 700, 50);  // in the recovery log
  }

  TableInfo SomeTable() {
    const auto version = VersionNow();
    std::vector<TableInfo> tables;
    for (const lsm::Run& run : version->runs) {
      for (const TableRef& ref : run.tables) tables.push_back(ref.file->info());
    }
    return tables[random_.Below(tables.size())];
  }
  void FlipIn(const TableInfo& table, uint64_t at) {
    storage_.FlipBit(table.segments[at / storage::kSegmentBytes],
                     static_cast<uint32_t>(at % storage::kSegmentBytes),
                     static_cast<uint32_t>(random_.Below(8)));
  }
  static std::vector<SegmentId> Ids(const std::map<SegmentId, uint64_t>& segments,
                                    storage::SimStorage& storage) {
    const std::vector<SegmentId> there = *storage.List();
    std::vector<SegmentId> ids;
    for (const auto& [id, garbage] : segments) {
      if (std::ranges::find(there, id) != there.end()) ids.push_back(id);
    }
    return ids;
  }
  /// What is to be flipped, told while the store is open.
  std::function<void()> Choose(Spoiled what) {
    const StoreState state = State();
    const TableInfo table = SomeTable();
    const uint64_t anywhere = random_.Next();
    switch (what) {
      case Spoiled::kLeaf:
        return [=, this] { FlipIn(table, anywhere % std::min<uint64_t>(table.bytes, 4000)); };
      case Spoiled::kInnerNode:
        return [=, this] { FlipIn(table, table.root.at + anywhere % 60); };
      case Spoiled::kFilter:
        return [=, this] { FlipIn(table, table.root.at + table.root.bytes - 1 - anywhere % 40); };
      case Spoiled::kFooter:
        return [=, this] {
          FlipIn(table, RoundUp(table.bytes, storage::kBlockBytes) + anywhere % 60);
        };
      case Spoiled::kValueLog: {
        const std::vector<SegmentId> ids = Ids(state.value_log, storage_);
        const SegmentId id = ids[anywhere % ids.size()];
        return [=, this] {
          if (Exists(id)) storage_.FlipBit(id, static_cast<uint32_t>(anywhere % 400'000), 1);
        };
      }
      case Spoiled::kRecoveryLog: {
        const std::vector<SegmentId> there = *storage_.List();
        for (size_t i = state.recovery_log.size(); i-- > 0;) {
          const SegmentId id = state.recovery_log[i];
          if (std::ranges::find(there, id) == there.end()) continue;
          return [=, this] {
            if (Exists(id)) storage_.FlipBit(id, static_cast<uint32_t>(anywhere % 20'000), 1);
          };
        }
        return [] {};
      }
      case Spoiled::kManifest:
        return [=, this] {
          const std::vector<std::string> names = *storage_.ListFiles();
          for (const std::string& name : names) {
            if (name.starts_with("MANIFEST")) storage_.FlipFileBit(name, anywhere % 500, 1);
          }
        };
      case Spoiled::kCurrent:
        return [=, this] { storage_.FlipFileBit("CURRENT", anywhere % 20, 1); };
    }
    return {};
  }
  void ServeOn() {
    for (uint64_t round = 0; round < 6; ++round) {
      PutMany(round, kKeys, 120, 3);
      PutMany(round, kKeys, 700, 11);
      Flush();
      store_->CompactEagerly(round % 2 == 0);
      AwaitQuiet();
      OpContext op = Op();
      const Status upkeep = Run(store_->Upkeep(op));
      EXPECT_TRUE(upkeep.ok()) << upkeep;
    }
  }
};

TEST_P(LsmServedDamageTest, AnswersAreRightOrNameThePlaceAndAllGoesOn) {
  const auto [what, closed, seed] = GetParam();
  Build();
  const std::function<void()> flip = Choose(what);
  if (closed) Stop();
  flip();
  const bool needed_to_open =
      what == Spoiled::kRecoveryLog || what == Spoiled::kManifest || what == Spoiled::kCurrent;
  const auto opens = [&, what = what] {
    const Status opened = TryOpen();
    if (opened.ok()) return true;
    ExpectNamesPlace(opened);
    EXPECT_TRUE(needed_to_open) << kSpoiledNames[static_cast<size_t>(what)];
    return false;
  };
  if (closed) {
    if (!opens()) return;
    BeginMerges();
    BeginCollection();
  }
  ExpectRightOrDamaged(kKeys);
  ServeOn();
  const std::set<std::string> damaged = ExpectRightOrDamaged(kKeys);
  EXPECT_LT(damaged.size(), kKeys / 2);
  for (const std::string& key : damaged) {
    const Status put = Put(key, "anew");
    EXPECT_TRUE(put.ok()) << put;
  }
  ServeOn();
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), std::set<std::string>{});
  Stop();
  if (opens()) {
    EXPECT_EQ(ExpectRightOrDamaged(kKeys), std::set<std::string>{});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, LsmServedDamageTest,
    ::testing::Combine(::testing::Values(Spoiled::kLeaf, Spoiled::kInnerNode, Spoiled::kFilter,
                                         Spoiled::kFooter, Spoiled::kValueLog,
                                         Spoiled::kRecoveryLog, Spoiled::kManifest,
                                         Spoiled::kCurrent),
                       ::testing::Bool(), ::testing::Range<uint64_t>(1, 4)),
    [](const auto& test) {
      return std::string(kSpoiledNames[static_cast<size_t>(std::get<0>(test.param))]) +
             (std::get<1>(test.param) ? "BeforeItIsOpened" : "WhileItIsServed") +
             std::to_string(std::get<2>(test.param));
    });

}  // namespace
}  // namespace farleaf::index::lsm
