"""Text full of numbers as answers hold it: worked problems, prices, times, dates, tables, codes, formulas.

Tokenizers disagree most on digits: Kimi's joins up to three, others take them one by one. So counts need all
one, two and three-digit numbers, with and without separators, after words, signs, brackets and Chinese.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

Draw = Callable[[int, int], int]  # a number between two, both included

MASK = (1 << 64) - 1
NAMES = "Ana Ben Carla Dmitri Elif Farid Grace Hiro Ines Jonas Kofi Lena Mei Noah Olga Pablo Rosa Samir"
THINGS = (
    "apples books candles chairs coins cups eggs flowers lamps letters marbles notebooks oranges pages "
    "pencils photos plates shirts stamps stickers stones tickets tiles trees"
)
SHOPS = "bakery bookshop café factory farm garage garden library market museum school shop theatre"
WARES = "Bolt Cable Drill Filter Fuse Gauge Glue Hinge Hose Lamp Nail Pump Rope Screw Tape Valve"
MONTHS = "January February March April May June July August September October November December"
UNITS = [("km", "m"), ("kg", "g"), ("litres", "ml"), ("seconds", "ms"), ("GB", "MB"), ("kW", "W")]


def draws(seed: int) -> Draw:
    """Our own generator (SplitMix64, Steele, Lea and Flood 2014): Python's may change with its version."""
    state = seed & MASK

    def draw(low: int, high: int) -> int:
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
        return low + (z ^ (z >> 31)) % (high - low + 1)

    return draw


def number_text(n_chars: int, seed: int = 1) -> list[str]:
    """Documents with at least `n_chars` characters together; a longer text begins with a shorter one's."""
    draw = draws(seed)
    found: list[str] = []
    while n_chars > 0:
        kinds = list(KINDS)
        while kinds and n_chars > 0:
            text = kinds.pop(draw(0, len(kinds) - 1))(draw)
            found.append(text)
            n_chars -= len(text)
    return found


def _pick(draw: Draw, words: str) -> str:
    among = words.split()
    return among[draw(0, len(among) - 1)]


def _number(draw: Draw) -> int:
    """Any count of digits from one to six is as likely as another."""
    return draw(0, 10 ** draw(1, 6) - 1)


def _written(draw: Draw, n: int) -> str:
    """1,234 or 1234."""
    return f"{n:,}" if draw(0, 1) else str(n)


def _money(cents: int, sign: str = "$") -> str:
    return f"{sign}{cents // 100:,}.{cents % 100:02d}"


def _shopping(draw: Draw) -> str:
    name, thing, shop = _pick(draw, NAMES), _pick(draw, THINGS), _pick(draw, SHOPS)
    n, cents, paid = draw(2, 48), draw(5, 999), draw(1, 9) * 100
    total = n * cents
    change = -total % (paid * 100)
    return (
        f"Question: {name} buys {n} {thing} at the {shop} for {_money(cents)} each and pays with "
        f"{_money(total + change)}. How much change does {name} get?\n"
        f"The {thing} cost {n} * {_money(cents)} = {_money(total)}.\n"
        f"The change is {_money(total + change)} - {_money(total)} = {_money(change)}.\n"
        f"The answer is {_money(change)}."
    )


def _shares(draw: Draw) -> str:
    one, two, thing = _pick(draw, NAMES), _pick(draw, NAMES), _pick(draw, THINGS)
    first, factor, more = draw(3, 400), draw(2, 12), draw(2, 250)
    second = first * factor + more
    total = first + second
    return (
        f"{one} has {first} {thing}. Another box holds {factor} times as many, and {two} adds {more} to it.\n"
        f"Step 1: {first} × {factor} = {_written(draw, first * factor)} {thing} are in the box at first.\n"
        f"Step 2: {first * factor}+{more}={second}, so there are {_written(draw, second)} after that.\n"
        f"Step 3: Altogether that makes {first} + {second} = {_written(draw, total)} {thing}.\n"
        f"Answer: {total}"
    )


def _work(draw: Draw) -> str:
    name, hours, days, wage = _pick(draw, NAMES), draw(2, 12), draw(2, 31), draw(8, 95)
    share = draw(1, 19) * 5
    pay = hours * days * wage
    return (
        f"{name} works {hours} hours a day for {days} days and earns ${wage} an hour.\n"
        f"- Hours: {hours} × {days} = {hours * days}\n"
        f"- Pay: {hours * days} × ${wage} = ${_written(draw, pay)}\n"
        f"- Saved, {share}%: 0.{share:02d} × {pay} = {_money(pay * share)}\n"
        f"So {name} has {_money(pay * (100 - share))} left."
    )


