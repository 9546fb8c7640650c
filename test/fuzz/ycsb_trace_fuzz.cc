// Whatever a trace holds: operations within its limits, or InvalidArgument that names the line.
#include <memory>
#include <sstream>

#include "benchmark/ycsb/trace.h"
#include "test/fuzz/fuzz_target.h"

std::vector<std::string> FuzzSeeds() {
  return {
      "# comment\nREAD user1\nUPDATE user2 100\nINSERT user3\nSCAN user1 20\nRMW user2 8\n",
      "@0 READ a\n@17 READ b\\x20c\n@17 UPDATE \\\\ 16777216\r\n\n@1000000 SCAN d 1000000",
      "READ 0\nUPDATE 18446744073709551615 8\nREAD-MODIFY-WRITE 17\n",
      "@1000000000000000 READ \\xff\\x00\n",
  };
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace farleaf;
  using namespace farleaf::ycsb;
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (KeyLayout layout : {KeyLayout::kFixed8, KeyLayout::kBytes}) {
    TraceReader reader(std::make_unique<std::istringstream>(text), "fuzzed",
                       {.key_layout = layout, .value_bytes = 8});
    TracedOperation operation;
    uint64_t last_line = 0, last_at_us = 0;
    while (true) {
      const auto more = reader.Next(&operation);
      if (!more.ok()) {
        FARLEAF_CHECK(more.status().code() == StatusCode::kInvalidArgument, more.status());
        FARLEAF_CHECK(more.status().message().starts_with("fuzzed line "), more.status());
        break;
      }
      if (!*more) break;
      FARLEAF_CHECK(operation.line > last_line, operation.line, last_line);
      FARLEAF_CHECK(operation.at_us.value_or(0) >= last_at_us, last_at_us);
      last_line = operation.line;
      last_at_us = operation.at_us.value_or(0);
      const size_t key_bytes = operation.key.size();
      FARLEAF_CHECK(key_bytes >= 1 && key_bytes <= kTraceKeyBytesMax, key_bytes);
      FARLEAF_CHECK(layout == KeyLayout::kBytes || key_bytes == 8, key_bytes);
      FARLEAF_CHECK(operation.value_bytes <= kTraceValueBytesMax, operation.value_bytes);
      const bool scans = operation.kind == OpKind::kScan;
      FARLEAF_CHECK(scans ? operation.rows >= 1 && operation.rows <= kTraceRowsMax
                          : operation.rows == 0,
                    operation.rows);
    }
  }
  return 0;
}
