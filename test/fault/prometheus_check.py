#!/usr/bin/env python3
"""Reads pages of metrics as Prometheus does, with the parser of its client library.

    prometheus_check.py URL [FAMILY...]

Exit code 0 if the page is well-formed, its histograms add up, and the families named are in it with samples.
"""

import sys
import urllib.request

from prometheus_client.parser import text_string_to_metric_families


def check_histogram(family):
    buckets, counts = {}, {}
    for sample in family.samples:
        labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
        if sample.name.endswith("_bucket"):
            buckets.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_count"):
            counts[labels] = sample.value
    assert buckets.keys() == counts.keys(), family.name
    for labels, of_one in buckets.items():
        assert of_one == sorted(of_one), (family.name, labels, "bounds ascend")
        values = [value for _, value in of_one]
        assert values == sorted(values), (family.name, labels, "buckets are cumulative")
        assert of_one[-1] == (float("inf"), counts[labels]), (family.name, labels)


def main(url, wanted):
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers
        text = answer.read().decode("utf-8")
    families, seen = {}, set()
    for family in text_string_to_metric_families(text):
        assert family.name not in families, f"{family.name} comes twice"
        assert family.type != "unknown" and family.documentation, family.name
        families[family.name] = family
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in seen, f"{key} comes twice"
            seen.add(key)
        if family.type == "histogram":
            check_histogram(family)
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples), family.name
    for name in wanted:
        assert name in families and families[name].samples, f"{name} is missing"
    print(f"{len(families)} families, {len(seen)} samples")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
