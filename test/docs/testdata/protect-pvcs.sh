#: as_before runs lockstep install --protection=false

begin() {
	have_lockstep
	have_data
}

# as_before gives the flags of the first installation too. The page says that PVCs in use refuse it.
as_before() {
	kubectl delete leaderworkerset llama --wait
	kubectl wait --for=delete pvc --all --timeout=5m
	"$@" --image "$IMAGE@$DIGEST"
}
