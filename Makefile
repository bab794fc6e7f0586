# Every target runs on a machine with Go, git and make only.

SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags 2>/dev/null || echo v0.1.0-dev)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
BUILT   := lockstep.dev/lockstep/internal/version
LDFLAGS := -s -w -X $(BUILT).Version=$(VERSION) -X $(BUILT).Commit=$(COMMIT)
# The release of Kubernetes in local, as its programs and their clients report it.
KUBERNETES = $(or $(shell go -C local list -m -f '{{.Version}}' k8s.io/kubernetes),$(error the release of Kubernetes in local/go.mod cannot be read))
PARTS   = $(subst ., ,$(KUBERNETES:v%=%))
REPORTS = $(patsubst %,-X k8s.io/component-base/version.git%,Major=$(word 1,$(PARTS)) Minor=$(word 2,$(PARTS)) Version=$(KUBERNETES)) \
  $(patsubst %,-X k8s.io/client-go/pkg/version.git%,Version=$(KUBERNETES) Commit=)
GOTOOL  := go tool -modfile=go.tools.mod
ASSETS  := $(CURDIR)/bin/assets
ROUNDS  ?= 2
SOAK_ROUNDS ?= 100
# What the operator asked of the API server in all drills.
RIGHTS := $(CURDIR)/bin/rights.json
# Tests of test/cluster with targets of their own.
NOT_DRILLS := ^Test(Smoke|Upgrade.*)$$
# Drills that wait most of their time: many of them run beside each other.
WAITING := ^($(shell grep -ho '^func Test[A-Za-z]*' test/cluster/disruption_test.go | cut -c6- | paste -sd '|'))$$
FROM ?= c2f65eb
FUZZTIME ?= 30s
CHECKS ?= 2000
# Packages whose laws are checked on generated worlds.
LAWFUL := $(shell grep -rl pgregory.net/rapid --include='*_test.go' config internal | xargs -n1 dirname | sort -u)
FUZZED ?= $(shell grep -rl '^func Fuzz' --include='*_test.go' internal local/internal | xargs -n1 dirname | sort -u)

export CGO_ENABLED ?= 0
# The same for builds and tests, or everything would be compiled twice.
export GOFLAGS += -trimpath
export KUBEBUILDER_ASSETS := $(ASSETS)
export LOCKSTEP_LOCAL := $(CURDIR)/bin/lockstep-local
export LOCKSTEP_BIN := $(CURDIR)/bin

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: operator local ## Build bin/lockstep, bin/kubectl-lockstep and bin/lockstep-local

.PHONY: operator
operator: ## Build bin/lockstep and bin/kubectl-lockstep
	@echo "building lockstep and kubectl-lockstep (2-3 minutes the first time)"
	@mkdir -p bin
	@hack/progress.sh go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/lockstep ./cmd/kubectl-lockstep

.PHONY: local
local: ## Build bin/lockstep-local, the local control plane
	@echo "building lockstep-local: etcd, the Kubernetes control plane and kwok (7-8 minutes the first time)"
	@mkdir -p bin
	@hack/progress.sh go -C local build -ldflags "-s -w $(REPORTS)" -o $(LOCKSTEP_LOCAL).new ./cmd/lockstep-local
	@mv $(LOCKSTEP_LOCAL).new $(LOCKSTEP_LOCAL)
	@$(LOCKSTEP_LOCAL) assets $(ASSETS) >/dev/null

