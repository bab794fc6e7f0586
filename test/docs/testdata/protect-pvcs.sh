#: NS stands for default
#: NAME stands for data-llama-0
#: leaves out lockstep install --protect-only because it is for a cluster in which another implementation serves sets
#: alone runs kubectl label namespace NS
#: alone runs kubectl annotate pvc NAME
#: held runs kubectl lockstep release
#: without_wait runs kubectl delete pvc NAME
#: as_before runs lockstep install --protection=false

begin() {
	have_lockstep
	have_data
}

# as_before gives the flags of the first installation too. The page says that PVCs in use refuse it.
as_before() {
	kubectl label namespace default protection.lockstep.dev/mode-
	kubectl delete leaderworkerset llama --wait
	kubectl wait --for=delete pvc --all --timeout=5m
	"$@" --image "$IMAGE@$DIGEST"
}

# alone takes a mode or a hold back. Each row of the table is a choice of its own.
alone() {
	"$@"
	kubectl label namespace default protection.lockstep.dev/mode-
	kubectl annotate pvc data-llama-0 protection.lockstep.dev/mode- protection.lockstep.dev/hold-
}

# held runs a command when the PVCs are held. By default none is.
held() {
	kubectl label --overwrite namespace default protection.lockstep.dev/mode=hold
	await "$@"
}

# without_wait does not wait until no pod uses the PVC.
without_wait() { "$@" --wait=false; }
