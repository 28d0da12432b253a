#!/usr/bin/env bash
# Train the default network, export it to ONNX with proved parity, serve it, and ask for one prediction.
#   examples/train_and_serve.sh [FOLDER] [PORT]
set -euo pipefail
folder=${1:-example}
port=${2:-8000}

# takes some seconds; the best network by validation is in run/model.safetensors
turnpike train digits-10 --out "$folder/run"

# writes repository/digits-10/1/model.onnx, and a page that shows the proof
turnpike export "$folder/run" --to "$folder/repository" --report "$folder/report"

# serve until this script ends
turnpike serve --models "$folder/repository" --port "$port" &
server=$!
trap 'kill "$server"; wait "$server"' EXIT
until curl -sf "http://127.0.0.1:$port/v2/health/ready"; do
    kill -0 "$server"  # stop here if the server has ended
    sleep 0.2
done

# the row of a handwritten zero, 8 x 8 pixels from 0 to 16
curl -sf "http://127.0.0.1:$port/v1/models/digits-10:predict" -d '{"instances": [[
    0,0,5,13,9,1,0,0,   0,0,13,15,10,15,5,0, 0,3,15,2,0,11,8,0,  0,4,12,0,0,8,8,0,
    0,5,8,0,0,9,8,0,    0,4,11,0,1,12,7,0,   0,2,14,5,10,12,0,0, 0,0,6,13,10,0,0,0]]}'
echo
