"""docs/choosing.md: what lesson 11 plans for the meshes of published runs (docs/results/meshes.json, which tests/benchmarks/meshes.py makes)."""
from .registry import has, record, renders, source, table, times_text


def schedule(settings):
    return f"interleaved, {settings['chunks']} chunks" if settings["schedule"] == "interleaved" else "1F1B"


@renders
def published_meshes(page):
    """Each run as it was, with sharded states and split tokens, and then without recomputation."""
    if not has("meshes"):
        return ""
    runs, rows = record("meshes")["runs"], []
    for run in runs:
        held = [f"{run['plans'][form]['gb']['total']:.1f}" for form in ("as_run", "shared", "kept")]
        stages = "" if run["mesh"][0] == 1 else f", {schedule(run['settings'])}"
        rows.append(
            [
                run["name"],
                f"{run['gpus']:,} of {run['gpu_gb']} GB",
                f"{' x '.join(map(str, run['mesh']))}, {times_text(run['micro'], 'row')}{stages}",
                *held,
            ]
        )
    heads = [
        "run",
        f"{runs[0]['gpu']} GPUs",
        "stages x data x tensor, micro-batch",
        "GB as it was run",
        "states sharded, tokens split",
        "and nothing recomputed",
    ]
    return (
        table(heads, rows, left=3)
        + f"\n\nPlanned, on the GPU that holds most, {runs[0]['sequence']:,} tokens per row; facts with their sources, settings and plans: {source(page, 'meshes')}."
    )
