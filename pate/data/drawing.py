"""Draw cartoon faces: every attribute is something to see, and none is all that varies.

Faces are drawn in chunks, as arithmetic on coverage masks. Each picture has its own coordinates u (to the right) and
v (down), in which a head reaches about half a unit to each side of the origin; lengths below are in that unit. A
shape is a distance to its edge, negative inside, antialiased over one pixel. Traits are (n, 1, 1), colours
(3, n, 1, 1), all float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

Array = np.ndarray
Number = Array | float

OF_PERSON = ("tone", "iris", "width", "height", "eye_gap", "hair_hue", "hair_light", "mouth_height")
OF_PICTURE = (
    *("shift_x", "shift_y", "scale", "tilt", "turn", "light_x", "light_y", "bright", "noise", "slope"),
    *("hair_length", "wave", "hat_kind", "shades", "metal", "lip_hue", "lid_hue"),
    *(f"{thing}_{channel}" for thing in ("wall", "shirt", "hat", "tie", "frame") for channel in "rgb"),
)
# Attributes that are a matter of degree: a picture shows label + this much of a normal, so the classes overlap.
DEGREES = {
    **dict.fromkeys(("Attractive", "Young", "High_Cheekbones", "Oval_Face", "Pointy_Nose", "Big_Nose"), 0.3),
    **dict.fromkeys(("Arched_Eyebrows", "Bags_Under_Eyes", "Bushy_Eyebrows", "Narrow_Eyes", "Big_Lips"), 0.3),
    **dict.fromkeys(("Straight_Hair", "Wavy_Hair", "Rosy_Cheeks", "Pale_Skin", "Chubby", "Double_Chin"), 0.25),
    **dict.fromkeys(("Smiling", "Mouth_Slightly_Open", "Wearing_Lipstick", "Heavy_Makeup", "Male"), 0.25),
    **dict.fromkeys(("5_o_Clock_Shadow",), 0.2),
}
LOOKS = (*OF_PERSON, *OF_PICTURE, *DEGREES)
CHUNK = 64  # pictures whose planes fit a core's cache

SKINS = ((0.33, 0.21, 0.15), (0.58, 0.39, 0.28), (0.83, 0.62, 0.48), (0.92, 0.74, 0.61))
IRISES = ((0.14, 0.08, 0.04), (0.20, 0.36, 0.18), (0.12, 0.32, 0.62))
LIPSTICKS = ((0.55, 0.05, 0.22), (0.86, 0.08, 0.16), (0.95, 0.25, 0.42))
LIDS = ((0.25, 0.20, 0.50), (0.45, 0.15, 0.45), (0.15, 0.40, 0.45))
UNNAMED_HAIRS = ((0.24, 0.15, 0.11), (0.60, 0.22, 0.10), (0.66, 0.50, 0.30))
HAIRS = {
    "Black_Hair": (0.06, 0.05, 0.07),
    "Blond_Hair": (0.95, 0.80, 0.40),
    "Brown_Hair": (0.42, 0.25, 0.13),
    "Gray_Hair": (0.74, 0.75, 0.78),
}


def tint(*rgb: float) -> Array:
    """A colour that all pictures share."""
    return np.array(rgb, np.float32).reshape(3, 1, 1, 1)


DARK, WHITE, ROSE = tint(0.05, 0.04, 0.06), tint(0.98, 0.98, 0.96), tint(0.93, 0.32, 0.36)
GOLD, SILVER, STUBBLE = tint(0.98, 0.83, 0.25), tint(0.93, 0.96, 1.0), tint(0.2, 0.2, 0.25)


def mix(first: Array, second: Array, amount: Array) -> Array:
    """From the first at 0 to the second at 1 and not beyond."""
    mixed: Array = first + np.clip(amount, 0, 1) * (second - first)
    return mixed


def ramp(stops: Sequence[Sequence[float]], position: Array) -> Array:
    """Colours along evenly spaced stops, position from -1 to 1."""
    at = np.linspace(-1, 1, len(stops))
    return np.stack([np.interp(position, at, channel) for channel in zip(*stops, strict=True)]).astype(np.float32)


@dataclass(frozen=True)
class Sheet:
    """n pictures under the brush: `pixels` (3, n, h, w), coordinates (n, h, w), sharp = pixels in a unit of length."""

    pixels: Array
    u: Array
    v: Array
    sharp: Array
    traits: dict[str, Array]

    def __getitem__(self, name: str) -> Array:
        return self.traits[name]

    def opacity(self, name: str) -> Array:
        """An attribute of degree as paint: none below 0, full from 1."""
        amount: Array = np.clip(self[name], 0, 1)
        return amount

    def colour(self, thing: str) -> Array:
        """The colour of a wall, shirt, hat, tie or frame, as its look says."""
        return np.stack([0.5 + 0.45 * self[f"{thing}_{channel}"] for channel in "rgb"])

    def rows(self, top: float, bottom: float) -> "Sheet":
        """Only the rows where v can lie between top and bottom, in any pose; strokes cost less there."""
        size = self.v.shape[1]
        first, last = (1.2 * top - 0.2 + 1) / 2, (1.2 * bottom + 0.2 + 1) / 2
        part = slice(max(int(first * size), 0), int(last * size) + 1)
        return replace(self, pixels=self.pixels[:, :, part], u=self.u[:, part], v=self.v[:, part])

    def inside(self, distance: Array) -> Array:
        """Coverage of a shape from the distance to its edge."""
        cover: Array = np.clip(0.5 - distance * self.sharp, 0, 1)
        return cover

    def ellipse(self, x: Number, y: Number, a: Number, b: Number, twice: bool = False) -> Array:
        """Coverage of an ellipse around (x, y) with half-axes a and b; twice: with its mirror image."""
        u = np.abs(self.u) if twice else self.u
        radius = np.sqrt(((u - x) / a) ** 2 + ((self.v - y) / b) ** 2)
        return self.inside((radius - 1) * np.minimum(a, b, dtype=np.float32))

    def stroke(self, along: Array, half_length: Number, across: Array, half_width: Number) -> Array:
        """Coverage of a band: |along| <= half_length and |across| <= half_width."""
        return self.inside(np.maximum(np.abs(along) - half_length, np.abs(across) - half_width))

    def head(self, grow: Number = 0.0) -> Array:
        """Distance to the edge of the head, or of one grown by so much; the jaw tapers."""
        half = self["half_width"] + grow
        u = self.u / (half * (1 + self["jaw"] * np.clip(self.v, 0, 1)))
        radius: Array = np.sqrt(u**2 + (self.v / (self["half_height"] + grow)) ** 2)
        return (radius - 1) * half

    def paint(self, cover: Array, colour: Array) -> None:
        """Lay a colour over the pixels, as much as the coverage says."""
        self.pixels[...] += cover * (colour - self.pixels)


def draw(labels: Array, names: Sequence[str], looks: Array, rng: np.random.Generator, size: int) -> Array:
    """Draw pictures.

    Args:
        labels: (N, K) bool; which attributes each picture has.
        names: the K attributes' names.
        looks: (N, len(LOOKS)) standard normal; all else that distinguishes pictures, except for pixel noise.
        rng: draws the pixel noise, picture after picture.
        size: pixels on a side.

    Returns:
        (N, size, size, 3) uint8.
    """
    pictures = np.empty((len(labels), size, size, 3), np.uint8)
    for start in range(0, len(labels), CHUNK):
        part = slice(start, start + CHUNK)
        sheet = prepare(traits(labels[part], names, looks[part]), size)
        for layer in LAYERS:
            layer(sheet)
        pictures[part] = expose(sheet, rng)
    return pictures


def traits(labels: Array, names: Sequence[str], looks: Array) -> dict[str, Array]:
    """Everything that a layer asks for by name: labels as 0 and 1, degrees, looks from -1 to 1, derived colours."""
    found = dict(zip(names, labels.T.astype(np.float32)[..., None, None], strict=True))
    column = dict(zip(LOOKS, looks.T.astype(np.float32)[..., None, None], strict=True))
    found |= {name: np.clip(column[name] / 2, -1, 1) for name in (*OF_PERSON, *OF_PICTURE)}
    found |= {name: np.clip(found[name] + spread * column[name], -0.5, 1.5) for name, spread in DEGREES.items()}
    found["sunglasses"], found["brimmed"] = np.float32(found["shades"] > 0.4), np.float32(found["hat_kind"] > 0)
    found["half_width"] = 0.45 + 0.02 * found["width"] + 0.08 * found["Chubby"] - 0.03 * found["Oval_Face"]
    found["half_height"] = 0.56 + 0.03 * found["height"] + 0.06 * found["Oval_Face"]
    found["jaw"] = -0.35 + 0.28 * found["Male"] + 0.25 * found["Chubby"] - 0.12 * found["Oval_Face"]
    found["skin"] = mix(ramp(SKINS, found["tone"]), tint(1.0, 0.93, 0.90), 0.8 * found["Pale_Skin"])
    found["hair"] = hair_colour(found)
    return found


def hair_colour(found: dict[str, Array]) -> Array:
    """One of the four that have names, or another."""
    other = ramp(UNNAMED_HAIRS, found["hair_hue"])
    for name, rgb in HAIRS.items():
        other = mix(other, tint(*rgb), found[name])
    return np.clip(other * (1 + 0.2 * found["hair_light"]), 0, 1)


def prepare(found: dict[str, Array], size: int) -> Sheet:
    """An empty sheet; the pose gives each picture its coordinates."""
    grid = ((np.arange(size, dtype=np.float32) + 0.5) * 2 / size - 1).reshape(1, 1, size)
    scale, tilt = 1.15 + 0.06 * found["scale"], 0.10 * found["tilt"]
    x = (grid - 0.05 * found["shift_x"]) / scale
    y = (grid.reshape(1, size, 1) + 0.03 - 0.04 * found["shift_y"]) / scale
    u, v = np.cos(tilt) * x + np.sin(tilt) * y, np.cos(tilt) * y - np.sin(tilt) * x
    return Sheet(np.zeros((3, *u.shape), np.float32), u, v, size / 2 * scale, found)


def turned(sheet: Sheet) -> Sheet:
    """Features move sideways on a head that looks aside."""
    return replace(sheet, u=sheet.u - 0.03 * sheet["turn"])


def wall(sheet: Sheet) -> None:
    """A plain background, lighter above or below."""
    sheet.pixels[:] = (0.25 + 0.5 * sheet.colour("wall")) * (1 + 0.25 * sheet["slope"] * sheet.v)


def hair_behind(sheet: Sheet) -> None:
    """Down to the shoulders or hardly past the ears; waves bulge, straight hair hangs like a curtain."""
    length = 0.62 - 0.62 * sheet["Male"] + 0.3 * sheet["hair_length"]
    wavy, straight = sheet.opacity("Wavy_Hair"), sheet.opacity("Straight_Hair")
    bulge = 0.05 * wavy * np.sin(13 * sheet.v + 3 * sheet["wave"])
    width = sheet["half_width"] + 0.10 + 0.08 * wavy - 0.02 * straight + bulge
    round_top = np.sqrt((sheet.u / width) ** 2 + (np.minimum(sheet.v, 0) / 0.68) ** 2) - 1
    cover = sheet.inside(np.maximum(round_top * 0.5, sheet.v - length)) * (1 - sheet["Bald"])
    sheet.paint(cover, 0.75 * sheet["hair"])


def body(sheet: Sheet) -> None:
    """Neck, shirt, and what is worn on them."""
    low = sheet.rows(0.3, 1.1)
    u, v = low.u, low.v
    low.paint(low.stroke(u, 0.17 + 0.07 * low["Male"], v - 0.6, 0.4), 0.8 * low["skin"])
    shirt = low.ellipse(0, 1.25, 0.72 + 0.18 * low["Male"], 0.5)
    low.paint(shirt * low.inside(0.16 - np.abs(u) + 0.4 * (0.75 - v)), low.colour("shirt"))
    necklace = low.inside(np.abs(np.sqrt(u**2 + (v - 0.50) ** 2) - 0.27) - 0.035) * low.inside(0.62 - v)
    low.paint(necklace * low["Wearing_Necklace"], mix(GOLD, SILVER, 4 * low["metal"]))
    tie = low["Wearing_Necktie"]
    low.paint(tie * low.inside(np.maximum(np.abs(u) - 0.24, 0.70 - v)), WHITE)
    low.paint(tie * low.inside(np.maximum(np.abs(u) - 0.05 - 0.12 * (v - 0.68), 0.68 - v)), 0.8 * low.colour("tie"))


def skull(sheet: Sheet) -> None:
    """Ears, head, a second chin."""
    middle = sheet.rows(-0.2, 0.2)
    middle.paint(middle.ellipse(middle["half_width"], 0.02, 0.07, 0.11, twice=True), 0.9 * middle["skin"])
    low = sheet.rows(0.3, 0.8)
    double = low.opacity("Double_Chin")
    low.paint(double * low.ellipse(0, low["half_height"], 0.33, 0.15), 0.92 * low["skin"])
    sheet.paint(sheet.inside(sheet.head()), sheet["skin"])
    low.paint(0.6 * double * low.inside(np.abs(low.head()) - 0.03) * low.inside(0.38 - low.v), 0.55 * low["skin"])


def complexion(sheet: Sheet) -> None:
    """Cheeks, cheekbones, bags under the eyes, the lines of age."""
    middle = turned(sheet).rows(-0.1, 0.4)
    side, v = np.abs(middle.u), middle.v
    middle.paint(0.5 * middle.opacity("Rosy_Cheeks") * middle.ellipse(0.27, 0.20, 0.11, 0.09, twice=True), ROSE)
    bone = middle.opacity("High_Cheekbones")
    middle.paint(0.7 * bone * middle.ellipse(0.29, 0.12, 0.12, 0.06, twice=True), WHITE)
    middle.paint(0.35 * bone * middle.stroke(side - 0.30, 0.09, v - 0.36 + 0.6 * side, 0.025), 0.4 * middle["skin"])
    bags = middle.inside(np.abs(np.sqrt((side - 0.2) ** 2 + (v + 0.02) ** 2) - 0.13) - 0.022) * middle.inside(0.05 - v)
    middle.paint(0.75 * middle.opacity("Bags_Under_Eyes") * bags, 0.45 * middle["skin"])
    age = 1 - middle["Young"]
    fold = middle.stroke(v - 0.27, 0.09, side - 0.02 - 0.5 * v, 0.018)
    middle.paint(np.clip(0.5 * age, 0, 1) * fold, 0.5 * middle["skin"])
    brow = turned(sheet).rows(-0.4, -0.2)
    lines = brow.stroke(brow.u, 0.2, np.abs(brow.v + 0.31 - 0.3 * brow.u**2) - 0.045, 0.014)
    brow.paint(np.clip(0.5 * age, 0, 1) * lines, 0.5 * brow["skin"])


def beard(sheet: Sheet) -> None:
    """Stubble, a beard along the jaw, a goatee, sideburns, a moustache."""
    low = sheet.rows(-0.2, 0.65)
    v, face, dark = low.v, low.head(), 0.7 * low["hair"] + 0.02
    inside, rim = low.inside(face), low.inside(face) * low.inside(-0.1 - face)
    stubble = inside * low.inside(0.16 - v - 0.25 * np.abs(low.u))
    low.paint(np.clip(0.5 * low["5_o_Clock_Shadow"], 0, 0.6) * stubble, 0.5 * STUBBLE + 0.4 * low["skin"])
    low.paint(0.55 * (1 - low["No_Beard"]) * rim * low.inside(0.20 - v), dark)
    low.paint(low["Sideburns"] * rim * low.inside(np.abs(v - 0.02) - 0.22), dark)
    front = turned(low)
    front.paint(front["Goatee"] * front.ellipse(0, 0.53, 0.15, 0.12), dark)
    front.paint(front["Mustache"] * front.stroke(front.u, 0.20, v - 0.275 - 0.9 * front.u**2, 0.045), dark)


def nose(sheet: Sheet) -> None:
    """Broad or small; a pointed one has a straight ridge and throws a shadow."""
    middle = turned(sheet).rows(-0.1, 0.3)
    u, v = middle.u, middle.v
    big, pointy = middle["Big_Nose"], middle.opacity("Pointy_Nose")
    tip = 0.17 + 0.02 * big
    middle.paint(0.8 * middle.ellipse(0, tip, 0.065 + 0.08 * big, 0.045 + 0.035 * big), 0.7 * middle["skin"])
    ridge = middle.inside(np.maximum(np.abs(u - 0.045) - 0.16 * (v + 0.08), np.abs(v - 0.06) - 0.13))
    middle.paint(0.75 * pointy * ridge, 0.6 * middle["skin"])
    middle.paint(0.6 * pointy * middle.stroke(u + 0.01, 0.018, v - 0.05, 0.13), WHITE)


def mouth(sheet: Sheet) -> None:
    """A smile turns up and widens; an open mouth shows teeth; lipstick is red."""
    low = turned(sheet).rows(0.2, 0.55)
    smile, thick = low["Smiling"], np.clip(0.036 + 0.028 * low["Big_Lips"], 0.015, 1)
    half, gap = 0.15 + 0.10 * smile, np.clip(0.062 * low["Mouth_Slightly_Open"], 0, 1)
    bend = np.clip((low.u / half) ** 2, 0, 1.5)
    across = low.v - 0.375 - 0.025 * low["mouth_height"] - (0.18 * smile - 0.055) * (0.45 - bend)
    lip = mix(low["skin"] * tint(0.78, 0.60, 0.58), ramp(LIPSTICKS, low["lip_hue"]), low["Wearing_Lipstick"])
    low.paint(low.stroke(low.u, half, across, (thick + gap) * (1.15 - 0.75 * np.minimum(bend, 1))), lip)
    opening = gap * (1 - np.minimum(bend, 1))
    low.paint(low.stroke(low.u, half, across, opening) * (gap > 0.008), DARK)
    low.paint(low.stroke(low.u, 0.8 * half, across + 0.45 * opening, 0.5 * opening) * (gap > 0.008), WHITE)
    low.paint(0.7 * low.stroke(low.u, half, across, 0.012) * (gap <= 0.008), 0.4 * lip)


def eyes(sheet: Sheet) -> None:
    """Make-up colours and lines the lids; large, bright eyes for an attractive face."""
    middle = turned(sheet).rows(-0.25, 0.15)
    x = 0.205 + 0.015 * middle["eye_gap"]
    charm, makeup = middle["Attractive"], middle.opacity("Heavy_Makeup")
    narrow = np.clip(middle["Narrow_Eyes"], -0.3, 1.2)
    a, b = 0.10 + 0.018 * charm, (0.062 + 0.03 * charm) * (1 - 0.6 * narrow)
    upper = middle.inside(middle.v + 0.02)
    middle.paint(
        0.85 * makeup * upper * middle.ellipse(x + 0.01, -0.045, a + 0.03, 0.11, twice=True),
        ramp(LIDS, middle["lid_hue"]),
    )
    middle.paint((0.45 + 0.55 * makeup) * upper * middle.ellipse(x, -0.02, a + 0.02, b + 0.03, twice=True), DARK)
    ball = middle.ellipse(x, -0.01, a, b, twice=True)
    middle.paint(ball, WHITE)
    middle.paint(ball * middle.ellipse(x, -0.01, 0.056, 0.075, twice=True), ramp(IRISES, middle["iris"]))
    middle.paint(np.clip(charm, 0, 1) * ball * middle.ellipse(x + 0.02, -0.035, 0.025, 0.025, twice=True), WHITE)


def brows(sheet: Sheet) -> None:
    """Arched ones rise in the middle; bushy ones are thick; a man's lie lower."""
    high = turned(sheet).rows(-0.35, -0.05)
    along = np.abs(high.u) - 0.215
    arch = 0.02 + 0.07 * high["Arched_Eyebrows"]
    across = high.v + 0.155 + 0.6 * arch - 0.02 * high["Male"] - arch * np.minimum((along / 0.13) ** 2, 1.5)
    thick = np.clip(0.020 + 0.006 * high["Male"] + 0.028 * high["Bushy_Eyebrows"], 0.01, 1)
    high.paint(0.9 * high.stroke(along, 0.13, across, thick), 0.6 * high["hair"])


