# Go is all that must be there before: `make test` gets the rest, or says in one line what to install.

SHELL := bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help test check vet format lint mod unit oldest fmt bench chaos model fuzz demo tools

# Runs a command in every module of the workspace, as go.work lists them, and fails in the end if one has failed.
each = @set -euo pipefail; failed=0; for dir in $$(go list -m -f '{{.Dir}}'); do \
	(set -x; cd "$$dir"; $(1)) </dev/null || failed=1; done; exit $$failed

linter_version := 2.15.0
linter := $(CURDIR)/.bin/golangci-lint

# Longer than the slowest package takes on a slow machine, shorter than a person waits.
timeout := 10m

# Whatever the caller's environment says: the workspace counts, and a clone that belongs to somebody else builds too.
export GOWORK :=
export GOFLAGS := $(GOFLAGS) -buildvcs=false

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: tools check unit ## install what is missing; vet, format, lint; every test of every module with -race

check: tools vet format lint mod ## vet, format, lint, and the modules' sums; without the tests

# With -race, vet and the linter look at what the tests are built of, and what they compile is not compiled again.
vet: ## go vet
	$(call each,go vet -race ./...)

format: ## fail if gofmt would change something
	@files=$$(gofmt -l .); test -z "$$files" || { echo "not gofmt'ed (make fmt does it):"; echo "$$files"; exit 1; } >&2

lint: $(linter) ## golangci-lint, as .golangci.yml says
	$(call each,GOFLAGS="$(GOFLAGS) -race" "$(linter)" run --allow-parallel-runners ./...)

# The workspace hides what a module lacks on its own, as its users have it.
mod:
	$(call each,GOWORK=off go mod tidy -diff)

# One package after the other (-p 1) where several hold the code to the tenth of a second on a real redis-server; the
# command and the examples have more time. The tests that run side by side mostly wait, so more of them than there are
# processors.
unit:
	$(call each,[[ $${dir#$(CURDIR)} =~ ^/(cmd|examples) ]] && p=2 || p=1; \
		go test -race -count=1 -p $$p -parallel 4 -timeout $(timeout) ./...)

oldest: tools ## the library's tests with the oldest Go and go-redis that its go.mod allows
	GOWORK=off GOTOOLCHAIN=go$$(awk '$$1 == "go" { print $$2 }' go.mod) \
		go test -race -count=1 -p 1 -parallel 4 -timeout $(timeout) ./...

fmt: $(linter) ## format
	$(call each,"$(linter)" fmt ./...)

bench: tools ## what it costs, beside a baseline measured in the same run
	go test -run '^$$' -bench . -timeout $(timeout) .

CHAOS_TIME ?= 10m
chaos: tools ## processes, links, servers and clocks fail at random for CHAOS_TIME, and the history is judged
	cd chaos && CHAOS_TIME=$(CHAOS_TIME) go test -race -count=1 -timeout 0 -v -run '^TestChaos$$' .

model: ## check the model of the protocol in docs/model, exhaustively
	@.ci/tools spin gcc
	docs/model/check

FUZZTIME ?= 1m
fuzz: ## every fuzz target for FUZZTIME
	@set -euo pipefail; for dir in token lua; do \
		for target in $$(cd $$dir && go test -list '^Fuzz' . | grep '^Fuzz'); do \
			(set -x; go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s ./$$dir); done; done

demo: ## see it work: several clients, one lock, two crashes
	go run ./cmd/fairlock demo

tools: ## install redis-server, a C compiler (for -race) and ps if they are missing and apt-get may be used
	@.ci/tools

# Built from source, so that it knows the Go of this module; rebuilt when the version above changes.
.PHONY: $(linter)
$(linter):
	@test "$$("$@" version --short 2>/dev/null)" = $(linter_version) || { \
		echo "building golangci-lint $(linter_version) into .bin; this takes a minute or two"; \
		GOBIN="$(CURDIR)/.bin" go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(linter_version); }
