"""Nodes with GPUs that are not there."""


def gpu_node(cluster, accelerator="A100", gpus=1):
    """One more node with pretended GPUs."""
    return cluster.add_node(num_cpus=2 * gpus, num_gpus=gpus, resources={f"accelerator_type:{accelerator}": 1})
