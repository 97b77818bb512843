// --files=tests/a_test.cpp:tests/b_test.cpp runs only these files' tests of a program with several files.
#pragma once

namespace sc::test {

/// Applies --files; call it after InitGoogleTest, whose own filter still counts. Ends the process with exit
/// code 64 if a named file has no test.
void keep_named_files(int argc, char** argv);

}  // namespace sc::test
