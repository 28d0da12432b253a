# The images, one per target: service, ray, export, loadtest, proxy. All but the proxy hold the wheel of turnpike, and
# only the libraries that they need.
#   docker build --target service -t turnpike-service .
# BASE is any image with Python 3.11 or newer on Debian. A release names it by its digest, python:3.11-slim@sha256:...
# DEVICE is what the service runs on: cpu, cuda or openvino.
ARG BASE=python:3.11-slim
ARG DEVICE=cpu

# Used only to build: an environment without turnpike and without pip.
FROM ${BASE} AS build
WORKDIR /build
RUN python -m venv --without-pip /opt/turnpike
ENV INSTALL="python -m pip --python /opt/turnpike/bin/python install"

# turnpike without its libraries, from a wheel. Every image copies this after its libraries, so a change of the code
# replaces only this layer. The folders of packages in src/turnpike are links, which COPY keeps.
FROM build AS code
RUN --mount=type=cache,target=/root/.cache/pip python -m venv /opt/builder && /opt/builder/bin/pip install "setuptools>=77"
COPY . .
RUN /opt/builder/bin/pip wheel --no-deps --no-index --no-build-isolation --wheel-dir dist . \
 && $INSTALL --no-deps --no-index dist/*.whl

# The libraries of each image. Here turnpike is a distribution without code: setup.py, which requires the code, is not
# copied, and the wheel's files replace those of this distribution.
FROM build AS libraries
RUN mkdir src && touch README.md LICENSE
COPY pyproject.toml constraints.txt ./
ENV INSTALL="$INSTALL --constraint constraints.txt"

# EXTRA=serve,grpc,serve-otel installs what TURNPIKE_OTLP needs as well
FROM libraries AS libraries-cpu
RUN apt-get update && apt-get install -y --no-install-recommends binutils
ARG EXTRA=serve,grpc
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL ".[$EXTRA]"
# remove two fifths of the size, which are never run: tests and tools of the libraries, onnxruntime for C programs,
# and debug symbols
RUN cd /opt/turnpike/lib/python3*/site-packages \
 && find . -type d -name tests -prune -exec rm -r {} + \
 && rm -r numpy/f2py numpy/distutils onnxruntime/transformers onnxruntime/quantization onnxruntime/tools \
 && rm onnxruntime/capi/libonnxruntime.so.* \
 && strip --strip-unneeded uvloop/*.so csimdjson*.so httptools/parser/*.so

# onnxruntime for CUDA, and CUDA's libraries in one folder
FROM libraries AS libraries-cuda
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL ".[serve-gpu,grpc]" "onnxruntime-gpu[cuda,cudnn]"
RUN mkdir /opt/turnpike/cuda \
 && ln -s /opt/turnpike/lib/python3*/site-packages/nvidia/*/lib/*.so* /opt/turnpike/cuda

# OpenVINO is a plugin of the same onnxruntime
FROM libraries-cpu AS libraries-openvino
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL ".[serve-openvino]"

FROM libraries-${DEVICE} AS libraries-service
# plotly is needed only for its JavaScript; remove its Python code and what that needs
RUN cd /opt/turnpike \
 && rm -r share/jupyter bin/plotly_get_chrome \
 && cd lib/python3*/site-packages \
 && mv plotly/package_data/plotly.min.js /tmp \
 && rm -r plotly _plotly_utils narwhals narwhals-*.dist-info \
 && install -D -m 644 /tmp/plotly.min.js plotly/package_data/plotly.min.js

FROM libraries AS libraries-ray
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL ".[ray]"

# TORCH_INDEX is the address that the selector on pytorch.org gives for a build of PyTorch. Without it pip takes
# the first build that it finds.
FROM libraries AS libraries-export
ARG TORCH_INDEX=
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL ".[export]"

FROM libraries AS libraries-loadtest
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL ".[loadtest]"

# The labels of every image. A release adds those of its commit and of the digest of its base: .ci/labels
FROM ${BASE} AS labelled
LABEL org.opencontainers.image.version=0.2.0 org.opencontainers.image.licenses=Apache-2.0

# The base of every image with our code. Nothing in it can be written at run time; pip has compiled the bytecode.
FROM labelled AS run
# empty, because Python finds modules in the current folder first
WORKDIR /work
RUN install -d -o 10001 -g 10001 /models
COPY --chmod=755 deploy/alive.py /usr/local/bin/alive
COPY --chmod=755 deploy/first-model /usr/local/bin/
# ORT_DISABLE_TELEMETRY is for programs that import onnxruntime without turnpike
ENV PATH=/opt/turnpike/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 ORT_DISABLE_TELEMETRY=1

FROM run AS service
LABEL org.opencontainers.image.title="turnpike service" \
      org.opencontainers.image.description="Serves highway networks over HTTP and gRPC with onnxruntime"
COPY --from=libraries-service /opt/turnpike /opt/turnpike
COPY --from=code /opt/turnpike /opt/turnpike
USER 10001:10001
# the folder of LD_LIBRARY_PATH only exists with DEVICE=cuda
ENV TURNPIKE_HOST=0.0.0.0 LD_LIBRARY_PATH=/opt/turnpike/cuda
EXPOSE 8000 8001
CMD ["turnpike", "serve"]

# the nodes of a Ray cluster: replicas of the service, and scoring of files
FROM run AS ray
LABEL org.opencontainers.image.title="turnpike on Ray" \
      org.opencontainers.image.description="A node of a Ray cluster that serves and scores highway networks"
COPY --from=libraries-ray /opt/turnpike /opt/turnpike
COPY --from=code /opt/turnpike /opt/turnpike
USER 10001:10001
# every process of a node reads these
ENV RAY_SERVE_ENABLE_HA_PROXY=1 RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S=1 \
    RAY_USAGE_STATS_ENABLED=0 TURNPIKE_HOST=0.0.0.0
EXPOSE 8000
CMD ["turnpike", "serve", "--engine", "ray"]

FROM run AS export
LABEL org.opencontainers.image.title="turnpike export" \
      org.opencontainers.image.description="Trains highway networks with PyTorch and exports them to ONNX"
COPY --from=libraries-export /opt/turnpike /opt/turnpike
COPY --from=code /opt/turnpike /opt/turnpike
USER 10001:10001
CMD ["first-model"]

# replaces export if there is a folder of models already, so that PyTorch is not built
FROM service AS export-skipped
CMD ["first-model"]

FROM run AS loadtest
LABEL org.opencontainers.image.title="turnpike loadtest" \
      org.opencontainers.image.description="Load tests a model server"
COPY --from=libraries-loadtest /opt/turnpike /opt/turnpike
COPY --from=code /opt/turnpike /opt/turnpike
# for locust's own command, which takes the name of a file
COPY loadtest/locustfile.py /usr/local/share/turnpike/
USER 10001:10001
CMD ["turnpike", "loadtest", "--help"]

FROM labelled AS proxy
LABEL org.opencontainers.image.title="turnpike proxy" \
      org.opencontainers.image.description="haproxy in front of several replicas of the turnpike service"
RUN apt-get update && apt-get install -y --no-install-recommends haproxy \
 && rm -rf /var/lib/apt/lists /var/cache/apt
COPY --chmod=755 deploy/alive.py /usr/local/bin/alive
COPY --chmod=755 deploy/proxy/proxy.py /usr/local/bin/proxy
COPY deploy/proxy/haproxy.cfg /etc/haproxy/haproxy.cfg
USER 10001:10001
EXPOSE 8080 8081
CMD ["proxy"]
