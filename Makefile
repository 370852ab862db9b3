# Go is all that must be there before: `make test` gets the rest, or says in one line what to install.

SHELL := bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help test race test-all old-redis check vet cross format lint mod oldest fmt bench benchmarks matrix sim states mutants record \
	chaos fuzz demo promises release-check release-pin test-ui screenshot tools

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
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Each package that uses go-redis 9.23 compiles the 1,500 methods of its Client again, because of a weak.Pointer[Client].
# Without inlining that takes half as long, which saves over a minute of a first `make test`.
test: export GOFLAGS += -gcflags=github.com/fairlock/...=-l

# With -race, each program sleeps a second before it exits, unless it is told otherwise. Some tests start hundreds of programs.
race oldest: export GORACE ?= atexit_sleep_ms=10

# Every target compiles in one mode: with -race or without. The libraries that bench measures, and what only the build tag nightly
# includes (etcd, PromQL for lab/metrics, Chromium's protocol for lab/page), take longer to compile than all the rest.
go_test = go test -vet=off -count=1 -timeout $(timeout)
all := $$(go list -m -f '{{.Dir}}/...')

# The fault runs of chaos skip themselves; the test of what observes them does not.
test: tools ## install what is missing; every test but those of test-all, without -race
	$(go_test) $$(go list -m -f '{{.Dir}}/...' | grep -v '/bench/\.\.\.$$')