PLATFORMS := linux_amd64 linux_arm64
RELEASED := $(PLATFORMS) darwin_amd64 darwin_arm64
DIST := $(CURDIR)/dist
# Everything in a release has the time of its commit, so that it can be made twice with the same bytes.
CREATED ?= $(shell git log -1 --format=%ct)
URL ?= https://lockstep.dev/releases/$(VERSION)
RELEASE := go -C release run ./cmd/lockstep-release
BUILT_AT = $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)
# build-for builds commands, the second argument, for platforms, the first.
build-for = for platform in $(1); do \
	  GOOS=$${platform%_*} GOARCH=$${platform\#*_} hack/progress.sh go build -buildvcs=false \
	    -ldflags '$(LDFLAGS) -X $(BUILT).BuildDate=$(BUILT_AT)' -o $(DIST)/programs/$$platform/ $(2) || exit 1; done

.PHONY: image
image: ## Write the operator's image for linux/amd64 and linux/arm64 to dist/image, without Docker
	@echo "building lockstep for $(PLATFORMS) (2-3 minutes each the first time)"
	@$(call build-for,$(PLATFORMS),./cmd/lockstep)
	@$(RELEASE) image --version $(VERSION) --commit $(COMMIT) --created $(CREATED) --layout $(DIST)/image $(PLATFORMS:%=$(DIST)/programs/%)

.PHONY: release
release: image ## Write all that is released to dist, with checksums; KEY signs them
	@echo "building lockstep and kubectl-lockstep for $(RELEASED)"
	@$(call build-for,$(RELEASED),./cmd/lockstep ./cmd/kubectl-lockstep)
	@find $(DIST) -maxdepth 1 -type f -delete # those of another version
	@$(MAKE) --no-print-directory package-chart install-yaml
	@$(RELEASE) archive --version $(VERSION) --created $(CREATED) --url $(URL) --layout $(DIST)/image \
	  --license $(CURDIR)/LICENSE --out $(DIST) $(RELEASED:%=$(DIST)/programs/%)
	@$(RELEASE) checksums $(if $(KEY),--key $(abspath $(KEY))) $(DIST)
	@cat $(DIST)/checksums.txt

.PHONY: push
push: image ## Push dist/image to IMAGE=HOST/NAME:TAG with your registry credentials; KEY signs it
	@test -n "$(IMAGE)" || { echo "say where: make push IMAGE=HOST/NAME:TAG" >&2; exit 2; }
	@$(RELEASE) push --layout $(DIST)/image $(if $(KEY),--key $(abspath $(KEY))) $(IMAGE)

.PHONY: package-chart
package-chart: ## Write dist/lockstep-VERSION.tgz, the Helm chart; IMAGE=HOST/NAME@DIGEST is its default image
	@$(RELEASE) chart --version $(VERSION) --created $(CREATED) --image '$(IMAGE)' --out $(DIST) $(CURDIR)/charts/lockstep

.PHONY: install-yaml
install-yaml: ## Write dist/install.yaml, for kubectl apply --server-side; IMAGE=HOST/NAME@DIGEST is the operator's, AUTHORITY=DIR has ca.crt
	@mkdir -p $(DIST)
	@go run -ldflags '$(LDFLAGS)' ./cmd/lockstep install --print --image '$(or $(IMAGE),lockstep:$(VERSION))' $(if $(AUTHORITY),--webhook-ca '$(AUTHORITY)') >$(DIST)/install.yaml.new
	@mv $(DIST)/install.yaml.new $(DIST)/install.yaml

.PHONY: demo
demo: build ## Bring up a control plane, the operator and an example; show it live
	@hack/demo.sh

.PHONY: demo-down
demo-down: ## End what "make demo" left running
	@hack/demo.sh down

.PHONY: test
test: build ## Run units, laws, integration and one drill for each promise (20 minutes on 2 cores)
	go vet ./...
	go test -timeout 10m $$(go list ./... | grep -v /test/ | grep -vxF "$$(go list $(LAWFUL:%=./%))")
	go test -timeout 10m $(LAWFUL:%=./%) -rapid.seed=1 -rapid.nofailfile
	$(MAKE) --no-print-directory fuzz FUZZTIME=5s
	go -C local test -vet=off -timeout 20m ./...
	go -C release test -timeout 10m ./...
	go test ./test/bench ./test/delay ./test/docs ./test/history ./test/model ./test/monitoring
	LOCKSTEP_SEED=1 LOCKSTEP_INTERLEAVINGS=20 go test -count=1 -timeout 20m ./test/integration
	LOCKSTEP_SEED=1 LOCKSTEP_ROUNDS=1 go test -count=1 -timeout 20m ./test/cluster -run '^TestSmoke$$'

.PHONY: quick
quick: ## Vet, and test the core and the rest on the fake API server, few worlds of each law (2 minutes)
	go vet ./...
	go test -timeout 10m $$(go list ./api/... ./cmd/... ./config/... ./internal/... | grep -vxF "$$(go list $(LAWFUL:%=./%))")
	go test -timeout 10m $(LAWFUL:%=./%) -rapid.seed=1 -rapid.nofailfile -rapid.checks=10

.PHONY: drills
drills: build ## Run every drill on the local control plane (an hour), ROUNDS of each recreation, and compare rights
	@rm -f $(RIGHTS)
	$(MAKE) --no-print-directory upgrade # the version before uses rights as well
	LOCKSTEP_RIGHTS=$(RIGHTS) LOCKSTEP_ROUNDS=$(ROUNDS) go test -count=1 -timeout 2h ./test/cluster -skip '$(NOT_DRILLS)|$(WAITING)'
	LOCKSTEP_RIGHTS=$(RIGHTS) go test -count=1 -timeout 30m -parallel 8 ./test/cluster -run '$(WAITING)'
	LOCKSTEP_RIGHTS=$(RIGHTS) go test -count=1 ./test/rights
	go -C release test -count=1 -timeout 20m -tags drills ./integrations

.PHONY: upgrade
upgrade: build ## Drill an upgrade in place from commit FROM (c2f65eb)
	@rm -rf bin/from && mkdir -p bin/from
	git archive $(FROM) | tar -x -C bin/from
	@hack/progress.sh go -C bin/from build -o $(CURDIR)/bin/former/ ./cmd/lockstep
	LOCKSTEP_RIGHTS=$(RIGHTS) LOCKSTEP_FROM=$(CURDIR)/bin/former/lockstep LOCKSTEP_ROUNDS=1 go test -count=1 -timeout 20m ./test/cluster -run '^TestUpgrade'

# Its operator wrote its own certificate.
CHART_FROM ?= 722b48cd
.PHONY: chart
chart: build helm ## Drill the chart with Helm 3 and Helm 4 on the local control plane, from chart and operator of CHART_FROM (722b48cd)
	@rm -rf bin/chart && mkdir -p bin/chart && git archive $(CHART_FROM) | tar -x -C bin/chart
	@hack/progress.sh go -C bin/chart build -o $(CURDIR)/bin/former/ ./cmd/lockstep
	@hack/progress.sh go -C release build -o $(READERS)/helm3 helm.sh/helm/v3/cmd/helm
	LOCKSTEP_HELM=$(READERS)/helm LOCKSTEP_HELM3=$(READERS)/helm3 \
	  LOCKSTEP_CHART_FROM=$(CURDIR)/bin/chart/charts/lockstep LOCKSTEP_FROM=$(CURDIR)/bin/former/lockstep go -C release test -tags drills -count=1 -timeout 1h ./helm

# The programs that a reader of the documentation has.
READERS := $(CURDIR)/bin/docs
VELERO  := github.com/vmware-tanzu/velero
.PHONY: readers
readers: helm
	@echo "building cosign (three minutes the first time)"
	@hack/progress.sh go -C release build -modfile=go.cosign.mod -ldflags '-s -w' -o $(READERS)/ tool
	@echo "building Velero, its plugin and an S3 server in memory (seven minutes the first time)"
	@hack/progress.sh go -C release build -modfile=go.velero.mod -o $(READERS)/ -ldflags "-s -w -X $(VELERO)/pkg/buildinfo.Version=$$( \
	  go -C release list -modfile=go.velero.mod -m -f '{{.Version}}' $(VELERO))" tool

.PHONY: helm
helm: local ## Build helm, and a registry in memory, for the pages of the documentation
	@mkdir -p $(READERS) && ln -sf $(ASSETS)/kubectl $(READERS)/kubectl
	@echo "building helm and a registry in memory (two minutes the first time)"
	@hack/progress.sh go -C release build -o $(READERS)/ helm.sh/helm/v4/cmd/helm github.com/google/go-containerregistry/cmd/registry

NODE := LOCKSTEP_NODE=1 go test -count=1 -timeout 30m
.PHONY: node
node: ## Drill on a real kubelet and containerd on this machine (root, Linux), NODEFLAGS choose
	@$(MAKE) --no-print-directory programs-of-node image helm
	LOCKSTEP_IMAGE=$(DIST)/image LOCKSTEP_HELM=$(READERS)/helm $(NODE) $(NODEFLAGS) ./test/node

CHANGES ?= 100
.PHONY: incarnations
incarnations: programs-of-node ## Replace groups CHANGES (100) times on the real node while old workers dial (7 minutes)
	LOCKSTEP_INCARNATIONS=$(CHANGES) $(NODE) -v -run '^TestNoContactBetweenIncarnations$$' ./test/node

.PHONY: programs-of-node
programs-of-node:
	@LOCKSTEP_NODE=needs go test -count=1 ./test/node >/dev/null || LOCKSTEP_NODE=needs go test -count=1 ./test/node
	@$(MAKE) --no-print-directory build
	@echo "building lockstep-kubelet (a minute) and CoreDNS (two minutes the first time)"
	@hack/progress.sh go -C local build -tags kubelet -o $(CURDIR)/bin/ \
	  -ldflags "-s -w $(REPORTS)" ./cmd/lockstep-kubelet
	@hack/progress.sh go -C test/node/coredns build -ldflags '-s -w' -o $(CURDIR)/bin/ .

.PHONY: monitoring
monitoring: build ## Test alerts and dashboards with Prometheus during a drill; PLOTS=DIR draws the dashboards
	@hack/prometheus.sh $(CURDIR)/bin/prometheus
	LOCKSTEP_MONITORING=$(CURDIR)/bin/prometheus LOCKSTEP_PLOTS=$(abspath $(PLOTS)) go test -count=1 -timeout 15m ./test/monitoring

.PHONY: docs
docs: build readers ## Run every command of the README, the tutorial and the how-to pages (15 minutes); DOCS=PAGE runs one
	LOCKSTEP_DOCS=$(READERS) go test -count=1 -v -timeout 1h ./test/docs $(if $(DOCS),-run '^TestPages$$/^$(DOCS)$$')

.PHONY: laws
laws: ## Check the laws on newly generated worlds, CHECKS of each (2000)
	go test -count=1 -timeout 2h $(LAWFUL:%=./%) -rapid.checks=$(CHECKS)
	LOCKSTEP_LAWS=1 go test -count=1 -timeout 2h ./internal/disaggregated/planner # a million walks, and every world of the promises

.PHONY: soak
soak: build ## Run the deletion drills in full: 100 rounds each
	LOCKSTEP_SOAK=1 LOCKSTEP_ROUNDS=$(SOAK_ROUNDS) go test -count=1 -v -timeout 12h ./test/cluster -skip '$(NOT_DRILLS)'

.PHONY: interleavings
interleavings: build ## Play ROUNDS (2000) random interleavings of each kind against a real API server
	LOCKSTEP_INTERLEAVINGS=$(if $(findstring command,$(origin ROUNDS)),$(ROUNDS),2000) \
	  go test -count=1 -v -timeout 12h ./test/integration -run '^TestInterleavings$$'

.PHONY: bench
bench: build ## Measure the operator against bare StatefulSets, half an hour; BENCHFLAGS choose (--list)
	go run ./test/bench $(BENCHFLAGS)

.PHONY: fuzz
fuzz: ## Fuzz every decoder of what others write, FUZZTIME each (30s)
	@for package in $(FUZZED); do \
	  for name in $$(grep -ho '^func Fuzz[A-Za-z]*' $$package/*_test.go | cut -c6-); do \
	    echo "go test -fuzz $$name ./$$package"; \
	    (cd $$package && go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x .) || exit 1; done; done

VULNCHECK := $(CURDIR)/bin/vulnerabilities.txt
.PHONY: vulnerabilities
vulnerabilities: ## Check what is built for known vulnerabilities, if their database can be had
	@mkdir -p bin; for module in . local release; do code=0; \
	  timeout 10m $(GOTOOL) govulncheck -C $$module ./... >$(VULNCHECK) 2>&1 || code=$$?; \
	  if grep -q 'fetching vulnerabilities' $(VULNCHECK); then \
	    echo "NOT CHECKED for vulnerabilities: their database could not be had" >&2; exit 0; fi; \
	  cat $(VULNCHECK); test $$code = 0 || exit $$code; done

.PHONY: lint
lint: ## Run the linters
	$(GOTOOL) golangci-lint run ./...
	go -C local vet ./...
	go -C release vet -tags drills ./...
	go -C test/node/coredns vet ./...

# The parts of config that the chart copies.
MANIFESTS := crd deployment policy protection rbac webhook

.PHONY: generate
generate: ## Generate deep copies, the CustomResourceDefinitions, the API reference and parts of the chart
	$(GOTOOL) controller-gen object crd:generateEmbeddedObjectMeta=true paths=./api/... output:crd:dir=config/crd
	go run ./hack/slimcrd -embedded leaderTemplate,workerTemplate,volumeClaimTemplates -made roles config/crd/*.yaml
	$(GOTOOL) crd-ref-docs --source-path=api --config=hack/apidocs/config.yaml --templates-dir=hack/apidocs/templates \
	  --renderer=markdown --output-path=docs/api.md --log-level=ERROR
	@for part in $(MANIFESTS); do rm -rf charts/lockstep/files/manifests/$$part && mkdir -p charts/lockstep/files/manifests/$$part && \
	  cp config/$$part/*.yaml charts/lockstep/files/manifests/$$part/ || exit 1; done
	go -C release test ./chart -run '^TestGeneratedFilesAreCurrent$$' -update

.PHONY: verify
verify: generate vulnerabilities ## Check that all is generated, tidied and committed, and has no known vulnerability
	go mod tidy
	go -C local mod tidy
	go -C release mod tidy
	go -C test/node/coredns mod tidy
	go vet ./...
	@test -z "$$(gofmt -l . | tee /dev/stderr)"
	@test -z "$$(git status --porcelain | tee /dev/stderr)"
