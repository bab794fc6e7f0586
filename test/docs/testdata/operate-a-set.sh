CLUSTER=--kubelet # for logs and exec

begin() {
	have_lockstep
	cp examples/inference.yaml llama.yaml
	sed s/:v0.10.2/:v0.11.0/ llama.yaml >next.yaml
}
