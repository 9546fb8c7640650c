// A Histogram in HdrHistogram's interchange format, version 2 (github.com/HdrHistogram/HdrHistogram,
// AbstractHistogram.java), so that the usual readers take it. Numbers are big-endian.
//
//   text        = base64(compressed)
//   compressed  = cookie 0x1c849314 (4 bytes), bytes that follow (4), zlib(histogram)
//   histogram   = cookie 0x1c849313 (4), bytes of the counts (4), normalizing index offset 0 (4),
//                 significant digits 2 (4), lowest value 1 (8), highest trackable value (8),
//                 ratio to doubles 1.0 (8), counts
//   counts      = from value 0 on, each in ZigZag LEB128 (9 bytes at most); below 0: so many empty
//                 buckets
//
// With two significant digits HdrHistogram halves 256 buckets for each power of two: bucket i there
// is bucket i of ours, so that nothing is lost but the exact sum, least and greatest value. Values
// above 2^63-1, which it does not know, are told as of its last bucket.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "dsm/base/histogram.h"
#include "dsm/base/result.h"

namespace farleaf::ycsb {

std::string EncodeHistogram(const SparseHistogram& histogram);

/// Sum, least and greatest value are as the buckets have them: the sum to within 1/256.
/// InvalidArgument if `text` is no such histogram of two significant digits.
Result<SparseHistogram> DecodeHistogram(std::string_view text);

}  // namespace farleaf::ycsb
