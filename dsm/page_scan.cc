#include "dsm/page_scan.h"

#include <algorithm>
#include <string>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/pages/free_bundle.h"

namespace farleaf::dsm {

namespace {

struct Tables {
  std::vector<uint64_t> words;
  std::vector<uint64_t> marks;
};

Task<Status> ReadRange(OpContext& op, const RegionLayout& layout, uint64_t offset,
                       std::span<std::byte> into) {
  Batch batch(layout.server);
  batch.Read(offset, into);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  co_return status;
}

/// The words from `offset` on, kScanReadBytes at a time.
Task<Status> ReadWords(OpContext& op, const RegionLayout& layout, uint64_t offset,
                       std::vector<uint64_t>* words) {
  const auto bytes = std::as_writable_bytes(std::span(*words));
  for (uint64_t done = 0; done < bytes.size(); done += kScanReadBytes) {
    const auto piece = bytes.subspan(done, std::min(kScanReadBytes, bytes.size() - done));
    Status read = co_await ReadRange(op, layout, offset + done, piece);
    if (!read.ok()) co_return read;
  }
  co_return Status::Ok();
}

/// Whether chunks (head, head + count) are all the rest of the extent that begins at `head`.
bool IsWholeExtent(const Tables& tables, uint64_t head, uint64_t count) {
  if (count == 0 || count > tables.words.size() - head) return false;
  ChunkWord rest = ChunkWord::Decode(tables.words[head]);
  rest.kind = ChunkKind::kExtentRest;
  rest.page_units = 0;
  return std::all_of(tables.words.begin() + static_cast<int64_t>(head) + 1,
                     tables.words.begin() + static_cast<int64_t>(head + count),
                     [&](uint64_t word) { return word == rest.Encode(); });
}

/// `extent_end`: where the extent ends that was met last.
ScannedChunk Classify(const RegionLayout& layout, const Tables& tables, uint64_t index,
                      uint64_t extent_end) {
  ScannedChunk chunk;
  chunk.address = GlobalAddress(layout.server, layout.ChunkOffset(index));
  chunk.raw_word = tables.words[index];
  chunk.word = ChunkWord::Decode(chunk.raw_word);
  chunk.use = ChunkUse::kInvalid;
  if (chunk.word.Encode() != chunk.raw_word) return chunk;
  switch (chunk.word.kind) {
    case ChunkKind::kUnused:
      if (chunk.raw_word == 0) chunk.use = ChunkUse::kFree;
      return chunk;
    case ChunkKind::kExtent:
      chunk.use = ChunkUse::kOrphan;
      if (index < extent_end || !IsWholeExtent(tables, index, chunk.word.page_units)) return chunk;
      chunk.use = ChunkUse::kExtent;
      chunk.run_chunks = chunk.word.page_units;
      return chunk;
    case ChunkKind::kExtentRest:
      chunk.use = index < extent_end ? ChunkUse::kExtentRest : ChunkUse::kOrphan;
      return chunk;
    case ChunkKind::kRedo:
      chunk.use = ChunkUse::kRedo;
      return chunk;
    default:
      chunk.page_class = PageClassOf(chunk.word);
      if (!chunk.page_class || chunk.page_class->page_bytes > layout.chunk_bytes) return chunk;
      chunk.use = tables.marks[index] == kCarveMarkDirty ? ChunkUse::kClearing : ChunkUse::kPages;
      return chunk;
  }
}

ScannedPage Describe(const PageClass& page_class, GlobalAddress address,
                     std::span<const std::byte> image) {
  const bool is_page = page_class.kind == ChunkKind::kLeaf || page_class.kind == ChunkKind::kSearch;
  ScannedPage page;
  page.address = address;
  page.page_class = page_class;
  page.image = image;
  page.lock_word = LoadLittle<uint64_t>(image.data() + (is_page ? LockWordOffset(page_class) : 0));
  page.lock = LockWord::Decode(page.lock_word);
  if (is_page) page.version = LoadLittle<uint64_t>(image.data() + VersionOffset(page_class));
  // Half of a first write may have left the version's place as it was: the image's second word is never 0.
  const bool written =
      is_page && (page.version != 0 || LoadLittle<uint64_t>(image.data() + 8) != 0);
  if (page.lock.state == LockWord::State::kFreePage) {
    page.state = PageState::kFree;
  } else if (page.lock_word != 0 || written) {
    page.state = PageState::kInUse;
  }
  return page;
}

Task<Status> ScanChunkPages(OpContext& op, const RegionLayout& layout, GlobalAddress chunk,
                            PageClass page_class, PageVisitor& visitor) {
  const uint64_t page_bytes = page_class.page_bytes;
  const uint64_t pages = PagesPerChunk(page_class, layout.chunk_bytes);
  const uint64_t pages_a_read = std::max<uint64_t>(1, kScanReadBytes / page_bytes);
  std::vector<std::byte> piece(std::min(pages, pages_a_read) * page_bytes);
  for (uint64_t first = 0; first < pages; first += pages_a_read) {
    if (op.expired()) {
      co_return Status::DeadlineExceeded("scanning memory server " + std::to_string(layout.server));
    }
    const GlobalAddress start = chunk + PageOffsetInChunk(page_class, layout.chunk_bytes, first);
    const uint64_t count = std::min(pages_a_read, pages - first);
    Status read =
        co_await ReadRange(op, layout, start.offset(), std::span(piece).first(count * page_bytes));
    if (!read.ok()) co_return read;
    for (uint64_t i = 0; i < count; ++i) {
      visitor.OnPage(Describe(page_class, start + i * page_bytes,
                              std::span(piece).subspan(i * page_bytes, page_bytes)));
    }
  }
  co_return Status::Ok();
}

Task<Status> ScanExtent(OpContext& op, const RegionLayout& layout, GlobalAddress address,
                        PageVisitor& visitor) {
  std::byte head[64];
  Status read = co_await ReadRange(op, layout, address.offset(), head);
  if (!read.ok()) co_return read;
  visitor.OnPage(Describe({ChunkKind::kExtent, 0, 0}, address, head));
  co_return Status::Ok();
}

Task<Status> ScanList(OpContext& op, const RegionLayout& layout, PageClass page_class,
                      uint64_t head, ListVisitor& visitor) {
  const uint32_t list = FreeListIndex(page_class);
  const std::string name =
      "free list " + std::to_string(list) + " of memory server " + std::to_string(layout.server);
  const uint64_t pages_max = layout.chunk_count * PagesPerChunk(page_class, layout.chunk_bytes);
  std::vector<std::byte> bytes(BundleBytes(BundlePagesMax(page_class)));
  uint64_t pages_seen = 0;
  for (uint64_t offset = FreeListHead::Decode(head).offset; offset != 0;) {
    if (!IsPageOffset(page_class, layout, offset)) {
      co_return Status::Corruption(name + " leads outside the chunks");
    }
    Status read = co_await ReadRange(op, layout, offset + BundleOffsetInPage(page_class), bytes);
    if (!read.ok()) co_return read;
    auto bundle = DecodeBundle(page_class, layout, offset, bytes);
    if (!bundle.ok()) co_return bundle.status();
    bundle->others.push_back(bundle->carrier);
    for (const FreePage& page : bundle->others) {
      visitor.OnListedPage(
          {GlobalAddress(layout.server, page.offset), page_class, page.version, list});
    }
    pages_seen += bundle->others.size();
    if (pages_seen > pages_max) {
      co_return Status::Corruption(name + " names more pages than there are: it is a circle");
    }
    offset = bundle->next_offset;
  }
  co_return Status::Ok();
}

}  // namespace

Task<Status> ScanPages(OpContext& op, const RegionLayout& layout, PageVisitor& visitor) {
  Tables tables;
  tables.words.resize(layout.chunk_count);
  tables.marks.resize(layout.chunk_count);
  Status words = co_await ReadWords(op, layout, layout.ChunkWordOffset(0), &tables.words);
  if (!words.ok()) co_return words;
  Status marks = co_await ReadWords(op, layout, layout.CarveMarkOffset(0), &tables.marks);
  if (!marks.ok()) co_return marks;
  uint64_t extent_end = 0;
  for (uint64_t i = 0; i < layout.chunk_count; ++i) {
    const ScannedChunk chunk = Classify(layout, tables, i, extent_end);
    visitor.OnChunk(chunk);
    if (chunk.use == ChunkUse::kPages) {
      Status pages = co_await ScanChunkPages(op, layout, chunk.address, *chunk.page_class, visitor);
      if (!pages.ok()) co_return pages;
    } else if (chunk.use == ChunkUse::kExtent) {
      extent_end = i + chunk.run_chunks;
      Status extent = co_await ScanExtent(op, layout, chunk.address, visitor);
      if (!extent.ok()) co_return extent;
    }
  }
  co_return Status::Ok();
}

Task<Status> ScanFreeList(OpContext& op, const RegionLayout& layout, const PageClass& page_class,
                          ListVisitor& visitor) {
  const uint32_t list = FreeListIndex(page_class);
  uint64_t head = 0;
  Batch batch(layout.server);
  batch.ReadWord(kFreeListsOffset + list * sizeof(uint64_t), &head);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (status.ok()) status = co_await ScanList(op, layout, page_class, head, visitor);
  co_return status;
}

Task<Status> ScanFreeLists(OpContext& op, const RegionLayout& layout, ListVisitor& visitor) {
  std::vector<uint64_t> words(layout.chunk_count);
  Status read = co_await ReadWords(op, layout, layout.ChunkWordOffset(0), &words);
  if (!read.ok()) co_return read;
  std::vector<uint64_t> heads(kFreeListsMax);
  Status read_heads = co_await ReadWords(op, layout, kFreeListsOffset, &heads);
  if (!read_heads.ok()) co_return read_heads;
  // A list is followed as the class that the chunks have; a class without chunk has no page.
  std::vector<bool> seen(kFreeListsMax);
  for (const uint64_t word : words) {
    const auto page_class = PageClassOf(ChunkWord::Decode(word));
    if (!page_class || seen[FreeListIndex(*page_class)]) continue;
    const uint32_t list = FreeListIndex(*page_class);
    seen[list] = true;
    Status scanned = co_await ScanList(op, layout, *page_class, heads[list], visitor);
    if (!scanned.ok()) co_return scanned;
  }
  for (uint32_t list = 0; list < kFreeListsMax; ++list) {
    if (!seen[list] && !FreeListHead::Decode(heads[list]).is_empty()) {
      co_return Status::Corruption("free list " + std::to_string(list) + " of memory server " +
                                   std::to_string(layout.server) +
                                   " has pages, but no chunk is of its class");
    }
  }
  co_return Status::Ok();
}

}  // namespace farleaf::dsm
