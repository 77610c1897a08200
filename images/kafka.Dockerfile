# A Kafka broker for the end-to-end tests where no public image can be had: the folder that is built has Kafka's jars in
# `lib`. Never deployed. The pod says how to start it, so that the public image (apache/kafka) runs in the same way.
ARG BASE_IMAGE=eclipse-temurin:17-jre
FROM ${BASE_IMAGE}
COPY lib /opt/kafka/libs
USER 10001:10001