def _product(draw: Draw) -> str:
    a, tens, ones = draw(11, 999), draw(1, 9) * 10, draw(1, 9)
    b = tens + ones
    return (
        f"{a} × {b} = {a} × ({tens} + {ones})\n"
        f"= {a * tens} + {a * ones}\n= {a * b}\n"
        f"Check: {a * b:,} / {b} = {a}."
    )


def _quotient(draw: Draw) -> str:
    a, b = draw(1000, 99999), draw(3, 97)
    exact = f"{a / b:.3f}"
    return (
        f"Divide {_written(draw, a)} by {b}. {b} goes into {a} {a // b} times, because {b} × {a // b} = "
        f"{b * (a // b)}; the remainder is {a} − {b * (a // b)} = {a % b}. As a decimal, {a}/{b} ≈ {exact}."
    )


def _percent(draw: Draw) -> str:
    before, percent = draw(2, 900) * 10, draw(1, 95)
    cut = before * percent
    return (
        f"A price of {_money(before * 100, '€')} is reduced by {percent}%. The reduction is {before} × "
        f"{percent / 100:g} = {cut / 100:g}, and the new price is {_money(before * 100 - cut, '€')}. "
        f"Raised by {percent}% instead, it would be {_money(before * 100 + cut, '€')}."
    )


def _fractions(draw: Draw) -> str:
    a, b, c, d = draw(1, 9), draw(2, 24), draw(1, 9), draw(2, 24)
    total = Fraction(a, b) + Fraction(c, d)
    return (
        f"\\[ \\frac{{{a}}}{{{b}}} + \\frac{{{c}}}{{{d}}} = \\frac{{{a * d}}}{{{b * d}}} + "
        f"\\frac{{{c * b}}}{{{b * d}}} = \\frac{{{a * d + c * b}}}{{{b * d}}} \\]\n"
        f"In lowest terms this is {total}, or about {float(total):.4f}. \\(\\boxed{{{total}}}\\)"
    )


def _equation(draw: Draw) -> str:
    x, a, b = draw(-40, 140), draw(2, 60), draw(1, 500)
    right = a * x + b
    return (
        f"Solve {a}x + {b} = {right}.\nSubtract {b} from both sides: {a}x = {right - b}.\n"
        f"Divide by {a}: x = {right - b}/{a} = {x}.\n**x = {x}**"
    )


def _clock(draw: Draw) -> str:
    start, length = draw(0, 1439), draw(5, 600)
    end = (start + length) % 1440
    half = "a.m." if start < 720 else "p.m."
    twelve = f"{(start // 60 - 1) % 12 + 1}:{start % 60:02d} {half}"
    return (
        f"The train leaves at {start // 60:02d}:{start % 60:02d} ({twelve}) and takes {length} "
        f"minutes, that is {length // 60} h {length % 60} min. It arrives at {end // 60:02d}:{end % 60:02d} "
        f"on platform {draw(1, 24)}, after {draw(12, 980)} km."
    )


def _date(draw: Draw) -> tuple[int, int, int]:
    return draw(1700, 2035), draw(1, 12), draw(1, 28)


def _dates(draw: Draw) -> str:
    lines = []
    for _ in range(draw(3, 6)):
        year, month, day = _date(draw)
        name = MONTHS.split()[month - 1]
        forms = [
            f"- {name} {day}, {year}: {_written(draw, _number(draw))} visitors",
            f"- {year}-{month:02d}-{day:02d}: invoice no. {draw(1, 99999)}, due in {draw(7, 90)} days",
            f"- {day} {name} {year}, aged {draw(1, 99)}",
            f"- {month}/{day}/{year % 100:02d} at {draw(1, 12)}:{draw(0, 59):02d}, room {draw(1, 999)}",
            f"- from {year} to {year + draw(1, 60)}, pp. {draw(1, 299)}–{draw(300, 999)}",
        ]
        lines.append(forms[draw(0, len(forms) - 1)])
    return "\n".join(lines)


