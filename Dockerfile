# Debian 12 with all that the README's commands need, and lesson 01 built: docs/containers.md. The packages are those that setup.sh asks for.
FROM debian:12
WORKDIR /stagecraft
COPY common/setup common/setup
RUN common/setup/setup.sh && rm -rf /var/lib/apt/lists
COPY . .
RUN lessons/01_data_parallel/run.sh --build-only
CMD ["bash"]
