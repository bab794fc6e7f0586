#: leaves out kubectl get prometheusrules because the Prometheus operator is not there

begin() {
	have_lockstep
	have_set inference llama
	cp examples/inference.yaml llama.yaml
}
