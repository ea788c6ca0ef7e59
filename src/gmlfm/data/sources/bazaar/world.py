"""The world of the market: what is traded, between which places, how it is sent. Names and typical figures, nothing random."""

from __future__ import annotations

import numpy as np

# Genre -> (share of listings, leaf categories with their typical price in yen, week of highest demand or None)
GENRES: dict[str, tuple[float, dict[str, int], int | None]] = {
    "Concert": (0.26, {"Arena seat": 9800, "Standing floor": 7600, "Club night": 4200, "Fan meeting": 6800}, 48),
    "Festival": (0.08, {"Day pass": 12500, "Weekend pass": 24800, "Parking pass": 5200}, 30),
    "Theatre": (0.12, {"Stage play": 8800, "Musical": 11200, "Comedy show": 4600}, 14),
    "Classical": (0.06, {"Symphony": 7400, "Opera": 15800, "Recital": 4900}, 51),
    "Sports": (0.16, {"Baseball": 4400, "Football": 5200, "Sumo": 9600, "Basketball": 3900}, 24),
    "Cinema": (0.08, {"Film voucher": 1450, "Premiere": 2900}, 2),
    "Museum": (0.05, {"Exhibition": 1700, "Annual pass": 5600}, None),
    "Theme park": (0.09, {"Day ticket": 8200, "Evening ticket": 5100, "Annual passport": 61000}, 32),
    "Travel": (0.06, {"Rail voucher": 11200, "Bus coupon": 3100, "Ferry voucher": 6400}, 18),
    "Voucher": (0.04, {"Restaurant": 4800, "Hotel": 13500, "Spa": 5900}, None),
}
# Brands by genre; earlier ones are better known.
BRANDS: dict[str, tuple[str, ...]] = {
    "Concert": (
        "Nightjar",
        "Plum Rain",
        "Seven Harbours",
        "Mika Tone",
        "Paper Cranes",
        "Loud Garden",
        "Kite Season",
        "Low Tide",
    ),
    "Festival": ("Riverfront", "Summit Sound", "Harvest Moon", "Lantern Isle"),
    "Theatre": ("Red Curtain", "Little Stage", "Mirror House", "Old Mill", "Two Lamps"),
    "Classical": ("City Philharmonic", "Winter Strings", "Chamber Nine", "Opera West"),
    "Sports": ("Tigers", "Herons", "Comets", "Anchors", "Foxes", "Bears"),
    "Cinema": ("Grand Screen", "Northstar", "Lumen"),
    "Museum": ("Museum of Light", "Folk House", "Science Hall"),
    "Theme park": ("Dream Bay", "Cloud Park", "Pirate Cove"),
    "Travel": ("Skyline Rail", "Blue Coach", "Island Ferry"),
    "Voucher": ("Table & Co", "Nap Hotels", "Warm Springs"),
}
# Category -> those that are bought soon after it.
COMPLEMENTS: dict[str, tuple[str, ...]] = {
    "Arena seat": ("Rail voucher", "Hotel"),
    "Standing floor": ("Bus coupon", "Club night"),
    "Club night": ("Restaurant", "Film voucher"),
    "Fan meeting": ("Arena seat", "Premiere"),
    "Day pass": ("Parking pass", "Bus coupon"),
    "Weekend pass": ("Parking pass", "Spa"),
    "Parking pass": ("Day ticket", "Football"),
    "Stage play": ("Restaurant", "Exhibition"),
    "Musical": ("Hotel", "Opera"),
    "Comedy show": ("Club night", "Baseball"),
    "Symphony": ("Opera", "Restaurant"),
    "Opera": ("Hotel", "Recital"),
    "Recital": ("Symphony", "Exhibition"),
    "Baseball": ("Football", "Evening ticket"),
    "Football": ("Bus coupon", "Comedy show"),
    "Sumo": ("Stage play", "Spa"),
    "Basketball": ("Standing floor", "Film voucher"),
    "Film voucher": ("Premiere", "Comedy show"),
    "Premiere": ("Fan meeting", "Restaurant"),
    "Exhibition": ("Annual pass", "Recital"),
    "Annual pass": ("Rail voucher", "Stage play"),
    "Day ticket": ("Evening ticket", "Annual passport"),
    "Evening ticket": ("Musical", "Basketball"),
    "Annual passport": ("Day ticket", "Fan meeting"),
    "Rail voucher": ("Sumo", "Ferry voucher"),
    "Bus coupon": ("Weekend pass", "Standing floor"),
    "Ferry voucher": ("Annual pass", "Day pass"),
    "Restaurant": ("Musical", "Arena seat"),
    "Hotel": ("Day pass", "Sumo"),
    "Spa": ("Ferry voucher", "Symphony"),
}
# Place -> (share of people and of listings, position along the country in hundreds of kilometres)
REGIONS: dict[str, tuple[float, float]] = {
    "Sapporo": (0.06, 0.0),
    "Sendai": (0.06, 5.2),
    "Tokyo": (0.33, 8.3),
    "Yokohama": (0.10, 8.6),
    "Nagoya": (0.10, 11.2),
    "Kyoto": (0.06, 12.5),
    "Osaka": (0.15, 12.9),
    "Hiroshima": (0.05, 15.7),
    "Fukuoka": (0.09, 18.2),
}
CONDITIONS = ("unused", "nearly unused", "small marks", "some marks", "worn")
CONDITION_SHARES = (0.52, 0.22, 0.14, 0.08, 0.04)
CONDITION_PRICE = (1.0, 0.92, 0.80, 0.66, 0.48)
# Method -> (share, days added on the way)
METHODS: dict[str, tuple[float, int]] = {
    "letter": (0.34, 2),
    "registered mail": (0.22, 1),
    "courier": (0.18, 0),
    "e-ticket": (0.21, -9),
    "hand-over": (0.05, 1),
}
DURATIONS = ("1-2 days", "2-3 days", "4-7 days", "8 days or more")
DURATION_SHARES = (0.46, 0.31, 0.18, 0.05)
DURATION_DAYS = (2, 3, 6, 10)
PAYERS = ("seller pays", "buyer pays")
AGES = ("under 20", "20-29", "30-39", "40-49", "50-59", "60 and over")
AGE_SHARES = (0.11, 0.31, 0.25, 0.17, 0.10, 0.06)
# How much more each age likes each genre, in the order of GENRES.
AGE_LIKES = (
    (1.0, 0.5, -0.2, -0.9, 0.3, 0.5, -0.4, 1.0, -0.4, -0.8),
    (0.9, 0.9, 0.0, -0.6, 0.2, 0.2, -0.2, 0.6, 0.2, -0.1),
    (0.4, 0.3, 0.1, -0.2, 0.4, 0.2, 0.0, 0.5, 0.3, 0.3),
    (0.1, -0.3, 0.4, 0.1, 0.5, 0.1, 0.2, 0.2, 0.3, 0.5),
    (-0.3, -0.8, 0.7, 0.6, 0.3, 0.0, 0.5, -0.5, 0.6, 0.6),
    (-0.8, -1.2, 0.8, 1.1, 0.4, 0.1, 0.8, -0.9, 0.8, 0.5),
)

