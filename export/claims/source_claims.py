"""Checks what a manifest says about the source itself: labels, texts, columns, and where weights are from."""

from __future__ import annotations

import math

from torch import nn

from turnpike.export.claims.checklist import NO_ROWS, OTHER_ROWS, Checklist
from turnpike.export.claims.text_claims import check_text
from turnpike.export.claims.verified_file import VerifiedFile
from turnpike.export.output.repository import MODEL_FILE, PLAIN_FILE
from turnpike.export.sources.data.features import column_count, named_features, without_words
from turnpike.export.sources.data.pixels import picture_input

NO_LABELS = "the source gives no names: give --labels"
# how cells become numbers
FORM_FIELDS = ("kind", "categories", "date_format", "decimal_comma", "affix", "blanks")
# relative difference of sums in float64
SUM_TOLERANCE = 1e-6


def check_source(claims: Checklist, file: VerifiedFile, *, has_rows: bool) -> None:
    """Check labels, alphabet, text, picture, features, origin and name; `has_rows`: they are the file's."""
    check_labels(claims, file)
    check_text(claims, file.manifest, file.network, has_rows=has_rows)
    _check_picture(claims, file)
    _check_features(claims, file, has_rows=has_rows)
    _check_task(claims, file)
    _check_origin(claims, file)
    _check_name(claims, file)


def check_labels(claims: Checklist, file: VerifiedFile) -> None:
    """Check the names of the classes: those of the source, or else their number against the output."""
    labels, expected = file.manifest.labels, file.network.labels
    if expected:
        claims.expect("labels", expected, labels)
        return
    if not labels:
        claims.leave_empty("labels")
        return
    output = file.runtime.outputs[0]
    columns = output.dims[-1] if output.dims else "?"
    if isinstance(columns, int) and len(labels) != columns:
        raise claims.error("labels", f"expected {columns}, the columns of {output.name}, got {len(labels)}")
    if repeated := [label for label in labels if labels.count(label) > 1]:
        raise claims.error("labels", f"expected distinct names, got {repeated[0]!r} more than once")
    claims.claim(NO_LABELS, "labels")


def _check_picture(claims: Checklist, file: VerifiedFile) -> None:
    """Check the numbers of black and white by the source or its rows; a file of an older version has none."""
    if file.manifest.picture is None:
        claims.leave_empty("picture")
    elif file.network.pixels is not None:
        claims.expect("picture", picture_input(file.network), file.manifest.picture, "of the rows")
    else:
        claims.claim("the source does not say which numbers black and white are", "picture")


def _check_features(claims: Checklist, file: VerifiedFile, *, has_rows: bool) -> None:
    """Check the columns of a table: all of them if the training or the rows tell, or else their number."""
    manifest, network = file.manifest, file.network
    features = manifest.features
    if network.features:
        expected = network.features
        # an export with --hide-categories publishes no words
        if not any(feature.categories for feature in features):
            expected = without_words(expected)
        claims.expect("features", expected, features, "of the training run")
        return
    if not features:
        claims.leave_empty("features")
        return
    columns = column_count(network) or 0  # 0 without one input of rows and columns
    if len(features) != columns:
        names = ", ".join(spec.name for spec in network.inputs)
        raise claims.error("features", f"expected {columns}, the columns of {names}, got {len(features)}")
    if not has_rows:
        claims.claim(NO_ROWS if network.rows is None else OTHER_ROWS, "features")
        return
    named = named_features([feature.name for feature in features], network)
    pairs = list(zip(named, features, strict=True))
    for ours, theirs in pairs:
        # sums of many numbers are rounded in another order on another machine
        for key in ("low", "high", "mean", "sd"):
            value, got = getattr(ours, key), getattr(theirs, key)
            if not math.isclose(value, got, rel_tol=SUM_TOLERANCE, abs_tol=SUM_TOLERANCE):
                raise claims.error(f"features: {theirs.name}: {key}", f"expected {value:g}, got {got:g}")
    claims.check("features.low", "features.high", "features.mean", "features.sd")
    claims.claim("the source gives no names of columns", "features.name", "features.unit")
    forms = [f"features.{key}" for key in FORM_FIELDS]
    if all(getattr(ours, key) == getattr(theirs, key) for ours, theirs in pairs for key in FORM_FIELDS):
        claims.check(*forms)
    else:
        claims.claim("the source does not tell what its columns hold", *forms)


def _check_task(claims: Checklist, file: VerifiedFile) -> None:
    """Check what is predicted: a training run tells, and the output of a number has one column."""
    manifest, network = file.manifest, file.network
    if network.training is not None:
        claims.expect("task", network.task, manifest.task, "of the training run")
        claims.expect("target", network.target, manifest.target, "of the training run")
        if manifest.interval is None:
            claims.leave_empty("interval")
        else:
            claims.expect("interval", network.interval, manifest.interval, "of the training run")
        return
    if manifest.interval is None:
        claims.leave_empty("interval")
    else:
        claims.claim("the source does not tell how large its errors are", "interval")
    output = file.runtime.outputs[0]
    columns = output.dims[-1] if len(output.dims) > 1 else 1
    if manifest.task == "number" and isinstance(columns, int) and columns != 1:
        raise claims.error("task", f"expected classes, as {output.name} has {columns} columns, got a number")
    if manifest.task == network.task:
        claims.check("task")
    else:
        claims.claim("the rows that are given do not tell it", "task")
    if manifest.target == network.target:
        claims.check("target")
    else:
        claims.claim("the source does not tell it", "target")


def _check_origin(claims: Checklist, file: VerifiedFile) -> None:
    """Check where the weights and the graph are from, as far as the source tells."""
    manifest, network = file.manifest, file.network
    if manifest.source == network.kind:
        claims.check("source")
    else:
        claims.claim(f"the source that is given is of the kind {network.kind}", "source")
    # a checkpoint was trained, and the code of a factory was watched; anything else just has its weights
    is_known = network.training is not None or (
        network.module is not None and not isinstance(file.against, nn.Module)
    )
    if network.random_weights or is_known:
        claims.expect("random_weights", network.random_weights, manifest.random_weights)
    else:
        claims.claim("the source does not tell how it got its weights", "random_weights")


def _check_name(claims: Checklist, file: VerifiedFile) -> None:
    """Compare name and version with the folders of the repository that the file is in."""
    manifest, path = file.manifest, file.path.resolve()
    version, name = path.parent.name, path.parent.parent.name
    if path.name in (MODEL_FILE, PLAIN_FILE) and (name, version) == (manifest.name, str(manifest.version)):
        claims.check("name", "version")
    else:
        claims.claim("the file is not in the folder of this name and version", "name", "version")
    claims.claim("nothing here knows what made the file", "tools")
