"""Applications of a user with the service in them."""

from __future__ import annotations

from fastapi import Depends, FastAPI, Header

import turnpike

plain = FastAPI()
plain.include_router(turnpike.router(), prefix="/ml")


async def user(authorization: str = Header("")) -> str:
    return authorization


guarded = FastAPI()
guarded.include_router(turnpike.router(), prefix="/ml", dependencies=[Depends(user)])