LEAVES = [(genre, leaf) for genre, (_, leaves, _) in GENRES.items() for leaf in leaves]
LEAF_NAMES = tuple(leaf for _, leaf in LEAVES)
GENRE_NAMES = tuple(GENRES)
LEAF_GENRE = np.array([GENRE_NAMES.index(genre) for genre, _ in LEAVES])
LEAF_PRICE = np.array([GENRES[genre][1][leaf] for genre, leaf in LEAVES], float)
LEAF_SHARES = np.array([GENRES[genre][0] / len(GENRES[genre][1]) for genre, _ in LEAVES])
BRAND_NAMES = tuple(brand for brands in BRANDS.values() for brand in brands)
BRAND_GENRE = np.array([GENRE_NAMES.index(genre) for genre, brands in BRANDS.items() for _ in brands])
FIRST_BRAND = np.array([int((BRAND_GENRE < genre).sum()) for genre in range(len(GENRE_NAMES))])
N_BRANDS = np.array([len(BRANDS[genre]) for genre in GENRE_NAMES])
REGION_NAMES = tuple(REGIONS)
REGION_SHARES = np.array([share for share, _ in REGIONS.values()])
REGION_PLACE = np.array([place for _, place in REGIONS.values()])
METHOD_NAMES = tuple(METHODS)
METHOD_SHARES = np.array([share for share, _ in METHODS.values()])
METHOD_DAYS = np.array([days for _, days in METHODS.values()])
E_TICKET = METHOD_NAMES.index("e-ticket")
SEASON_WEEK = np.array([GENRES[genre][2] if GENRES[genre][2] is not None else -1 for genre in GENRE_NAMES])
