"""Level 3: the 5 architecture components."""

from __future__ import annotations

from pallas_evo.tasks.building import array, dims, normal, scaled, task, weight

_FLASH = dims(N=(128, 512, 2048, 8192), D=(32, 64, 128, 256))
_HEADS = dims(H=(4, 8, 16, 64), N=(64, 256, 512, 4096), D=(32, 64, 128, 256))
_MLP = dims(M=(64, 256, 1024), D=(128, 512, 2048), F=(256, 1024, 4096))
_BLOCK = dims(N=(32, 128, 512, 4096), D=(64, 256, 1024, 4096), E=(32, 64, 128, 256))
_TRIANGLE = dims(N=(16, 64, 128, 256), C=(16, 32, 64, 128))

TASKS = (
    task(
        41, "L3/flash_attention", "attention", [normal(name, "N", "D") for name in "qkv"], ("N", "D"), "dot", _FLASH,
        "softmax(q @ k^T / sqrt(d), -1) @ v, without the (N,N) matrix in memory",
        stress=scaled(64, "q", "k", "v"),
    ),
    task(
        42, "L3/multi_head_attention", "attention", [normal(name, "H", "N", "D") for name in "qkv"],
        ("H", "N", "D"), "dot", _HEADS,
        "the same for each head h",
        stress=scaled(64, "q", "k", "v"),
    ),
    task(
        43, "L3/gated_mlp", "mlp",
        [normal("x", "M", "D"), weight("w_gate", "D", "F"), weight("w_up", "D", "F"), weight("w_down", "F", "D")],
        ("M", "D"), "dot", _MLP,
        "(silu(x @ w_gate) * (x @ w_up)) @ w_down",
        note="needs a K-tiled accumulator loop: whole weight matrices pass 1,048,576 elements at large",
    ),
    task(
        44, "L3/transformer_block", "full_model",
        [
            normal("x", "N", "D"),
            weight("wq", "D", "E"), weight("wk", "D", "E"), weight("wv", "D", "E"),
            weight("wo", "E", "D"), weight("w_ff", "D", "D"),
        ],
        ("N", "D"), "dot", _BLOCK,
        "n = x rsqrt(mean(x^2,-1)+1e-5); a = softmax((n wq)(n wk)^T / sqrt(d_head)) (n wv); h = x + a wo; "
        "h + max((h rsqrt(mean(h^2,-1)+1e-5)) w_ff, 0)",
        note="pre-norm, one head, several Pallas kernels in a row are fine",
    ),
    task(
        45, "L3/triangle_update", "genomics", [normal("pair", "N", "N", "C"), array("mask", "zero_one", "N", "N")],
        ("N", "N", "C"), "dot", _TRIANGLE,
        "p = pair * mask[:,:,None]; pair[i,j,c] + sum_k p[i,k,c] p[k,j,c]",
    ),
)  # fmt: skip
