// Whatever a commit's record holds: no commit, or one that is written again as the same bytes.
#include <span>
#include <vector>

#include "dsm/base/bytes.h"
#include "index/lsm/commit_record.h"
#include "test/fuzz/corpus.h"
#include "test/fuzz/fuzz_target.h"

namespace {
using namespace farleaf;
using namespace farleaf::index::lsm;
}  // namespace

std::vector<std::string> FuzzSeeds() { return test::ReadCorpus("lsm_commit"); }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  auto commit = CommitReader::Parse(input);
  if (!commit) return 0;
  FARLEAF_CHECK(commit->first() > 0 && commit->changes() > 0 && commit->last() <= kSequenceMax);
  CommitWriter writer;
  Change change;
  while (commit->Next(&change)) {
    FARLEAF_CHECK(change.key.size() <= kKeyBytesMax && change.value.size() <= kValueBytesMax);
    writer.Add(change);
  }
  std::vector<std::byte> again(writer.payload().begin(), writer.payload().end());
  StoreLittle(again.data(), commit->first());
  FARLEAF_CHECK(AsChars(again) == AsChars(input));
  return 0;
}
