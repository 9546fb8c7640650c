// Reply: an answer in RESP2 or RESP3, appended to a string. What RESP2 has no form for takes the form that Redis
// gives it there.
//
// Thread rule: a value type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace farleaf::server::redis {

enum class RespVersion : uint8_t { k2 = 2, k3 = 3 };

class Reply {
 public:
  Reply(std::string* out, RespVersion version) : out_(out), version_(version) {}

  RespVersion version() const { return version_; }
  /// In the same place.
  Reply With(RespVersion version) const { return {out_, version}; }
  /// Bytes written so far, by whomever.
  size_t size() const { return out_->size(); }

  void Simple(std::string_view text) { Line('+', text); }
  void Ok() { Simple("OK"); }
  /// `text`: a code in capitals, a space and what is wrong. Line ends in it become spaces.
  void Error(std::string_view text);
  void Integer(int64_t number) { Number(':', number); }
  void Bulk(std::string_view bytes);
  void BulkNumber(uint64_t number) { Bulk(std::to_string(number)); }
  void Null();
  void NullArray();
  void Array(size_t count) { Number('*', static_cast<int64_t>(count)); }
  /// So many pairs follow.
  void Map(size_t pairs);
  /// A number, as a bulk string in RESP2.
  void Double(double number);
  /// Text for people.
  void Text(std::string_view text);
  /// Of an array whose elements were written from `at` on, or, where `pairs`, of a map.
  enum class Kind : uint8_t { kArray, kMap };
  void Head(Kind kind, size_t at, size_t count);

 private:
  void Line(char kind, std::string_view text);
  void Number(char kind, int64_t number);

  std::string* out_;
  RespVersion version_;
};

/// The shortest digits that give the number back; "inf", "-inf", "nan".
std::string DoubleText(double number);

}  // namespace farleaf::server::redis
