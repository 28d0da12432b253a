"""Requests send ids of pictures, and a hook looks their pixels up in SQLite, once for each run of the model.

uvicorn hooks_lookup:app &
curl -s http://127.0.0.1:8000/v1/models/digits-10:predict -d '{"instances": [1, 2]}'
"""

import json
import sqlite3
import threading

import numpy as np

import turnpike

DATABASE = "pictures.db"
ZERO = "005d9100:00dfaf50:03f20b80:04c00880:05800980:04b01c70:02e5ac00:006da000"
ONE = "000cd500:000bg900:003fg600:07fgg200:001gg300:001gg600:001gg600:000bga00"

with sqlite3.connect(DATABASE) as connection:
    connection.execute("CREATE TABLE IF NOT EXISTS pictures (id INTEGER PRIMARY KEY, pixels BLOB)")
    for number, picture in enumerate((ZERO, ONE), 1):
        pixels = bytes(int(digit, 17) for digit in picture.replace(":", ""))
        connection.execute("INSERT OR REPLACE INTO pictures VALUES (?, ?)", (number, pixels))

# runs take place in a thread for each model, and a connection belongs to one thread
local = threading.local()


def look_up(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if not hasattr(local, "connection"):
        local.connection = sqlite3.connect(DATABASE)
    found = local.connection.execute(
        "SELECT value, pixels FROM json_each(?) LEFT JOIN pictures ON pictures.id = value ORDER BY key",
        (json.dumps(rows["picture_id"].tolist()),),
    ).fetchall()
    for picture_id, pixels in found:
        if pixels is None:
            raise turnpike.RowsError(f"picture {picture_id} is unknown")
    pixels = np.frombuffer(b"".join(pixels for _, pixels in found), np.uint8)
    return {"x": pixels.reshape(-1, 1, 8, 8).astype(np.float32)}


picture_id = turnpike.Tensor("picture_id", "int64", ("batch",))
app = turnpike.create_app(hooks={"digits-10": turnpike.Hooks(before=look_up, inputs=(picture_id,))})
