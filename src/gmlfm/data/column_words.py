"""The words of column names: which of them speak of users, items, labels, times and so on."""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


USER_WORDS = _words(
    "user buyer customer client member reviewer person visitor account kunde uid userid subscriber shopper household patient "
    "student reader listener guest"
)
ITEM_WORDS = _words(
    "item product sku asin movie film article artikel book song track listing offer itemid course isbn iid catalog catalogue "
    "goods game recipe restaurant business"
)
EVENT_WORDS = _words("interaction rating purchase order event review click transaction sale log play")
# What the rows of a log of events are about: what was had at last, what came before, and what says the opposite.
BOUGHT_KINDS = _words(
    "purchase purchased buy bought order ordered transaction sale sold checkout payment rent rented booking booked"
)
SEEN_KINDS = _words(
    "click clicked clicks view viewed views pageview detail impression cart basket addtocart add favorite favourite fav "
    "wishlist save saved bookmark search play played like liked share"
)
TAKEN_BACK_KINDS = _words(
    "remove removed removefromcart return returned refund refunded cancel cancelled canceled dislike unlike"
)
LABEL_WORDS = _words("rating star score label grade overall")
WEIGHT_WORDS = _words("quantity qty menge unit play count")
TITLE_WORDS = _words("title name titel caption headline")
NUMBER_WORDS = _words(
    "price age year amount cost length width height size rating score count sum quantity qty preis total rank votes distance "
    "salary income duration days"
)
CODE_WORDS = _words("id code zip postal plz postcode no nr type class group category")
TIME_WORDS = _words("time timestamp date datum created day ts bought ordered purchased datetime when")
# Other words that headers have, and cells hardly: by them a header is known where every column holds texts.
_OTHER_WORDS = _words(
    "address album alter artist author autor brand channel city color colour comment condition country currency "
    "description device director email farbe gender genre image index ip kategorie key language link location maker marke "
    "market material model month number occupation ort page phone photo picture pid publication published publisher region "
    "release role seller sex shop source state status store street style subject summary tag text tweet url value vendor "
    "verlag weight"
)
HEADER_WORDS = (
    USER_WORDS | ITEM_WORDS | EVENT_WORDS | LABEL_WORDS | WEIGHT_WORDS | TITLE_WORDS | NUMBER_WORDS | CODE_WORDS | TIME_WORDS
) | _OTHER_WORDS


def words_of(name: str) -> set[str]:
    """buyerId, buyer_id and 'Buyer ID' -> {buyer, id}; a plural counts as its singular too."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = {word for word in re.split(r"[\W_]+", spaced.lower()) if word}
    return words | {word.removesuffix("s") for word in words if len(word) > 3}
