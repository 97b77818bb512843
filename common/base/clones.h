// Compiles a function once for each kind of x86-64 processor that is named; which one runs is chosen while
// the program is loaded. On aarch64, where every processor has NEON, it is compiled once.
#pragma once

#ifdef __x86_64__
#define SC_CLONES(...) [[gnu::target_clones(__VA_ARGS__)]]
#else
#define SC_CLONES(...)
#endif