def glasses(sheet: Sheet) -> None:
    """Frames; some are sunglasses."""
    middle = turned(sheet).rows(-0.25, 0.2)
    side, v, worn = np.abs(middle.u), middle.v, middle["Eyeglasses"]
    lens = np.sqrt((side - 0.21) ** 2 + (1.15 * (v + 0.01)) ** 2) - 0.155
    frame = 0.35 * middle.colour("frame")
    middle.paint(worn * middle.inside(lens) * (0.12 + 0.78 * middle["sunglasses"]), 0.6 * frame)
    middle.paint(worn * middle.inside(np.abs(lens) - 0.025), frame)
    bars = np.maximum(np.abs(v + 0.03) - 0.02, np.minimum(side - 0.06, np.maximum(0.36 - side, side - 0.46)))
    middle.paint(worn * middle.inside(bars), frame)


def hair_above(sheet: Sheet) -> None:
    """The hair that frames the face: bangs fall to the brows, a receding line leaves the temples free."""
    top = sheet.rows(-0.8, 0.1)
    u, v = top.u, top.v
    wavy, straight = top.opacity("Wavy_Hair"), top.opacity("Straight_Hair")
    line = -0.40 - 0.12 * top["Receding_Hairline"] + (1.0 - 0.5 * top["Receding_Hairline"]) * u**2
    fringe = -0.235 + 0.025 * np.sin(34 * u + 3 * top["wave"])
    line = line + top["Bangs"] * (np.maximum(fringe, line) - line)
    outline = top.head(0.06 + 0.03 * wavy + 0.02 * wavy * np.sin(16 * u + 9 * top["wave"]))
    cover = top.inside(np.maximum(outline, v - line)) * (1 - top["Bald"])
    top.paint(cover, top["hair"])
    sheen = straight * np.sin(30 * u) + wavy * np.sin(22 * v + 4 * np.sin(9 * u))
    top.paint(0.35 * cover * np.clip(sheen, 0, 1), 0.6 * top["hair"] + 0.4)
    top.paint(0.5 * top["Bald"] * top.ellipse(-0.12, -0.40, 0.12, 0.06), WHITE)


