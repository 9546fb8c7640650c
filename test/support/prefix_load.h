// PrefixLoad: clients of a tree each of which makes one change behind the other, of keys of its own; and whether what is there after the
// server has crashed is what the first so many changes of each make, and no fewer than were promised.
//
// Of all of them together too: no change is there while one is lost that was acknowledged before it had begun.
//
// Thread rule: one thread builds, stops and asks; the load has a thread of its own while it runs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "dsm/base/clock.h"
#include "dsm/base/random.h"

namespace farleaf::test {

class PrefixLoad {
 public:
  struct Options {
    uint64_t seed = 1;
    size_t clients = 32;
    uint64_t keys_each = 60;
    size_t value_bytes_min = 10, value_bytes_max = 100'000;  ///< their logarithms are uniform
    uint64_t deadline_ms = 5'000;                            ///< of each operation
  };
  struct Crash {
    uint64_t at_ns = 0;
    uint64_t promised_until_ns = UINT64_MAX;  ///< what was acknowledged by then has to be there
  };
  /// Changes that were acknowledged and are not there.
  struct Lost {
    uint64_t changes = 0;
    uint64_t oldest_ns = 0;  ///< for how long one had been acknowledged at the crash
  };

  explicit PrefixLoad(Options options)
      : options_(options), random_(options.seed), clients_(options.clients) {
    for (Client& client : clients_) {
      client.before.resize(options_.keys_each);
      client.now = client.before;
    }
  }
  ~PrefixLoad() { Stop(); }

  /// Runs until Stop, or until an operation fails.
  void Start(client::Tree tree) {
    stop_ = false;
    running_ = true;
    thread_ = std::jthread([this, tree = std::move(tree)]() mutable {
      while (!stop_ && failures_.empty()) RunRound(tree);
      running_ = false;
      TellTurn();
    });
  }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  /// What Stop does, once an operation has failed.
  void AwaitFailure() {
    if (thread_.joinable()) thread_.join();
  }
  /// Until so many operations in all are acknowledged. False: one failed before.
  bool AwaitAcknowledged(uint64_t count) const {
    for (;;) {
      const uint64_t turn = turns_;
      if (acknowledged_ >= count) return true;
      if (!running_) return false;
      turns_.wait(turn);
    }
  }
  uint64_t acknowledged() const { return acknowledged_; }

  // When stopped:
  std::vector<Status> TakeFailures() { return std::exchange(failures_, {}); }
  /// What fits nothing; empty if all was well.
  const std::string& wrong() const { return wrong_; }
  uint64_t now_ns() const { return clock_.NowNs(); }

  /// Reads every key through `tree`, judges what is there, and goes on from it.
  Lost JudgeAfter(const Crash& crash, client::Tree tree) {
    Lost lost;
    uint64_t latest_begun_ns = 0;  // of the changes that are there
    std::vector<const Change*> first_lost(clients_.size());
    std::vector<std::vector<uint64_t>> there;
    for (size_t i = 0; i < clients_.size(); ++i) {
      const Client& client = clients_[i];
      there.push_back(ReadKeys(i, tree));
      const auto survived = Survived(client, there.back());
      if (!survived) {
        wrong_ += "client " + std::to_string(i) + ": none of the first " +
                  std::to_string(client.changes.size()) + " changes make what is there\n";
        continue;
      }
      if (survived->least > 0) {
        latest_begun_ns = std::max(latest_begun_ns, client.changes[survived->least - 1].begun_ns);
      }
      for (size_t at = survived->most; at < client.changes.size(); ++at) {
        const Change& change = client.changes[at];
        if (change.acknowledged_ns == 0) break;
        if (first_lost[i] == nullptr) first_lost[i] = &change;
        ++lost.changes;
      }
    }
    for (size_t i = 0; i < clients_.size(); ++i) {
      if (first_lost[i] == nullptr) continue;
      const uint64_t acknowledged_ns = first_lost[i]->acknowledged_ns;
      const uint64_t age_ns = crash.at_ns - std::min(crash.at_ns, acknowledged_ns);
      lost.oldest_ns = std::max(lost.oldest_ns, age_ns);
      const bool promised = acknowledged_ns <= crash.promised_until_ns;
      if (!promised && acknowledged_ns >= latest_begun_ns) continue;
      wrong_ += "client " + std::to_string(i) + " lost what was acknowledged " +
                std::to_string(age_ns / kNsPerMs) + " ms before the end" +
                (promised ? "" : ", and what began behind it is there") + "\n";
    }
    for (size_t i = 0; i < clients_.size(); ++i) clients_[i] = {there[i], there[i], {}};
    return lost;
  }

 private:
  enum class Kind : uint8_t { kGet, kPut, kDelete };
  struct Change {
    uint64_t key = 0;
    uint64_t number = 0;  // 0: a delete
    uint64_t begun_ns = 0, acknowledged_ns = 0;
  };
  struct Client {
    std::vector<uint64_t> before, now;  // numbers of values by key; 0: none
    std::vector<Change> changes;        // from `before` on
  };
  struct Prefix {
    size_t least = 0, most = 0;
  };
  struct Started {
    Kind kind = Kind::kGet;
    uint64_t key = 0, number = 0;
    std::future<Result<bool>> written;
    std::future<Result<client::Value>> read;
  };

