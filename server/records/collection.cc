#include "server/records/collection.h"

#include "dsm/base/bytes.h"
#include "server/records/piece_scan.h"

namespace farleaf::server {

using dsm::OpContext;
using dsm::Task;
using index::CurrentValue;
using index::ModifyAction;

namespace {

constexpr size_t kHeadBytes = 16;
// A zero byte of a key is escaped, so that keys sort as their bytes and none begins with another.
constexpr char kZero = '\0', kEscaped = '\xff', kEnd = '\1';

void AppendEscaped(std::string_view key, std::string* out) {
  for (const char c : key) {
    out->push_back(c);
    if (c == kZero) out->push_back(kEscaped);
  }
  out->push_back(kZero);
  out->push_back(kEnd);
}

void MakeHeadKey(std::string_view key, std::string* out) {
  out->assign(1, kUserKeySpace).append(key);
}

struct HeadBytes {
  char bytes[kHeadBytes];
  explicit HeadBytes(const Head& head) {
    StoreLittle<uint64_t>(bytes, head.generation);
    StoreLittle<uint64_t>(bytes + 8, head.holds);
  }
};

struct HoldRule final : RecordRule {
  HoldRule(RecordType wanted, uint64_t generation) : type(wanted), new_generation(generation) {}
  const RecordType type;
  const uint64_t new_generation;
  Opened opened;
  Status failure;
  HeadBytes stored{Head{}};

  RecordAction Decide(const Record* current, Record* next, std::string_view*) override {
    opened = {};
    failure = Status::Ok();
    Head head{new_generation, 0};
    if (current != nullptr && current->type != type) {
      opened.presence = Presence::kOther;
      return RecordAction::kKeep;
    }
    if (current != nullptr) {
      const auto parsed = ParseHead(*current);
      if (!parsed.ok()) {
        failure = parsed.status();
        return RecordAction::kKeep;
      }
      head = *parsed;
      *next = *current;
    }
    ++head.holds;
    opened = {Presence::kHere, head.generation};
    stored = HeadBytes(head);
    next->type = type;
    next->cas = 0;
    next->data = {stored.bytes, kHeadBytes};
    return RecordAction::kWrite;
  }
};

struct ReleaseRule final : RecordRule {
  explicit ReleaseRule(uint64_t of) : generation(of) {}
  const uint64_t generation;
  HeadBytes stored{Head{}};

