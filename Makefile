# The commands of this repository. `make` alone lists them.

export GOTOOLCHAIN := auto
# go.work must be used, and with it go refuses -mod=mod.
export GOFLAGS := $(filter-out -mod=mod,$(GOFLAGS))
export GOWORK :=

# In a clone of another depth, git would abbreviate the commit to another length.
VERSION   := $(shell git describe --tags --always --abbrev=12 --dirty 2>/dev/null || echo unknown)
COMMIT    := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
BINARY    := bin/carstate
SBOM      := bin/carstate.cdx.json
DIST      := dist
ARCHES    := amd64 arm64
FUZZTIME  ?= 30s
BENCH     ?= .
COUNT     ?= 1
BENCHFLAGS ?=
TESTFLAGS ?=
TORTUREFLAGS ?=
ARGS      ?=

# All modules that have packages; those in tools have none.
MODULES := $(sort $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './tools/*')))
# Enters a module. Only the service and its client are in go.work, so that the others decide no version of its dependencies.
ENTER := cd $(CURDIR)/$$m; case $$m in .|./client) unset GOWORK;; *) export GOWORK=off;; esac

# The environment of `make build`. The tests and lint have it, too, so that go compiles each package
# once for all of them, and for all clones.
SHIPPED := CGO_ENABLED=0 GOFLAGS='$(strip $(GOFLAGS) -trimpath -buildvcs=false)'

# $(call TOOL,lint,NAME) is a program of tools/lint.
TOOL = $(SHIPPED) $$(GOWORK=off $(SHIPPED) go -C $(CURDIR)/tools/$(1) tool -n $(2))
# Runs the command that follows, which prints the results of tests as JSON.
GOTESTSUM := $(call TOOL,test,gotestsum) --raw-command --
# The output format of gotestsum. It prints failures again at the end.
export GOTESTSUM_FORMAT ?= standard-quiet

.PHONY: help
help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' Makefile

.PHONY: build
build: ## build the static binary bin/carstate
	$(SHIPPED) go build \
		-ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o $(BINARY) ./cmd/carstate

.PHONY: sbom
sbom: build ## build, then write the modules in the binary to a file, as CycloneDX JSON
	GOWORK=off go -C deploy/sbom run . $(abspath $(BINARY)) $(VERSION) $(COMMIT) > $(SBOM)

.PHONY: reproduce
reproduce: ## rebuild the commit of the binary in another folder, and compare (BINARY=/usr/local/bin/carstate)
	@./scripts/reproduce.sh $(BINARY) $(CACHE)

.PHONY: release
release: ## make a release of the commit in dist/, for Linux on amd64 and arm64 (VERSION=v0.2.0 if there is no tag)
	@./scripts/release.sh '$(VERSION)' '$(COMMIT)' '$(DIST)' $(ARCHES)

.PHONY: run
run: build ## build, then run the demo (ARGS="--query-addr …" passes flags on)
	exec $(BINARY) demo $(ARGS)

.PHONY: evaluate
evaluate: build ## run the rules over the recorded drives and, without ARGS, the fleets in CARSTATE_DATA (../shared/data) and print the figures
	@data="$${CARSTATE_DATA:-../shared/data}"; set --; \
	test -d "$$data" || { echo "no recorded drives at $$data: set CARSTATE_DATA to their folder" >&2; exit 1; }; \
	for f in "$$data"/*.csv "$$data"/*.csv.gz "$$data"/*/*.csv "$$data"/*/*.csv.gz; do \
		test ! -f "$$f" || set -- "$$@" "$$f"; \
	done; \
	test $$# -gt 0 || { echo "no .csv and no .csv.gz in $$data and its folders" >&2; exit 1; }; \
	$(BINARY) evaluate $(ARGS) "$$@"
	@test -n "$(ARGS)" || ./scripts/evaluate-fleets.sh $(BINARY)

.PHONY: field
field: ## play the field cases and print those that are wrong (FIELD=parked: only those with this in the name or kind)
	@cd cmd/carstate && $(SHIPPED) go test -run '^TestFieldCases$$/$(FIELD)' -count=1

# The modules that make check tests. In these, testkit.Slow skips the slow tests.
CHECKED := $(filter-out ./bench ./torture,$(MODULES))

.PHONY: check
check: ## run the tests that need only Go and take less than a second each
	@set -e; for m in $(CHECKED); do \
		$(ENTER); \
		$(SHIPPED) go test -short -timeout 2m $(TESTFLAGS) ./...; \
	done

# The tests that run without the race detector only are in files that begin with "//go:build !race":
# it would slow them down most, and they start no goroutine, or count allocations, or other tests do
# the same with less. Every other command of go runs and checks them, too.
UNRACED = $(shell grep -rlx --include='*_test.go' '//go:build !race' cmd client internal)
UNRACEDTESTS = $(shell sed -nE 's/^func ((Test|Fuzz|Example)[A-Za-z0-9_]*).*/\1/p' $(UNRACED))
space := $(subst ,, )

