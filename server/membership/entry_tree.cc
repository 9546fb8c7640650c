#include "server/membership/entry_tree.h"

#include <cstdio>

#include "server/membership/path.h"

namespace farleaf::server::membership {

namespace {

Status NoEntry(const std::string& path) { return Status::NotFound("there is no entry " + path); }

Status CheckVersion(const std::string& path, Version has, std::optional<Version> wanted) {
  if (!wanted || *wanted == has) return Status::Ok();
  return Status::VersionMismatch("entry " + path + " has version " + std::to_string(has) +
                                 ", not " + std::to_string(*wanted));
}

/// What all paths below `path` begin with.
std::string PrefixBelow(const std::string& path) { return path == "/" ? path : path + "/"; }

}  // namespace

void EntryTree::Tell(Watches& watches, const std::string& path) {
  const auto at = watches.find(path);
  if (at == watches.end()) return;
  for (const SessionId session : at->second) notices_.push_back({session, path});
  watches.erase(at);
}

bool EntryTree::HasChildren(const std::string& path) const {
  const std::string prefix = PrefixBelow(path);
  const auto below = entries_.upper_bound(prefix);  // "/" itself is no child of "/"
  return below != entries_.end() && below->first.starts_with(prefix);
}

Result<std::string> EntryTree::Create(SessionId session, std::string path, std::string bytes,
                                      CreateOptions options) {
  const std::string parent_path(ParentPath(path));
  const auto parent = entries_.find(parent_path);
  if (parent == entries_.end()) return NoEntry(parent_path);
  if (parent->second.owner != SessionId::kNone) {
    return Status::InvalidArgument("entry " + parent_path + " is ephemeral and has no children");
  }
  if (options.naming == Naming::kSequential) {
    char digits[16];
    std::snprintf(digits, sizeof digits, "%010u", parent->second.next_sequence);
    path += digits;
  }
  const auto [at, is_new] = entries_.try_emplace(path);
  if (!is_new) return Status::AlreadyExists("there is an entry " + path);
  ++parent->second.next_sequence;
  at->second.entry.bytes = std::move(bytes);
  if (options.lifetime == Lifetime::kEphemeral) at->second.owner = session;
  Tell(entry_watches_, path);
  Tell(child_watches_, path);  // of who found it missing
  Tell(child_watches_, parent_path);
  return path;
}

Result<Entry> EntryTree::Get(SessionId session, const std::string& path, Watch watch) {
  if (watch == Watch::kChanges) entry_watches_[path].insert(session);
  const auto at = entries_.find(path);
  if (at == entries_.end()) return NoEntry(path);
  return at->second.entry;
}

Result<Version> EntryTree::Set(const std::string& path, std::string bytes,
                               std::optional<Version> version) {
  const auto at = entries_.find(path);
  if (at == entries_.end()) return NoEntry(path);
  Entry& entry = at->second.entry;
  FARLEAF_RETURN_IF_ERROR(CheckVersion(path, entry.version, version));
  entry.bytes = std::move(bytes);
  ++entry.version;
  const Version now = entry.version;
  Tell(entry_watches_, path);
  return now;
}

Status EntryTree::Remove(const std::string& path, std::optional<Version> version) {
  const auto at = entries_.find(path);
  if (at == entries_.end()) return NoEntry(path);
  FARLEAF_RETURN_IF_ERROR(CheckVersion(path, at->second.entry.version, version));
  if (path == "/" || HasChildren(path)) {
    return Status::InvalidArgument("entry " + path + " has children");
  }
  entries_.erase(at);
  Tell(entry_watches_, path);
  Tell(child_watches_, path);
  Tell(child_watches_, std::string(ParentPath(path)));
  return Status::Ok();
}

Result<std::vector<std::string>> EntryTree::Children(SessionId session, const std::string& path,
                                                     Watch watch) {
  if (watch == Watch::kChanges) child_watches_[path].insert(session);
  if (!entries_.contains(path)) return NoEntry(path);
  std::vector<std::string> names;
  const std::string prefix = PrefixBelow(path);
  for (auto at = entries_.upper_bound(prefix);
       at != entries_.end() && at->first.starts_with(prefix); ++at) {
    const std::string_view name = std::string_view(at->first).substr(prefix.size());
    if (name.find('/') == std::string_view::npos) names.emplace_back(name);
  }
  return names;
}

Status EntryTree::Commit(const std::vector<Change>& changes) {
  // On a copy, which takes the tree's place if all of them fit. The trees of one process are small.
  EntryTree changed = *this;
  for (const Change& change : changes) {
    Status status;
    switch (change.kind) {
      case Change::Kind::kCreate:
        status = changed.Create(SessionId::kNone, change.path, change.bytes, {}).status();
        break;
      case Change::Kind::kSet:
        status = changed.Set(change.path, change.bytes, change.version).status();
        break;
      case Change::Kind::kRemove:
        status = changed.Remove(change.path, change.version);
        break;
    }
    if (!status.ok()) return status;
  }
  *this = std::move(changed);
  return Status::Ok();
}

void EntryTree::EndSession(SessionId session) {
  for (Watches* watches : {&entry_watches_, &child_watches_}) {
    for (auto at = watches->begin(); at != watches->end();) {
      at->second.erase(session);
      at = at->second.empty() ? watches->erase(at) : std::next(at);
    }
  }
  std::vector<std::string> owned;
  for (const auto& [path, node] : entries_) {
    if (node.owner == session) owned.push_back(path);
  }
  for (const std::string& path : owned) {
    const Status removed = Remove(path, std::nullopt);
    FARLEAF_CHECK(removed.ok(), removed);
  }
}

}  // namespace farleaf::server::membership
