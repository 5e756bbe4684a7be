# The full version of the base image, here alone. To pin its bytes, build with a digest:
# docker build --build-arg PYTHON_IMAGE=python:TAG@sha256:DIGEST .
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm

# The first stage has the compiler. The wheel that it builds contains the compiled kernel.
FROM ${PYTHON_IMAGE} AS build

WORKDIR /build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

# The locked dependencies first: they change less often than the sources.
COPY requirements/build.txt requirements/run.txt requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/build.txt \
    && pip wheel --no-cache-dir --require-hashes --wheel-dir run -r requirements/run.txt

COPY . source
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir horolog ./source

FROM ${PYTHON_IMAGE}

COPY --from=build /build/run /wheels/run
RUN pip install --no-cache-dir --no-index --no-deps /wheels/run/*.whl && rm -r /wheels/run
COPY --from=build /build/horolog /wheels/horolog
RUN pip install --no-cache-dir --no-index --no-deps /wheels/horolog/*.whl \
    && rm -r /wheels/horolog \
    && HOROLOG_KERNEL=compiled horolog --version \
    && useradd --system --uid 10001 --no-create-home horolog \
    && install --directory --mode=0700 --owner=horolog /data

USER horolog
WORKDIR /data
ENV HOROLOG_DATA_DIR=/data \
    HOROLOG_LISTEN=0.0.0.0:7070 \
    HOROLOG_HTTP_LISTEN=0.0.0.0:7071 \
    HOROLOG_KAFKA_LISTEN=0.0.0.0:9092 \
    HOROLOG_LOG_FORMAT=json
VOLUME /data
EXPOSE 7070 7071 9092
HEALTHCHECK --interval=10s --start-period=5s CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7071/healthz', timeout=3)"]

ENTRYPOINT ["horolog"]
CMD ["serve"]
