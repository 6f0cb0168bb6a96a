"""Every reason code that a candidate can be refused with: the gate that gives it, and what it means.

The codes are stable: archives, feedback and `docs/reasons.md` (made from this table) use them.
"""

GATES = (
    "contract",
    "source_analysis",
    "trace",
    "validate",
    "compile",
    "run",
    "output_range",
    "output_std",
    "axes_variation",
    "input_impact",
    "numerics",
    "time",
)
"""The gates in the order in which they are applied; an evaluation's `reason` is the first failure."""

REASONS: dict[str, tuple[str, str]] = {
    # contract: what the file itself says, before anything of it runs
    "syntax": ("contract", "The file is not valid Python."),
    "no_kernel": ("contract", "The file defines no function called `kernel`."),
    "arity": ("contract", "`kernel` does not take exactly the task's inputs."),
    "evolve_block": ("contract", "The file has not exactly one EVOLVE-BLOCK-START / EVOLVE-BLOCK-END pair."),
    "too_large": ("contract", "The source is larger than a candidate may be."),
    # source_analysis: the AST
    "forbidden_import": ("source_analysis", "An import outside jax, numpy and the allowed standard modules."),
    "forbidden_name": ("source_analysis", "A name that a kernel has no use for (exec, open, __import__, ...)."),
    "forbidden_state": ("source_analysis", "State that survives a call: global or nonlocal, or a patched module."),
    "reads_nothing": ("source_analysis", "No kernel of the exported program loads anything."),
    # trace: the jailed process that runs the candidate's Python
    "import_error": ("trace", "Importing the candidate raised an exception."),
    "trace_error": ("trace", "Calling `kernel` under jax.jit raised an exception."),
    "lowering_error": ("trace", "Pallas could not lower a kernel to Triton."),
    "no_artefact": ("trace", "The process ended without handing over a program."),
    "timeout": ("trace", "A deadline passed."),
    "memory": ("trace", "The memory limit was reached."),
    "artefact_size": ("trace", "The exported program is larger than the cap."),
    "nondeterministic_trace": ("trace", "Two exports of the same source are different programs."),
    "jail_violation": ("trace", "The process was killed for a system call that no kernel needs."),
    # validate: the exported program
    "malformed": ("validate", "The artefact is not a program that can be read."),
    "signature": ("validate", "Input or output types are not the task's."),
    "not_pallas": ("validate", "An output, or an input on its way to one, passes through no Pallas Triton kernel."),
    "forbidden_op": ("validate", "An operation outside the kernels that computes, or is unknown."),
    "forbidden_custom_call": ("validate", "A custom call that is not the Pallas Triton call."),
    "forbidden_attribute": ("validate", "An attribute that is unknown or changes how the program is run."),
    "glue_compute": ("validate", "Arithmetic outside the kernels on a value that depends on an input."),
    "glue_bytes": ("validate", "Too many bytes are moved outside the kernels."),
    "constant_size": ("validate", "Too many bytes of constants."),
    "forbidden_triton_op": ("validate", "An operation inside a kernel that is unknown or not allowed."),
    "no_store": ("validate", "A kernel never stores one of its outputs."),
    "input_store": ("validate", "A kernel stores into an input."),
    "input_alias": ("validate", "An output aliases an input of the task."),
    "block_size": ("validate", "A block has more elements than Triton allows."),
    "launch": ("validate", "Grid, warps or stages outside what can be launched."),
    "program_size": ("validate", "The program has more operations than the cap."),
    # compile
    "compile_error": ("compile", "Triton, ptxas or XLA could not compile a kernel."),
    "compile_timeout": ("compile", "Compiling took longer than its deadline."),
    "shared_memory": ("compile", "A kernel needs more shared memory than the device has for a block."),
    # run
    "out_of_bounds": ("run", "A load or store outside its buffer."),
    "unwritten": ("run", "Elements of an output that no program writes."),
    "race": ("run", "Two programs of one grid touch one element and at least one writes it."),
    "nondeterministic": ("run", "Two runs on the same inputs gave different outputs."),
    "input_mutated": ("run", "An input was different after the run."),
    "endless": ("run", "The kernel did not end before its deadline."),
    "device_fault": ("run", "The GPU reported an error while the kernel ran."),
    "run_memory": ("run", "The kernel's program needs more memory than the runner has."),
    "sanitizer": ("run", "NVIDIA's compute-sanitizer found a fault in a run of the kernel (elites only)."),
    # D's gates
    "output_range": ("output_range", "The outputs' range is not the reference's."),
    "output_std": ("output_std", "The outputs vary less, or more, between inputs than the reference's."),
    "axes_variation": ("axes_variation", "Along an axis the outputs vary less, or more, than the reference's."),
    "input_impact": ("input_impact", "An input changes the output less, or more, than it changes the reference."),
    "numerics": ("numerics", "The output is not close enough to the reference."),
    "non_finite": ("numerics", "The output is not finite where the reference is."),
    # time
    "implausible": ("time", "The measured time is not one that a correct program can have."),
    "timed_output": ("time", "An output of a timed call is wrong."),
}
"""Reason code -> (gate, sentence)."""
