"""A loaded Hugging Face model with its hyper-connections replaced by the gated ones of a sidecar.

transformers' decoder layers ask each mixer module for (post, comb, collapsed) and compute
``post F(norm(collapsed))^T + comb^T X``.  A gated module answers, for the state Y of ``X_l = P_l Y_l``,

    z = scale W' vec(Y) / rms(T_l Y) + base,   p = read(z),   r = write(z)
    collapsed = (p P_l) Y,   post = P_{l+1}^{-1} r,   comb = D_l = diag(g)

so the layers themselves stay as they are, caches and attention included, and no Sinkhorn runs any more (with gates by
the token one does: :mod:`~streamgauge.simulate.token_gates`).  The first layer turns the copied embedding into
``Y_0 = P_0^{-1} 1 e^T``, the head reads ``c P_L``, and recorded hidden states, the only other readers of the streams
in these models, come out as ``X_l = P_l Y_l``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from streamgauge.kernels import reference
from streamgauge.simulate.attach_files import HeldSidecar, read_sidecar, write_sidecar
from streamgauge.simulate.convert import gauged_weight
from streamgauge.simulate.formats.sidecar import SIDECAR
from streamgauge.simulate.network import PRECISIONS, Controller, Gauge
from streamgauge.simulate.stored import floats
from streamgauge.simulate.token_gates import MixingController, token_gates
from streamgauge.theory.errors import InputError

MODELS = {"deepseek_v4": "deepseek-v4", "glm5_next": "glm5-next", "glm5_next_text": "glm5-next"}
"""transformers' model types, and the formats of sidecars that fit them."""
BRANCHES = ("attn_hc", "ffn_hc")
_HELD = "_streamgauge_sidecar"


