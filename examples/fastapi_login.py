"""A FastAPI application with a login, a route of its own, and the models behind the login.

In this folder: SECRET=... turnpike serve --app fastapi_login:app
"""

import hmac
import os
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import OAuth2PasswordBearer, OAuth2PasswordRequestForm

import turnpike

SECRET = os.environ["SECRET"].encode()
PASSWORDS = {"ada": "lovelace"}  # yours are hashed, in a database


def signature(name: str) -> str:
    return hmac.new(SECRET, name.encode(), "sha256").hexdigest()


def user(token: Annotated[str, Depends(OAuth2PasswordBearer(tokenUrl="token"))]) -> str:
    name, _, signed = token.partition(".")
    if not hmac.compare_digest(signed, signature(name)):
        raise HTTPException(401, "log in first", {"WWW-Authenticate": "Bearer"})
    return name


app = FastAPI(title="Digits")
app.include_router(turnpike.router(), prefix="/ml", dependencies=[Depends(user)])


@app.post("/token")
def log_in(form: Annotated[OAuth2PasswordRequestForm, Depends()]) -> dict[str, str]:
    if not hmac.compare_digest(PASSWORDS.get(form.username, ""), form.password) or not form.password:
        raise HTTPException(401, "expected a name and its password")
    return {"access_token": f"{form.username}.{signature(form.username)}", "token_type": "bearer"}


@app.get("/me")
def me(name: Annotated[str, Depends(user)]) -> dict[str, str]:
    return {"name": name}
