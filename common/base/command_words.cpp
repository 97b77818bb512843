#include "common/base/command_words.h"

#include <cxxopts.hpp>

#include "common/base/check.h"

namespace sc {
namespace {

/// cxxopts puts typographic quotes into its messages; ours are ASCII.
std::string ascii_quotes(std::string text) {
  for (const std::string_view quote : {"\xE2\x80\x98", "\xE2\x80\x99"}) {
    for (auto at = text.find(quote); at != std::string::npos; at = text.find(quote))
      text.replace(at, quote.size(), "'");
  }
  return text;
}

}  // namespace

CommandWords command_words(int argc, const char* const* argv,
                           const std::vector<std::pair<std::string, bool>>& flags, const std::string& fix) {
  cxxopts::Options options("program");
  options.allow_unrecognised_options();
  for (const auto& [name, is_switch] : flags)
    options.add_options()(name, "",
                          is_switch ? std::shared_ptr<cxxopts::Value>(cxxopts::value<bool>())
                                    : std::shared_ptr<cxxopts::Value>(cxxopts::value<std::string>()));
  try {
    const cxxopts::ParseResult result = options.parse(argc, argv);
    CommandWords given{{}, result.unmatched()};
    for (const auto& argument : result.arguments()) given.flags.push_back({argument.key(), argument.value()});
    return given;
  } catch (const cxxopts::exceptions::exception& error) {
    throw InputError(ExitCode::usage, "command line", ascii_quotes(error.what()), fix);
  }
}

}  // namespace sc
