#include "test/support/memcached_table.h"

namespace farleaf::test {

namespace {
const std::string kLongest(250, 'k'), kTooLong(251, 'k');

/// To a command of memcached's that is not served.
std::string Refused(const std::string& name, const std::string& why = "") {
  return "CLIENT_ERROR '" + name + "' is not supported by Farleaf" + why + "\r\n";
}
}  // namespace

std::vector<Exchange> ClassicTable() {
  return {
      // Nothing there.
      {"get t.a\r\n", "END\r\n"},
      {"gets t.a t.b\r\n", "END\r\n"},
      {"delete t.a\r\n", "NOT_FOUND\r\n"},
      {"incr t.a 1\r\n", "NOT_FOUND\r\n"},
      {"touch t.a 0\r\n", "NOT_FOUND\r\n"},
      {"replace t.a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"},
      {"append t.a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"},
      {"prepend t.a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"},
      {"cas t.a 0 0 1 7\r\nx\r\n", "NOT_FOUND\r\n"},
      {"gat 0 t.a\r\n", "END\r\n"},
      // Stored, read.
      {"set t.a 5 0 3\r\nabc\r\n", "STORED\r\n"},
      {"get t.a\r\n", "VALUE t.a 5 3\r\nabc\r\nEND\r\n"},
      {"gets t.a\r\n", "VALUE t.a 5 3 #\r\nabc\r\nEND\r\n"},
      {"gat 100 t.a t.b\r\n", "VALUE t.a 5 3\r\nabc\r\nEND\r\n"},
      {"gats 0 t.a\r\n", "VALUE t.a 5 3 #\r\nabc\r\nEND\r\n"},
      {"add t.a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"},
      {"add t.b 4294967295 0 0\r\n\r\n", "STORED\r\n"},
      {"get t.b t.x t.a\r\n", "VALUE t.b 4294967295 0\r\n\r\nVALUE t.a 5 3\r\nabc\r\nEND\r\n"},
      {"replace t.a 6 0 2\r\nde\r\n", "STORED\r\n"},
      {"append t.a 9 9 2\r\nfg\r\n", "STORED\r\n"},
      {"prepend t.a 9 9 2\r\nbc\r\n", "STORED\r\n"},
      {"get t.a\r\n", "VALUE t.a 6 6\r\nbcdefg\r\nEND\r\n"},
      {"cas t.a 0 0 1 1\r\nx\r\n", "EXISTS\r\n"},
      {"touch t.a 1000\r\n", "TOUCHED\r\n"},
      {"set t.bin 0 0 6\r\na\r\nb\n\r\r\n", "STORED\r\n"},
      {"delete t.a\r\n", "DELETED\r\n"},
      {"delete t.a\r\n", "NOT_FOUND\r\n"},
      {"delete t.b 0\r\n", "DELETED\r\n"},
      // Past when it is stored.
      {"set t.a 0 -1 1\r\nx\r\n", "STORED\r\n"},
      {"get t.a\r\n", "END\r\n"},
      {"set t.a 0 1000000000 1\r\nx\r\n", "STORED\r\n"},
      {"get t.a\r\n", "END\r\n"},
      {"set t.a 0 0 1\r\nx\r\n", "STORED\r\n"},
      {"touch t.a -1\r\n", "TOUCHED\r\n"},
      {"add t.a 0 0 1\r\ny\r\n", "STORED\r\n"},
      {"set t.g 0 0 1\r\nx\r\n", "STORED\r\n"},
      {"gat -1 t.g\r\n", "VALUE t.g 0 1\r\nx\r\nEND\r\n"},
      {"get t.g\r\n", "END\r\n"},
      // Numbers.
      {"set t.n 0 0 2\r\n98\r\n", "STORED\r\n"},
      {"incr t.n 1\r\n", "99\r\n"},
      {"incr t.n 1\r\n", "100\r\n"},
      {"decr t.n 200\r\n", "0\r\n"},
      {"set t.n 3 0 20\r\n18446744073709551615\r\n", "STORED\r\n"},
      {"incr t.n 2\r\n", "1\r\n"},
      {"set t.n 3 0 20\r\n18446744073709551616\r\n", "STORED\r\n"},
      {"incr t.n 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"},
      {"set t.n 0 0 1\r\nx\r\n", "STORED\r\n"},
      {"decr t.n 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"},
      {"incr t.n x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"},
      {"incr t.n -1\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"},
      {"incr t.n\r\n", "ERROR\r\n"},
      // Without answers.
      {"set t.q 0 0 1 noreply\r\n1\r\nincr t.q 4 noreply\r\nappend t.q 0 0 1 noreply\r\n0\r\n"
       "touch t.q 0 noreply\r\ndelete t.none noreply\r\nadd t.q 0 0 1 noreply\r\nx\r\nget t.q\r\n",
       "VALUE t.q 0 2\r\n50\r\nEND\r\n"},
      {"delete t.q noreply\r\nget t.q\r\n", "END\r\n"},
      // Pipelined: in order.
      {"set t.p 0 0 1\r\n1\r\nget t.p\r\nincr t.p 1\r\nget t.p\r\nget t.p t.a\r\ndelete t.p\r\n"
       "get t.p\r\n",
       "STORED\r\nVALUE t.p 0 1\r\n1\r\nEND\r\n2\r\nVALUE t.p 0 1\r\n2\r\nEND\r\n"
       "VALUE t.p 0 1\r\n2\r\nVALUE t.a 0 1\r\ny\r\nEND\r\nDELETED\r\nEND\r\n"},
      // Keys.
      {"set " + kLongest + " 0 0 1\r\nx\r\n", "STORED\r\n"},
      {"get " + kLongest + "\r\n", "VALUE " + kLongest + " 0 1\r\nx\r\nEND\r\n"},
      {"get " + kTooLong + "\r\n", "CLIENT_ERROR bad command line format\r\n"},
      {"delete " + kTooLong + "\r\n", "CLIENT_ERROR bad command line format\r\n"},
      {"incr " + kTooLong + " 1\r\n", "CLIENT_ERROR bad command line format\r\n"},
      // What is no command.
      {"\r\n", "ERROR\r\n"},
      {"nonsense\r\n", "ERROR\r\n"},
      {"get\r\n", "ERROR\r\n"},
      {"set t.a\r\n", "ERROR\r\n"},
      {"GET t.a\r\n", "ERROR\r\n"},
      {"set t.a x 0 1\r\nversio\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"},
      {"set t.a 0 0 -1\r\n", "CLIENT_ERROR bad command line format\r\n"},
      {"set t.a 0 0 1\r\nabc\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"},
      {"touch t.a x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"},
      {"gat x t.a\r\n", "CLIENT_ERROR invalid exptime argument\r\n"},
      {"delete t.a 5\r\n",
       "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"},
      {"flush_all x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"},
      {"verbosity\r\n", "ERROR\r\n"},
      {"verbosity 1\r\n", "OK\r\n"},
      {"shutdown\r\n", "ERROR: shutdown not enabled\r\n"},
      {"stats nonsense\r\n", "ERROR\r\n"},
  };
}

std::vector<Exchange> MetaTable() {
  return {
      {"mn\r\n", "MN\r\n"},
      {"mg t.a\r\n", "EN\r\n"},
      {"mg t.a v k Oabc\r\n", "EN kt.a Oabc\r\n"},
      {"mg t.a v q\r\nmn\r\n", "MN\r\n"},
      {"md t.a\r\n", "NF\r\n"},
      {"ma t.a\r\n", "NF\r\n"},
      {"ms t.a 2 F7 k Oxy\r\nhi\r\n", "HD kt.a Oxy\r\n"},
      {"mg t.a v f k s t Oxy\r\n", "VA 2 f7 kt.a s2 t-1 Oxy\r\nhi\r\n"},
      {"mg t.a\r\n", "HD\r\n"},
      {"mg t.a c\r\n", "HD c#\r\n"},
      {"ms t.a 2 c\r\nho\r\n", "HD c#\r\n"},
      {"ms t.a 2 q\r\nhi\r\nmn\r\n", "MN\r\n"},
      {"ms t.a 2 q ME\r\nhi\r\nmn\r\n", "NS\r\nMN\r\n"},
      {"ms t.none 1 MR\r\nx\r\n", "NS\r\n"},
      {"ms t.none 1 MA\r\nx\r\n", "NS\r\n"},
      {"ms t.none 1 MP\r\nx\r\n", "NS\r\n"},
      {"ms t.a 1 MA\r\n!\r\nms t.a 1 MP\r\n.\r\nmg t.a v\r\n", "HD\r\nHD\r\nVA 4\r\n.hi!\r\n"},
      {"ms t.a 1 MX\r\nx\r\nmn\r\n", "CLIENT_ERROR invalid mode for ms M token\r\nMN\r\n"},
      {"ms t.a 1 C5\r\nx\r\n", "EX\r\n"},
      {"ms t.none 1 C5\r\nx\r\n", "NF\r\n"},
      {"md t.a C5\r\n", "EX\r\n"},
      {"ma t.none C5\r\n", "NF\r\n"},
      {"md t.a q\r\nmn\r\n", "MN\r\n"},
      // Keys in base64.
      {"ms dC5i 2 b k\r\nhi\r\n", "HD kdC5i b\r\n"},
      {"mg t.b v\r\n", "VA 2\r\nhi\r\n"},
      {"mg dC5i b k v\r\n", "VA 2 kdC5i b\r\nhi\r\n"},
      {"md t.b\r\n", "HD\r\n"},
      {"mg !!! b v\r\n", "CLIENT_ERROR error decoding key\r\n"},
      // Numbers.
      {"ma t.n N0 J13 v t\r\n", "VA 2 t-1\r\n13\r\n"},
      {"ma t.n v\r\n", "VA 2\r\n14\r\n"},
      {"ma t.n D10 MD v\r\n", "VA 1\r\n4\r\n"},
      {"ma t.n D100 MD v k Oab\r\n", "VA 1 kt.n Oab\r\n0\r\n"},
      {"ms t.n 1\r\n0\r\nma t.n q\r\nma t.n\r\nmg t.n v\r\n", "HD\r\nHD\r\nVA 1\r\n2\r\n"},
      {"ma t.n MX\r\n", "CLIENT_ERROR invalid mode for ma M token\r\n"},
      {"ms t.n 1\r\nx\r\nma t.n\r\n",
       "HD\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n"},
      // T is a touch.
      {"ms t.t 1\r\n5\r\nmg t.t v T1000\r\nmg t.t v\r\n", "HD\r\nVA 1\r\n5\r\nVA 1\r\n5\r\n"},
      {"mg t.t v T-1\r\n", "VA 1\r\n5\r\n"},
      {"mg t.t v\r\n", "EN\r\n"},
      {"ms t.t 1\r\n5\r\nma t.t v T-1\r\nmg t.t v\r\n", "HD\r\nVA 1\r\n6\r\nEN\r\n"},
      // One is told to store anew, the others that somebody was.
      {"mg t.v N30 v\r\n", "VA 0 W\r\n\r\n"},
      {"mg t.v v\r\n", "VA 0 Z\r\n\r\n"},
      {"mg t.v N30 v\r\n", "VA 0 Z\r\n\r\n"},
      {"ms t.v 1 T30\r\nx\r\n", "HD\r\n"},
      {"mg t.v N30 v\r\n", "VA 1\r\nx\r\n"},
      {"mg t.v R60 v\r\n", "VA 1 W\r\nx\r\n"},
      {"mg t.v R60 v\r\n", "VA 1 Z\r\nx\r\n"},
      {"md t.v I T30\r\n", "HD\r\n"},
      {"mg t.v v\r\n", "VA 1 X W\r\nx\r\n"},
      {"mg t.v v\r\n", "VA 1 Z X\r\nx\r\n"},
      {"ms t.v 1\r\ny\r\nmg t.v v\r\n", "HD\r\nVA 1\r\ny\r\n"},
      {"ms t.v 1 I C1\r\nz\r\n", "HD\r\n"},
      {"mg t.v v\r\n", "VA 1 X W\r\nz\r\n"},
      // What is no command.
      {"mg\r\n", "ERROR\r\n"},
      {"ms\r\n", "ERROR\r\n"},
      {"ms t.a\r\n", "CLIENT_ERROR bad command line format\r\n"},
      {"ms t.a x\r\n", "CLIENT_ERROR bad command line format\r\n"},
      {"mg t.a z\r\n", "CLIENT_ERROR invalid flag\r\n"},
      {"mg t.a v v\r\n", "CLIENT_ERROR duplicate flag\r\n"},
      {"ms t.a 2 z\r\nhi\r\nmn\r\n", "CLIENT_ERROR invalid flag\r\nMN\r\n"},
      {"ms t.a 2\r\nhix\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"},
      {"me t.none\r\n", "EN\r\n"},
  };
}

std::vector<Exchange> OwnTable() {
  return {
      // What memcached would cut off is refused.
      {"set t.a 4294967296 0 1\r\nmn\r\n", "CLIENT_ERROR bad command line format\r\nMN\r\n"},
      {std::string("get t.\x01\r\n"), "CLIENT_ERROR bad command line format\r\n"},
      // A number that is counted down is as short as it is.
      {"set t.n 0 0 3\r\n100\r\ndecr t.n 1\r\nget t.n\r\n",
       "STORED\r\n99\r\nVALUE t.n 0 2\r\n99\r\nEND\r\n"},
      // Not kept.
      {"mg t.n h\r\n", "CLIENT_ERROR flag h is not supported\r\n"},
      {"mg t.n l\r\n", "CLIENT_ERROR flag l is not supported\r\n"},
      {"stats reset\r\n", Refused("stats reset", ": other servers' counters would stay")},
      {"stats detail on\r\n", Refused("stats detail")},
      {"stats cachedump 1 0\r\n", Refused("stats cachedump", ": use farleafctl scan")},
      {"stats conns\r\nstats extstore\r\nstats proxy\r\n",
       Refused("stats conns") + Refused("stats extstore") + Refused("stats proxy")},
      {"stats sizes_enable\r\nstats sizes_disable\r\n",
       Refused("stats sizes_enable") + Refused("stats sizes_disable")},
      // Of what memcached has, and is none here; what nobody knows is an error, as it is to memcached.
      {"slabs reassign 1 2\r\n", Refused("slabs", ": memory has no classes of sizes")},
      {"slabs automove 0 noreply\r\nmn\r\n", "MN\r\n"},
      {"lru mode flat\r\n", Refused("lru", ": nothing is evicted")},
      {"lru_crawler metadump all\r\n",
       Refused("lru_crawler", ": what has expired is swept by itself")},
      {"watch fetchers\r\n", Refused("watch", ": use the server's metrics")},
      {"cache_memlimit 64\r\n", Refused("cache_memlimit", ": memory servers have the memory")},
      {"refresh_certs\r\n", Refused("refresh_certs", ": certificates are read on SIGHUP")},
      {"extstore free_memchunks 1 1\r\n", Refused("extstore", ": there is no second store")},
      {"bget t.n\r\n", Refused("bget", ": use get")},
      {"debugtime p\r\nmisbehave\r\n", Refused("debugtime") + Refused("misbehave")},
      {"slab\r\nslabs2\r\nSLABS\r\nnonsense noreply\r\n", "ERROR\r\nERROR\r\nERROR\r\nERROR\r\n"},
      {"stats items\r\n", "END\r\n"},
      {"me t.n\r\n", "ME t.n exp=-1 cas=# size=2\r\n"},
      // Of later releases.
      {"ms t.e 1 E77\r\n1\r\nmg t.e c\r\nma t.e E90 c\r\nmd t.e C90 q\r\nmd t.e q\r\nmn\r\n",
       "HD\r\nHD c77\r\nHD c90\r\nMN\r\n"},
      {"ms t.e 1 MA N0\r\nx\r\nmg t.e v\r\n", "HD\r\nVA 1\r\nx\r\n"},
      {"version\r\n", "VERSION 1.6.0-farleaf-#.#.#\r\n"},
      // All is gone.
      {"flush_all\r\nget t.n\r\nadd t.n 0 0 1\r\n1\r\nflush_all 0 noreply\r\nget t.n\r\n",
       "OK\r\nEND\r\nSTORED\r\nEND\r\n"},
  };
}

}  // namespace farleaf::test
