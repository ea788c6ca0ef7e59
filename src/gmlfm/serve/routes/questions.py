"""Recommendations, scores, reasons and neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Response

from gmlfm.arguments import whole_number
from gmlfm.serve import contracts, questions
from gmlfm.serve.hosting import Served
from gmlfm.serve.service import InService, RunName

router = APIRouter(tags=["questions"])


@router.post("/recommend", response_model=contracts.RecommendAnswer, summary="The best items for a user or somebody new")
async def recommend(asked: contracts.RecommendRequest, service: InService, run: RunName = None) -> Response:
    most = service.options.max_n
    answer = service.answer_quickly if questions.is_quick(asked) else service.answer
    return await answer(run, lambda served: questions.stamped(questions.recommended(served, asked, most), served))


@router.post("/recommend/batch", response_model=contracts.RecommendBatchAnswer, summary="Several of these at once")
async def recommend_batch(asked: contracts.RecommendBatch, service: InService, run: RunName = None) -> Response:
    total = sum(max(request.n, 0) for request in asked.requests)
    whole_number(total, "n of all requests together", 0, service.options.limits["n_of_batch"])
    return await service.answer(run, _batch(questions.recommended, asked.requests, service.options.max_n))


@router.post("/score", response_model=contracts.ScoreAnswer, summary="Scores of given items")
async def score(asked: contracts.ScoreRequest, service: InService, run: RunName = None) -> Response:
    most = service.options.max_n
    return await service.answer(run, lambda served: questions.stamped(questions.scored(served, asked, most), served))


@router.post("/score/batch", response_model=contracts.ScoreBatchAnswer, summary="Several of these at once")
async def score_batch(asked: contracts.ScoreBatch, service: InService, run: RunName = None) -> Response:
    total = sum(len(request.items) for request in asked.requests)
    whole_number(total, "the number of items of all requests together", 0, service.options.limits["n_of_batch"])
    return await service.answer(run, _batch(questions.scored, asked.requests, service.options.max_n))


@router.post("/explain", response_model=contracts.ExplainAnswer, summary="What a score consists of")
async def explain(asked: contracts.ExplainRequest, service: InService, run: RunName = None) -> Response:
    most = service.options.max_n
    return await service.answer(run, lambda served: questions.stamped(questions.explained(served, asked, most), served))


@router.post("/explain/batch", response_model=contracts.ExplainBatchAnswer, summary="Several of these at once")
async def explain_batch(asked: contracts.ExplainBatch, service: InService, run: RunName = None) -> Response:
    return await service.answer(run, _batch(questions.explained, asked.requests, service.options.max_n))


@router.post("/similar", response_model=contracts.SimilarAnswer, summary="The nearest items in the learned metric")
async def similar(asked: contracts.SimilarRequest, service: InService, run: RunName = None) -> Response:
    most = service.options.max_n
    return await service.answer(run, lambda served: questions.stamped(questions.similar(served, asked, most), served))


def _batch(
    answer: Callable[[Served, Any, int], questions.Answer], requests: Sequence[Any], max_n: int
) -> Callable[[Served], questions.Answer]:
    """All from one state of the run."""
    return lambda served: questions.batch([answer(served, request, max_n) for request in requests], served)
