# make demo and make test need Go alone.
GO      ?= go
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)
BIN     := bin/kvladder

.PHONY: build demo test check check-scipy fuzz storm bench bench-stats bench-verify e2e-llamacpp e2e-vllm test-launchers selftest strangers clean

build: ## the program, at bin/kvladder
	@mkdir -p bin
	$(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" -o $(BIN) ./cmd/kvladder

demo: build ## a healthy and a damaged ladder on the embedded engine
	./$(BIN) demo

test: ## every test that needs Go alone
	$(GO) test -timeout 20m ./...

check: ## what a commit must pass
	@test -z "$$(gofmt -l .)" || { echo "gofmt:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test -race ./...
	$(GO) mod tidy -diff
	@test -z "$$(git status --porcelain)" || { echo "the work tree is not clean:"; git status --porcelain; exit 1; }

FUZZTIME ?= 20s
fuzz: ## every fuzz target for FUZZTIME each
	@set -e; for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
			echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p; \
		done; done

STORMTIME ?= 5m
storm: ## random schedules on the healthy engine, each reply against one without reuse, for STORMTIME
	cd arms/testbed && $(GO) test -count=1 -timeout 0 -run TestStormAtLength -storm $(STORMTIME)

bench: ## benchmarks, as ratios against a peer in one run where there is one
	$(GO) test -run '^$$' -bench . -benchmem ./...

check-scipy: ## exact tests and intervals against SciPy, on 10,000 random tables each
	GO="$(GO)" ./scoring/compare/scipy/run.sh

MIB  ?= 1024
ROWS ?= 200000
bench-verify: ## verify beside sha256sum on MIB of objects, and over ROWS replies: speed and memory
	KVLADDER_BENCH_MIB=$(MIB) $(GO) test -run '^$$' -bench VerifyObjects -benchtime 3x ./receipts
	KVLADDER_BENCH_ROWS=$(ROWS) $(GO) test -run '^$$' -bench VerifyRows -benchtime 1x -timeout 2h ./cmd/kvladder

LADDERS ?= 20000
bench-stats: ## false alarms and power of the verdict table, on LADDERS simulated ladders a world
	$(GO) test -count=1 -timeout 4h -v ./scoring/simulate -ladders $(LADDERS)
	$(GO) test -count=1 -timeout 1h -v ./cmd/kvladder -run TestPrintedPowerIsThePower -ladders $(LADDERS)

e2e-llamacpp: build ## the llama.cpp ladders against a real llama-server, with a real model and synthetic ones
	GO="$(GO)" ./arms/engine/llamacpp/fetch.sh
	$(GO) test -count=1 -timeout 40m -tags e2e -run TestLlamaCpp -v ./cmd/kvladder

e2e-vllm: build ## the vLLM ladders against a real vLLM on CPU cores and a real model; about 6 GB and an hour
	./arms/engine/vllm/fetch.sh
	$(GO) test -count=1 -timeout 180m -tags e2e -run TestVLLM -v ./cmd/kvladder

REQUIRE ?= podman,slurm
test-launchers: ## real containers and a real Slurm cluster of one node, on this machine; what REQUIRE lists has to be here
	KVLADDER_REQUIRE=$(REQUIRE) $(GO) test -count=1 -timeout 40m -run 'TestContainer|TestSlurm' -v ./arms/launch ./cmd/kvladder

selftest: build ## plant every fault and say which the ladder caught
	./$(BIN) selftest

strangers: build ## the OpenAI client and cache-pressure against the embedded engine; makes a Python environment
	./arms/testbed/server/strangers/run.sh

clean:
	rm -rf bin