def hat(sheet: Sheet) -> None:
    """A brimmed hat, or a cap pulled down."""
    top = sheet.rows(-1.1, -0.1)
    u, v, worn = top.u, top.v, top["Wearing_Hat"]
    colour, half = top.colour("hat"), top["half_width"]
    crown = np.sqrt((u / (half + 0.07)) ** 2 + (np.minimum(v + 0.36, 0) / 0.50) ** 2) - 1
    top.paint(worn * top.inside(np.maximum(0.5 * crown, v + 0.27)), colour)
    top.paint(worn * top.stroke(u, half + 0.08 + 0.2 * top["brimmed"], v + 0.31, 0.06), 0.55 * colour)


def earrings(sheet: Sheet) -> None:
    """Gold or silver, over hair and ears."""
    middle = sheet.rows(0.0, 0.35)
    ring = middle.ellipse(middle["half_width"] + 0.03, 0.19, 0.05, 0.07, twice=True)
    middle.paint(middle["Wearing_Earrings"] * ring, mix(GOLD, SILVER, 4 * middle["metal"]))


HEAD = (wall, hair_behind, body, skull)
FACE = (complexion, beard, nose, mouth, eyes, brows, glasses)
LAYERS = (*HEAD, *FACE, hair_above, hat, earrings)


def expose(sheet: Sheet, rng: np.random.Generator) -> Array:
    """The camera: light from a side, a lens out of focus for a blurry picture, pixel noise."""
    light = 1 + 0.12 * sheet["bright"] + 0.15 * (sheet["light_x"] * sheet.u + sheet["light_y"] * sheet.v)
    pixels = (sheet.pixels * light).transpose(1, 2, 3, 0)
    blurry = np.flatnonzero(sheet["Blurry"])
    pixels[blurry] = blur(pixels[blurry], rounds=pixels.shape[1] // 12)
    grain = (0.035 + 0.015 * sheet["noise"])[..., None] * rng.standard_normal(pixels.shape, np.float32)
    exposed: Array = np.clip((pixels + grain) * 255 + 0.5, 0, 255).astype(np.uint8)
    return exposed


def blur(pixels: Array, rounds: int) -> Array:
    """Average neighbours, so many times, along both sides of (n, h, w, 3)."""
    for _ in range(rounds):
        for axis in (1, 2):
            edge = [(1, 1) if a == axis else (0, 0) for a in range(4)]
            wide = np.moveaxis(np.pad(pixels, edge, mode="edge"), axis, 0)
            pixels = np.moveaxis((wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4, 0, axis)
    return pixels
