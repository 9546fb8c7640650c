#include "index/lsm/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "dsm/base/bytes.h"
#include "dsm/base/crc32c.h"
#include "dsm/base/log.h"

namespace farleaf::index::lsm {

namespace {

constexpr std::string_view kCurrent = "CURRENT";
constexpr std::string_view kPrefix = "MANIFEST-";
constexpr uint64_t kMagic = 0x334d534c4641454c;  // "LEAFLSM3": the digit counts the formats
constexpr uint64_t kMagicMask = 0x00ffffffffffffff;
constexpr size_t kHeaderBytes = 12;
/// A file is begun anew when it is longer than this and than four times the state.
constexpr uint64_t kFileBytes = uint64_t{1} << 20;

char FormatOf(uint64_t magic) { return static_cast<char>(magic >> 56); }

std::string NameOf(uint64_t number) { return fmt::format("{}{:06}", kPrefix, number); }

std::string CurrentContent(std::string_view name) {
  std::string line = std::string(name) + "\n";
  return line + fmt::format("{:08x}\n", Crc32c(AsBytes(line)));
}

Status DamagedCurrent(const storage::Storage& storage, std::string_view what) {
  return Status::Corruption(fmt::format("{} at offset 0: {}; restore the directory from a copy",
                                        storage.PathOf(kCurrent), what));
}

Result<std::string> NameInCurrent(const storage::Storage& storage, std::string_view content) {
  const size_t end = content.find('\n');
  if (end != std::string_view::npos && content == CurrentContent(content.substr(0, end))) {
    return std::string(content.substr(0, end));
  }
  return DamagedCurrent(storage, "it does not name a manifest");
}

uint32_t HeaderCrc(uint64_t number, uint64_t offset, uint32_t length) {
  std::string header;
  ByteWriter out(&header);
  out.Write(number);
  out.Write(offset);
  out.Write(length);
  return Crc32c(AsBytes(header));
}

constexpr std::string_view kBehind = "CURRENT is behind ";
constexpr std::string_view kWhenAllIsThere = " when all is there\n";
constexpr std::string_view kWhole = "whole:";

std::string IncompleteContent(uint64_t number, const std::set<SegmentId>& filled) {
  std::string text = std::string(kBehind) + NameOf(number) + std::string(kWhenAllIsThere);
  if (filled.empty()) return text;
  text += kWhole;
  for (const SegmentId id : filled) text += fmt::format(" {}", Number(id));
  text += '\n';
  return text + fmt::format("{:08x}\n", Crc32c(AsBytes(text)));
}

/// What a file INCOMPLETE says.
struct Incomplete {
  uint64_t number = UINT64_MAX;  ///< CURRENT has to name a manifest with a higher one
  std::set<SegmentId> filled = {};
};

std::set<SegmentId> SegmentsIn(std::string_view line) {
  std::set<SegmentId> segments;
  while (line.starts_with(' ')) {
    uint64_t number = 0;
    const auto parsed = std::from_chars(line.data() + 1, line.data() + line.size(), number);
    segments.insert(SegmentId{number});
    line.remove_prefix(static_cast<size_t>(parsed.ptr - line.data()));
  }
  return segments;
}

/// What is not as it was written says of no manifest that it is enough, and of no segment that it is whole.
Incomplete ParseIncomplete(std::string_view content) {
  const size_t front = kBehind.size() + kPrefix.size();
  Incomplete said{.number = 0};
  if (content.size() < front) return {};
  std::from_chars(content.data() + front, content.data() + content.size(), said.number);
  const size_t whole = content.find(kWhole);
  if (whole != std::string_view::npos)
    said.filled = SegmentsIn(content.substr(whole + kWhole.size()));
  return content == IncompleteContent(said.number, said.filled) ? said : Incomplete{};
}

/// Nothing: there is no such file.
dsm::Task<Result<std::optional<Incomplete>>> ReadIncomplete(dsm::Worker& worker,
                                                            storage::Storage* storage) {
  using Said = std::optional<Incomplete>;
  const auto names = storage->ListFiles();
  if (!names.ok()) co_return names.status();
  if (std::ranges::find(*names, kIncompleteFile) == names->end()) co_return Said();
  auto content = co_await storage->ReadFile(worker, std::string(kIncompleteFile));
  if (!content.ok()) co_return content.status();
  co_return Said(ParseIncomplete(*content));
}

bool NothingWritten(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

Status Damaged(const storage::Storage& storage, uint64_t number, uint64_t offset,
               std::string_view what) {
  return Status::Corruption(fmt::format("{} at offset {}: {}; restore the directory from a copy",
                                        storage.PathOf(NameOf(number)), offset, what));
}

/// The payload of the record at `offset`; empty: the file ends in front of it, or within it.
Result<std::span<const std::byte>> RecordAt(const storage::Storage& storage,
                                            std::span<const std::byte> file, uint64_t number,
                                            uint64_t offset) {
  const auto rest = file.subspan(offset);
  ByteReader in(rest);
  const auto length = in.Read<uint32_t>(), header_crc = in.Read<uint32_t>();
  const auto payload_crc = in.Read<uint32_t>();
  if (!in.ok() || NothingWritten(rest)) return std::span<const std::byte>{};
  if (header_crc != HeaderCrc(number, offset, length) || length == 0) {
    return Damaged(storage, number, offset, "the record's header is damaged");
  }
  const auto payload = in.ReadBytes(length);
  if (!in.ok()) return payload;
  if (Crc32c(payload) != payload_crc) {
    return Damaged(storage, number, offset, "the record is damaged");
  }
  return payload;
}

}  // namespace

std::string Manifest::FileName() const { return NameOf(number_); }

std::unique_ptr<Manifest> Manifest::Create(storage::Storage* storage, uint64_t epoch) {
  std::unique_ptr<Manifest> manifest(new Manifest(storage));
  manifest->state_.epoch = epoch;
  return manifest;
}

dsm::Task<Result<std::unique_ptr<Manifest>>> Manifest::Open(dsm::Worker& worker,
                                                            storage::Storage* storage) {
  auto incomplete = co_await ReadIncomplete(worker, storage);
  if (!incomplete.ok()) co_return incomplete.status();
  auto manifest = co_await Read(worker, storage);
  const bool whole =
      !*incomplete || (manifest.ok() && (*manifest)->number_ > (*incomplete)->number);
  if (whole) co_return manifest;
  co_return Status::Corruption(
      "the directory has a file INCOMPLETE: it is a copy that was not finished; empty it, and copy "
      "again");
}

dsm::Task<Result<Manifest::OfCopy>> Manifest::OpenCopy(dsm::Worker& worker,
                                                       storage::Storage* storage) {
  auto incomplete = co_await ReadIncomplete(worker, storage);
  if (!incomplete.ok()) co_return incomplete.status();
  auto manifest = co_await Read(worker, storage);
  if (*incomplete && manifest.status().code() == StatusCode::kNotFound)
    manifest = Create(storage, 0);
  if (!manifest.ok()) co_return manifest.status();
  if (!*incomplete || (*manifest)->number_ > (*incomplete)->number) {
    co_return OfCopy{std::move(*manifest), true};
  }
  co_return OfCopy{std::move(*manifest), false, std::move((*incomplete)->filled)};
}

dsm::Task<Result<std::unique_ptr<Manifest>>> Manifest::Read(dsm::Worker& worker,
                                                            storage::Storage* storage) {
  auto current = co_await storage->ReadFile(worker, std::string(kCurrent));
  if (!current.ok()) co_return current.status();
  auto name = NameInCurrent(*storage, *current);
  if (!name.ok()) co_return name.status();
  std::unique_ptr<Manifest> manifest(new Manifest(storage));
  Status read = co_await manifest->ReadRecords(worker, *name);
  if (!read.ok()) co_return read;
  co_return manifest;
}

// INCOMPLETE first: a file of an earlier filling may be in force, and must not be overtaken.
dsm::Task<Status> Manifest::BeginFill(dsm::Worker& worker, std::set<SegmentId> filled) {
  const CoroutineMutex::Held held = co_await mutex_.Lock(worker);
  const bool there = number_ > 0;
  behind_ = there ? number_ + 1 : 0;
  Status begun = co_await storage_->ReplaceFile(worker, std::string(kIncompleteFile),
                                                IncompleteContent(behind_, filled));
  // A new file, unless there is no store at all: what the old one may have at its end counts no more.
  if (begun.ok() && there) begun = co_await BeginFile(worker);
  co_return begun;
}

dsm::Task<Status> Manifest::NoteFilled(dsm::Worker& worker, std::set<SegmentId> filled) {
  const CoroutineMutex::Held held = co_await mutex_.Lock(worker);
  Status noted = co_await storage_->ReplaceFile(worker, std::string(kIncompleteFile),
                                                IncompleteContent(behind_, filled));
  co_return noted;
}

dsm::Task<Status> Manifest::Install(dsm::Worker& worker, StoreState state) {
  const CoroutineMutex::Held held = co_await mutex_.Lock(worker);
  std::swap(state_, state);
  Status begun = co_await BeginFile(worker);
  if (!begun.ok()) {
    std::swap(state_, state);
    co_return begun;
  }
  const Status removed = storage_->RemoveFile(kIncompleteFile);
  if (!removed.ok()) FARLEAF_LOG(warn, "INCOMPLETE stays, and says nothing: {}", removed.message());
  co_return Status::Ok();
}

dsm::Task<Status> Manifest::ReadRecords(dsm::Worker& worker, std::string name) {
  const char* const digits = name.data() + std::min(name.size(), kPrefix.size());
  const auto parsed = std::from_chars(digits, name.data() + name.size(), number_);
  if (!name.starts_with(kPrefix) || parsed.ec != std::errc() || NameOf(number_) != name) {
    co_return DamagedCurrent(*storage_, "it names '" + name + "', which is no manifest's name");
  }
  auto content = co_await storage_->ReadFile(worker, name);
  if (!content.ok()) co_return content.status();
  const auto file = AsBytes(*content);
  uint64_t offset = 0, records = 0;
  while (offset < file.size()) {
    auto payload = RecordAt(*storage_, file, number_, offset);
    if (!payload.ok()) co_return payload.status();
    if (payload->empty()) break;
    if (records++ == 0) {
      ByteReader in(*payload);
      const auto magic = in.Read<uint64_t>();
      state_.epoch = in.Read<uint64_t>();
      const bool any_format = FormatOf(magic) >= '1' && FormatOf(magic) <= '9';
      if (!in.ok() || in.remaining() != 0 || ((magic ^ kMagic) & kMagicMask) != 0 || !any_format) {
        co_return Damaged(*storage_, number_, offset, "it is no manifest");
      }
      if (magic != kMagic) {
        co_return Status::InvalidArgument(
            fmt::format("{} is of format {}, and this program reads format {}: open the store with "
                        "the program that made it",
                        name, FormatOf(magic), FormatOf(kMagic)));
      }
    } else {
      auto edit = StateEdit::Decode(*payload);
      Status applied = edit.ok() ? state_.Apply(*edit) : edit.status();
      if (!applied.ok()) co_return Damaged(*storage_, number_, offset, applied.message());
    }
    offset += kHeaderBytes + payload->size();
  }
  // The file was whole up to the state when CURRENT came to name it.
  if (records < 2) co_return Damaged(*storage_, number_, offset, "it ends in front of the state");
  opened_ = {.name = name,
             .bytes = file.size(),
             .records = records,
             .unfinished_bytes = file.size() - offset};
  co_return Status::Ok();
}

dsm::Task<Status> Manifest::SyncOpened(dsm::Worker& worker) {
  if (opened_.name.empty()) co_return Status::Ok();  // it is a new one
  const std::string nothing;
  Status synced = co_await storage_->AppendFile(worker, opened_.name, nothing);
  co_return synced;
}

void Manifest::PutRecord(std::string_view payload, uint64_t offset, std::string* to) const {
  to->reserve(to->size() + kHeaderBytes + payload.size());
  ByteWriter out(to);
  const auto length = static_cast<uint32_t>(payload.size());
  out.Write(length);
  out.Write(HeaderCrc(number_, offset, length));
  out.Write(Crc32c(AsBytes(payload)));
  out.WriteBytes(payload);
}

dsm::Task<Status> Manifest::BeginFile(dsm::Worker& worker) {
  appendable_ = false;
  ++number_;
  std::string first;
  ByteWriter out(&first);
  out.Write(kMagic);
  out.Write(state_.epoch);
  std::string content;
  PutRecord(first, 0, &content);
  // Of a large store it is long: there are never more than two copies of it in memory, and while it is written one.
  PutRecord(state_.AsEdit().Encode(), content.size(), &content);
  file_bytes_ = begun_bytes_ = content.size();
  Status written = co_await storage_->ReplaceFile(worker, FileName(), std::move(content));
  if (!written.ok()) co_return written;
  written =
      co_await storage_->ReplaceFile(worker, std::string(kCurrent), CurrentContent(FileName()));
  if (!written.ok()) co_return written;
  appendable_ = true;
  RemoveOthers();
  co_return Status::Ok();
}

// What stays behind is removed the next time.
void Manifest::RemoveOthers() {
  auto names = storage_->ListFiles();
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!name.starts_with(kPrefix) || name == FileName()) continue;
    Status removed = storage_->RemoveFile(name);
    if (!removed.ok()) FARLEAF_LOG(warn, "an old manifest stays: {}", removed.message());
  }
}

