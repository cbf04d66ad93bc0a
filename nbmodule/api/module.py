"""`nb.Module`: the base of all models. Methods that need upper packages import them when called."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from jax.typing import DTypeLike

from nbmodule.base.sockets import socket
from nbmodule.core.call import compiling
from nbmodule.core.call.module import CoreModule as CoreModule
from nbmodule.core.structure import functional
from nbmodule.errors import ArgumentTypeError

if TYPE_CHECKING:
    from nbmodule.files.differences import Rename


class Module(CoreModule):
    __doc__ = CoreModule.__doc__
    _takes_attributes = True

    partition = functional.partition

    # -- files --
    def save_weights(
        self,
        path: str | os.PathLike[str],
        *,
        buffers: bool = True,
        packed: bool | None = None,
        compression: str | int | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Write all variables to an HDF5 file, named by their chains; it appears whole or not at
        all.

        Args:
            path: Of the file; folders that are missing are made.
            buffers: Whether buffers are written too, in the group `__buffers__`.
            packed: Whether small arrays are put together, with an index; by default beyond 1,000 of
                them.
            compression: None, 'gzip', or a level from 0 to 9.
            dtype: Floating dtype to write in, such as 'bfloat16'.

        Raises:
            FileWriteError: the disk is full or the folder may not be written; what was there is
                unchanged.

        Example:
            >>> import os, tempfile
            >>> import nbmodule as nb
            >>> path = os.path.join(tempfile.mkdtemp(), "weights.h5")
            >>> nb.Linear(2, 3).save_weights(path)
            >>> nb.load(path).w.shape
            (3, 2)
        """
        # Most programs begin without any file.
        from nbmodule.api import files

        options = {"packed": packed, "compression": compression, "dtype": dtype}
        files.save(path, self, buffers=buffers, **options)

    def load_weights(
        self,
        path: str | os.PathLike[str],
        strict: bool = True,
        *,
        prefix: str | None = None,
        rename: Rename = None,
        layout: str | None = None,
    ) -> Any:
        """Set all variables from a weights file, all or none.

        A file saved without buffers needs none. Transfer learning:
        `model.load_weights(path, rename={"head": None}, strict=False)` loads all but the head,
        `model.backbone.load_weights(path, prefix="backbone")` a part alone.

        Args:
            path: Of the file: HDF5, `.safetensors`, `.npz`, or one of `torch.save`. What PyTorch
                wrote is transposed by the layers it goes to.
            strict: Whether the names must agree; if not, what matched and what did not is given
                back as a difference.
            prefix: Load only what is below this level of the file, and without it.
            rename: New names for old ones, as a dict or a function, after `prefix` was taken off;
                None leaves a variable or level out.
            layout: Order of the axes of convolutions in the file: `"torch"`, `"nbmodule"`, or None
                to find out.

        Returns:
            A report of what was matched, where PyTorch wrote the file.

        Raises:
            FileFormatError: the file is damaged.
            UnexpectedKeysError, MissingKeysError, ShapeError: it is of another model.
            ArgumentError: nothing tells how the axes lie, and both ways fit.
        """
        from nbmodule.api import files

        return files.load_weights(self, path, strict, prefix=prefix, rename=rename, layout=layout)

    # -- other frameworks --
    def to_equinox(self) -> Any:
        """This model as an Equinox module: `parameters` and `buffers` are its leaves, nested by
        path.

        `model(x)` gives outputs; `model.update(x)` gives outputs and the model with the buffers
        that the call has changed. What `nb.from_equinox` had wrapped comes back as the model it was
        (with its state, if it has one), with the values of now.

        Raises:
            MissingDependencyError: Equinox is not installed.

        Example:
            >>> import jax.numpy as jnp
            >>> import nbmodule as nb
            >>> nb.Linear(2, 3).to_equinox()(jnp.ones((4, 2))).shape
            (4, 3)
        """
        return socket("to_framework")(self, "equinox")

    def to_flax(self, *, linen: bool = False) -> Any:
        """This model as an NNX module, or with `linen=True` as a pair `(module, variables)` of
        linen.

        Parameters are `nnx.Param`, buffers `nnx.BatchStat`, under their paths; in linen they lie in
        `params` and `buffers`. What `nb.from_flax` had wrapped comes back as the model it was, with
        the values of now.

        Raises:
            MissingDependencyError: Flax is not installed.

        Example:
            >>> import jax.numpy as jnp
            >>> import nbmodule as nb
            >>> nb.Linear(2, 3).to_flax()(jnp.ones((4, 2))).shape
            (4, 3)
        """
        if not isinstance(linen, bool):
            raise ArgumentTypeError(f"to_flax: linen must be True or False, got {linen!r}.")
        return socket("to_framework")(self, "flax_linen" if linen else "flax_nnx")

    def to_haiku(self) -> Any:
        """This model as `(transformed, params, state)` of Haiku.

        Example:
            >>> import jax.numpy as jnp
            >>> import nbmodule as nb
            >>> transformed, params, state = nb.Linear(2, 3).to_haiku()
            >>> y, state = transformed.apply(params, state, None, jnp.ones((4, 2)))
            >>> y.shape
            (4, 3)
        """
        return socket("to_framework")(self, "haiku")

    def to_keras(self) -> Any:
        """This model as a Keras layer, on Keras' JAX backend; it trains in a `keras.Model`."""
        return socket("to_framework")(self, "keras")

    def to_torch(self) -> Any:
        """All variables as a state dict of PyTorch, with the names and layouts of its layers.

        Raises:
            MissingDependencyError: PyTorch is not installed.

        Example:
            >>> import nbmodule as nb
            >>> {name: tuple(x.shape) for name, x in nb.Conv2d(3, 8, 5).to_torch().items()}
            {'bias': (8,), 'weight': (8, 3, 5, 5)}
        """
        return socket("to_framework")(self, "torch")

    # -- displays --
    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return socket("display")(self)

    def show_graph(
        self,
        randomness_factor: float = 0.1,
        save_to_disk: bool = False,
        notebook: bool = False,
        with_edge_labels: bool = True,
        with_arg_labels: bool = True,
        with_output_labels: bool = True,
        output_connected_only: bool = True,
        highlight_subgraph: Any = None,
        fname: object = None,
    ) -> Any:
        """Show what this module computes, for arguments of the shapes of its first call; nothing is
        run or changed.

        Args:
            randomness_factor: From 0 to 1, how far nodes are moved at random, always in the same
                way.
            save_to_disk: Write a file, `fname` or else `<class name>.html`.
            notebook: Show it inline even where no notebook is found; in a notebook that is always
                done.
            with_edge_labels: Dtype and shape beside the edges.
            with_arg_labels: What goes into a node, as hover text.
            with_output_labels: Outputs of a node, as hover text.
            output_connected_only: Leave out what the output does not depend on.
            highlight_subgraph: Path of a submodule or an index into `graph.groups`, drawn in red.
            fname: Write to this file; its ending, `.html`, `.svg`, `.png`, `.pdf`, `.dot` or
                `.txt`, chooses the format.

        Returns:
            The graph, as `nb.graph` gives it.

        Raises:
            NotBuiltError: the module has never been called or compiled.
            ArgumentError: `randomness_factor` is not in [0, 1], or the ending of `fname` is
                unknown.
            PathError: there is no such subgraph.

        Example:
            >>> import jax.numpy as jnp
            >>> import nbmodule as nb
            >>> model = nb.Sequential(nb.Linear(2, 3))
            >>> _ = model(jnp.ones((1, 2)))
            >>> graph = model.show_graph()
            Sequential  3 operations  15 FLOP  float32[1, 2] → float32[1, 3]
            ├─ x  input  float32[1, 2]
            ├─ 0  Linear  3 ops · 15 FLOP
            │  ├─ bias  variable  float32[3]
            │  ├─ weight  variable  float32[3, 2]
            │  ├─ dot_general  axes 1·1  → float32[1, 3]
            │  ├─ broadcast_in_dim  [1, 3]  → float32[1, 3]
            │  └─ add  → float32[1, 3]
            └─ output  float32[1, 3]
        """
        from nbmodule.api import graphs

        return graphs.show_graph(
            self,
            graphs.Options(
                randomness_factor=randomness_factor,
                with_edge_labels=with_edge_labels,
                with_arg_labels=with_arg_labels,
                with_output_labels=with_output_labels,
                output_connected_only=output_connected_only,
                highlight_subgraph=highlight_subgraph,
            ),
            save_to_disk=save_to_disk,
            notebook=notebook,
            fname=fname,
        )

    # -- compiling --
    def compile(self, args: object = None, kwargs: object = None, **compile_kwargs: object) -> Self:
        """Compile the calls of this module, with arguments at once, without them at the next call.
        Variables stay inputs.

        Args:
            args: Positional arguments of a call, as a tuple or list.
            kwargs: Keyword arguments of a call, as a dict.
            **compile_kwargs: Options of `nb.jit`: `static_argnames` and `static_argnums` name
                arguments of the call, `donate=True` reuses the memory of the variables that it
                overwrites. And those of the constructor that speak of compiled calls: `stateful`,
                `arg_stateful_idxs`, `kwarg_stateful_idxs`, `fallback_to_non_compiled`, which stay
                with the module.

        Raises:
            ArgumentTypeError: an option is unknown, or an argument that is given or named is of a
                kind that makes no sense.
            ArgumentError: a static argument is none of the call's.

        Example:
            >>> import jax.numpy as jnp
            >>> import nbmodule as nb
            >>> class Net(nb.Module):
            ...     def forward(self, x, mode="train"):
            ...         return x if mode == "train" else -x
            >>> Net().compile(static_argnames="mode")(jnp.ones(2), mode="serve")
            Array([-1., -1.], dtype=float32)
        """
        return compiling.compile_module(self, args, kwargs, compile_kwargs)

    @property
    def compiled_(self) -> bool:
        """True if calls of this module are compiled."""
        return self._nbm.compiled is not None
