#!/bin/sh
# Installs this checkout and its dependencies at tested versions: install.sh PYTHON
# TORCH_INDEX names where torch comes from; without it, it comes with the other packages.
set -eu
python=$1
"$python" -m pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep -E '^torch==' constraints.txt)"
"$python" -m pip install -c constraints.txt '.[plot,parquet,zstd]'
