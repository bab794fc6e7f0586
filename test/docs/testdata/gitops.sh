#: kube_leaderworkerset_status_condition{type="Stalled"} is output

begin() {
	have_lockstep
	cp examples/inference.yaml llama.yaml
}
