# Spurless with PyTorch for a CPU, or for an NVIDIA GPU:
#   docker build -t spurless .
#   docker build -t spurless:cuda --build-arg TORCH=cuda .
#   docker run --rm -v "$PWD:/data" spurless audit photos
#   docker run --rm --gpus all -v "$PWD:/data" spurless:cuda train pgd photos
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

ARG TORCH=cpu
# Extras by name, such as "timm,export".
ARG EXTRAS=

# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends make && rm -rf /var/lib/apt/lists/*

ENV PATH=/opt/spurless/.venv/bin:$PATH UV_NO_CACHE=1 PIP_NO_CACHE_DIR=1
WORKDIR /opt/spurless
COPY Makefile base.lock pyproject.toml README.md LICENSE ./
COPY src src
COPY papers papers
RUN make setup "TORCH=${TORCH}" && if [ -n "${EXTRAS}" ]; then uv pip install --python .venv/bin/python -e ".[${EXTRAS}]"; fi

WORKDIR /data
ENTRYPOINT ["spurless"]
CMD ["--help"]
