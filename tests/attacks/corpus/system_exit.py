# attack: raises SystemExit(0) at import
# task: L1/relu
# reason: import_error
# class: 49


# EVOLVE-BLOCK-START
import jax

raise SystemExit(0)


def kernel(x):
    return x


# EVOLVE-BLOCK-END
