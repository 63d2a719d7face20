"""Envoy's `/stats/prometheus`, as a scraper reads it."""

import http.client

from prometheus_client.parser import text_string_to_metric_families

PREFIX = "tokengate_"
Labels = dict[str, str]


class Metrics:
    """The filter's own samples at one moment; one that is not there is 0."""

    def __init__(self, admin_port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", admin_port, timeout=10)
        try:
            connection.request("GET", "/stats/prometheus")
            self.text = connection.getresponse().read().decode()
        finally:
            connection.close()
        self._samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(self.text):
            for sample in family.samples:
                if sample.name.startswith(PREFIX):
                    # Envoy's counters have no suffix; the parser gives them OpenMetrics'.
                    name = sample.name.removeprefix(PREFIX).removesuffix("_total")
                    self._samples[name, frozenset(sample.labels.items())] = sample.value

    def since(self, before: "Metrics") -> "Metrics":
        """What came between the two moments."""
        made = object.__new__(Metrics)
        made.text = self.text
        made._samples = {
            key: value - before._samples.get(key, 0)
            for key, value in self._samples.items()
            if value != before._samples.get(key, 0)
        }
        return made

    def __getitem__(self, of: tuple[str, Labels]) -> float:
        name, labels = of
        return self._samples.get((name, frozenset(labels.items())), 0)

    def all(self, name: str) -> list[tuple[Labels, float]]:
        return [(dict(labels), value) for (other, labels), value in self._samples.items() if other == name]
