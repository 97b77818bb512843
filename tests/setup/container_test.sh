#!/usr/bin/env bash
# The Dockerfile without a container engine: its steps one by one in an empty folder, on a PATH with nothing
# that setup.sh installs.
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

source=$(CDPATH='' cd "$here/../.." && pwd -P)
image=$sandbox/image log=$sandbox/log
mkdir -p "$image"
basic_tools
# The sandbox is like a new Debian without Python and compilers, and the installation ends at apt-get.
shim id <<<'echo 0'
shim apt-get <<<'echo "apt-get $*" >>"$log"; [[ $1 == update ]]'
export log

# copied FROM TO: copies a tree as a container engine does, without the files that .dockerignore names.
copied() {
  local name
  check "COPY $1: it is there" test -e "$source/$1"
  if [[ $1 != . ]]; then
    check "COPY $1: it is not left out" equal "$(grep -cxF "${1%%/*}" "$source/.dockerignore")" 0
    mkdir -p "$image/$2"
    cp -r "$source/$1/." "$image/$2"
    return
  fi
  for name in "$source"/*; do
    name=${name##*/}
    if ! grep -qxF "$name" "$source/.dockerignore"; then cp -r "$source/$name" "$image/$2"; fi
  done
}

# setup_asks: the packages that setup.sh names as missing in the sandbox; the image's first RUN must install
# the same.
setup_asks() {
  local processor
  on_its_own "$image"
  for processor in x86_64 aarch64; do
    shim uname <<<"echo $processor"
    : >"$log"
    PATH=$shims run "$image/common/setup/setup.sh" --check
    packages=$(sed -n 's/^  packages  //p' <<<"$out")
    check "setup.sh needs packages" contains " $packages " " openmpi-bin "
    PATH=$shims run "$image/$1"
    check "$1 asks for the packages" contains "$(<"$log")" "install -y -qq --no-install-recommends $packages"
    check "$1 ends where apt-get does" contains "$code $err" "69 error: apt-get install: failed"
    if [[ -e $image/.deps ]]; then rm -r "$image/.deps"; fi
  done
}

runs=0
while read -r step words; do
  case $step in
    FROM) check "the base" equal "$words" "debian:12" ;; # of the engine's own processor
    WORKDIR) check "the folder" equal "$words" /stagecraft ;;
    COPY)
      # shellcheck disable=SC2086  # two words
      copied $words
      ;;
    RUN)
      runs=$((runs + 1))
      if ((runs == 1)); then
        setup_asks "${words%% *}"
        check "and cleans up" equal "$words" "common/setup/setup.sh && rm -rf /var/lib/apt/lists"
      else
        # shellcheck disable=SC2086  # words
        run env STAGECRAFT_PRESET=cpu "$image/"$words --dry-run
        check "$words" contains "$code $out" "build/cpu/bin/01_data_parallel "
        check "$words stops before a run" contains "$words " " --build-only "
      fi
      ;;
    CMD) check "a shell" equal "$words" '["bash"]' ;;
    *) check "$step is a step that this test knows" false ;;
  esac
done < <(grep -v '^#' "$source/Dockerfile")
check "set up, then build" equal "$runs" 2

# The image must contain the files and commands that README.md and docs/containers.md name.
for page in README.md docs/containers.md; do
  while read -r path; do
    check "$page: $path" test -x "$image/$path"
  done < <(grep -oE '^ *(lessons|common|tests)/[a-z0-9_/]+\.sh' "$source/$page")
done
while read -r path; do check "$path is left out" test ! -e "$image/$path"; done <"$source/.dockerignore"
check "the page says how the image is built, and how it starts" contains \
  "$(<"$source/docs/containers.md")" "docker build --tag stagecraft .
docker run --rm -it --init --stop-timeout 120 --shm-size=1g "
devcontainer=$source/.devcontainer/devcontainer.json
check "the editor's container is of the same Dockerfile" equal \
  "$(python3 -m json.tool "$devcontainer" | sed -n 's/.*"dockerfile": "\([^"]*\)".*/\1/p')" ../Dockerfile

# The site: what the workflow publishes, in a copy of the repository.
mkdir -p "$sandbox/site/docs"
cp -r "$source/docs/explore" "$source/docs/pages" "$sandbox/site/docs"
step=$(sed -n 's/^ *- run: //p' "$source/.github/workflows/site.yml")
run bash -euc "cd $sandbox/site && $step"
check "the site is made" equal "$code $err" "0 "
check "with the explorer" cmp "$sandbox/site/site/explore/index.html" "$source/docs/explore/index.html"
check "with every sample page" equal "$(cd "$sandbox/site/site/pages" && echo *)" \
  "$(CDPATH='' cd "$source/docs/pages" && echo *.html)"
check "and a first page that links all of it" equal \
  "$(cd "$sandbox/site/site" && grep -o 'href="[^"]*"' index.html)" \
  "$(cd "$sandbox/site/site" && printf 'href="%s"\n' explore/ pages/*)"
finish_test
