// The five figures of the pages, made by the simulator.
#pragma once

#include <string>
#include <vector>

namespace sc::pipedream {

std::vector<std::string> figure_names();
/// The SVG of a figure; throws InputError (usage) if no figure has the name.
std::string figure_svg(const std::string& name);

}  // namespace sc::pipedream