# Left out is what has no goroutines of its own: the scripts, the oracles, the examples.
race: tools ## the library, contrib, the simulation and the command with -race
	$(go_test) -race $$(go list ./... ./lab/sim $(patsubst %,./%/...,$(wildcard contrib/* cmd/*)) | grep -vE '/(internal/script|token)$$')

test-all: old-redis ## what takes too long for each change: bench, the page in a browser, PromQL for lab/metrics, more seeds twice
	@.ci/tools $(browser)
	$(go_test) -tags nightly ./bench ./lab/metrics ./lab/page
	$(go_test) -run Repeats ./lab/sim -sim-repeats 5

# The versions of go-redis report outages and refusals, and follow failovers, in ways of their own. The workspace has the newest.
old-redis: tools ## the tests of outages, refusals and failovers with the go-redis of go.mod
	GOWORK=off $(go_test) -run 'Faults|Outage|Client|DoAll|Subscriber|Sentinel|Cluster|Failover|Refus' . ./fairlock

check: tools vet format lint mod ## vet, format, lint, the modules' sums; without the tests

vet: ## go vet
	go vet -tags nightly $(all)

# One pass finds what does not build on Windows, and constants that overflow an int of 32 bits. Without cgo, it needs no C
# compiler for Windows.
cross: ## go vet for Windows with 32 bits
	CGO_ENABLED=0 GOOS=windows GOARCH=386 go vet $(all)

format: ## fail if gofmt would change something
	@files=$$(gofmt -l .); test -z "$$files" || { echo "not gofmt'ed (make fmt does it):"; echo "$$files"; exit 1; } >&2

lint: $(linter) ## golangci-lint, as .golangci.yml says
	$(call each,"$(linter)" run --allow-parallel-runners ./...)

# The workspace hides what a module lacks on its own, as its users have it.
mod:
	$(call each,GOWORK=off go mod tidy -diff)

oldest: tools ## the tests of the library and of contrib with the oldest Go and the oldest modules that their go.mod allows
	@set -euo pipefail; failed=0; for dir in . contrib/*; do (cd $$dir; set -x; \
		GOWORK=off GOTOOLCHAIN=go$$(awk '$$1 == "go" { print $$2 }' go.mod) \
		go test -race -count=1 -timeout $(timeout) ./...) || failed=1; done; exit $$failed

fmt: $(linter) ## format
	$(call each,"$(linter)" fmt ./...)

bench: tools ## what it costs, beside a baseline measured in the same run
	go test -run '^$$' -bench . -timeout $(timeout) . ./internal/script

benchmarks: tools ## measure the library beside others, for ten minutes; write docs/benchmarks.md and its pictures
	go run -tags nightly ./bench -write .

matrix: ## run conformance, scripts and command on SERVERS="path/to/redis-server …"; write docs/compatibility.md
	go run ./lab/matrix $(SERVERS)

SIM_TIME ?= 10m
sim: ## simulate seed after seed for SIM_TIME, in a process for each processor; print the grants that were checked
	@set -euo pipefail; binary=$$(mktemp); trap 'kill $$(jobs -p) 2>/dev/null || :; rm -f "$$binary"' EXIT; go test -c -o "$$binary" ./lab/sim; \
		first=$$(( $$(date +%s) * 1000 )); pids=(); \
		for (( i = 0; i < $$(nproc); i++ )); do \
			"$$binary" -test.run '^TestFor$$' -test.timeout 0 -seed $$(( first + i )) -sim-stride $$(nproc) -sim-for $(SIM_TIME) & \
			pids+=($$!); done; \
		failed=0; for pid in "$${pids[@]}"; do wait "$$pid" || failed=1; done; exit $$failed

STATES ?= 1000000
states: tools ## every history of each kind of lock, shortest first, until STATES states were seen; print how many steps that were
	go test ./lab/states -count=1 -v -timeout 0 -run '^TestStates$$' -depth 99 -states $(STATES)

mutants: tools ## break the code in each way of lab/mutants, and see what is to find it fail
	go run ./lab/mutants

# The logs of `make states`, `make sim`, `make chaos` and `make mutants`, one file each or one for all.
LOGS ?= failed/*.log
record: ## write the table of docs/promises.md from LOGS
	cat $(LOGS) | go run ./lab/record

promises: ## write lab/promises/tests.txt from the doc comments of the tests
	go test ./lab/promises -count=1 -write

CHAOS_TIME ?= 10m
chaos: tools ## processes, links, servers and clocks fail at random for CHAOS_TIME, and the history is checked
	cd lab/chaos && CHAOS_TIME=$(CHAOS_TIME) go test -race -count=1 -timeout 0 -v -run '^Test(Chaos|Order)$$' .

FUZZTIME ?= 1m
fuzz: ## the fuzz target of tokens for FUZZTIME
	go test -run '^$$' -fuzz . -fuzztime $(FUZZTIME) -fuzzminimizetime 1s ./token

# The version that CHANGELOG.md prepares.
VERSION ?= v$(shell sed -n 's/^## \[\([0-9][^]]*\)\].*/\1/p' CHANGELOG.md | head -n 1)
release-check: ## publish VERSION of each module into a folder, and use it from there as a user would
	go run ./lab/release -version $(VERSION)

release-pin: ## change go.mod of each module as its tag of VERSION has it (RELEASING.md)
	go run ./lab/release -version $(VERSION) -pin

# A browser that is there already is as good.
browser = $(if $(shell command -v chromium chromium-browser google-chrome google-chrome-stable),,chromium)

test-ui: ## the page of package ui in a headless Chromium, which is installed if there is no such browser
	@.ci/tools $(browser)
	$(go_test) -tags nightly ./lab/page

screenshot: ## write the picture of the page, docs/pictures/ui.png
	@.ci/tools $(browser)
	$(go_test) -tags nightly -run '^TestPicture$$' ./lab/page -picture $(CURDIR)/docs/pictures/ui.png

demo: ## see it work: several clients, one lock, two crashes
	go run ./cmd/fairlock demo

tools: ## install redis-server, PostgreSQL, MariaDB, a C compiler (for -race) and ps if they are missing and apt-get may be used
	@.ci/tools

# Built from source, so that it knows the Go of this module; rebuilt when the version above changes.
.PHONY: $(linter)
$(linter):
	@test "$$("$@" version --short 2>/dev/null)" = $(linter_version) || { \
		echo "building golangci-lint $(linter_version) into .bin; this takes a minute or two"; \
		GOBIN="$(CURDIR)/.bin" go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(linter_version); }
