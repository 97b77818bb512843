// Several files' tests in one program: --files=tests/a_test.cpp:tests/b_test.cpp leaves those files' alone.
#pragma once

namespace sc::test {

/// After InitGoogleTest, whose own filter still counts. Ends the process with 64 where a file that is named
/// has no test.
void keep_named_files(int argc, char** argv);

}  // namespace sc::test
