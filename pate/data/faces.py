"""The embedded data set: cartoon faces with CelebA's forty attributes, drawn from a seed.

Who is in a picture is drawn first, then the picture (`pate.data.drawing`). A person has a sex, an age and permanent
features; a picture adds a mood, make-up, clothes and a camera. Attributes follow a Gaussian latent model: sex and
age set each attribute's rate, four factors (glamour, mood, weight, beard) tie attributes together.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import ndtr

from pate.data.drawing import LOOKS, OF_PERSON, draw
from pate.data.records import Records, Split
from pate.errors import PateError, require

Array = np.ndarray

# Rates, in thousandths, among young men, older men, young women, older women (as measured on CelebA, where Bald and
# Wearing_Hat leave anything to see); then tenths: loadings on glamour, mood, weight, beard; the share of what
# remains that belongs to the person and not to the picture.
MODEL = """
5_o_Clock_Shadow     333  152    0    0   0  0  0  4   5
Arched_Eyebrows       64   35  425  381   5  0  0  0   6
Attractive           400   71  730  327   6  0 -4  0   6
Bags_Under_Eyes      279  467   89  189  -2  3  4  0   4
Bald                  19  113    0    0   0  0  4  0  10
Bangs                123   38  181  373   0  0  0  0   6
Big_Lips             185  106  308  258   0  0  0  0  10
Big_Nose             329  575   86  212   0  0  6  0  10
Black_Hair           384  180  210  107   0  0  0  0   7
Blond_Hair            22   22  229  310   0  0  0  0   7
Blurry                49   71   40   93  -5  0  0  0   2
Brown_Hair           192  100  248  212   0  0  0  0   7
Bushy_Eyebrows       316  121   77   17   0  0  0  0   8
Chubby                46  251    7   46   0  0  8  0  10
Double_Chin           27  223    3   53   0  0  8  0  10
Eyeglasses            71  216   17   67  -5  0  0  0   6
Goatee               143  163    0    0   0  0  0  9   6
Gray_Hair              4  215    1   75   0  0  0  0   7
Heavy_Makeup           4    1  682  516   9  0  0  0   4
High_Cheekbones      283  350  537  722   2  9  0  0   4
Male                1000 1000    0    0   0  0  0  0  10
Mouth_Slightly_Open  420  432  510  630   0  8  0  0   2
Mustache              78  136    0    0   0  0  0  8   7
Narrow_Eyes          111  136  109  132   0  2  0  0   5
No_Beard             600  650 1000 1000   0  0  0 -9   6
Oval_Face            242  182  348  208   0  0  0  0  10
Pale_Skin             29   16   57   50   0 -3  0  0   4
Pointy_Nose          172  146  365  320   0  0 -3  0  10
Receding_Hairline     51  238   54   52   0  0  0  0   6
Rosy_Cheeks            2    5  107  133   6  5  0  0   3
Sideburns            133  140    0    0   0  0  0  9   6
Smiling              383  430  520  685   1  9  0  0   3
Straight_Hair        273  222  195  105   0  0  0  0   5
Wavy_Hair            160  127  438  511   3  0  0  0   5
Wearing_Earrings      20   10  286  495   3  2  0  0   3
Wearing_Hat           82   92   25   22  -4  0  0  0   3
Wearing_Lipstick       9    1  815  738   9  2  0  0   5
Wearing_Necklace      21   12  180  327   2  0  0  0   3
Wearing_Necktie      109  287    0    1   0  0  0  0   4
Young               1000    0 1000    0   0  0  0  0  10
"""
CELLS = (0.264, 0.153, 0.510, 0.073)  # how many young men, older men, young women, older women
FACTORS = (0.5, 0.3, 1.0, 0.8)  # each factor's share that belongs to the person
EXCLUSIVE = (  # at most one of each; they share the latent variable of the first
    ("Blond_Hair", "Brown_Hair", "Black_Hair", "Gray_Hair"),
    ("Wavy_Hair", "Straight_Hair"),
    ("Bangs", "Receding_Hairline"),
    ("Wearing_Necklace", "Wearing_Necktie"),
)
CLEARS = {  # what cannot be seen, or cannot be, beside the first
    "Bald": (*EXCLUSIVE[0], *EXCLUSIVE[1], *EXCLUSIVE[2], "Wearing_Hat"),
    "Wearing_Hat": ("Bangs", "Receding_Hairline"),
    "Goatee": ("No_Beard",),
    "Mustache": ("No_Beard",),
    "Sideburns": ("No_Beard",),
}
ROWS = [line.split() for line in MODEL.split("\n") if line]
ATTRIBUTES: tuple[str, ...] = tuple(row[0] for row in ROWS)
NUMBERS = np.array([row[1:] for row in ROWS], float)
RATES, LOADINGS, SHARES = NUMBERS[:, :4].T / 1000, NUMBERS[:, 4:8].T / 10, NUMBERS[:, 8] / 10


@dataclass(frozen=True)
class Faces:
    """Settings of `data=faces`.

    Attributes:
        private, public, test: how many pictures each part has; no person is in two of them, and the size of one
            part does not change the pictures of another.
        size: pixels on a side.
        seed: another seed, other people.
    """

    private: int = 12500
    public: int = 300
    test: int = 1000
    size: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("private", "public", "test"):
            require(1 <= getattr(self, name) <= 1_000_000, name, "from 1 to 1000000", getattr(self, name))
        require(16 <= self.size <= 256, "size", "from 16 to 256", self.size)
        require(self.seed >= 0, "seed", ">= 0", self.seed)

    def load(self) -> Split:
        """Draw everything.

        Private persons have about 10 pictures each. Queries and test, like a random choice among very many pictures,
        have 2 or 3 of each person, so that a few hundred of them show enough people.
        """
        private = self.part(0, self.private, zipf=0.65)
        public = self.part(1, self.public, zipf=2.0)
        test = self.part(2, self.test, zipf=2.0)
        return Split(private, public, test, ATTRIBUTES)

    def describe(self) -> str:
        """One line for statements and reports."""
        return f"cartoon faces, {self.size} x {self.size} pixels, 40 attributes, seed {self.seed}"

    def part(self, part: int, count: int, zipf: float) -> Records:
        """One part; ids and persons of different parts lie a million apart."""
        crowd, who, look, noise = streams(self.seed, part, 4)
        person = persons(crowd, count, zipf)
        labels = attributes(who, person)
        looks = blend(look, person, np.isin(LOOKS, OF_PERSON).astype(float))
        inputs = draw(labels, ATTRIBUTES, looks, noise, self.size)
        start = part * 1_000_000
        ids = np.char.mod("face-%07d", np.arange(start, start + count))
        return Records(inputs, labels, ids, np.char.mod("person-%07d", person + start))


def streams(seed: int, part: int, count: int) -> list[np.random.Generator]:
    """Independent streams of random numbers, the same on every machine."""
    seeds = np.random.SeedSequence((seed, part)).spawn(count)
    return [np.random.Generator(np.random.PCG64(one)) for one in seeds]


def persons(rng: np.random.Generator, count: int, zipf: float) -> Array:
    """Whose each picture is: 0, 0, 0, 1, 2, 2, ...; a person has s in 1..30 pictures with weight s^-zipf."""
    size = np.arange(1, 31)
    weight = size**-zipf
    sizes = rng.choice(size, count, p=weight / weight.sum())  # at most `count` persons are needed
    return np.repeat(np.arange(count), sizes)[:count]


def blend(rng: np.random.Generator, person: Array, shares: Array) -> Array:
    """Standard normal (N, D): column d has the part `shares[d]` of its variance in common within a person.

    Persons and pictures have their own streams, so that the first N rows are the same however many follow.
    """
    of_person, of_picture = rng.spawn(2)
    own = of_person.standard_normal((person[-1] + 1, len(shares)))[person]
    blended: Array = np.sqrt(shares) * own + np.sqrt(1 - shares) * of_picture.standard_normal(own.shape)
    return blended


def attributes(rng: np.random.Generator, person: Array) -> Array:
    """Draw (N, 40) bool for the pictures of the given persons."""
    cells, latent = rng.spawn(2)
    cell = cells.choice(len(CELLS), person[-1] + 1, p=CELLS)[person]
    drawn = blend(latent, person, np.concatenate([FACTORS, SHARES]))
    factors, own = np.split(drawn, [len(FACTORS)], axis=1)
    z = factors @ LOADINGS + own * np.sqrt(1 - (LOADINGS**2).sum(0))
    leader, start = np.arange(len(ATTRIBUTES)), np.zeros_like(RATES)
    for group in EXCLUSIVE:
        index = [ATTRIBUTES.index(name) for name in group]
        leader[index] = index[0]
        start[:, index[1:]] = RATES[:, index[:-1]].cumsum(1)
    position = ndtr(-z)[:, leader]
    return consistent((start[cell] <= position) & (position < (start + RATES)[cell]))


def consistent(labels: Array) -> Array:
    """Clear what cannot stand beside something else."""
    column = ATTRIBUTES.index
    for winner, losers in CLEARS.items():
        for loser in losers:
            labels[:, column(loser)] &= ~labels[:, column(winner)]
    return labels


def contact_sheet(records: Records, path: Path, columns: int = 12) -> None:
    """Write a picture of the given faces, scaled up, with each one's rarest attributes under it."""
    from matplotlib.figure import Figure

    rows = -(-len(records) // columns)
    figure = Figure(figsize=(1.25 * columns, 1.85 * rows), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    for place, (pixels, labels) in enumerate(zip(records.inputs, records.labels, strict=True)):
        left, top = 1.25 * (place % columns) + 0.06, 1.85 * (place // columns) + 0.06
        axes.imshow(pixels, extent=(left, left + 1.13, top + 1.13, top), interpolation="nearest")
        axes.text(left + 0.56, top + 1.18, caption(labels), ha="center", va="top", fontsize=6.5)
    axes.set(xlim=(0, 1.25 * columns), ylim=(1.85 * rows, 0), aspect="equal")
    figure.savefig(path, dpi=110)


def caption(labels: Array, most: int = 4) -> str:
    """The names of the rarest attributes a face has, one a line; No_Beard and Young say nothing."""
    rate = np.array(CELLS) @ RATES
    chosen = [k for k in np.argsort(rate) if labels[k] and rate[k] < 0.6][:most]
    return "\n".join(ATTRIBUTES[k].replace("_", " ") for k in chosen) or "-"


def main() -> None:
    """Write the contact sheet and print its path."""
    parser = argparse.ArgumentParser(prog="python -m pate.data.faces", description=main.__doc__)
    parser.add_argument("--out", type=Path, default=Path("faces.png"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        records = Faces(private=1, public=1, test=400, seed=options.seed).load().test
        first = np.unique(records.persons, return_index=True)[1][:96]
        contact_sheet(records.take(first), options.out)
    except (PateError, OSError) as error:
        parser.error(str(error))
    print(options.out)


if __name__ == "__main__":
    main()
