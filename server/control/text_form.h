// Keys and values as an operator types and reads them.
//
//   text  the bytes themselves; unprintable ones and backslashes as \xNN
//   u64   an unsigned decimal, for 8 bytes in big-endian order (fixed8 trees)
//   hex   two digits a byte
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "client/protocol.h"
#include "dsm/base/result.h"

namespace farleaf::server {

enum class TextForm : uint8_t { kAuto, kText, kU64, kHex };

/// What kAuto means for a tree: u64 for fixed8, text for bytes.
TextForm FormFor(TextForm wanted, client::protocol::TreeLayout layout);
/// InvalidArgument, naming the argument, if it has not this form.
Result<std::string> ParseBytes(std::string_view typed, TextForm form);
/// u64 of other than 8 bytes prints as hex.
std::string PrintBytes(std::string_view bytes, TextForm form);
/// A JSON string with its quotes. Bytes that are no UTF-8 appear as \u00NN, one a byte.
std::string JsonString(std::string_view bytes);

}  // namespace farleaf::server
