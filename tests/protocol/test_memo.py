"""What is computed once is remembered, and no more of it than allowed."""

from eruca.protocol.memo import Memo


def test_a_full_memo_forgets_the_oldest_quarter() -> None:
    memo: Memo[int, str] = Memo(8)
    for number in range(8):
        assert memo.remember(number, str(number)) == str(number)
    assert list(memo) == [0, 1, 2, 3, 4, 5, 6, 7]
    memo.remember(8, "8")
    assert list(memo) == [2, 3, 4, 5, 6, 7, 8]


def test_it_never_has_more_than_its_limit() -> None:
    memo: Memo[int, int] = Memo(100)
    for number in range(10_000):
        memo.remember(number, number)
        assert len(memo) <= 100 and memo[number] == number
