// What a fuzz target defines. With Clang it is linked with libFuzzer, otherwise with fuzz_main.cc.
//
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// Runs one input. Anything but a return is a failure. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

/// Well-formed inputs to mutate. REQUIRES: not empty.
std::vector<std::string> FuzzSeeds();