def _years(draw: Draw) -> str:
    year, step, value = draw(1801, 2005), draw(1, 10), draw(900, 90000)
    lines = ["Year,Population,Change"]
    for i in range(draw(4, 8)):
        change = draw(-value // 9, value // 5)
        value += change
        lines.append(f"{year + i * step},{value},{100 * change / (value - change):+.1f}%")
    return "```csv\n" + "\n".join(lines) + "\n```"


def _invoice(draw: Draw) -> str:
    lines, total = ["| No. | Item | Quantity | Price | Sum |", "|---|---|---:|---:|---:|"], 0
    for i in range(1, draw(3, 6)):
        n, cents = draw(1, 250), draw(5, 19999)
        total += n * cents
        lines.append(
            f"| {i} | {_pick(draw, WARES)} {draw(2, 40)} mm | {n} | {_money(cents)} | {_money(n * cents)} |"
        )
    tax = total * 19 // 100
    return "\n".join(
        [*lines, f"Net {_money(total)}, tax (19%) {_money(tax)}, **total {_money(total + tax)}**."]
    )


def _codes(draw: Draw) -> str:
    return (
        f"Please call 555-{draw(100, 199):04d} or +1 (555) {draw(100, 999)}-{draw(0, 9999):04d}, ext. "
        f"{draw(0, 999):03d}, between {draw(6, 11)} and {draw(12, 21)}. Your order is "
        f"#{draw(0, 999999):06d}-{draw(0, 99):02d}, the code {draw(0, 999):03d} {draw(0, 999):03d}. "
        f"Version v{draw(0, 30)}.{draw(0, 40)}.{draw(0, 99)} runs at 10.{draw(0, 255)}.{draw(0, 255)}."
        f"{draw(1, 254)}:{draw(1024, 65535)}; the device 0x{draw(0, 65535):04X} has {2 ** draw(3, 14)} "
        f"bytes. Locker {draw(0, 999):03d}, seat {draw(1, 60)}B, row {draw(1, 99)}, postcode "
        f"{draw(1000, 99999):05d}."
    )


def _measures(draw: Draw) -> str:
    lines = []
    for _ in range(draw(3, 5)):
        large, small = UNITS[draw(0, len(UNITS) - 1)]
        value = _number(draw)
        lines.append(f"{value / 1000:g} {large} = {_written(draw, value)} {small}")
    a, b = draw(1, 9999) / 100, draw(1, 999) / 10
    c = draw(-40, 45)
    lines.append(f"{a} + {b} = {a + b:.2f}, {a} × {b} ≈ {a * b:.3f}")
    lines.append(f"{c} °C = 1.8 × {c} + 32 = {1.8 * c + 32:.1f} °F")
    return "\n".join(lines)


def _mean(draw: Draw) -> str:
    values = [_number(draw) for _ in range(draw(4, 9))]
    total, n = sum(values), len(values)
    ordered = ", ".join(str(value) for value in sorted(values))
    return (
        f"```python\nvalues = {values}\nprint(sum(values) / len(values))  # {total / n:.2f}\n```\n"
        f"In order: {ordered}. The sum is {_written(draw, total)}, the mean {total} ÷ {n} ≈ {total / n:.2f}, "
        f"and the range {max(values)} − {min(values)} = {max(values) - min(values)}."
    )


def _powers(draw: Draw) -> str:
    a, b, n = draw(2, 31), draw(2, 12), draw(2, 5)
    side = draw(3, 60)
    return (
        f"{a}² = {a * a}, √{b * b * 100} = {b * 10}, {b}^{n} = {_written(draw, b**n)}. A square with sides "
        f"of {side} cm has an area of {side}·{side} = {side * side} cm² and a diagonal of about "
        f"{side * 2**0.5:.2f} cm. One in {a * b} is {100 / (a * b):.2f}%, a ratio of 1:{a * b}."
    )


def _record(draw: Draw) -> str:
    lines = []
    for _ in range(draw(2, 4)):
        year, month, day = _date(draw)
        time = f"{draw(0, 23):02d}:{draw(0, 59):02d}:{draw(0, 59):02d}Z"
        lines.append(
            f'{{"id": {draw(1, 99999)}, "date": "{year}-{month:02d}-{day:02d}T{time}", '
            f'"score": {draw(0, 1000) / 1000}, "size": [{draw(1, 4096)}, {draw(1, 4096)}], '
            f'"lat": {draw(-9000, 9000) / 100}, "n": {_number(draw)}}}'
        )
    return "\n".join(lines)


def _chinese(draw: Draw) -> str:
    n, price, off = draw(2, 60), draw(3, 480), draw(1, 9)
    year, month, day = _date(draw)
    total = n * price
    return (
        f"{year}年{month}月{day}日，学校买了{n}盒粉笔，每盒{price}元，一共需要{n} × {price} = {total}元。"
        f"如果打{off}折，实际付款{total * off / 10:g}元，节省了{total - total * off / 10:g}元。"
        f"这些粉笔分给{draw(2, 36)}个班，每班每天用{draw(1, 20)}支，约占总数的{draw(1, 9999) / 100}%。"
    )


KINDS: tuple[Callable[[Draw], str], ...] = (
    _shopping, _shares, _work, _product, _quotient, _percent, _fractions, _equation, _clock,
    _dates, _years, _invoice, _codes, _measures, _mean, _powers, _record, _chinese,
)  # fmt: skip
