// Every index against std::map: random operations, one at a time, from compute servers in turn.
#include <gtest/gtest.h>

#include <map>

#include "dsm/base/random.h"
#include "test/support/index_kinds.h"
#include "test/support/test_scale.h"

namespace farleaf::test {
namespace {

using index::KeyValue;
using index::OpContext;
using Model = std::map<std::string, std::string>;

class ModelTest : public ::testing::TestWithParam<IndexKind> {
 protected:
  /// A new index, and a worker a member.
  void Start(uint64_t seed) {
    seed_ = seed;
    random_ = Random(seed);
    model_.clear();
    workers_.clear();
    host_ = GetParam().make();
    for (size_t i = 0; i < host_->members(); ++i) workers_.push_back(host_->OpenWorker(i));
    prefix_ = RandomBytes(random_.Below(GetParam().key_bytes_max));
    keys_.clear();
    while (keys_.size() < 400) keys_.push_back(NewKey());
  }
  void TearDown() override {
    workers_.clear();
    host_.reset();
  }

  std::string RandomBytes(size_t length) {
    static constexpr char kAwkward[] = {'\0', '\x01', 'a', 'b', '\x7f', '\x80', '\xff'};
    std::string bytes(length, '\0');
    const bool awkward = random_.OneIn(2);
    for (char& c : bytes) {
      c = awkward ? kAwkward[random_.Below(sizeof kAwkward)] : static_cast<char>(random_.Next());
    }
    return bytes;
  }
  std::string NewKey() {
    const size_t max = GetParam().key_bytes_max;
    if (GetParam().fixed8) {
      std::string key(8, '\0');
      StoreBig64(key.data(), random_.OneIn(4) ? random_.Next() : random_.Below(2000));
      return random_.OneIn(50) ? std::string(8, random_.OneIn(2) ? '\0' : '\xff') : key;
    }
    switch (random_.Below(4)) {
      case 0:
        return RandomBytes(1 + random_.Below(max));
      case 1:
        return RandomBytes(random_.OneIn(2) ? max : 1);
      default:
        return (prefix_ + RandomBytes(1 + random_.Below(6))).substr(0, max);
    }
  }
  const std::string& Key() { return keys_[random_.Below(keys_.size())]; }
  std::string Value() {
    const IndexKind& kind = GetParam();
    if (kind.fixed8) return RandomBytes(8);
    if (random_.OneIn(60)) return RandomBytes(random_.Below(kind.value_bytes_max));
    if (random_.OneIn(6)) return RandomBytes(kind.inline_value_bytes_max + random_.Below(3));
    return RandomBytes(random_.Below(kind.inline_value_bytes_max + 1));
  }

  /// Runs one operation of a member of its choice: `call` makes the Task.
  template <typename Call>
  auto Run(const Call& call) {
    const size_t member = random_.Below(host_->members());
    OpContext op{*workers_[member], counts_};
    return workers_[member]->Run(call(host_->index(member), op));
  }
  template <typename T>
  static T Checked(Result<T> result) {
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : T();
  }
  std::optional<std::string> Find(const std::string& key) const {
    const auto it = model_.find(key);
    return it == model_.end() ? std::nullopt : std::optional(it->second);
  }

