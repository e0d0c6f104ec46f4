# graphlog on a CPU:  docker build -t graphlog .  &&  docker run --rm -v "$PWD:/data" graphlog embed molecules.csv -m graphlog-mol -o out.npz
FROM python:3.12-slim
# drawing molecules with RDKit needs these libraries
RUN apt-get update \
    && apt-get install -y --no-install-recommends libxrender1 libxext6 libexpat1 \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# the CPU build of torch: the default one brings CUDA libraries of several gigabytes
RUN PIP_NO_CACHE_DIR=1 TORCH_INDEX=https://download.pytorch.org/whl/cpu sh docker/install.sh python
RUN useradd --create-home user && mkdir /cache && chown user /cache
USER user
ENV GRAPHLOG_DATA=/cache
WORKDIR /data
ENTRYPOINT ["graphlog"]
CMD ["--help"]
