# The images, one per target: service, ray, export, loadtest, proxy. Each holds only what it needs.
#   docker build --target service -t turnpike-service .
# BASE is any image with Python 3.11 or newer on Debian.
# DEVICE is what the service runs on: cpu, cuda or openvino.
ARG BASE=python:3.11-slim
ARG DEVICE=cpu

# Used only to build. Libraries are installed before the code is copied, so that an image with changed code is built
# in seconds. Empty packages stand in for the code; at run time the command turnpike finds the code in /app.
FROM ${BASE} AS build
WORKDIR /app
RUN python -m venv --without-pip /opt/turnpike \
 && mkdir models service export loadtest score tune client && touch turnpike.py README.md LICENSE
COPY pyproject.toml constraints.txt ./
# compat adds only /app to the path, so a package that an image lacks is not found there
ENV INSTALL="python -m pip --python /opt/turnpike/bin/python install --constraint constraints.txt \
    --config-settings editable_mode=compat"

# EXTRA=serve,grpc,serve-otel installs what TURNPIKE_OTLP needs as well
FROM build AS build-cpu
RUN apt-get update && apt-get install -y --no-install-recommends binutils
ARG EXTRA=serve,grpc
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --editable ".[$EXTRA]"
# remove two fifths of the size, which are never run: tests and tools of the libraries, onnxruntime for C programs,
# and debug symbols
RUN cd /opt/turnpike/lib/python3*/site-packages \
 && find . -type d -name tests -prune -exec rm -r {} + \
 && rm -r numpy/f2py numpy/distutils onnxruntime/transformers onnxruntime/quantization onnxruntime/tools \
 && rm onnxruntime/capi/libonnxruntime.so.* \
 && strip --strip-unneeded uvloop/*.so csimdjson*.so httptools/parser/*.so

# onnxruntime for CUDA, and CUDA's libraries in one folder
FROM build AS build-cuda
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --editable ".[serve-gpu,grpc]" "onnxruntime-gpu[cuda,cudnn]"
RUN mkdir /opt/turnpike/cuda \
 && ln -s /opt/turnpike/lib/python3*/site-packages/nvidia/*/lib/*.so* /opt/turnpike/cuda

FROM build AS build-openvino
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --editable ".[serve-openvino,grpc]"

FROM build-${DEVICE} AS build-service
# plotly is needed only for its JavaScript; remove its Python code and what that needs
RUN cd /opt/turnpike \
 && rm -r share/jupyter bin/plotly_get_chrome \
 && cd lib/python3*/site-packages \
 && mv plotly/package_data/plotly.min.js /tmp \
 && rm -r plotly _plotly_utils narwhals narwhals-*.dist-info \
 && install -D -m 644 /tmp/plotly.min.js plotly/package_data/plotly.min.js

FROM build AS build-ray
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --editable ".[ray]"

# TORCH_INDEX is the address that the selector on pytorch.org gives for a build of PyTorch. Without it pip takes
# the first build that it finds.
FROM build AS build-export
ARG TORCH_INDEX=
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --editable ".[export]"

FROM build AS build-loadtest
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --editable ".[loadtest]"

# The base of every image with our code. Nothing in it can be written at run time, so bytecode is compiled here.
FROM ${BASE} AS run
WORKDIR /app
RUN install -d -o 10001 -g 10001 /models
COPY --chmod=755 deploy/alive.py /usr/local/bin/alive
COPY --chmod=755 deploy/first-model /usr/local/bin/
ENV PATH=/opt/turnpike/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

FROM run AS service
COPY --from=build-service /opt/turnpike /opt/turnpike
COPY turnpike.py ./
COPY service service
RUN python -m compileall -q .
USER 10001:10001
# the folder of LD_LIBRARY_PATH only exists with DEVICE=cuda
ENV TURNPIKE_HOST=0.0.0.0 LD_LIBRARY_PATH=/opt/turnpike/cuda
EXPOSE 8000 8001
CMD ["turnpike", "serve"]

# the nodes of a Ray cluster: replicas of the service, and scoring of files
FROM run AS ray
COPY --from=build-ray /opt/turnpike /opt/turnpike
COPY turnpike.py ./
COPY service service
COPY score score
RUN python -m compileall -q .
USER 10001:10001
# every process of a node reads these
ENV RAY_SERVE_ENABLE_HA_PROXY=1 RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S=1 \
    RAY_USAGE_STATS_ENABLED=0 TURNPIKE_HOST=0.0.0.0
EXPOSE 8000
CMD ["turnpike", "serve", "--engine", "ray"]

FROM run AS export
COPY --from=build-export /opt/turnpike /opt/turnpike
COPY turnpike.py ./
COPY models models
COPY export export
COPY service service
RUN python -m compileall -q .
USER 10001:10001
CMD ["first-model"]

# replaces export if there is a folder of models already, so that PyTorch is not built
FROM service AS export-skipped
CMD ["first-model"]

FROM run AS loadtest
COPY --from=build-loadtest /opt/turnpike /opt/turnpike
COPY turnpike.py ./
COPY loadtest loadtest
RUN python -m compileall -q .
USER 10001:10001
CMD ["turnpike", "loadtest", "--help"]

FROM ${BASE} AS proxy
RUN apt-get update && apt-get install -y --no-install-recommends haproxy \
 && rm -rf /var/lib/apt/lists /var/cache/apt
COPY --chmod=755 deploy/alive.py /usr/local/bin/alive
COPY --chmod=755 deploy/proxy/proxy.py /usr/local/bin/proxy
COPY deploy/proxy/haproxy.cfg /etc/haproxy/haproxy.cfg
USER 10001:10001
EXPOSE 8080 8081
CMD ["proxy"]
