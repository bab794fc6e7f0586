#!/usr/bin/env bash
# Shows Lockstep at work on a local control plane, and leaves everything running: hack/demo.sh
# Ends what it left running:                                                      hack/demo.sh down
# It exits 0 only if everything that it showed came true; otherwise it ends what it started.
set -euo pipefail
set -m # background processes get their own process group: Ctrl-C reaches this script only

root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/bin
dir=${DEMO_DIR:-$root/.demo}
cluster=$dir/cluster
log=$dir/operator.log
state=$dir/operator # pid and start time of the operator
example=$root/examples/inference.yaml
old_image=vllm/vllm-openai:v0.10.2
new_image=vllm/vllm-openai:v0.11.0
patience=120 # seconds that one stage may take
stages=7
export KUBECONFIG=$cluster/kubeconfig
watcher=

kube() { "$bin/lockstep-local" kubectl --namespace default "$@"; }
lockstep() { "$bin/kubectl-lockstep" --namespace default "$@"; }
say() { printf '    %s\n' "$@"; }
indent() { sed 's/^/    /'; }
fail() { echo "error: $*" >&2; exit 1; }

stage=0
begin() {
	stage=$((stage + 1))
	printf '\n[%d/%d] %s\n' "$stage" "$stages" "$1"
}

# show prints a command as a user would type it, and runs it.
show() {
	local name=kubectl
	[ "$1" = kube ] || name="kubectl lockstep"
	say "\$ $name ${*:2}"
	"$@" 2>&1 | indent
}

# started_at identifies a process with its pid: the kernel reuses a pid alone.
started_at() {
	if [ -r "/proc/$1/stat" ]; then
		sed 's/.*) //' "/proc/$1/stat" | awk '$1 != "Z" {print $20}'
	elif [ ! -d /proc/self ]; then
		ps -o lstart= -p "$1" | tr -d ' '
	fi
}

operator_runs() {
	[ -r "$state" ] || return 1
	read -r pid started <"$state" || return 1
	[ -n "$started" ] && [ "$(started_at "$pid" 2>/dev/null)" = "$started" ]
}

stop_operator() {
	local signal _
	for signal in TERM KILL; do
		operator_runs || break
		kill -"$signal" "$pid" 2>/dev/null || true
		for _ in $(seq 150); do
			operator_runs || break
			sleep 0.1
		done
	done
	if operator_runs; then fail "the operator, process $pid, does not end"; fi
	rm -f "$state"
}

# clear_all ends the operator first: it must not see its API server go.
clear_all() {
	stop_operator
	if [ -d "$cluster" ]; then "$bin/lockstep-local" down --dir "$cluster" >/dev/null; fi
}

lock() {
	mkdir -p "$dir"
	local holder
	if ! ln -s "$$" "$dir/lock" 2>/dev/null; then
		holder=$(readlink "$dir/lock")
		if kill -0 "$holder" 2>/dev/null; then fail "another demo runs in $dir, process $holder: wait for it"; fi
		ln -sfn "$$" "$dir/lock"
	fi
	trap 'finish $?' EXIT
	trap 'exit 130' INT TERM
}

done_showing=
finish() {
	trap - EXIT INT TERM
	stop_watcher
	if [ -z "$done_showing" ]; then
		if [ "$1" -ne 130 ] && [ -r "$log" ]; then
			printf '\nlast lines of %s:\n' "$log"
			tail -n 20 "$log"
		fi
		printf '\nending what was started\n'
		clear_all || true
	fi
	rm -f "$dir/lock"
	exit "$1"
}

next() {
	cat <<-END
		  export KUBECONFIG=$KUBECONFIG PATH=$bin:\$PATH
		  kubectl-lockstep status llama --watch
		  kubectl-lockstep plan -f $example
		  kubectl-lockstep why pvc/weights-cached-0
		  lockstep-local kubectl get pods
		  tail -f $log
		  make demo-down
	END
}

