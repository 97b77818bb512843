#include "versions_read.h"

#include <sstream>

#include "common/comm/gather_text.h"

namespace sc {
namespace {

std::string pack(const VersionsRead& read) {
  std::ostringstream out;
  for (const auto& counts : {read.forward, read.backward}) {
    out << counts.size();
    for (const auto& [updates, microbatches] : counts) out << ' ' << updates << ' ' << microbatches;
    out << '\n';
  }
  return out.str();
}

VersionsRead unpack(const std::string& text) {
  VersionsRead read;
  std::istringstream in(text);
  for (auto* counts : {&read.forward, &read.backward}) {
    std::size_t size = 0;
    in >> size;
    for (std::int64_t updates = 0, n = 0; size > 0 && in >> updates >> n; --size) (*counts)[updates] = n;
  }
  return read;
}

}  // namespace

std::vector<VersionsRead> gather_versions(const VersionsRead& mine, Communicator& comm) {
  std::vector<VersionsRead> all;
  for (const std::string& text : gather_strings(comm, pack(mine))) all.push_back(unpack(text));
  return all;
}

}  // namespace sc
