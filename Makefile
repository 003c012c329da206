# The entry to Larder. CMake builds the allocator, and cargo the recorder and the tool; neither calls the
# other. This file calls both and stages their results into out/.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

PREFIX ?= /usr/local
DESTDIR ?=
# Where make install-debug puts debug information, by build id; empty: beside each file.
DEBUGDIR ?=
JOBS ?= $(shell nproc)

# rustup installs here, which is often not in the PATH of a non-login shell.
export PATH := $(PATH):$(HOME)/.cargo/bin

CARGO_OUT = $${CARGO_TARGET_DIR:-target}/release
demo: CARGO_OUT = $${CARGO_TARGET_DIR:-target}/demo

# Without the tests and benchmarks, which other targets build.
LIBRARIES = larder_shared larder_minimal_shared larder_hardened_shared larder_static_archive larder_prefixed_archive larder-torture larder-replay larder-measure

# Rust libraries that the tool preloads.
PRELOADED = $(patsubst %,liblarder_%.so,record endpoint record_io record_copies record_cpu fail)

.PHONY: help setup build musl demo test bench peers workloads install install-debug uninstall dist deb wheel crate site fmt lint clean

help: ## Show this list
	@echo 'Larder: a memory toolkit for native Linux programs.'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
	  awk -F'|' '{ printf "%-16s %s\n", $$1, $$2 }'
	@echo
	@echo 'Variables: PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) DEBUGDIR=$(DEBUGDIR) JOBS=$(JOBS) PEERS=$(PEERS)'

setup: ## Install every package the targets below need (Debian; root or sudo)
	@scripts/setup build demo test bench

build: ## Build everything in release mode, staged into out/
	@scripts/setup --check build
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target $(LIBRARIES)
	cargo build --release --workspace --jobs $(JOBS)
	@env -u DESTDIR cmake --install build/release --prefix out >build/release/install.log
	@scripts/stage out "$(CARGO_OUT)/larder" bin/larder "$(CARGO_OUT)/larder-lab" libexec/larder/larder-lab \
	  $(foreach name,$(PRELOADED),"$(CARGO_OUT)/$(name)" lib/$(name))
	@rm -rf out/share && "$(CARGO_OUT)/larder-pages" out/share
	@echo 'Staged in out/: bin/larder, lib/liblarder.so and the rest.'

musl: ## Also the libraries for musl programs, in out/lib/musl/
	@scripts/setup build musl
	@scripts/musl

# Apart from out/, because this tool is not optimized.
demo: ## Record a real program on Larder and rank its allocations; builds only what that takes
	@scripts/setup build demo
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target larder_shared
	cargo build --profile demo --jobs $(JOBS) --package larder --package larder-record
	@scripts/stage build/demo "$(CARGO_OUT)/larder" bin/larder build/release/liblarder.so lib/liblarder.so \
	  "$(CARGO_OUT)/liblarder_record.so" lib/liblarder_record.so
	@demo/run

test: ## Set up, build, run every test; ends with "N passed, M failed"
	@scripts/setup build test
	@tests/run

bench: ## Measure Larder against other allocators
	@scripts/setup build bench
	@$(MAKE) --no-print-directory build workloads
	@out/bin/larder bench

peers: ## Build the allocators that Larder is compared with (PEERS=... a subset), and the workloads
	@scripts/setup build bench
	@$(MAKE) --no-print-directory build workloads
	@bench/peers/build --jobs $(JOBS) $(PEERS)

# The programs of benchmarks, staged beside the tool.
workloads:
	@cmake --build --preset release --parallel $(JOBS) --target bench_workloads
	@env -u DESTDIR cmake --install build/release --prefix out --component bench >build/release/install-bench.log
	@scripts/stage out

# The lab is what a build stages last, and a demo does not.
install: ## Copy the staged tree to $(DESTDIR)$(PREFIX), building it first if there is none
	@test -x out/libexec/larder/larder-lab || $(MAKE) --no-print-directory build
	@scripts/install-tree install out '$(DESTDIR)$(PREFIX)'

install-debug: ## Add the debug information of the files that make install copies
	@test -x out/libexec/larder/larder-lab || $(MAKE) --no-print-directory build
	@scripts/install-tree install-debug out '$(DESTDIR)$(PREFIX)' $(if $(DEBUGDIR),'$(DESTDIR)$(DEBUGDIR)')

uninstall: ## Remove the files that make install and make install-debug copied
	@scripts/install-tree uninstall out '$(DESTDIR)$(PREFIX)' $(if $(DEBUGDIR),'$(DESTDIR)$(DEBUGDIR)')

dist: ## A source tarball of the last commit, in build/packages/
	@scripts/setup --check package
	@package/dist build/packages

deb: ## Debian packages of the staged tree, in build/packages/
	@test -x out/libexec/larder/larder-lab || $(MAKE) --no-print-directory build
	@scripts/setup --check package
	@package/deb/build out build/packages

wheel: ## A Python wheel of the staged tree, in build/packages/
	@test -x out/libexec/larder/larder-lab || $(MAKE) --no-print-directory build
	@package/wheel out build/packages

crate: ## The Rust crate larder-malloc, built once from its package, in build/packages/
	@scripts/setup --check build
	@mkdir -p build/packages
	cargo package --manifest-path package/rust/Cargo.toml --target-dir build/rust
	@cp build/rust/package/*.crate build/packages/

site: ## The docs as one site to read and search without a network, in build/site/
	@scripts/setup --check build
	@scripts/site

fmt: ## Format all sources in place
	@scripts/setup --check lint
	@scripts/sources c++ | xargs -0 -r clang-format-19 -i
	cargo fmt --all
	cargo fmt --manifest-path package/rust/Cargo.toml

lint: ## Formatters, linters and the dependency order, errors only
	@scripts/setup lint
	@scripts/lint

clean: ## Remove everything that a build has made
	rm -rf out build
	cargo clean
