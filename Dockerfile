FROM python:3.12-slim

WORKDIR /opt/horolog

# The locked dependencies first: they change less often than the sources.
COPY requirements/build.txt requirements/run.txt requirements/
RUN pip install --no-cache-dir --require-hashes \
        -r requirements/build.txt -r requirements/run.txt

COPY . source
RUN pip install --no-cache-dir --no-deps --no-build-isolation ./source \
    && rm -r source requirements \
    && useradd --system --uid 10001 --no-create-home horolog \
    && install --directory --owner=horolog /data

USER horolog
WORKDIR /data
ENV HOROLOG_DATA_DIR=/data \
    HOROLOG_LISTEN=0.0.0.0:7070 \
    HOROLOG_HTTP_LISTEN=0.0.0.0:7071 \
    HOROLOG_LOG_FORMAT=json
VOLUME /data
EXPOSE 7070 7071
HEALTHCHECK --interval=10s --start-period=5s CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7071/metrics', timeout=3)"]

ENTRYPOINT ["horolog"]
CMD ["serve"]
