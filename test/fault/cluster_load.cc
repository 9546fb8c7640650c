#include "test/fault/cluster_load.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace farleaf::test {

namespace {

constexpr size_t kClients = 3;
constexpr uint64_t kKeysEach = 10;  // of each first letter

std::string KeyOf(char first, size_t client, uint64_t i) {
  return std::string(1, first) + std::to_string(client) + "-" + std::to_string(i);
}

std::string DrawKey(Random& random, size_t client) {
  const char first = static_cast<char>(ClusterLoad::kFirst + random.Below(ClusterLoad::kLetters));
  return KeyOf(first, client, random.Below(kKeysEach));
}

uint64_t NumberOf(const client::Value& value) { return value ? std::stoull(*value) : 0; }

}  // namespace

ClusterLoad::ClusterLoad(std::string url, uint64_t deadline_ms)
    : url_(std::move(url)), deadline_ms_(deadline_ms) {
  for (size_t i = 0; i < kClients; ++i) threads_.emplace_back([this, i] { Run(i); });
}

void ClusterLoad::Stop() {
  stopping_ = true;
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

std::string ClusterLoad::first_failure() const {
  std::lock_guard lock(mutex_);
  return first_failure_;
}

std::vector<ClusterLoad::Written> ClusterLoad::TakeWrites() {
  std::lock_guard lock(mutex_);
  return std::exchange(writes_, {});
}

uint64_t ClusterLoad::TakeLongestNs() {
  std::lock_guard lock(mutex_);
  const auto longest_ns = std::exchange(longest_ns_, {});
  return std::max(std::exchange(longest_stale_ns_, 0), *std::ranges::max_element(longest_ns));
}

std::array<uint64_t, ClusterLoad::kLetters> ClusterLoad::TakeLongestByLetter() {
  std::lock_guard lock(mutex_);
  longest_stale_ns_ = 0;
  return std::exchange(longest_ns_, {});
}

void ClusterLoad::Known::Least(uint64_t number, uint64_t now_ns) {
  if (number > least) least_at[now_ns] = least = number;
}

uint64_t ClusterLoad::Known::LeastBefore(uint64_t time_ns) const {
  const auto behind = least_at.lower_bound(time_ns);
  return behind == least_at.begin() ? 0 : std::prev(behind)->second;
}

void ClusterLoad::Run(size_t number) {
  client::Options options;
  options.connect_timeout_ms = 2'000;
  options.deadline_ms = deadline_ms_;
  auto client = client::Client::Connect(url_, options);
  ASSERT_TRUE(client.ok()) << client.status();
  auto tree = (*client)->OpenTree("tested");
  ASSERT_TRUE(tree.ok()) << tree.status();
  Random random(number + 1);
  while (!stopping_ && !::testing::Test::HasFailure()) DoOne(*tree, number, random);
  // All that there is in the end.
  for (char first = kFirst; first <= kLast; ++first) {
    for (uint64_t i = 0; i < kKeysEach; ++i) Read(*tree, KeyOf(first, number, i));
  }
}

void ClusterLoad::DoOne(client::Tree& tree, size_t number, Random& random) {
  const uint64_t begun_ns = clock_.NowNs();
  if (random.OneIn(4)) {
    ReadStale(tree, DrawKey(random, random.Below(kClients)));
    const uint64_t took_ns = clock_.NowNs() - begun_ns;
    std::lock_guard lock(mutex_);
    longest_stale_ns_ = std::max(longest_stale_ns_, took_ns);
    return;
  }
  const bool reads = random.OneIn(2);
  const std::string key = DrawKey(random, reads ? random.Below(kClients) : number);
  if (reads) {
    Read(tree, key);
  } else {
    Write(tree, key, random.OneIn(5) ? 2'000 : 60);
  }
  const uint64_t took_ns = clock_.NowNs() - begun_ns;
  std::lock_guard lock(mutex_);
  uint64_t& longest_ns = longest_ns_[static_cast<size_t>(key[0] - kFirst)];
  longest_ns = std::max(longest_ns, took_ns);
}

void ClusterLoad::Write(client::Tree& tree, const std::string& key, size_t bytes) {
  uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    number = ++keys_[key].tried;
  }
  std::string value = std::to_string(number) + " ";
  value.resize(std::max(bytes, value.size()), 'x');
  const uint64_t begun_ns = clock_.NowNs();
  const auto put = tree.Put(key, value);
  const uint64_t ended_ns = clock_.NowNs();
  if (!put.ok()) return Fail("put of " + key + ": " + put.status().ToString());
  std::lock_guard lock(mutex_);
  keys_[key].Least(number, ended_ns);
  if (keeps_writes_) writes_.push_back({key, begun_ns, ended_ns});
  ++acknowledged_;
}

void ClusterLoad::Read(client::Tree& tree, const std::string& key) {
  uint64_t least = 0;
  {
    std::lock_guard lock(mutex_);
    least = keys_[key].least;
  }
  const auto value = tree.Get(key);
  if (!value.ok()) return Fail("get of " + key + ": " + value.status().ToString());
  const uint64_t there = NumberOf(*value);
  std::lock_guard lock(mutex_);
  EXPECT_GE(there, least) << key << ": lost, or old";
  EXPECT_LE(there, keys_[key].tried) << key;
  keys_[key].Least(there, clock_.NowNs());
}

void ClusterLoad::ReadStale(client::Tree& tree, const std::string& key) {
  const uint64_t begun_ns = clock_.NowNs();
  uint32_t staleness_ms = 0;
  const auto value = tree.Get(key, {.max_staleness_ms = 60'000, .staleness_ms = &staleness_ms});
  if (!value.ok()) return Fail("stale get of " + key + ": " + value.status().ToString());
  const uint64_t there = NumberOf(*value), staleness_ns = staleness_ms * kNsPerMs;
  std::lock_guard lock(mutex_);
  const Known& known = keys_[key];
  EXPECT_GE(there, known.LeastBefore(begun_ns - std::min(begun_ns, staleness_ns)))
      << key << ": lost, or older than " << staleness_ms << " ms";
  EXPECT_LE(there, known.tried) << key;
  stale_reads_ += staleness_ms > 0;
}

void ClusterLoad::Fail(const std::string& what) {
  if (failed_++ > 0) return;
  std::lock_guard lock(mutex_);
  first_failure_ = what;
}

}  // namespace farleaf::test
