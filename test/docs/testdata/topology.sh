begin() {
	have_lockstep
	cp ../1.yaml llama.yaml
	cp ../2.yaml parts.yaml
}
