#!/bin/bash
# Installs what compare.py needs: the tools (uvloop, httptools) and gateways to compare with, into a
# virtual environment of their own, and nginx as a system package. A gateway that cannot be installed
# is left out and said so.
#
#   ./setup.sh                       everything
#   ./setup.sh vllm-router litellm   only these of: vllm-router litellm nginx
#
#   PEERS=DIR          where the environment goes (default: .peers beside this script; tell compare.py too)
#   PYTHON=python3     the Python it is made with
#   LITELLM=SPEC       another requirement for LiteLLM
#   VLLM_ROUTER=SPEC   another requirement for vllm-router
set -eu
here=$(cd "$(dirname "$0")" && pwd)
peers=${PEERS:-$here/.peers}
wanted=" ${*:-vllm-router litellm nginx} "
# pip takes the newest release that installs. Never an older one: PyPI has carried compromised releases
# of LiteLLM (1.82.7, 1.82.8).
litellm=${LITELLM:-litellm[proxy]>=1.108.7}
router=${VLLM_ROUTER:-vllm-router>=0.1.17}

[ -x "$peers/bin/python" ] || "${PYTHON:-python3}" -m venv "$peers"
want() { case "$wanted" in *" $1 "*) true ;; *) false ;; esac; }
missing() { echo "setup.sh: $1 could not be installed" >&2; }
pip() { "$peers/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }

pip uvloop httptools matplotlib
if want vllm-router; then pip "$router" setproctitle || missing vllm-router; fi
if want litellm; then pip "$litellm" || missing LiteLLM; fi
if want nginx && ! command -v nginx >/dev/null && [ ! -x /usr/sbin/nginx ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    # RUNLEVEL=1: install the program, start no service
    { apt-get update -qq &&
      RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nginx; } >/dev/null ||
      missing nginx
  else
    echo "setup.sh: no nginx; install your system's package to compare with it" >&2
  fi
fi
"$peers/bin/python" - <<'PY'
from importlib.metadata import PackageNotFoundError, version
for name in ("uvloop", "httptools", "vllm-router", "litellm"):
    try:
        print(f"{name} {version(name)}")
    except PackageNotFoundError:
        print(f"{name} missing")
PY