class GatedConnection(nn.Module):
    """Site l: controller, gauge and gates; streams (B, T, n, d) to (post (B, T, n), comb (n, n), collapsed).

    With gates by the token comb is (B, T, n, n).
    """

    matrix: Tensor
    entry: Tensor

    def __init__(self, held: HeldSidecar, site: int) -> None:
        super().__init__()
        n = held.n
        self.read_map, self.write_map, self.norm_gate = held.read_map, held.write_map, held.norm_gate
        self.recipe = held.recipe
        self.gauge = Gauge(n, write=True, metric=True)
        self.coef: nn.Module
        if held.recipe is None:
            self.coef = Controller(n, held.d, 2, dynamic=True, rms_eps=held.rms_eps)
            self.gates = nn.Parameter(torch.ones(n))
        else:
            self.coef = MixingController(n, held.d, held.rms_eps)
            self.register_buffer("gates", torch.ones(n))  # the mean ones, for save_pretrained; take no part
        self.register_buffer("matrix", torch.eye(n))  # A_l, for save_pretrained; takes no part
        if site == 0:
            self.register_buffer("entry", torch.ones(n))
            self.register_buffer("entry_gauge", torch.eye(n))

    def forward(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n = streams.shape[-2]
        z = self.coef(streams, self.gauge.metric)
        p = self.read_map(z[..., :n]) @ self.gauge.read
        r = self.write_map(z[..., n : 2 * n]) @ self.gauge.write.mT
        return r, torch.diag_embed(self.acting_gates(z[..., 2 * n :])), reference.read(streams, p)

    def acting_gates(self, logits: Tensor) -> Tensor:
        """g (n,), or c(g) g under a norm gate; by the token (..., n) of the mixer's logits, which others have not."""
        if self.recipe is not None:
            return token_gates(logits, self.recipe, self.gauge.read, self.gauge.write)
        if self.norm_gate is None:
            return self.gates
        return reference.norm_factor(self.gates, self.norm_gate["eps"], self.norm_gate["cap"]) * self.gates


class GatedHead(nn.Module):
    """``c(Y) P_L Y``, or the constant row ``c P_L``: (B, T, n, d) to (B, T, d)."""

    def __init__(self, held: HeldSidecar) -> None:
        super().__init__()
        n, self.read_map = held.n, held.head_map
        self.gauge = Gauge(n, write=False, metric=held.head_map is not None)
        if held.head_map is None:
            self.linear = nn.Parameter(torch.ones(n))
        else:
            self.coef = Controller(n, held.d, 1, dynamic=True, rms_eps=held.head_rms_eps)

    def forward(self, streams: Tensor) -> Tensor:
        if self.read_map is None:
            return reference.read(streams, self.linear)
        z = self.coef(streams, self.gauge.metric)
        return reference.read(streams, self.read_map(z) @ self.gauge.read)


class _Saving:
    """What an attached model's class gains: ``save_pretrained`` writes the branches, and a sidecar beside them."""

    def save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        is_main_process: bool = True,
        state_dict: dict[str, Tensor] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """As the model's own, but the gated tensors go to ``sidecar.safetensors`` in the folder.

        To load: ``from_pretrained`` (which reports the mixers it misses), then :func:`attach` with the folder.
        """
        if kwargs.get("push_to_hub"):
            raise InputError("save_pretrained: found push_to_hub, expected a folder (upload it with its sidecar)")
        whole = self.state_dict() if state_dict is None else state_dict  # type: ignore[attr-defined]
        streams, held = streams_module(self), getattr(self, _HELD)
        prefix = next((f"{name}." for name, module in self.named_modules() if module is streams and name), "")  # type: ignore[attr-defined]
        places = {prefix + here: there for here, there in _places(held).items()}
        missing = next((name for name in places if name not in whole), None)
        if missing is not None:
            raise InputError(f"save_pretrained: state_dict has no {missing}, expected the whole model's")
        rest = {name: tensor for name, tensor in whole.items() if name not in places}
        out = super().save_pretrained(save_directory, is_main_process, rest, *args, **kwargs)  # type: ignore[misc]
        if is_main_process:
            gated = {there: whole[here] for here, there in places.items()}
            write_sidecar(Path(save_directory) / SIDECAR, gated, held.record)
        return out


def attach(model: Any, sidecar: str | Path, *, precision: str = "float32") -> Any:
    """Replace the hyper-connections of a loaded Hugging Face model by the gated ones of a sidecar, in place.

    - ``model``: a ``deepseek_v4`` or ``glm5_next`` model of transformers, with a language-model head or without.
    - ``sidecar``: what ``convert`` made of the model's checkpoint, file or folder; or a folder that an attached model
      saved.
    - ``precision``: of the coefficients and their arithmetic, whatever the model's own dtype: "float32" | "float64".

    Returns the model.  Forward passes, ``generate`` with its cache, training (gates, W', scales and bases are
    parameters; the gauge is not) and ``save_pretrained`` work as before.  ``output_hidden_states`` gives
    X_l = P_l Y_l; a forward hook on a decoder layer sees Y_l itself, and :func:`source_streams` turns it into X_l.
    Later casts of the whole model (``.to``, ``.half``) cast the coefficients too, as they do in the source.
    The object can be copied but not pickled whole: its class is made here.

    **Raises** :class:`InputError`, one line, where the two do not belong together; the model is untouched then.
    """
    if find_spec("transformers") is None:
        raise InputError("attach needs transformers: pip install 'streamgauge[hf]'")
    if precision not in ("float32", "float64"):
        raise InputError(f"attach precision: found {precision!r}, expected 'float32' or 'float64'")
    streams, held = streams_module(model), read_sidecar(Path(sidecar))
    _refuse_strangers(streams, held)
    modules = [getattr(layer, name) for layer in streams.layers for name in BRANCHES]
    replaced = [_made(GatedConnection, held, site, old, PRECISIONS[precision]) for site, old in enumerate(modules)]
    head = _made(GatedHead, held, None, streams.hc_head, PRECISIONS[precision])
    for site, new in enumerate(replaced):
        setattr(streams.layers[site // 2], BRANCHES[site % 2], new)
    streams.hc_head = head
    streams.layers[0].register_forward_pre_hook(_enter, with_kwargs=True)
    streams.register_forward_hook(_recorded)
    setattr(model, _HELD, replace(held, tensors={}))
    _save_with_sidecar(model)
    return model


def streams_module(model: Any) -> Any:
    """The part of the model that runs the streams. **Raises** :class:`InputError` where there is none."""
    found = getattr(getattr(model, "config", None), "model_type", None)
    if found not in MODELS or not isinstance(model, nn.Module):
        raise InputError(f"attach: found a model of type {found!r}, expected one of {', '.join(MODELS)}")
    for module in model.modules():
        layers = getattr(module, "layers", None)
        if isinstance(layers, nn.ModuleList) and hasattr(module, "hc_head"):
            return module
    raise InputError(f"attach: found no layers with hyper-connections in this {type(model).__name__}")


def source_streams(model: Any, level: int, state: Tensor) -> Tensor:
    """``X_k = P_k Y_k`` before decoder layer k = ``level`` (after the last one: the number of layers).

    ``state``: Y_k (..., n, d), as an attached model's layers hand it on; the result is in its dtype.
    """
    return _source(streams_module(model), level, state)


def fitted_tensors(model: Any) -> dict[str, Tensor]:
    """What training changes in an attached model's hyper-connections: parameters by their names in a sidecar."""
    streams, held = streams_module(model), getattr(model, _HELD)
    parameters = dict(streams.named_parameters())
    return {there: parameters[here].detach() for here, there in _places(held).items() if here in parameters}


def _made(
    kind: type[nn.Module], held: HeldSidecar, site: int | None, old: nn.Module, dtype: torch.dtype
) -> nn.Module:
    """The gated module, where the old one was and in its mode; nothing is initialised at random."""
    names = held.head_names() if site is None else held.names(site)
    device = next((parameter.device for parameter in old.parameters()), torch.device("cpu"))
    with torch.device("meta"):
        made = kind(held) if site is None else kind(held, site)
    tensors = {here: held.tensors[there].to(device, dtype, copy=True) for here, there in names.items()}
    made.load_state_dict(tensors, assign=True)
    return made.train(old.training)


def _enter(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Before the first layer: ``Y_0 = P_0^{-1} 1 e^T``, all streams of X_0 being the embedding e."""
    x = args[0] if args else kwargs["hidden_states"]
    entry = layer.attn_hc.entry.to(x.device)
    wide = torch.promote_types(x.dtype, entry.dtype)
    y = (entry.to(wide)[:, None] * x[..., :1, :].to(wide)).to(x.dtype)
    return ((y, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": y})


def _recorded(streams: Any, args: tuple[Any, ...], output: Any) -> Any:
    """After the stack: recorded states of the streams are those of the source."""
    states = getattr(output, "hidden_states", None)
    if isinstance(output, tuple) and not hasattr(output, "hidden_states"):  # return_dict=False
        return tuple(_sourced(streams, item) for item in output)
    if states is not None:
        output["hidden_states"] = _sourced(streams, states)
    return output


def _sourced(streams: Any, states: Any) -> Any:
    n, levels = len(streams.hc_head.gauge.read), len(streams.layers) + 1
    if not isinstance(states, tuple) or len(states) != levels:
        return states
    return tuple(
        _source(streams, level, state)
        if torch.is_tensor(state) and state.ndim == 4 and state.shape[-2] == n
        else state
        for level, state in enumerate(states)
    )


def _source(streams: Any, level: int, state: Tensor) -> Tensor:
    last = level == len(streams.layers)
    gauge = (streams.hc_head if last else streams.layers[level].attn_hc).gauge.read.to(state.device)
    wide = torch.promote_types(state.dtype, gauge.dtype)
    out: Tensor = (gauge.to(wide) @ state.to(wide)).to(state.dtype)
    return out


def _places(held: HeldSidecar) -> dict[str, str]:
    """Names in the streams module's state dict, and in the sidecar."""
    out = {f"hc_head.{here}": there for here, there in held.head_names().items()}
    for site in range(held.sites):
        at = f"layers.{site // 2}.{BRANCHES[site % 2]}"
        out |= {f"{at}.{here}": there for here, there in held.names(site).items()}
    return out


def _refuse_strangers(streams: Any, held: HeldSidecar) -> None:
    """See that the sidecar was made of this model, by its sizes and by the tensors that conversion keeps or maps."""
    config, place = streams.config, held.path
    wanted, found = MODELS.get(config.model_type), held.format
    if found != wanted:
        raise InputError(f"{place}: was made of format {found!r}, expected {wanted!r} for {config.model_type}")
    if isinstance(streams.hc_head, GatedHead):
        raise InputError("attach: the model is attached already, expected a freshly loaded one")
    sizes = {"streams": config.hc_mult, "width": config.hidden_size, "sites": 2 * len(streams.layers)}
    for name, value in zip(sizes, (held.n, held.d, held.sites)):
        if value != sizes[name]:
            raise InputError(f"{place}: has {value} {name}, expected {sizes[name]} as in the model")
    if (config.hc_eps, config.rms_norm_eps) != (held.read_map.eps, held.rms_eps):
        pair = (held.read_map.eps, held.rms_eps)
        raise InputError(f"{place}: hc_eps and rms_norm_eps are {pair}, the model has other ones")
    _refuse_other_maps(held, config)
    for layer, block in enumerate(streams.layers):
        for name in BRANCHES:
            module = getattr(block, name)
            if module.fn.is_meta:
                raise InputError(f"attach: layers.{layer}.{name} is offloaded, expected its tensors in memory")
            if held.comparable:
                _compare(module, held, 2 * layer + BRANCHES.index(name))


def _refuse_other_maps(held: HeldSidecar, config: Any) -> None:
    """Reads, writes and head of these models differ in their eps alone; a record that says otherwise was changed."""
    wanted = {"read": (1.0, config.hc_eps), "write": (2.0, 0.0), "head": (1.0, config.hc_eps)}
    found = {"read": held.read_map, "write": held.write_map, "head": held.head_map}
    for name, given in found.items():
        if given is not None and (given.mult, given.eps) != wanted[name]:
            raise InputError(
                f"{held.path}: record {name} has mult and eps {(given.mult, given.eps)}, expected {wanted[name]}"
            )
    if held.head_map is not None and held.head_rms_eps != config.rms_norm_eps:
        expected = f"expected {config.rms_norm_eps} as in the model"
        raise InputError(f"{held.path}: record head_norm_eps is {held.head_rms_eps}, {expected}")


def _compare(module: Any, held: HeldSidecar, site: int) -> None:
    part = f"sites.{site}"
    base, scale = held.source_controller(site)
    same = torch.equal(base.to(module.base.dtype), module.base[: len(base)].detach().cpu())
    same &= torch.equal(scale.to(module.scale.dtype), module.scale[: len(scale)].detach().cpu())
    if same and not held.refined:
        weight = gauged_weight(floats(module.fn[: len(base)].cpu()), floats(held.tensors[f"{part}.gauge.read"]))
        stored = floats(held.tensors[f"{part}.coef.weight"])
        room = 4 * torch.finfo(module.fn.dtype).eps
        same = bool(np.abs(weight - stored).max() <= room * np.abs(stored).max())
    if not same:
        raise InputError(f"{held.path}: {part} was made of other weights than this model's, expected its own sidecar")


def _save_with_sidecar(model: Any) -> None:
    """The class of this one object, with :class:`_Saving` in front and the same name (transformers goes by names)."""
    kind = type(model)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    model.__class__ = type(kind.__name__, (_Saving, kind), names)
