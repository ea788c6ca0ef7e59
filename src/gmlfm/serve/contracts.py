"""What is asked and answered, as the description at /openapi.json has it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

from gmlfm.serve.few_faults import FIRST_FAULT, FewFaults, few_names
from gmlfm.serve.options import MOST_REQUESTS_PER_BATCH

_WHOLE = Field(ge=-(2**63), lt=2**63)
_LONGEST_LIST, MOST_FIELDS = 10_000, 1_000
_FEW_MORE = 8  # names that are unknown and told by name
WholeNumber = Annotated[StrictInt, _WHOLE]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Id = Annotated[StrictStr, Field(max_length=1_000)] | WholeNumber
Scalar = StrictStr | StrictBool | WholeNumber | Number | None
Value = Scalar | Annotated[list[StrictStr | WholeNumber | Number], Field(max_length=1_000), FIRST_FAULT]
Fields = Annotated[dict[StrictStr, Value], Field(max_length=MOST_FIELDS), FewFaults(MOST_FIELDS)]
Caps = Annotated[dict[StrictStr, StrictInt], Field(max_length=MOST_FIELDS), FewFaults(MOST_FIELDS)]
Ids = Annotated[list[Id], Field(max_length=_LONGEST_LIST), FIRST_FAULT]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few_names(cls, given: Any) -> Any:
        return few_names(given, len(cls.model_fields) + _FEW_MORE)


class Whom(_Asked):
    """A user by id; or somebody new, by attributes, history or both."""

    user: Id | None = None
    attributes: Fields | None = None
    history: Ids | None = Field(None, description="items that somebody new chose, the latest last")
    context: Fields | None = Field(None, description="of the occasion, where the data have such fields")


class RecommendRequest(Whom):
    n: StrictInt = Field(10, description="how many items, 1 or more")
    filter: StrictStr | None = Field(None, max_length=2_000, examples=["price < 50"])
    caps: Caps | None = Field(None, description="at most so many of one value of a field")
    because: StrictBool = Field(False, description="name the earlier item that adds most to each score")
    seen: StrictBool = Field(False, description="also items that the user had")
    available: Ids | None = Field(None, description="rank these items alone")
    candidates: Literal["interactions", "catalogue"] = "interactions"


class ScoreRequest(Whom):
    items: Annotated[list[Id], Field(min_length=1, max_length=_LONGEST_LIST), FIRST_FAULT]


class ExplainRequest(Whom):
    item: Id
    most: Annotated[StrictInt, Field(ge=2, le=100)] = Field(24, description="parts of each kind; the rest is one part")


class RecommendBatch(_Asked):
    requests: Annotated[list[RecommendRequest], Field(min_length=1, max_length=MOST_REQUESTS_PER_BATCH), FIRST_FAULT]


class ScoreBatch(_Asked):
    requests: Annotated[list[ScoreRequest], Field(min_length=1, max_length=MOST_REQUESTS_PER_BATCH), FIRST_FAULT]


class ExplainBatch(_Asked):
    requests: Annotated[list[ExplainRequest], Field(min_length=1, max_length=MOST_REQUESTS_PER_BATCH), FIRST_FAULT]


class SimilarRequest(_Asked):
    item: Id
    n: StrictInt = Field(10, description="how many items, 1 or more")
    filter: StrictStr | None = Field(None, max_length=2_000)


class Event(_Asked):
    user: Id
    item: Id
    time: WholeNumber | Number | StrictStr | None = Field(None, description="on the scale of the data's times, or a date")
    event: StrictStr | None = Field(None, max_length=100)


class EventsRequest(_Asked):
    events: Annotated[list[Event], Field(min_length=1, max_length=_LONGEST_LIST), FIRST_FAULT]


class AvailabilityRequest(_Asked):
    sold: Ids = []
    available: Ids = []


class ItemsRequest(_Asked):
    items: Annotated[list[Fields], Field(min_length=1, max_length=_LONGEST_LIST), FIRST_FAULT] = Field(
        description="as in the item table: its id column (or `item`), and the fields that are known"
    )


class ProblemDetail(BaseModel):
    type: str
    title: str
    status: int
    detail: str


class Run(BaseModel):
    """Which run answered: one state of it, whole."""

    name: str
    generation: str
    check: str


class Item(BaseModel):
    item: str | int
    title: str | None
    attributes: dict[str, Any]


class RankedItem(Item):
    score: float
    because: str | None = None


class NearItem(Item):
    distance: float


class _Answered(BaseModel):
    run: Run
    notes: list[str] = Field([], description="what the asker should know, such as values that training never met")


class Recommendations(BaseModel):
    items: list[RankedItem]
    known: bool | None = Field(description="was the user met in training? null for somebody new")
    notes: list[str] = []


class RecommendAnswer(Recommendations, _Answered):
    pass


class RecommendBatchAnswer(_Answered):
    answers: list[Recommendations]


class ItemScore(BaseModel):
    item: str | int
    score: float


class Scores(BaseModel):
    scores: list[ItemScore]
    known: bool | None
    notes: list[str] = []


class ScoreAnswer(Scores, _Answered):
    pass


class ScoreBatchAnswer(_Answered):
    answers: list[Scores]


class Part(BaseModel):
    """What a group of terms adds: kind earlier is one earlier item, fields a group of fields, rest all others of a kind."""

    kind: Literal["earlier", "fields", "rest"]
    label: str
    value: float
    fields: list[str] = []
    item: str | int | None = None
    title: str | None = None
    roles: list[str] = []


class Reasons(BaseModel):
    """The parts sum to the score."""

    item: str | int
    score: float
    parts: list[Part]
    known: bool | None
    notes: list[str] = []


class ExplainAnswer(Reasons, _Answered):
    pass


class ExplainBatchAnswer(_Answered):
    answers: list[Reasons]


class SimilarAnswer(_Answered):
    items: list[NearItem]


class EventsAnswer(_Answered):
    n_kept: int = Field(alias="kept", description="rows that count from now on")
    duplicates: int
    new_users: int


class AvailabilityAnswer(_Answered):
    sold: int
    available: int


class ItemsAnswer(_Answered):
    added: int


class ForgetAnswer(_Answered):
    forgotten: str | int


class FoundItems(_Answered):
    items: list[Item]
    total: int


class ItemAnswer(_Answered, Item):
    available: bool


class FoundUser(BaseModel):
    user: str | int
    known: bool


class FoundUsers(_Answered):
    users: list[FoundUser]
    total: int


class HistoryItem(Item):
    time: int | float | None
    event: str | None
    observed: bool


class UserAnswer(_Answered):
    user: str | int
    known: bool
    attributes: dict[str, Any]
    history: list[HistoryItem] = Field(description="the latest first")
    total: int


class CategoryValue(BaseModel):
    value: str
    count: int


class SchemaField(BaseModel):
    name: str
    role: Literal["user", "item", "context"]
    kind: Literal["category", "set", "number"]
    categories: list[CategoryValue] = Field([], description="the commonest, of categories and sets")
    n_categories: int = 0
    least: float | None = None
    median: float | None = None
    most: float | None = None


class Limits(BaseModel):
    """Of requests to this service."""

    n: int = Field(description="items that one request may ask for")
    n_of_batch: int = Field(description="items that the requests of a batch may ask for together")
    requests: int = Field(description="of a batch")


class SchemaAnswer(_Answered):
    fields: list[SchemaField]
    n_users: int
    n_items: int
    reads_history: bool
    has_titles: bool
    limits: Limits


class ModelAnswer(_Answered):
    card: dict[str, Any]


class CurveAnswer(_Answered):
    curve: list[dict[str, Any]]
    validation: dict[str, float | None]
    validation_protocol: str
    best_epoch: int


class RunState(BaseModel):
    name: str
    model: str
    data: str
    generation: str
    check: str
    is_default: bool
    problem: str | None


class RunsAnswer(BaseModel):
    runs: list[RunState]


class Health(BaseModel):
    status: Literal["ok", "degraded"]
    live: bool
    ready: bool
    problems: list[str] = []


class ReloadAnswer(BaseModel):
    runs: list[Run]
    swapped: list[str]


class MapPoint(BaseModel):
    item: str | int
    title: str | None
    x: float
    y: float
    color: Any = Field(description="the field's value; a list of members where it is a set")


class MapField(BaseModel):
    name: str
    kind: Literal["category", "set", "number"]
    values: list[str] = Field([], description="of the points, the commonest first")


class MapPlaces(_Answered):
    is_drawn: bool = Field(description="false while the map is being drawn, some seconds after the first question: ask again")
    points: list[MapPoint]


class MapAnswer(MapPlaces):
    field: MapField | None
    n_items: int
