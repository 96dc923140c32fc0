# A thin front over ./run, which does the work and sets up what is missing.
PREFIX ?= /usr/local

build:
	./run build
demo test test-long test-peers fuzz bench bench-peers bench-server wheel docs clean:
	./run $@
install:
	./run install "$(PREFIX)"

.PHONY: build demo test test-long test-peers fuzz bench bench-peers bench-server wheel docs clean install