  static std::string KeyName(size_t client, uint64_t key) {
    return "c" + std::to_string(100 + client) + "k" + std::to_string(1'000 + key);
  }
  /// Said by its first bytes; the rest follows from them.
  std::string ValueOf(uint64_t number) const {
    const auto least = static_cast<double>(options_.value_bytes_min);
    const double times = static_cast<double>(options_.value_bytes_max) / least;
    const auto bytes = static_cast<size_t>(least * std::pow(times, Random(number).Uniform()));
    std::string value = std::to_string(number) + "/";
    value.reserve(bytes);
    while (value.size() < bytes) value += static_cast<char>('a' + (number + value.size()) % 23);
    return value;
  }
  /// 0: none, or nothing that was ever put.
  uint64_t NumberOf(size_t client, uint64_t key, const client::Value& value) {
    if (!value) return 0;
    const uint64_t number = std::strtoull(value->c_str(), nullptr, 10);
    if (number > 0 && *value == ValueOf(number)) return number;
    wrong_ += KeyName(client, key) + " has " + std::to_string(value->size()) +
              " bytes that nobody put: " + value->substr(0, 20) + "\n";
    return 0;
  }

  void RunRound(client::Tree& tree) {
    std::vector<Started> round;
    for (size_t i = 0; i < clients_.size(); ++i) round.push_back(Post(tree, i));
    for (size_t i = 0; i < clients_.size(); ++i) End(i, round[i]);
    TellTurn();
  }
  Started Post(client::Tree& tree, size_t i) {
    const uint64_t dice = random_.Below(100);
    Started started;
    started.kind = dice < 20 ? Kind::kGet : dice < 92 ? Kind::kPut : Kind::kDelete;
    started.key = random_.Below(1 + random_.Below(options_.keys_each));  // some are popular
    const std::string key = KeyName(i, started.key);
    const client::CallOptions call{.deadline_ms = options_.deadline_ms};
    if (started.kind == Kind::kGet) {
      started.read = tree.GetAsync(key, call);
      return started;
    }
    if (started.kind == Kind::kPut) started.number = ++last_number_;
    clients_[i].changes.push_back({started.key, started.number, clock_.NowNs()});
    started.written = started.kind == Kind::kPut ? tree.PutAsync(key, ValueOf(started.number), call)
                                                 : tree.DeleteAsync(key, call);
    return started;
  }
  void End(size_t i, Started& started) {
    Client& client = clients_[i];
    if (started.kind == Kind::kGet) {
      const Result<client::Value> read = started.read.get();
      if (!read.ok()) return failures_.push_back(read.status());
      const uint64_t number = NumberOf(i, started.key, *read);
      if (number != client.now[started.key]) {
        wrong_ += KeyName(i, started.key) + ": read " + std::to_string(number) +
                  ", acknowledged was " + std::to_string(client.now[started.key]) + "\n";
      }
    } else {
      const Result<bool> written = started.written.get();
      if (!written.ok()) return failures_.push_back(written.status());
      client.changes.back().acknowledged_ns = clock_.NowNs();
      client.now[started.key] = started.number;
    }
    ++acknowledged_;
  }
  void TellTurn() {
    ++turns_;
    turns_.notify_all();
  }

  std::vector<uint64_t> ReadKeys(size_t i, client::Tree& tree) {
    std::vector<std::future<Result<client::Value>>> reads;
    for (uint64_t key = 0; key < options_.keys_each; ++key) {
      reads.push_back(tree.GetAsync(KeyName(i, key)));
    }
    std::vector<uint64_t> there(options_.keys_each);
    for (uint64_t key = 0; key < options_.keys_each; ++key) {
      const Result<client::Value> read = reads[key].get();
      if (!read.ok()) failures_.push_back(read.status());
      if (read.ok()) there[key] = NumberOf(i, key, *read);
    }
    return there;
  }
  /// The fewest and the most of a client's changes that make what is there; nullopt: none do.
  static std::optional<Prefix> Survived(const Client& client, const std::vector<uint64_t>& there) {
    std::vector<uint64_t> made = client.before;
    size_t differ = 0;
    for (size_t key = 0; key < made.size(); ++key) differ += made[key] != there[key];
    std::optional<Prefix> prefix;
    for (size_t count = 0;; ++count) {
      if (differ == 0) prefix = {prefix ? prefix->least : count, count};
      if (count == client.changes.size()) return prefix;
      const auto& [key, number, begun_ns, acknowledged_ns] = client.changes[count];
      differ -= made[key] != there[key];
      made[key] = number;
      differ += made[key] != there[key];
    }
  }

  const Options options_;
  Random random_;
  const MonotonicClock clock_;
  std::vector<Client> clients_;
  uint64_t last_number_ = 0;
  std::vector<Status> failures_;
  std::string wrong_;
  std::atomic<bool> stop_{false}, running_{false};
  std::atomic<uint64_t> acknowledged_{0};
  std::atomic<uint64_t> turns_{0};
  std::jthread thread_;
};

}  // namespace farleaf::test