# free_port returns a port of 127.0.0.1 on which nothing listens.
free_port() {
	local port
	while port=$((20000 + RANDOM % 10000)); (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
	echo "$port"
}

operator_is_ready() {
	(
		exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
		printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
		read -r line <&3 && [[ $line == *" 200 "* ]]
	) 2>/dev/null
}

run_operator() {
	nohup "$bin/lockstep" run --kubeconfig "$KUBECONFIG" --webhook-host 127.0.0.1 --webhook-port "$1" \
		--health-probe-bind-address "127.0.0.1:$2" --metrics-bind-address 0 --leader-elect=false >"$log" 2>&1 &
	local pid=$! _
	echo "$pid $(started_at "$pid")" >"$state"
	for _ in $(seq $((patience * 5))); do
		if operator_is_ready "$2"; then
			say "ready, process $pid, log in $log"
			return
		fi
		operator_runs || fail "the operator ended"
		sleep 0.2
	done
	fail "the operator is not ready after $patience s"
}

# manifest prints the example with an image. Its simulated pods need a moment to start and to end.
manifest() {
	sed "s#$old_image#$1#" "$example" | awk '
		{ print }
		/^      metadata:$/ { print "        annotations: {local.lockstep.dev/ready-after: 2s, local.lockstep.dev/vanish-after: 4s}" }'
}

# watch_pods records the UID of every pod of the set from now on, once for each change.
watch_pods() {
	local _
	kube get pods --selector leaderworkerset.sigs.k8s.io/name=llama --watch --no-headers \
		--output custom-columns=UID:.metadata.uid,NAME:.metadata.name,IMAGE:.spec.containers[0].image >"$dir/pods" 2>/dev/null &
	watcher=$!
	disown # bash tells about no job that is not its own
	for _ in $(seq 100); do
		[ "$(pods_seen)" -ge 12 ] && return
		sleep 0.1
	done
	fail "pods cannot be watched"
}

stop_watcher() {
	[ -z "$watcher" ] || kill -- "-$watcher" 2>/dev/null || true # kubectl is a child of that shell
	watcher=
}

pods_seen() { sort -u "$dir/pods" | wc -l | tr -d ' '; }
settled() { lockstep rollout status "$1" --timeout "${patience}s" | indent; }

# expect_created checks how many pods were created since so many were seen.
expect_created() {
	sleep 2 # a pod that nothing needs would appear now
	local created=$(($(pods_seen) - $1))
	[ "$created" -eq "$2" ] || fail "$created pods were created, not $2"
	say "exactly $2 pods were created"
}

play() {
	local ports begun uid seen
	begin "start a control plane: etcd, Kubernetes, 20 simulated nodes"
	"$bin/lockstep-local" up --dir "$cluster" >/dev/null

	begin "install Lockstep, and run the operator"
	ports="$(free_port) $(free_port)"
	"$bin/lockstep" install --kubeconfig "$KUBECONFIG" --webhook-url "https://127.0.0.1:${ports% *}" | tail -n 1 | indent
	# shellcheck disable=SC2086
	run_operator $ports

	begin "create a set of 3 groups of 4 pods"
	manifest "$old_image" | kube create -f - | indent
	settled llama
	show lockstep status llama

	begin "delete the set and create it at once with another image"
	watch_pods
	seen=$(pods_seen)
	kube delete leaderworkerset llama --cascade=background | indent
	manifest "$new_image" | kube create -f - 2>/dev/null | indent || true # the Service is there already
	uid=$(kube get leaderworkerset llama --output jsonpath='{.metadata.uid}')
	settled llama
	[ "$(kube get leaderworkerset llama --output jsonpath='{.metadata.uid}')" = "$uid" ] || fail "the set was replaced"
	expect_created "$seen" 12
	[ "$(sort -u "$dir/pods" | grep -c " $new_image\$")" -eq 12 ] || fail "a new pod runs the old image"

	begin "delete one worker: its group restarts, the others stay"
	seen=$(pods_seen)
	show kube delete pod llama-1-2
	settled llama
	expect_created "$seen" 4

	begin "create a set with volumes"
	kube create -f "$root/examples/volumes.yaml" | indent
	settled cached

	begin "delete a PersistentVolumeClaim in use, and ask why it stays"
	show kube delete pvc weights-cached-0 --wait=false
	show lockstep why pvc/weights-cached-0
}

main() {
	local program
	for program in lockstep lockstep-local kubectl-lockstep; do
		[ -x "$bin/$program" ] || fail "$bin/$program is missing: run make build"
	done
	if operator_runs; then
		printf 'a demo runs already in %s\n\n%s\n' "$dir" "$(next)"
		exit 1
	fi
	lock
	clear_all # a machine that was switched off leaves a cluster behind
	play
	done_showing=yes
	printf '\nEverything shown came true, and runs on.\n\n%s\n' "$(next)"
}

case ${1:-up} in
up) main ;;
down)
	[ -d "$dir" ] || { echo "no demo in $dir: nothing to end"; exit 0; }
	clear_all
	echo "ended"
	;;
*) fail "usage: $0 [up|down]" ;;
esac