dsm::Task<Status> Manifest::Append(dsm::Worker& worker, const std::string& payload) {
  std::string record;
  PutRecord(payload, file_bytes_, &record);
  const uint64_t bytes = record.size();
  appendable_ = false;
  Status appended = co_await storage_->AppendFile(worker, FileName(), std::move(record));
  if (!appended.ok()) co_return appended;
  appendable_ = true;
  file_bytes_ += bytes;
  co_return Status::Ok();
}

dsm::Task<void> Manifest::Look(dsm::Worker& worker, std::function<void(const StoreState&)> look) {
  const auto held = co_await mutex_.Lock(worker);
  look(state_);
}

dsm::Task<Status> Manifest::Hold(dsm::Worker& worker, const Holding& holding) {
  const auto held = co_await mutex_.Lock(worker);
  Status done = co_await holding(state_);
  co_return done;
}

dsm::Task<Status> Manifest::Commit(dsm::Worker& worker, const StateEdit& edit, Applied applied) {
  const CoroutineMutex::Held held = co_await mutex_.Lock(worker);
  if (!mirror_failure_.ok()) co_return mirror_failure_;
  // Before it is written: an edit that does not fit would make a store that cannot be opened.
  const Status fits = state_.Check(edit);
  FARLEAF_CHECK(fits.ok(), fits);
  const std::string payload = edit.Encode();
  const bool too_long = file_bytes_ > kFileBytes && file_bytes_ > 4 * begun_bytes_;
  if (!appendable_ || too_long) {
    Status begun = co_await BeginFile(worker);
    if (!begun.ok()) co_return begun;
  }
  Status appended = co_await Append(worker, payload);
  if (!appended.ok()) co_return appended;
  const Status done = state_.Apply(edit);
  FARLEAF_CHECK(done.ok(), done);
  if (mirror_ != nullptr) {
    Status mirrored = co_await mirror_->Commit(worker, edit);
    if (!mirrored.ok()) {
      mirror_failure_ = mirrored;
      co_return mirrored;
    }
  }
  if (applied) applied(state_);
  co_return Status::Ok();
}

}  // namespace farleaf::index::lsm
