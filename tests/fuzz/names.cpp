// Fuzzes names of tensors in others' files, words for messages, and pointers of Git LFS.
#include "common/model/hf_names.h"
#include "common/storage/git_lfs.h"
#include "tests/fuzz/support.h"

SC_FUZZ_TARGET(names) {
  const std::string text = text_of(data, size);
  if (const std::string ours = sc::our_name(text); !ours.empty())
    require(sc::our_name(sc::hf_name(ours)) == ours, "our name in a file is not ours any more");
  for (const std::string& said : {sc::printable(text), sc::shown(text), sc::shown_message(text)})
    require(sc::printable(said) == said, "what can be shown is shown otherwise the second time");
  require(sc::shown(text).size() < 5 * sc::kMostShown, "a word of a message is too long");
  taken([&] {
    sc::require_no_lfs_pointer(text, "file");
    return true;
  });
  return 0;
}
