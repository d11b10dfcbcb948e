# One image for relay, worker, beat, Flower and the command line; docker-compose.yml says which it becomes.

FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY outbox_mail outbox_mail
COPY migrations migrations
RUN python -m venv /opt/outbox-mail \
    && /opt/outbox-mail/bin/pip install --no-cache-dir --disable-pip-version-check '.[service,flower]'

FROM python:3.13-slim
RUN groupadd --system --gid 10001 outbox && useradd --system --uid 10001 --gid outbox --no-create-home outbox
COPY --from=build /opt/outbox-mail /opt/outbox-mail
WORKDIR /app
COPY relay relay
COPY tasks tasks
COPY celeryconfig.py LICENSE ./
ENV PATH=/opt/outbox-mail/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/app
USER outbox
# By progress: a relay that hangs is unhealthy though its process is there. docker-compose.yml has one for each role.
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s --retries=3 CMD ["python", "-m", "relay", "--health"]
CMD ["python", "-m", "relay"]
