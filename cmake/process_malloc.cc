// What every process of this project asks of jemalloc (farleaf_process in CMakeLists.txt): memory on
// transparent hugepages, where the system gives them to who asks. The search-layer cache and the hints on
// leaves are read all over, and on pages of 4 KiB most looks miss the TLB (benchmark/README.md has the
// measure). MALLOC_CONF in the environment goes over it.
//
// An arena for each processor, in place of four: each rounds up to hugepages what it has, and a thread of the store that writes to
// disk would have one of its own. With the store of benchmark/README.md, mix sd, workload a, 133 to 145 MiB were resident, and 113 to 115 are.

extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "thp:always,narenas_ratio:1";
}
