# What every page's session begins with. Its directory is a copy of the repository.

say() { printf '\n$ %s\n' "$1"; }

# all_ends waits until the test ends, however that happens. Then it ends what the session started.
all_ends() {
	while read -r _ <&4; do :; done
	[ ! -d .demo ] || hack/demo.sh down
	local kubeconfig
	for kubeconfig in .*/kubeconfig; do
		[ ! -e "$kubeconfig" ] || "$BUILT/lockstep-local" down --dir "${kubeconfig%/*}"
	done
	kill -KILL 0
}
all_ends 2>/dev/null &
disown # no job of the reader

# The image of the operator. No node pulls it: pods are simulated.
IMAGE=127.0.0.1:$REGISTRY/lockstep
TAG=v0.1.0
DIGEST=sha256:$(printf %064d 1)

# Images and archives for the platform of this machine alone.
export MAKEFLAGS="PLATFORMS=$(go env GOOS)_$(go env GOARCH) RELEASED=$(go env GOOS)_$(go env GOARCH)"

# have_programs gives the reader what "make build" makes.
have_programs() {
	mkdir -p bin
	cp "$BUILT"/{lockstep,lockstep-local,kubectl-lockstep} bin/
	export PATH=$PWD/bin:$PATH
}

# have_cluster gives the reader a new cluster, and ends the one before. A page may give more flags in CLUSTER.
have_cluster() {
	end_operator
	[ ! -e .plane/kubeconfig ] || lockstep-local down --dir .plane
	lockstep-local up --dir .plane --nodes 20 --kcm-qps 200 --egress "$EGRESS" $CLUSTER >/dev/null
	export KUBECONFIG=$PWD/.plane/kubeconfig
	mkdir -p ~/.kube && cp "$KUBECONFIG" ~/.kube/config
}

# have_lockstep gives the reader a cluster with Lockstep installed, with more flags if there are any.
have_lockstep() {
	[ -x bin/lockstep ] || have_programs
	[ -n "$KUBECONFIG" ] || have_cluster
	lockstep install --image "$IMAGE@$DIGEST" "$@"
	start_operator
}

# have_set creates the set of an example, under another name and in a namespace if they are given, and waits until it
# is ready.
have_set() {
	local namespace=${3:-default}
	[ "$namespace" = default ] || kubectl create namespace "$namespace"
	sed "0,/^  name: .*/s//  name: ${2:-$1}/" "examples/$1.yaml" >set-to-have.yaml
	kubectl apply --namespace "$namespace" -f set-to-have.yaml
	ready "${2:-$1}" --namespace "$namespace"
}

ready() { kubectl wait --for=condition=Ready --timeout=5m leaderworkerset/"$@"; }

# start_operator runs the operator on this machine, as its ServiceAccount: what a pod of the Deployment would do, and a
# simulated one does not. The API server reaches it behind the Service.
start_operator() {
	local kubectl=(kubectl --kubeconfig operator.kubeconfig)
	cp "$KUBECONFIG" operator.kubeconfig
	"${kubectl[@]}" config set-credentials operator \
		--token="$(kubectl --namespace lws-system create token lws-controller-manager --duration 3h)"
	"${kubectl[@]}" config set-context --current --user=operator
	run_operator operator.kubeconfig
}

# run_operator runs the operator with a kubeconfig and flags, in place of the one before, until it is ready.
operator=
run_operator() {
	end_operator
	lockstep run --kubeconfig "$1" --webhook-port "$WEBHOOKS" --metrics-bind-address 0 \
		--health-probe-bind-address "127.0.0.1:$PROBES" "${@:2}" >>operator.log 2>&1 &
	operator=$!
	await answers "$PROBES" /readyz
}

end_operator() {
	[ -z "$operator" ] || { kill "$operator" && wait "$operator" || true; }
	operator=
}

# answers reports whether a server at a port of this machine answers a path with 200.
answers() {
	(
		exec 5<>"/dev/tcp/127.0.0.1/$1" || exit 1
		printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&5
		read -r line <&5 && [[ $line == *" 200 "* ]]
	) 2>/dev/null
}

# await tries a command until it ends well. The test limits how long.
await() { until "$@"; do sleep 0.2; done; }

# in_pod runs a command that installs, and then the operator in place of its pod.
in_pod() {
	"$@"
	start_operator
}

# as_is runs a command for which a shorter order is not meant.
as_is() { "$@"; }

# with_registry runs a command that pushes to a registry in memory, and notes the digest.
with_registry() {
	answers "$REGISTRY" /v2/ || { registry -port "$REGISTRY" >registry.log 2>&1 & await answers "$REGISTRY" /v2/; }
	"$@" | tee pushed
	DIGEST=$(grep -o 'sha256:[0-9a-f]*' pushed | tail -n 1)
}

# have_data creates the set llama with the PVC data-llama-0.
have_data() {
	sed -i s/weights/data/ examples/volumes.yaml
	have_set volumes llama
}
