"""What became of the rows of an input: counted and judged."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from graphlog.data.builder import StoreBuilder
from graphlog.data.chunk import EXCLUDED, GraphChunk, Reject
from graphlog.errors import DataError, check_choice, out_of_range, setting

_WORST_SHARE = 0.5
"""Share of bad rows beyond which the column or file is probably the wrong one."""
_EXAMPLES = 3


class RowCollector:
    """Adds graphs and rejected rows of an input to a builder, in order, and counts them.

    Args:
        builder: Takes the graphs; None where :meth:`into` names it.
        where: The input, for messages.
        on_error: ``skip`` lists rejected rows and goes on; ``fail`` stops at the first.
        progress: Called as ``progress(rows done, rows rejected)``.
        item: What a row is, for messages.
    """

    def __init__(
        self,
        builder: StoreBuilder | None,
        where: str,
        on_error: str = "skip",
        progress: Callable[[int, int], None] | None = None,
        item: str = "data row",
    ) -> None:
        self.done = self.rejected = self._before = 0
        self._builder, self._where, self._on_error, self._item = builder, where, on_error, item
        self._progress = progress
        self._first: list[Reject] = []

    def into(self, builder: StoreBuilder) -> None:
        """Add the rows that follow to another builder, which numbers them from 0."""
        self._builder, self._before = builder, self.done

    def add(self, chunk: GraphChunk | None, rejects: Iterable[Reject], rows: int) -> None:
        """Add what became of the next ``rows`` rows."""
        for reject in rejects:
            self.reject(reject)
        if chunk is not None and self._builder is not None:
            self._builder.add(replace(chunk, rows=chunk.rows - self._before))
        self.done += rows
        if self._progress is not None:
            self._progress(self.done, self.rejected)

    def reject(self, reject: Reject) -> None:
        """Record a row that cannot be used.

        Raises:
            DataError: If bad rows are not to be skipped.
        """
        # of RDKit's reasons, some end in a line break
        reject = replace(reject, reason=" ".join(reject.reason.split()))
        if reject.reason == EXCLUDED:
            self._pass_on(reject)
            return
        if self._on_error == "fail":
            text = f"{reject.text[:80]!a} " if reject.text else ""
            raise DataError(
                f"{self._where}, {self._item} {reject.row}: {text}{reject.reason}; fix it, or skip "
                f"such rows with {setting('on_error', 'skip')}.",
                option="on_error",
                row=reject.row,
            )
        self._pass_on(reject)
        self.rejected += 1
        if len(self._first) < _EXAMPLES:
            self._first.append(reject)

    def _pass_on(self, reject: Reject) -> None:
        if self._builder is not None:
            self._builder.reject(replace(reject, row=reject.row - self._before))

    def refuse_if_mostly_bad(self, advice: str) -> None:
        """Refuse an input of which more than half cannot be used.

        Args:
            advice: What to do about it; ends the message's first sentence.

        Raises:
            DataError: If it is so; shows the first bad rows.
        """
        if self.rejected > _WORST_SHARE * self.done:
            item = self._item.removeprefix("data ")
            examples = "; ".join(
                f"{item} {r.row}: " + (f"{r.text[:40]!a} " if r.text else "") + r.reason
                for r in self._first
            )
            raise DataError(
                f"{self._where}: {self.rejected:,} of {self.done:,} {item}s cannot be "
                f"used{advice}. {examples}."
            )


def check_reading(on_error: str, limit: int | None) -> None:
    """Check the options that all readers share.

    Raises:
        ConfigError: If one is not valid.
    """
    check_choice("on_error", on_error, ["skip", "fail"])
    if limit is not None and limit < 1:
        raise out_of_range("limit", "1 or more", limit)