# Most tests wait for processes that they have started, so more tests and packages run in parallel
# than there are processors. The packages that take longest, or wait most, come first. Of the
# other modules, which have the tools of the developers, the tests run without the race detector.
# The flag -vet=off saves a pass over all packages that `make lint` makes in any case. Without GORACE,
# each program with the race detector would wait a second before it ends.
GOTEST := go test -json -vet=off $(TESTFLAGS)
.PHONY: test test-raced test-plain test-modules
test: ## install what the tests need and run all tests, with the race detector but for files that exclude it
	@$(MAKE) --no-print-directory -j 2 test-raced test-modules

test-raced: setup
	@echo "go test -race"; $(GOTESTSUM) env CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 \
		$(GOTEST) -race -p 3 -parallel 4 -timeout 30m ./cmd/carstate ./internal/store/... ./... ./client

# TestPowerCuts and TestDamage allocate much and keep little. With fewer garbage collections (GOGC),
# they take a third less processor time. These tests need nothing that setup installs.
test-plain:
	@echo "go test of what excludes the race detector"; GOGC=400 $(GOTESTSUM) $(GOTEST) -timeout 5m \
		-run '^($(subst $(space),|,$(strip $(UNRACEDTESTS))))$$' $(sort $(dir $(UNRACED:%=./%)))

test-modules: test-plain setup
	@set -e; for m in $(filter-out . ./client,$(MODULES)); do \
		echo "go test in $$m"; $(ENTER); $(GOTESTSUM) $(GOTEST) -timeout 10m ./...; \
	done

.PHONY: setup
setup:
	@./scripts/setup-tests.sh

.PHONY: lint
lint: ## gofmt, go vet, go fix, staticcheck, errcheck, deadcode, govulncheck
	@unformatted=$$("$$(go env GOROOT)/bin/gofmt" -l .); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run gofmt -w on:" $$unformatted >&2; exit 1; fi
	@set -e; for m in $(MODULES); do \
		echo "lint $$m"; $(ENTER); \
		$(SHIPPED) go vet ./...; \
		$(SHIPPED) go fix -diff ./... || { echo 'outdated idioms, run: go fix ./...' >&2; exit 1; }; \
		$(call TOOL,lint,staticcheck) ./...; \
		$(call TOOL,lint,errcheck) -ignoretests -exclude $(CURDIR)/tools/lint/errcheck.txt ./...; \
		dead=$$($(call TOOL,lint,deadcode) -test ./... && $(call TOOL,lint,deadcode) ./... | sed -E '/^[^:]*(test|testkit|process)\//d'); \
		if [ -n "$$dead" ]; then echo "nothing calls, or only tests do:" >&2; echo "$$dead" >&2; exit 1; fi; \
	done
	@VULN=$${VULN:-optional} ./scripts/vuln.sh $(MODULES)

.PHONY: vuln
vuln: ## govulncheck: known vulnerabilities in the code that we call
	@./scripts/vuln.sh $(MODULES)

.PHONY: darwin
darwin: ## run go vet for macOS, tests included
	GOOS=darwin CGO_ENABLED=0 go vet ./... ./client

.PHONY: screens
screens: setup ## take the screenshots in docs/screens again, in Chromium; takes some minutes
	go test ./cmd/carstate -run '^TestConsole(Looks|ScreensOfTheDemo)$$' -count=1 -timeout 30m -screens
	go test ./internal/query -run '^Test(PageInABrowser|ReferenceInABrowser)$$' -count=1 -screens

.PHONY: bench
bench: ## measure carstate and its peers, write docs/performance/results.json (BENCHFLAGS='-quick -parts query')
	GOWORK=off go -C bench run . $(BENCHFLAGS)

.PHONY: torture
torture: ## inject faults, write docs/reliability.json (TORTUREFLAGS='-rows kill -count kill=1000'); as root, 20 minutes
	@./scripts/setup-tests.sh torture
	GOWORK=off go -C torture build -trimpath -buildvcs=false -o ../bin/torture .
	cd torture && exec ../bin/torture $(TORTUREFLAGS)

.PHONY: microbench
microbench: ## run the benchmarks beside the code (BENCH=regexp, COUNT=10 for benchstat)
	@set -e; for m in $(MODULES); do \
		$(ENTER); go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...; \
	done

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (30s) each
	@FUZZTIME=$(FUZZTIME) ./scripts/fuzz.sh