  RecordAction Decide(const Record* current, Record* next, std::string_view*) override {
    if (current == nullptr) return RecordAction::kKeep;
    const auto parsed = ParseHead(*current);
    if (!parsed.ok() || parsed->generation != generation) return RecordAction::kKeep;
    if (parsed->holds <= 1) return RecordAction::kDelete;
    stored = HeadBytes({generation, parsed->holds - 1});
    *next = *current;
    next->cas = 0;
    next->data = {stored.bytes, kHeadBytes};
    return RecordAction::kWrite;
  }
};

}  // namespace

Result<Head> ParseHead(const Record& record) {
  if (record.type == RecordType::kString || record.data.size() != kHeadBytes) {
    return Status::Corruption("a collection's head of " + std::to_string(record.data.size()) +
                              " bytes");
  }
  return Head{LoadLittle<uint64_t>(record.data.data()),
              LoadLittle<uint64_t>(record.data.data() + 8)};
}

std::string MemberPrefix(std::string_view key, uint64_t generation, EntryKind kind) {
  std::string prefix(1, kMemberSpace);
  AppendEscaped(key, &prefix);
  char bytes[sizeof generation];
  StoreBig64(bytes, generation);
  return prefix.append(bytes, sizeof bytes).append(1, static_cast<char>(kind));
}

bool MemberFits(std::string_view key, std::string_view member) {
  return MemberPrefix(key, 0, EntryKind::kScore).size() + kScoreBytes + member.size() <=
         kTreeKeyBytesMax;
}

std::optional<MemberKey> ParseMemberKey(std::string_view tree_key) {
  MemberKey parsed;
  size_t at = 1;
  if (tree_key.empty() || tree_key[0] != kMemberSpace) return std::nullopt;
  for (;;) {
    if (at + 1 >= tree_key.size()) return std::nullopt;
    if (tree_key[at] != kZero) {
      parsed.collection.push_back(tree_key[at++]);
      continue;
    }
    const char mark = tree_key[at + 1];
    at += 2;
    if (mark == kEnd) break;
    if (mark != kEscaped) return std::nullopt;
    parsed.collection.push_back(kZero);
  }
  if (tree_key.size() < at + sizeof parsed.generation + 1) return std::nullopt;
  parsed.generation = LoadBig64(tree_key.data() + at);
  parsed.prefix_bytes = at + sizeof parsed.generation;
  parsed.kind = static_cast<EntryKind>(tree_key[parsed.prefix_bytes]);
  parsed.rest = tree_key.substr(parsed.prefix_bytes + 1);
  return parsed;
}

Task<Result<Opened>> CollectionStore::Open(OpContext& op, std::string_view key,
                                           RecordType type) const {
  std::string head_key, value;
  MakeHeadKey(key, &head_key);
  Record record;
  const auto found = co_await records_->Get(op, head_key, &value, &record);
  if (!found.ok()) co_return found.status();
  if (!*found) co_return Opened{};
  if (record.type != type) co_return Opened{Presence::kOther};
  const auto head = ParseHead(record);
  if (!head.ok()) co_return head.status();
  co_return Opened{Presence::kHere, head->generation};
}

Task<Result<Opened>> CollectionStore::Hold(OpContext& op, std::string_view key,
                                           RecordType type) const {
  std::string head_key;
  MakeHeadKey(key, &head_key);
  HoldRule rule(type, op.worker.random().Next());
  const auto held = co_await records_->Update(op, head_key, rule);
  if (!held.ok()) co_return held.status();
  if (!rule.failure.ok()) co_return rule.failure;
  co_return rule.opened;
}

Task<Status> CollectionStore::Release(OpContext& op, std::string_view key,
                                      uint64_t generation) const {
  std::string head_key;
  MakeHeadKey(key, &head_key);
  ReleaseRule rule(generation);
  const auto released = co_await records_->Update(op, head_key, rule);
  co_return released.ok() ? Status::Ok() : released.status();
}

Task<Result<MemberUpdate>> CollectionStore::Update(OpContext& op, std::string_view key,
                                                   RecordType type, std::string_view field,
                                                   const MemberFunction& modify,
                                                   CurrentValue current) const {
  const auto opened = co_await Open(op, key, type);
  if (!opened.ok()) co_return opened.status();
  if (opened->presence == Presence::kOther) co_return MemberUpdate{Presence::kOther};
  bool creates = false;
  const MemberFunction* const wanted = &modify;
  // A member that is absent is inserted only where it is held, below.
  const index::ModifyFunction change = [wanted, &creates](std::optional<std::string_view> value,
                                                          std::string* replacement) {
    const ModifyAction action = (*wanted)(value, replacement);
    creates = !value && action == ModifyAction::kWrite;
    return creates ? ModifyAction::kKeep : action;
  };
  if (opened->presence == Presence::kHere) {
    const std::string member = MemberPrefix(key, opened->generation, MainKind(type)).append(field);
    const auto changed = co_await tree().Modify(op, member, change, current);
    if (!changed.ok()) co_return changed.status();
    const bool deleted = changed->existed && changed->action == ModifyAction::kDelete;
    if (deleted) {
      // Where this fails the collection is held for nothing: the sweep sees to it.
      [[maybe_unused]] const Status released = co_await Release(op, key, opened->generation);
    }
    if (changed->existed || !creates) {
      co_return MemberUpdate{Presence::kHere, changed->existed, changed->action};
    }
  } else {
    std::string unused;
    change(std::nullopt, &unused);
    if (!creates) co_return MemberUpdate{Presence::kAbsent};
  }
  const auto held = co_await Hold(op, key, type);
  if (!held.ok()) co_return held.status();
  if (held->presence == Presence::kOther) co_return MemberUpdate{Presence::kOther};
  const std::string member = MemberPrefix(key, held->generation, MainKind(type)).append(field);
  const auto changed = co_await tree().Modify(op, member, modify, current);
  const bool unknown = !changed.ok() && changed.status().code() == StatusCode::kUnknown;
  const bool inserted =
      changed.ok() && !changed->existed && changed->action == ModifyAction::kWrite;
  if (!inserted && !unknown) {
    [[maybe_unused]] const Status released = co_await Release(op, key, held->generation);
  }
  if (!changed.ok()) co_return changed.status();
  if (changed->existed && changed->action == ModifyAction::kDelete) {
    [[maybe_unused]] const Status released = co_await Release(op, key, held->generation);
  }
  co_return MemberUpdate{Presence::kHere, changed->existed, changed->action};
}

}  // namespace farleaf::server
