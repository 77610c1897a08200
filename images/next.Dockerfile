# Another image with the same content, for the end-to-end tests, which roll pods from one to the other. Never deployed.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
ENV MERLOT_IMAGE=next
