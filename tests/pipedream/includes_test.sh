#!/usr/bin/env bash
# pipedream depends on the standard library, cxxopts, nlohmann-json and common/input alone, and its library
# does not know the command; common/input depends on the first and the third.
set -uo pipefail
bad=0
others=$(grep -rnE '^#include ["<]' pipedream --include='*.h' --include='*.cpp' |
  grep -vE '#include ("pipedream/|"common/input/|<cxxopts\.hpp>|<nlohmann/json\.hpp>|<unistd\.h>|<[a-z_]+>)')
if [[ -n $others ]]; then echo "foreign includes:"; echo "$others"; bad=1; fi
others=$(grep -rnE '^#include ["<]' common/input --include='*.h' --include='*.cpp' |
  grep -vE '#include ("common/input/|<nlohmann/json\.hpp>|<[a-z_]+>)')
if [[ -n $others ]]; then echo "foreign includes of common/input:"; echo "$others"; bad=1; fi
upward=$(grep -nE '#include "pipedream/command/' pipedream/*.h pipedream/*.cpp |
  grep -v '^pipedream/main.cpp')
if [[ -n $upward ]]; then echo "the library includes the command:"; echo "$upward"; bad=1; fi
json=$(grep -lE 'nlohmann|json_input\.h' pipedream/*.h pipedream/command/*.h | grep -v json_input.h)
if [[ -n $json ]]; then echo "headers that pull in nlohmann-json:"; echo "$json"; bad=1; fi
exit $bad