  void GetOne() {
    const std::string& key = Key();
    std::string value;
    const bool found =
        Checked(Run([&](auto& index, OpContext& op) { return index.Get(op, key, &value); }));
    ASSERT_EQ(found ? std::optional(value) : std::nullopt, Find(key));
  }
  void GetMany() {
    std::vector<std::string_view> keys;
    for (uint64_t n = random_.Below(20); n > 0; --n) keys.push_back(Key());
    std::vector<std::optional<std::string>> values;
    const Status status =
        Run([&](auto& index, OpContext& op) { return index.MultiGet(op, keys, &values); });
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(values.size(), keys.size());
    for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(values[i], Find(std::string(keys[i])));
  }
  void Write() {
    const std::string &key = Key(), value = Value();
    const bool existed = model_.contains(key);
    switch (random_.Below(4)) {
      case 2: {
        const Status stored =
            Run([&](auto& index, OpContext& op) { return index.BlindPut(op, key, value); });
        ASSERT_TRUE(stored.ok()) << stored;
        model_[key] = value;
        break;
      }
      case 0:
        ASSERT_EQ(
            Checked(Run([&](auto& index, OpContext& op) { return index.Insert(op, key, value); })),
            !existed);
        model_.try_emplace(key, value);
        break;
      case 1:
        ASSERT_EQ(
            Checked(Run([&](auto& index, OpContext& op) { return index.Put(op, key, value); })),
            !existed);
        model_[key] = value;
        break;
      default:
        ASSERT_EQ(
            Checked(Run([&](auto& index, OpContext& op) { return index.Update(op, key, value); })),
            existed);
        if (existed) model_[key] = value;
    }
  }
  void Erase() {
    const std::string& key = Key();
    const auto before = Find(key);
    if (random_.OneIn(2)) {
      ASSERT_EQ(Checked(Run([&](auto& index, OpContext& op) { return index.Delete(op, key); })),
                before.has_value());
      model_.erase(key);
      return;
    }
    const std::string expected = before && random_.OneIn(2) ? *before : Value();
    const auto result =
        Checked(Run([&](auto& index, OpContext& op) { return index.DeleteIf(op, key, expected); }));
    using index::DeleteIfResult;
    ASSERT_EQ(result, !before               ? DeleteIfResult::kAbsent
                      : *before == expected ? DeleteIfResult::kDeleted
                                            : DeleteIfResult::kDifferent);
    if (before == expected) model_.erase(key);
  }
  void Modify() {
    const std::string &key = Key(), value = Value();
    const auto action = static_cast<index::ModifyAction>(random_.Below(3));
    const auto before = Find(key);
    std::optional<std::string> seen;
    const index::ModifyFunction modify = [&](std::optional<std::string_view> current,
                                             std::string* replacement) {
      seen = current;
      EXPECT_TRUE(replacement->empty());
      if (action == index::ModifyAction::kWrite) *replacement = value;
      return action;
    };
    const auto result = Checked(
        Run([&](auto& index, OpContext& op) { return index.ReadModifyWrite(op, key, modify); }));
    ASSERT_EQ(seen, before);
    ASSERT_EQ(result.existed, before.has_value());
    if (action == index::ModifyAction::kWrite) model_[key] = value;
    if (action == index::ModifyAction::kDelete) model_.erase(key);
  }
  void ScanSome(bool everything) {
    const std::string start = everything || random_.OneIn(5) ? "" : Key();
    std::optional<std::string> end;
    if (!everything && !random_.OneIn(5)) end = random_.OneIn(10) ? start : Key();
    if (end && end->empty()) end.reset();
    index::ScanRange range;
    range.start = start;
    if (end) range.end = *end;
    if (!everything && random_.OneIn(2)) range.limit = random_.Below(40);
    if (random_.OneIn(2)) range.direction = index::ScanDirection::kReverse;
    std::vector<KeyValue> expected, rows{{"left", "over"}};
    for (auto it = model_.lower_bound(start); it != model_.end(); ++it) {
      if (!end || it->first < *end) expected.push_back({it->first, it->second});
    }
    if (range.direction == index::ScanDirection::kReverse) {
      std::reverse(expected.begin(), expected.end());
    }
    if (expected.size() > range.limit) expected.resize(range.limit);
    const Status status =
        Run([&](auto& index, OpContext& op) { return index.Scan(op, range, &rows); });
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(rows.size(), expected.size())
        << "start " << start.size() << " bytes, limit " << range.limit;
    ASSERT_TRUE(rows == expected);
    range.content = index::ScanContent::kKeys;
    const Status keys_status =
        Run([&](auto& index, OpContext& op) { return index.Scan(op, range, &rows); });
    ASSERT_TRUE(keys_status.ok()) << keys_status;
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i].key, expected[i].key);
  }

  /// Steps of which `erase_percent` delete; the rest is spread over everything else.
  void Churn(uint64_t steps, uint64_t erase_percent) {
    for (uint64_t step = 0; step < steps && !HasFatalFailure(); ++step) {
      SCOPED_TRACE("seed " + std::to_string(seed_) + " step " + std::to_string(step));
      if (random_.Below(100) < erase_percent) {
        Erase();
        continue;
      }
      switch (random_.Below(12)) {
        case 0:
          GetMany();
          break;
        case 1:
          ScanSome(false);
          break;
        case 2:
          Modify();
          break;
        case 3:
        case 4:
          GetOne();
          break;
        default:
          Write();
      }
    }
  }

  uint64_t seed_ = 0;
  Random random_{0};
  std::unique_ptr<IndexHost> host_;
  std::vector<std::unique_ptr<dsm::Worker>> workers_;
  dsm::FabricCounts counts_;
  std::string prefix_;
  std::vector<std::string> keys_;
  Model model_;
};

TEST_P(ModelTest, RandomOperationsAnswerAsTheMapDoes) {
  const uint64_t seeds = Amount{.small = 1, .usual = 4};
  const uint64_t steps = Amount{.small = 200, .usual = 1500};
  for (uint64_t seed = 1; seed <= seeds && !HasFatalFailure(); ++seed) {
    Start(seed);
    for (int round = 0; round < 2 && !HasFatalFailure(); ++round) {
      Churn(steps, 5);   // grows
      Churn(steps, 30);  // stays
      ScanSome(true);
      Churn(steps, 80);  // shrinks
      ScanSome(true);
    }
  }
}

TEST_P(ModelTest, ArgumentsThatDoNotFitAreRefused) {
  Start(1);
  const IndexKind& kind = GetParam();
  const std::string good_key(kind.fixed8 ? 8 : 3, 'k'), good_value(8, 'v');
  std::vector<std::string> bad_keys = {"", std::string(kind.key_bytes_max + 1, 'k')};
  if (kind.fixed8) bad_keys.push_back("7 bytes");
  for (const std::string& key : bad_keys) {
    std::string value;
    EXPECT_EQ(
        Run([&](auto& index, OpContext& op) { return index.Get(op, key, &value); }).status().code(),
        StatusCode::kInvalidArgument);
    EXPECT_EQ(Run([&](auto& index, OpContext& op) { return index.Put(op, key, good_value); })
                  .status()
                  .code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(
        Run([&](auto& index, OpContext& op) { return index.BlindPut(op, key, good_value); }).code(),
        StatusCode::kInvalidArgument);
  }
  if (kind.fixed8) {
    EXPECT_EQ(Run([&](auto& index, OpContext& op) { return index.Put(op, good_key, "7 bytes"); })
                  .status()
                  .code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(Run([&](auto& index, OpContext& op) {
                return index.BlindPut(op, good_key, "7 bytes");
              }).code(),
              StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(Checked(
      Run([&](auto& index, OpContext& op) { return index.Put(op, good_key, good_value); })));
}

INSTANTIATE_TEST_SUITE_P(Indexes, ModelTest, ::testing::ValuesIn(AllIndexKinds()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace farleaf::test
