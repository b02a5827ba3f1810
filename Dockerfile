# Specwatch as a container. Postgres comes from DATABASE_URL; without it the program runs its own under /var/lib/specwatch.
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml requirements.lock README.md LICENSE routes.yaml alerting.yaml ./
COPY monitor monitor
COPY migrations migrations
COPY probes probes
COPY docs/alerts.md docs/alerts.md
# The lock pins the tools of development too; as constraints it pins only what the wheel asks for.
RUN sed -n '/^[a-z]/s/ *\\$//p' requirements.lock > constraints.txt \
    && python -m venv /opt/specwatch \
    && /opt/specwatch/bin/pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt .

FROM python:3.12-slim
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/specwatch specwatch
COPY --from=build /opt/specwatch /opt/specwatch
ENV PATH=/opt/specwatch/bin:$PATH SPECWATCH_DATA=/var/lib/specwatch SPECWATCH_CONFIG=/etc/specwatch
USER specwatch
VOLUME /var/lib/specwatch
EXPOSE 8400
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8400/readyz', timeout=4)"]
ENTRYPOINT ["specwatch"]
CMD ["serve", "--listen", "0.0.0.0:8400"]
