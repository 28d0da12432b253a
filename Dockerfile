# The images, one a target: service, export, loadtest, proxy. Each holds what it needs and no more.
#   docker build --target service -t turnpike-service .
# BASE is any image with Python 3.11 or newer on Debian.
# DEVICE, cpu or cuda, is what the service runs on.
ARG BASE=python:3.11-slim
ARG DEVICE=cpu

# what is only used to build: libraries are installed before the code is copied, so that a change of code
# is an image in seconds; empty packages stand in for it, and the command turnpike finds it in /app
FROM ${BASE} AS build
WORKDIR /app
RUN python -m venv --without-pip /opt/turnpike \
 && mkdir models service export loadtest tune && touch turnpike.py README.md LICENSE
COPY pyproject.toml constraints.txt ./
# compat: /app on the path and no more, so that a package which an image lacks is not found in it
ENV INSTALL="python -m pip --python /opt/turnpike/bin/python install --constraint constraints.txt \
    --config-settings editable_mode=compat"

# EXTRA=serve,serve-otel brings what TURNPIKE_OTLP needs
FROM build AS build-cpu
RUN apt-get update && apt-get install -y --no-install-recommends binutils
ARG EXTRA=serve
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --editable ".[$EXTRA]"
# two fifths of it are never run: tests and tools of the libraries, onnxruntime for C programs, and what
# debuggers read
RUN cd /opt/turnpike/lib/python3*/site-packages \
 && find . -type d -name tests -prune -exec rm -r {} + \
 && rm -r numpy/f2py numpy/distutils onnxruntime/transformers onnxruntime/quantization onnxruntime/tools \
 && rm onnxruntime/capi/libonnxruntime.so.* \
 && strip --strip-unneeded uvloop/*.so csimdjson*.so httptools/parser/*.so

# onnxruntime for CUDA, and CUDA's libraries in one place
FROM build AS build-cuda
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --editable ".[serve-gpu]" "onnxruntime-gpu[cuda,cudnn]"
RUN mkdir /opt/turnpike/cuda \
 && ln -s /opt/turnpike/lib/python3*/site-packages/nvidia/*/lib/*.so* /opt/turnpike/cuda

FROM build-${DEVICE} AS build-service
# plotly is there for the browser: of its Python, and of what that needs, nothing is ever run
RUN cd /opt/turnpike \
 && rm -r share/jupyter bin/plotly_get_chrome \
 && cd lib/python3*/site-packages \
 && mv plotly/package_data/plotly.min.js /tmp \
 && rm -r plotly _plotly_utils narwhals narwhals-*.dist-info \
 && install -D -m 644 /tmp/plotly.min.js plotly/package_data/plotly.min.js

# TORCH_INDEX is the address that the selector on pytorch.org gives for a build of PyTorch; without it pip
# takes the build that it finds first
FROM build AS build-export
ARG TORCH_INDEX=
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --editable ".[export]"

FROM build AS build-loadtest
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --editable ".[loadtest]"

# what every image with our code has; nothing in it is written to, so what Python compiles comes along
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
# the second is there with DEVICE=cuda
ENV TURNPIKE_HOST=0.0.0.0 LD_LIBRARY_PATH=/opt/turnpike/cuda
EXPOSE 8000
CMD ["turnpike", "serve"]

FROM run AS export
COPY --from=build-export /opt/turnpike /opt/turnpike
COPY turnpike.py ./
COPY models models
COPY export export
COPY service service
RUN python -m compileall -q .
USER 10001:10001
CMD ["first-model"]

# in the place of export where a folder of models is there already: no PyTorch is built
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
EXPOSE 8080
CMD ["proxy"]
